"""Who may run jobs where several engines share one store: a lease, kept in the store, that ends by itself.

An embedded store has one process, which its lock sees to; a server has as many engines as it has users. One of them
holds the lease, renews it while it lives and gives it back when it ends; when it died or slept, another takes over
after `LEASE_S`. Whoever finds the lease lost stops at the next batch. Jobs change nothing that changed since they
looked, so two runners for a moment would cost work and no memory. Clocks of the machines may differ by much less than
`LEASE_S`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from memory_anchor.files import write_whole
from memory_anchor.ports import Clock, MemoryStore

JOBS = "jobs"
RUNNER_FILE = "runner"
"""Of a data directory: the name under which its engine holds leases."""
LEASE_S = 180.0
RENEW_S = 60.0


class Lease(Protocol):
    """The right to run jobs."""

    def held(self) -> bool:
        """Return whether it is this process's now, taking or renewing it where that can be done.

        Raises Unavailable: the store does not answer.
        """
        ...

    def release(self) -> None:
        """Let another process have it."""
        ...


class NoLease:
    """The right of the only process there is."""

    def held(self) -> bool:
        return True

    def release(self) -> None:
        """Nothing to give back."""


class StoreLease:
    """holder: this process's name, the same after a restart, so that it need not wait for itself. Thread-safe.

    name: of the right; lasts_s: for so long after it was renewed, every renew_s."""

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        holder: str,
        *,
        name: str = JOBS,
        lasts_s: float = LEASE_S,
        renew_s: float = RENEW_S,
    ) -> None:
        self._store, self._clock, self._holder = store, clock, holder
        self._name, self._lasts, self._renew = name, timedelta(seconds=lasts_s), timedelta(seconds=renew_s)
        self._lock = threading.Lock()
        self._renew_at = clock.now()
        self._ours = False

    def held(self) -> bool:
        with self._lock:
            now = self._clock.now()
            if not self._ours or now >= self._renew_at:
                self._ours = self._store.claim(self._name, self._holder, now=now, until=now + self._lasts)
                self._renew_at = now + self._renew
            return self._ours

    def release(self) -> None:
        with self._lock:
            if self._ours:
                self._store.claim(self._name, self._holder, now=self._clock.now(), until=self._clock.now())
                self._ours = False


def runner_id(path: Path, new: Callable[[], str]) -> str:
    """Return the name under which this data directory's engine holds leases: made once, then kept."""
    with contextlib.suppress(OSError, ValueError):
        if kept := path.read_text(encoding="ascii").strip():
            return kept
    made = new()
    write_whole(path, made.encode())
    return made
