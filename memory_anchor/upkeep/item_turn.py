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
from datetime import timedelta
from types import TracebackType

from memory_anchor.errors import MemoryAnchorError, Unavailable
from memory_anchor.foreground import InTurn
from memory_anchor.ports import Clock, MemoryStore

NEXT, HELD = "item next", "item"
LEASE_S, RENEW_S = 20.0, 5.0
PAUSE_S = 0.02
WAIT_S = 120.0
"""An item that a model reads may take a minute."""


class SharedInTurn:
    """Thread-safe. holder: this replica's name. monotonic: seconds. Entering raises Unavailable: it takes too long."""

    def __init__(self, store: MemoryStore, clock: Clock, holder: str, monotonic: Callable[[], float]) -> None:
        self._store, self._clock, self._holder, self._monotonic = store, clock, holder, monotonic
        self._here = InTurn()
        self._over = threading.Event()

    def __enter__(self) -> None:
        self._here.acquire()
        try:
            self._wait_for(NEXT)
            try:
                self._wait_for(HELD)
            finally:
                self._give_back(NEXT)
        except BaseException:
            self._here.release()
            raise
        self._over = threading.Event()
        threading.Thread(target=self._renew, args=(self._over,), name="item lease", daemon=True).start()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._over.set()
        try:
            self._give_back(HELD)
        finally:
            self._here.release()

    def _wait_for(self, name: str) -> None:
        end, pause = self._monotonic() + WAIT_S, threading.Event()
        while not self._claim(name, LEASE_S):
            if self._monotonic() > end:
                raise Unavailable("another replica writes an item of a batch, or purges, all the time; try again")
            pause.wait(PAUSE_S)

    def _renew(self, over: threading.Event) -> None:
        while not over.wait(RENEW_S):
            with suppress(MemoryAnchorError):
                self._claim(HELD, LEASE_S)

    def _give_back(self, name: str) -> None:
        with suppress(MemoryAnchorError):  # it ends by itself
            self._claim(name, 0.0)

    def _claim(self, name: str, seconds: float) -> bool:
        now = self._clock.now()
        return self._store.claim(name, self._holder, now=now, until=now + timedelta(seconds=seconds))
