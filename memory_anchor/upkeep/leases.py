"""Leases in a shared store: one engine runs jobs, and one replica at a time writes an item or purges.

Jobs: an embedded store has one process, by its lock; a server has as many engines as users. One of them holds the
lease, renews it while it lives and releases it when it ends; when it died or slept, another takes over after
`LEASE_S`. An engine that lost the lease stops at the next batch. Jobs change nothing that changed since they read it,
so two runners for a moment cost work and no memory. The machines' clocks must differ by much less than `LEASE_S`.

Items: across all replicas of a service, one item of a pushed batch or one purge at a time. What a purge looks for must
not be written by another replica meanwhile: it waits until that item is stored, and what is read afterwards is what the
purge left of the batch. Two leases do what the two locks of `FairLock` do, so a waiting replica comes before the last
holder. Both are renewed while held and expire with their process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol

from memory_anchor.base.files import write_atomic
from memory_anchor.base.request_gate import FairLock
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable
from memory_anchor.domain.ports import Clock, MemoryStore

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


class StoreLease:
    """A lease stored in the memory store. Thread-safe.

    holder: this process's name, the same after a restart, so that it need not wait for itself. name: of the right.
    lasts_s: after each renewal, which comes every renew_s.
    """

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
                self._ours = False  # first: a release whose answer is lost may have reached the store
                self._store.claim(self._name, self._holder, now=self._clock.now(), until=self._clock.now())


def runner_id(path: Path, new: Callable[[], str]) -> str:
    """Return the name under which this data directory's engine holds leases: made once, then read from its file."""
    with suppress(OSError, ValueError):
        if name := path.read_bytes().decode("ascii").strip():
            return name
    name = new()
    write_atomic(path, name.encode())
    return name


NEXT, HELD = "item next", "item"
TURN_LEASE_S, TURN_RENEW_S = 20.0, 5.0
PAUSE_S = 0.02
WAIT_S = 120.0
"""An item that a model reads may take a minute."""


class SharedInTurn:
    """A lock across replicas. Thread-safe. holder: this replica's name. Entering raises Unavailable after `WAIT_S`."""

    def __init__(self, store: MemoryStore, clock: Clock, holder: str, monotonic: Callable[[], float]) -> None:
        self._next, self._item = (
            StoreLease(store, clock, holder, name=name, lasts_s=TURN_LEASE_S, renew_s=TURN_RENEW_S)
            for name in (NEXT, HELD)
        )
        self._monotonic = monotonic
        self._here = FairLock()
        self._over = threading.Event()

    def __enter__(self) -> None:
        self._here.acquire()
        try:
            self._wait_for(self._next)
            try:
                self._wait_for(self._item)
            finally:
                _give_back(self._next)
        except BaseException:
            self._here.release()
            raise
        self._over.clear()
        self._renewing = threading.Thread(target=self._renew, name="item lease", daemon=True)
        self._renewing.start()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        self._renewing.join()  # else it could take the lease again after its release
        try:
            _give_back(self._item)
        finally:
            self._here.release()

    def _wait_for(self, lease: StoreLease) -> None:
        end, pause = self._monotonic() + WAIT_S, threading.Event()
        while not lease.held():
            if self._monotonic() > end:
                raise Unavailable("another replica writes an item of a batch, or purges, all the time; try again")
            pause.wait(PAUSE_S)

    def _renew(self) -> None:
        while not self._over.wait(TURN_RENEW_S):
            with suppress(MemoryAnchorError):
                self._item.held()


def _give_back(lease: StoreLease) -> None:
    with suppress(MemoryAnchorError):  # it expires by itself
        lease.release()
