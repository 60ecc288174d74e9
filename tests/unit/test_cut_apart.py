"""What a power cut leaves of two files that belong together is ended, or named, by the next start."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.audit import NOT_STORED, RECOVERED, JsonlAudit
from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.admin import purge
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Receipt, Scope
from memory_anchor.domain.ports import Entry
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock, ephemeral_core

ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")
SECRET = "The codeword is zanzibar"


class Cut(BaseException):
    """The power goes here."""


@dataclass
class Home:
    """A store that outlives its processes, and the folder beside it."""

    folder: Path
    store: DictStore

    def start(self) -> Core:
        return ephemeral_core(self.folder, store=self.store, clock=ManualClock())

    @property
    def trail(self) -> Path:
        return self.folder / "audit" / "audit.jsonl"

    def kinds(self) -> list[str]:
        return [record["kind"] for record in JsonlAudit(self.trail).records()]

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [record["what"] for record in JsonlAudit(self.trail).records() if record["kind"] == kind]

    def versions(self, kind: str) -> list[list[str]]:
        """Return the ids that each record of a kind names."""
        return [[memory["id"] for memory in what["memories"]] for what in self.records(kind)]


def by_me(core: Core) -> dict[str, Any]:
    return {"caller": Caller.HUMAN, "at": core.clock.now(), "by": "human:me"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    store = DictStore()
    yield Home(tmp_path, store)
    store.close()


def test_a_write_whose_record_was_lost_is_recorded_at_the_next_start(home: Home) -> None:
    """Rule power: the log was on disk and the trail was not; the next start records it, once, as recovered."""
    core = home.start()
    core.anchor(ACTOR).log_event("The build began")
    files = (home.trail, home.trail.with_name("audit.jsonl.head"))
    before = [file.read_bytes() for file in files]
    event = core.anchor(ACTOR).log_event("The build failed")
    for file, content in zip(files, before, strict=True):
        file.write_bytes(content)

    home.start()
    home.start()

    assert home.versions(RECOVERED) == [[event.id]]
    assert JsonlAudit(home.trail).verify() is None


def test_a_record_whose_write_was_lost_is_named_at_the_next_start(home: Home) -> None:
    """Rule power: the trail was on disk and the log was not; the next start names it, once."""
    core = home.start()
    core.anchor(ACTOR).log_event("The build began")
    event = core.anchor(ACTOR).log_event("The build failed")
    (stored,) = home.store.find("event_log", Where((OneOf("id", (event.id,)),)), limit=2)
    home.store.erase("event_log", [stored.point_id])

    home.start()
    home.start()

    assert home.versions(NOT_STORED) == [[event.id]]


def test_an_ordinary_start_adds_no_record(home: Home) -> None:
    """Rule power: what was purged is not taken for lost, and what was recorded not for unrecorded."""
    core = home.start()
    saved = core.anchor(ACTOR).save_memory(SECRET)
    core.anchor(ACTOR).save_memory("The gate opens at nine")
    purge.purge_ids(core.upkeep, [str(saved.id)], **by_me(core))
    kinds = home.kinds()

    home.start()

    assert home.kinds() == kinds


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


@pytest.mark.parametrize("gone", range(2))
def test_a_purge_cut_between_two_collections_is_ended_by_the_next_start(
    home: Home, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """Rule power: a purge never stands between two truths: what was written down as doomed goes."""
    core = home.start()
    fact, event = core.anchor(ACTOR).save_memory(SECRET), core.anchor(ACTOR).log_event(f"{SECRET} again")
    left = [gone]
    erase = home.store.erase

    def cut(collection: str, points: list[str]) -> None:
        if not left[0]:
            raise Cut
        left[0] -= 1
        erase(collection, points)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(home.store, "erase", cut)
        purge.purge_ids(core.upkeep, [str(fact.id), str(event.id)], **by_me(core))
    assert remains(home)
    assert SECRET not in (home.folder / "jobs" / "purge.json").read_text()

    home.start()

    assert not remains(home)
    assert home.kinds()[-1] == purge.PURGE
    assert home.records(purge.PURGE)[0]["finished_at"]
    assert not (home.folder / "jobs" / "purge.json").exists()


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
    trail = home.trail
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
