"""A purge that a power cut ends half-way is ended, or named, by the next start; a forged trail is named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.admin import purge
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Receipt, Scope
from memory_anchor.domain.ports import Entry
from memory_anchor.domain.where import Where
from memory_anchor.process.wiring import Core
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ManualClock, ephemeral_core, memory_store

ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")
SECRET = "The codeword is zanzibar"


class Cut(BaseException):
    """The power goes here."""


@dataclass
class Home:
    """A store that outlives its processes, and the folder beside it."""

    folder: Path
    store: SqlStore

    def start(self) -> Core:
        return ephemeral_core(self.folder, store=self.store, clock=ManualClock())

    def kinds(self) -> list[str]:
        return [record["kind"] for record in SqlAudit(self.store.database).records()]

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [record["what"] for record in SqlAudit(self.store.database).records() if record["kind"] == kind]

    def unfinished(self) -> str:
        """Return what is noted of a purge that is under way, "" where there is none."""
        state = SqlRecords(self.store.database, ManualClock().now).read("jobs/purge.json")
        return "" if state is None else state.content.decode()


def by_me(core: Core) -> dict[str, Any]:
    return {"caller": Caller.HUMAN, "at": core.clock.now(), "by": "human:me"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    store = memory_store()
    yield Home(tmp_path, store)
    store.close()


@dataclass
class Failing:
    error: Exception = Unavailable("the spool cannot be read.")  # noqa: RUF009 - never changed
    name: str = "spool"

    def erase(self, matches: Callable[[str], bool]) -> int:
        del matches
        raise self.error


def remains(home: Home) -> bool:
    """Return whether the text is in any version of any collection."""
    found = (m for name in COLLECTIONS for m in home.store.find(name, Where(), limit=100))
    return any(SECRET in purge.all_text(m) for m in found)


@pytest.mark.parametrize("error", [Unavailable("the spool cannot be read."), OSError(5, "Input/output error")])
def test_a_holder_that_cannot_be_read_stops_no_purge_and_is_named(home: Home, error: Exception) -> None:
    """Findings, mutations: a holder that raises leaves its record, and nothing of the text in the store."""
    core = home.start()
    saved = core.anchor(ACTOR).save_memory(SECRET)
    done = purge.purge_ids(core.upkeep, [str(saved.id)], holders=[Failing(error)], **by_me(core))

    assert (done.failed, done.clean, remains(home)) == (("spool",), False, False)
    assert [what.get("failed") for what in home.records(purge.PURGE)] == [["spool"]]
    assert home.kinds()[-2:] == [purge.PURGE_BEGUN, purge.PURGE]


def cut(*_: object) -> None:
    raise Cut


def test_a_purge_cut_after_its_commit_is_ended_by_the_next_start(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule power: what was erased leaves the files too, and the purge gets its record."""
    core = home.start()
    fact, event = core.anchor(ACTOR).save_memory(SECRET), core.anchor(ACTOR).log_event(f"{SECRET} again")
    wiped = Mock(wraps=home.store.database.wipe)
    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(home.store.database, "wipe", cut)
        purge.purge_ids(core.upkeep, [str(fact.id), str(event.id)], **by_me(core))
    assert not remains(home)
    assert SECRET not in home.unfinished() != ""

    monkeypatch.setattr(home.store.database, "wipe", wiped)
    home.start()

    assert wiped.called and home.kinds()[-1] == purge.PURGE
    assert home.records(purge.PURGE)[0]["finished_at"]
    assert home.unfinished() == ""


def test_a_purge_cut_between_two_collections_erased_nothing_and_is_named(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule power: a purge never stands between two truths: all collections are one transaction."""
    core = home.start()
    fact, event = core.anchor(ACTOR).save_memory(SECRET), core.anchor(ACTOR).log_event(f"{SECRET} again")
    erase, calls = home.store.erase, list[str]()

    def cut_second(collection: str, points: list[str]) -> None:
        erase(collection, points) if not calls else cut()
        calls.append(collection)

    monkeypatch.setattr(home.store, "erase", cut_second)
    with pytest.raises(Cut):
        purge.purge_ids(core.upkeep, [str(fact.id), str(event.id)], **by_me(core))
    monkeypatch.undo()

    again = home.start()

    assert all(again.anchor(ACTOR).get(str(one.id)).content.startswith(SECRET) for one in (fact, event))
    assert home.kinds()[-2:] == [purge.PURGE_BEGUN, purge.PURGE_CUT]


def test_a_purge_cut_before_it_erased_anything_is_named(home: Home) -> None:
    """Rule power: then the memory is whole, and the trail says that the purge must be asked for again."""
    core = home.start()
    saved = core.anchor(ACTOR).save_memory(SECRET)

    class Pulling(Failing):
        def erase(self, matches: Callable[[str], bool]) -> int:
            raise Cut

    with pytest.raises(Cut):
        purge.purge_ids(core.upkeep, [str(saved.id)], holders=[Pulling()], **by_me(core))

    home.start()

    assert remains(home)
    assert home.kinds()[-2:] == [purge.PURGE_BEGUN, purge.PURGE_CUT]
    assert json.loads(json.dumps(home.records(purge.PURGE_CUT)))[0]["asked"]


def test_the_purge_of_a_text_reaches_gap_and_receipts(home: Home) -> None:
    """Findings, mutations: a text that stands in a memory's gap or in a stored answer is found and erased."""
    core = home.start()
    for name, change in (
        ("gap", {"gap": {"asked": SECRET}}),
        ("receipts", {"receipts": (Receipt("k", "f", {"reason": SECRET}),)}),
    ):
        saved = core.anchor(ACTOR).save_memory(f"What the {name} of this memory holds")
        memory = core.services.records.read(str(saved.id), None)
        home.store.put(memory.layer.value, [Entry(replace(memory, **change))])
    done = purge.purge_text(core.upkeep, SECRET, **by_me(core))

    assert (done.versions, remains(home)) == (2, False)


def test_a_rewritten_record_with_a_right_hash_of_its_own_is_named(home: Home) -> None:
    """Findings, mutations: the next record names the one before by its hash; the last one stands in the head."""
    core = home.start()
    for number in range(3):
        core.anchor(ACTOR).log_event(f"Delivery {number}")
    core.audit.write_files(home.folder / "trail")
    trail = home.folder / "trail" / "audit.jsonl"
    whole = trail.read_bytes()
    lines = whole.splitlines(keepends=True)
    for place in range(len(lines)):
        record = json.loads(lines[place])
        record["by"] = "human:somebody"
        bare = {name: value for name, value in record.items() if name != "hash"}
        body = json.dumps(bare, ensure_ascii=True, separators=(",", ":")).encode()
        record["hash"] = hashlib.sha256(body).hexdigest()
        forged = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        trail.write_bytes(b"".join([*lines[:place], forged, *lines[place + 1 :]]))

        broken = JsonlAudit(trail).verify()
        assert broken is not None, f"line {place + 1} was forged and holds"
        assert broken.line in (place + 1, place + 2)

        JsonlAudit(trail).append("later", {}, by="agent", at=core.clock.now())
        assert JsonlAudit(trail).verify() is not None, f"line {place + 1} was forged and appended to without a word"
    trail.write_bytes(whole)
