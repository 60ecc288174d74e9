"""A lease in a shared store: one engine runs jobs.

An embedded store has one process, by its lock; a server has as many engines as users. One of them holds the
lease, renews it while it lives and releases it when it ends; when it died or slept, another takes over after
`LEASE_S`. An engine that lost the lease stops at the next batch. Jobs change nothing that changed since they read it,
so two runners for a moment cost work and no memory. The machines' clocks must differ by much less than `LEASE_S`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from memory_anchor.base.files import write_atomic
from memory_anchor.domain.ports import Clock, MemoryStore
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.sql_store import SqlStore

JOBS = "jobs"
RUNNER_FILE = "runner"
"""File in a data directory: the name under which its engine holds leases."""
LEASE_S = 180.0
RENEW_S = 60.0


class Lease(Protocol):
    """The right to run jobs."""

    def held(self) -> bool:
        """Return whether this process has it now; takes or renews it if possible. Raises Unavailable: no answer."""
        ...

    def release(self) -> None:
        """Let another process have it."""
        ...


class NoLease:
    """The lease of a store's only process."""

    def held(self) -> bool:
        return True

    def release(self) -> None:
        pass


class ConnectionLease:
    """A lease that a connection to the store's database holds: free at once when its process ends, however it ends."""

    def __init__(self, database: Postgresql, name: str) -> None:
        self._database, self._name = database, name

    def held(self) -> bool:
        return self._database.holds(self._name)

    def release(self) -> None:
        self._database.let_go(self._name)


class StoreLease:
    """A lease stored in the memory store. Thread-safe.

    holder: this process's name, the same after a restart, so that it need not wait for itself.
    """

    def __init__(self, store: MemoryStore, clock: Clock, holder: str, name: str = JOBS) -> None:
        self._store, self._clock, self._holder, self._name = store, clock, holder, name
        self._lock = threading.Lock()
        self._renew_at = clock.now()
        self._ours = False

    def held(self) -> bool:
        with self._lock:
            now = self._clock.now()
            if not self._ours or now >= self._renew_at:
                self._ours = self._store.claim(
                    self._name, self._holder, now=now, until=now + timedelta(seconds=LEASE_S)
                )
                self._renew_at = now + timedelta(seconds=RENEW_S)
            return self._ours

    def release(self) -> None:
        with self._lock:
            if self._ours:
                self._ours = False  # first: a release whose answer is lost may have reached the store
                self._store.claim(self._name, self._holder, now=self._clock.now(), until=self._clock.now())


def lease_of(store: MemoryStore, clock: Clock, runner_file: Path, new_id: Callable[[], str], name: str) -> Lease:
    """Return the lease of that name over a store; one that has one process needs none."""
    database = store.database if isinstance(store, SqlStore) else None
    if isinstance(database, Postgresql):
        return ConnectionLease(database, name)
    return StoreLease(store, clock, runner_id(runner_file, new_id), name) if database is None else NoLease()


def runner_id(path: Path, new: Callable[[], str]) -> str:
    """Return the name under which this data directory's engine holds leases: made once, then read from its file."""
    with suppress(OSError, ValueError):
        if name := path.read_bytes().decode("ascii").strip():
            return name
    name = new()
    write_atomic(path, name.encode())
    return name
