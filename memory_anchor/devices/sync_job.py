"""Sync as one process has it: nothing is loaded or looked at before it is set up; then a job exchanges by itself.

The job is queued when a session starts and when one ends, runs behind like every job (it yields to requests and may be
stopped), and is due now and then besides. What went wrong stands in `memory-anchor sync status`, never in a hook.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.projects import Projects
from memory_anchor.errors import MemoryAnchorError
from memory_anchor.ports import Clock
from memory_anchor.upkeep.jobs import Job
from memory_anchor.upkeep.upkeep import JobReport, Limits, Upkeep

if TYPE_CHECKING:
    from memory_anchor.devices.exchange import Exchange

JOB = "sync"
EVERY = timedelta(minutes=15)
PLACE = ("sync", "device.json")
"""Below the data directory: there once sync was set up."""


@dataclass(slots=True)
class Devices:
    """What an exchange works with. purge(ids, by): erases memories as a human's purge does."""

    upkeep: Upkeep
    data_dir: Path
    clock: Clock
    projects: Projects
    purge: Callable[[Sequence[str], str], None]
    new_token: Callable[[], str]
    paused: Callable[[], bool]
    _made: Exchange | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_set_up(self) -> bool:
        return self.data_dir.joinpath(*PLACE).exists()

    @property
    def exchange(self) -> Exchange:
        """Return the one exchange of this process."""
        from memory_anchor.devices.exchange import Exchange

        with self._lock:
            if self._made is None:
                self._made = Exchange(self)
            return self._made

    def job(self) -> Job:
        return Job(JOB, "exchange memories with the user's other devices, where that is set up", EVERY, self._behind)

    def _behind(self, up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        del up
        if limits.dry_run or not self.is_set_up:
            return JobReport(JOB, at, dry_run=limits.dry_run)
        try:
            done = self.exchange.run(limits.should_stop)
        except MemoryAnchorError as error:  # told by `sync status`; a stick that is not plugged in is no failure
            return JobReport(JOB, at, notes=(str(error),))
        if done is None:
            return JobReport(JOB, at)
        counts = {"sent": float(done.sent), "received": float(done.received), "purged": float(done.purged)}
        return JobReport(JOB, at, changed=done.received, left=done.left, notes=tuple(done.notes), counts=counts)
