"""One item of a pushed batch, or a purge, at a time: over all replicas of a service.

What a purge looks for must not be written by another replica behind its back: it waits until that item is stored, and
what is read after it is what the purge left of the batch. Two leases stand for the two locks of `InTurn`, so whoever
waits comes before the one that held it last. Both are renewed while it is held and end by themselves with their
process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from memory_anchor.errors import MemoryAnchorError, Unavailable
from memory_anchor.foreground import InTurn
from memory_anchor.ports import Clock, MemoryStore
from memory_anchor.upkeep.leases import StoreLease

NEXT, HELD = "item next", "item"
LEASE_S, RENEW_S = 20.0, 5.0
PAUSE_S = 0.02
WAIT_S = 120.0
"""An item that a model reads may take a minute."""


class SharedInTurn:
    """Thread-safe. holder: this replica's name. monotonic: seconds. Entering raises Unavailable: it takes too long."""

    def __init__(self, store: MemoryStore, clock: Clock, holder: str, monotonic: Callable[[], float]) -> None:
        self._next, self._item = (
            StoreLease(store, clock, holder, name=name, lasts_s=LEASE_S, renew_s=RENEW_S) for name in (NEXT, HELD)
        )
        self._monotonic = monotonic
        self._here = InTurn()
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
        self._renewing.join()  # or it would take again what is given back
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
        while not self._over.wait(RENEW_S):
            with suppress(MemoryAnchorError):
                self._item.held()


def _give_back(lease: StoreLease) -> None:
    with suppress(MemoryAnchorError):  # it ends by itself
        lease.release()
