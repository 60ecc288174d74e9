"""Limits of callers: requests a minute of a key, refused tries of an address, calls at once.

All in memory and bounded: counts are dropped when they are old or too many. Nothing here knows HTTP; a front end turns
`TooMany` and `Unavailable` into their statuses.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from memory_anchor.domain.errors import TooMany, Unavailable

MINUTE_S = 60.0
COUNTED_MAX = 20_000
"""Keys or addresses that are counted at once; the one idle longest is dropped first."""
TRIES_A_MINUTE = 20
"""Refused keys of one address; after that a key it has not used before is not even checked until it has waited."""
QUEUE_PER_PLACE = 4
"""How many calls may wait for each one that runs."""
WAIT_MAX_S = 5.0
RETRY_AFTER_S = 1
T = TypeVar("T")


class Bucket:
    """A token bucket for each name, refilled evenly. Thread-safe. monotonic: seconds of a monotonic clock."""

    def __init__(self, a_minute: int, monotonic: Callable[[], float]) -> None:
        self._most = float(a_minute)
        self._monotonic = monotonic
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> int:
        """Take one token of this name; return 0, or the seconds until there is one again."""
        with self._lock:
            left = self._now(name)
            self._keep(name, left - 1 if left >= 1 else left)
            return 0 if left >= 1 else self._wait(left)

    def wait_s(self, name: str) -> int:
        """Return the seconds until there is a token, without taking it."""
        with self._lock:
            left = self._now(name)
            return 0 if left >= 1 else self._wait(left)

    def _now(self, name: str) -> float:
        left, at = self._left.get(name, (self._most, self._monotonic()))
        return min(self._most, left + (self._monotonic() - at) * self._most / MINUTE_S)

    def _keep(self, name: str, left: float) -> None:
        self._left[name] = (left, self._monotonic())
        self._left.move_to_end(name)
        while len(self._left) > COUNTED_MAX:
            self._left.popitem(last=False)

    def _wait(self, left: float) -> int:
        return max(1, math.ceil((1 - left) * MINUTE_S / self._most))


class RefusedCredentials:
    """Refused credentials by address. Credentials accepted from there lately still work; new ones are not checked."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._bucket = Bucket(TRIES_A_MINUTE, monotonic)
        self._good: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, address: str, digest: str) -> None:
        """Raise TooMany if this address had too many refused, and this credential was never accepted from it."""
        with self._lock:
            is_known = f"{address} {digest}" in self._good
        if not is_known and (wait := self._bucket.wait_s(address)):
            raise TooMany(f"too many refused credentials from this address; wait {wait} s", wait)

    def refused(self, address: str) -> None:
        self._bucket.take(address)

    def accepted(self, address: str, digest: str) -> None:
        name = f"{address} {digest}"
        with self._lock:
            self._good[name] = None
            self._good.move_to_end(name)
            while len(self._good) > COUNTED_MAX:
                self._good.popitem(last=False)


class Places:
    """A bounded number of calls at once, and a bounded queue before them. For one event loop."""

    def __init__(self, at_once: int, *, wait_s: float = WAIT_MAX_S) -> None:
        self._free = anyio.Semaphore(at_once)
        self._threads = anyio.CapacityLimiter(at_once)
        self._most = at_once * QUEUE_PER_PLACE
        self._wait_s = wait_s
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, run on a thread. Raises Unavailable: the queue is full or too slow."""
        if self._waiting >= self._most:
            raise _busy()
        self._waiting += 1
        try:
            with anyio.fail_after(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise _busy() from None
        finally:
            self._waiting -= 1
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._free.release()


def _busy() -> Unavailable:
    return Unavailable(f"too many requests are at work; try again in {RETRY_AFTER_S} s")
