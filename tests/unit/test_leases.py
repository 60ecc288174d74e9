"""Several processes, one memory: one of them runs the jobs, and another takes over when it is gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from stores import records_in
from timekit import T0, upkeep

from memory_anchor.domain.errors import StoreBusy, Unavailable
from memory_anchor.testing import ManualClock, memory_store
from memory_anchor.upkeep.job_kit import JobReport
from memory_anchor.upkeep.jobs import Job, Limits, Scheduler

DAILY = timedelta(days=1)


class ScriptedLease:
    """A fake lease of a named process on a lock that they share, as connections do on a server's."""

    def __init__(self, shared: dict[str, str], name: str) -> None:
        self._shared, self._name = shared, name
        self.away = False

    def held(self) -> bool:
        if self.away:
            raise Unavailable("the server does not answer")
        return self._shared.setdefault("holder", self._name) == self._name

    def release(self) -> None:
        if self._shared.get("holder") == self._name:
            del self._shared["holder"]


class Engine:
    """A process's scheduler. meanwhile: called in the middle of the job."""

    def __init__(self, name: str, shared: dict[str, str], folder: Path) -> None:
        self.ran, self.stopped, self.clock = 0, False, ManualClock(T0)
        self.meanwhile: Callable[[], None] = lambda: None
        self.lease = ScriptedLease(shared, name)

        def run(up: Any, at: Any, limits: Limits) -> JobReport:
            self.ran += 1
            self.meanwhile()
            self.stopped = limits.should_stop()
            return JobReport("job", at, left=self.stopped)

        self.jobs = Scheduler(
            [Job("job", "", DAILY, run)], upkeep(memory_store()), records=records_in(folder / name), lease=self.lease
        )

    def run(self, **limits: bool) -> JobReport:
        return self.jobs.run("job", self.clock.now(), Limits(**limits))  # type: ignore[arg-type]


def test_while_one_process_runs_jobs_another_is_told_so(tmp_path: Path) -> None:
    """Rule: one runner a memory across processes; a dry run changes nothing and needs no lease."""
    shared: dict[str, str] = {}
    one, other = Engine("a", shared, tmp_path), Engine("b", shared, tmp_path)

    def meanwhile() -> None:
        with pytest.raises(StoreBusy, match="another engine"):
            other.run()
        other.run(dry_run=True)

    one.meanwhile = meanwhile
    one.run()
    assert (one.ran, other.ran, one.stopped) == (1, 1, False)
    other.run()
    assert other.ran == 2


def test_whoever_lost_the_lease_stops_at_the_next_batch(tmp_path: Path) -> None:
    """Rule: its connection ended while it slept, and another process runs the jobs."""
    shared: dict[str, str] = {}
    one, other = Engine("a", shared, tmp_path), Engine("b", shared, tmp_path)

    def asleep() -> None:
        shared.clear()
        assert other.lease.held()

    one.meanwhile = asleep
    assert one.run().left and one.stopped
    with pytest.raises(StoreBusy):
        one.run()


def test_a_server_that_is_away_is_asked_again_later(tmp_path: Path) -> None:
    """Rule: no answer is no lease, and no end of the background thread."""
    engine = Engine("a", {}, tmp_path)
    engine.lease.away = True
    with pytest.raises(Unavailable):
        engine.run()
    engine.jobs.start(engine.clock, every_s=0.001)
    engine.jobs._stop.wait(0.05)
    assert engine.jobs.started
    engine.jobs.stop()
    assert engine.ran == 0
