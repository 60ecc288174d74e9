"""A process killed between a write and its audit record leaves no write without one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from figures import one_in
from fresh import passed_alone

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.where import Where
from memory_anchor.process.wiring import Core
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.testing import HashEmbedder, ManualClock
from memory_anchor.upkeep import history

ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")
LATER = timedelta(days=200)


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


def recorded(audit: SqlAudit) -> list[tuple[str, int]]:
    whats = [record["what"] for record in audit.records()]
    return [(one["id"], one["version"]) for what in whats for one in what.get("memories", [what]) if "version" in one]


def filled(core: Core) -> Core:
    for number in range(4):
        core.anchor(ACTOR).log_event(f"event number {number} of the first day")
    core.anchor(ACTOR).save_memory("The cache lives in Memcached", key="cache")
    return core


def kill(*_: Any, **__: Any) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("name", one_in(3, WRITES))
def test_a_process_killed_between_a_write_and_its_record(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Rule: after SIGKILL the audit holds every write that is stored, each once, and nothing else."""
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
        filled(core).audit.append = kill  # type: ignore[method-assign]
        WRITES[name](core)

    def checked(core: Core) -> None:
        assert sorted(recorded(core.audit)) == sorted(versions(core.services.store))
        assert core.audit.verify() is None

    assert os.WTERMSIG(child(killed)) == signal.SIGKILL
    assert child(checked) == 0
