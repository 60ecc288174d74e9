"""A process killed between a write and its audit record leaves no write without one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from figures import one_in
from fresh import passed_alone

from memory_anchor.adapters.audit import NOTES, JsonlAudit
from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.where import Where
from memory_anchor.process.wiring import Core
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.upkeep import history

ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")
LATER = timedelta(days=200)
Kill = Callable[[], None]


class Killed(BaseException):
    """The process ends here."""


def save(core: Core) -> None:
    core.anchor(ACTOR).save_memory("The cache now lives in Redis", key="cache")


def log(core: Core) -> None:
    core.anchor(ACTOR).log_event("The nightly build failed")


def pin(core: Core) -> None:
    core.anchor(ACTOR).curation.pin(next(iter(versions(core.services.store)))[0])


def forget(core: Core) -> None:
    core.scheduler.run("forget", core.clock.now() + LATER)


def take_back(core: Core) -> None:
    plan = history.plan_last(core.upkeep, core.anchor(ACTOR).actor.scope)
    history.apply(core.upkeep, plan, at=core.clock.now(), author="agent:tester")


WRITES = {write.__name__: write for write in (save, log, pin, forget, take_back)}


def versions(store: MemoryStore) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for name in ("event_log", "verified_fact"):
        entries, _ = store.scan(name, Where(), page=10_000)
        found |= {(entry.memory.id, entry.memory.version) for entry in entries}
    return found


def recorded(audit: JsonlAudit) -> list[tuple[str, int]]:
    whats = [record["what"] for record in audit.records()]
    return [(one["id"], one["version"]) for what in whats for one in what.get("memories", [what]) if "version" in one]


def filled(core: Core) -> Core:
    for number in range(4):
        core.anchor(ACTOR).log_event(f"event number {number} of the first day")
    core.anchor(ACTOR).save_memory("The cache lives in Memcached", key="cache")
    return core


def killing(audit: JsonlAudit, kill: Kill, *, put: MemoryStore | None = None) -> None:
    """Let the next record (or, given a store, the next write) be the end of the process."""

    def ended(*_: Any, **__: Any) -> str:
        kill()
        return ""

    if put is None:
        audit.append = ended  # type: ignore[method-assign]
    else:
        put.put = ended  # type: ignore[method-assign, assignment]


def die() -> None:
    raise Killed


@pytest.mark.parametrize("name", WRITES)
def test_a_kill_between_a_write_and_its_record_is_recorded_at_the_next_start(name: str, tmp_path: Path) -> None:
    """Rule: the audit holds every write, each once; what was recovered says so."""
    store = DictStore()
    core = filled(ephemeral_core(tmp_path, store=store))
    killing(core.audit, die)
    with contextlib.suppress(Killed):
        WRITES[name](core)
    trail = JsonlAudit(tmp_path / "audit" / "audit.jsonl")
    missing = versions(store) - set(recorded(trail))
    assert missing

    ephemeral_core(tmp_path, store=store)

    assert set(recorded(trail)) == versions(store)
    assert len(recorded(trail)) == len(versions(store))
    told = [record["what"] for record in trail.records() if "recovered_at" in record["what"]]
    assert {(one["id"], one["version"]) for what in told for one in what["memories"]} == missing
    assert trail.verify() is None
    assert not list((tmp_path / "audit" / NOTES).iterdir())


@pytest.mark.parametrize("name", WRITES)
def test_a_kill_before_the_write_leaves_no_record_of_it(name: str, tmp_path: Path) -> None:
    """Rule: nothing is recorded that was not stored."""
    store = DictStore()
    core = filled(ephemeral_core(tmp_path, store=store))
    killing(core.audit, die, put=store)
    with contextlib.suppress(Killed):
        WRITES[name](core)
    del store.put

    again = ephemeral_core(tmp_path, store=store)

    assert set(recorded(again.audit)) == versions(store)
    assert len(recorded(again.audit)) == len(versions(store))


def test_a_write_that_is_refused_leaves_no_note_and_an_unsure_one_does(tmp_path: Path) -> None:
    """Rule: a note stays only where something may have been stored."""
    audit = JsonlAudit(tmp_path / "audit.jsonl")
    what = {"id": "m", "version": 1, "layer": "event_log", "content_hash": "h"}
    at = ManualClock().now()
    for error, notes in ((BadInput("no"), 0), (Unavailable("no answer"), 1)):
        with pytest.raises(type(error)), audit.recording("write", [what], by="agent:a", at=at):
            raise error
        assert len(list((tmp_path / NOTES).iterdir())) == notes

    assert audit.complete(lambda one: one == what, now=at) == 1
    assert audit.complete(lambda _: True, now=at) == 0


def test_a_note_cut_short_says_nothing(tmp_path: Path) -> None:
    """Rule: it was written before anything was stored."""
    (tmp_path / NOTES).mkdir()
    (tmp_path / NOTES / "a.json").write_text('{"kind": "wri')

    assert JsonlAudit(tmp_path / "audit.jsonl").complete(lambda _: True, now=ManualClock().now()) == 0
    assert not list((tmp_path / NOTES).iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("name", one_in(3, WRITES))
def test_a_process_killed_between_a_write_and_its_record(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rule: the same with SIGKILL, on the embedded engine."""
    if passed_alone(request):
        return

    def child(work: Callable[[Core], None]) -> int:
        pid = os.fork()
        if pid:
            return os.waitpid(pid, 0)[1]
        try:
            from memory_anchor.process.app import build_core
            from memory_anchor.runtime.lock import DirectoryLock
            from memory_anchor.settings import Settings

            lock = DirectoryLock.acquire(tmp_path, role="test")
            work(build_core(Settings(), data_dir=tmp_path, lock=lock, clock=ManualClock(), embedder=HashEmbedder()))
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def killed(core: Core) -> None:
        killing(filled(core).audit, lambda: os.kill(os.getpid(), signal.SIGKILL))
        WRITES[name](core)

    def checked(core: Core) -> None:
        assert sorted(recorded(core.audit)) == sorted(versions(core.services.store))
        assert core.audit.verify() is None

    assert os.WTERMSIG(child(killed)) == signal.SIGKILL
    assert child(checked) == 0
