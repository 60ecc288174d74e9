"""Device sync in one process: nothing is loaded or read before it is set up; then a background job exchanges.

The job is queued when a session starts and when one ends, runs in the background like every job (it yields to requests
and may be stopped), and is due periodically. `memory-anchor sync status` reports its errors; hooks never do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.projects import Projects
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.ports import Clock
from memory_anchor.upkeep.job_kit import JobReport, Limits, Upkeep
from memory_anchor.upkeep.jobs import Job

if TYPE_CHECKING:
    from memory_anchor.extensions.devices.exchange import Exchange

JOB = "sync"
INTERVAL = timedelta(minutes=15)
SET_UP_FILE = ("sync", "device.json")
"""Below the data directory: exists once sync is set up."""


@dataclass(slots=True)
class DeviceSync:
    """The parts that an exchange uses. purge(ids, by): erases memories as a human's purge does."""

    upkeep: Upkeep
    data_dir: Path
    clock: Clock
    projects: Projects
    purge: Callable[[Sequence[str], str], None]
    new_token: Callable[[], str]
    is_paused: Callable[[], bool]
    _exchange: Exchange | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_set_up(self) -> bool:
        return self.data_dir.joinpath(*SET_UP_FILE).exists()

    @property
    def exchange(self) -> Exchange:
        """Return the one exchange of this process."""
        from memory_anchor.extensions.devices.exchange import Exchange

        with self._lock:
            if self._exchange is None:
                self._exchange = Exchange(self)
            return self._exchange

    def job(self) -> Job:
        return Job(JOB, "exchange memories with the user's other devices, if set up", INTERVAL, self._run)

    def _run(self, up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        del up
        if limits.dry_run or not self.is_set_up:
            return JobReport(JOB, at, dry_run=limits.dry_run)
        try:
            result = self.exchange.run(limits.should_stop)
        except MemoryAnchorError as error:  # `sync status` reports it; a stick that is not plugged in is no failure
            return JobReport(JOB, at, notes=(str(error),))
        if result is None:
            return JobReport(JOB, at)
        counts = {"sent": float(result.sent), "received": float(result.received), "purged": float(result.purged)}
        return JobReport(JOB, at, changed=result.received, left=result.left, notes=tuple(result.notes), counts=counts)
