"""A circuit breaker: a server that failed several times in a row is not called for a while.

Invariant: while the circuit is open a call costs nothing, and its error says when the next attempt will be made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from memory_anchor.errors import Unavailable

FAILURES_TO_OPEN, OPEN_FOR_S = 4, 60.0


class Breaker:
    """Opens after `FAILURES_TO_OPEN` in a row and lets calls through again after `OPEN_FOR_S`.

    what: names the server in the message. now: seconds from any beginning.
    """

    def __init__(self, what: str, now: Callable[[], float]) -> None:
        self._what = what
        self._now = now
        self._count = 0
        self._until = 0.0
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        with self._lock:
            return self._now() < self._until

    def check(self) -> None:
        """Raise Unavailable while the circuit is open."""
        with self._lock:
            left = self._until - self._now()
            if left > 0:
                raise Unavailable(
                    f"{self._what} failed {self._count} times in a row; it is asked again in {left:.0f} s."
                )

    def record(self, *, ok: bool) -> None:
        """Note how a call ended."""
        with self._lock:
            self._count = 0 if ok else self._count + 1
            self._until = self._now() + OPEN_FOR_S if self._count >= FAILURES_TO_OPEN else 0.0
