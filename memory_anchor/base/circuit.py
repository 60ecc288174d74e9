"""A circuit breaker: what failed several times in a row is not called for a while.

Invariant: while the circuit is open a call costs nothing. After the pause calls are allowed again, and one more failure
opens the circuit again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from memory_anchor.domain.errors import Unavailable

FAILURES_TO_OPEN, OPEN_FOR_S = 4, 60.0


class CircuitBreaker:
    """Counts failures in a row, of one call or of several by their names. Thread-safe.

    monotonic: seconds that never go back. failures: how many in a row open the circuit. open_for_s: the pause.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, failures: int = FAILURES_TO_OPEN, open_for_s: float = OPEN_FOR_S
    ) -> None:
        self._monotonic, self._most, self._open_for_s = monotonic, failures, open_for_s
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._closes_at: dict[str, float] = {}
        self._probed: set[str] = set()

    def failures(self, name: str = "") -> int:
        """Return how often in a row the call has failed."""
        with self._lock:
            return self._failures.get(name, 0)

    def retry_in_s(self, name: str = "") -> float:
        """Return the seconds until the call may be made again, 0 if it may be now."""
        with self._lock:
            return self._wait_s(name)

    def _wait_s(self, name: str) -> float:
        if self._failures.get(name, 0) < self._most:
            return 0.0
        return max(0.0, self._closes_at[name] - self._monotonic())

    def check(self, what: str) -> None:
        """Raise Unavailable while the circuit is open. what: names the server in the message."""
        if wait_s := self.retry_in_s():
            raise Unavailable(f"{what} failed {self.failures()} times in a row; it is asked again in {wait_s:.0f} s.")

    def admits(self, name: str = "") -> bool:
        """Return whether the call may be made now; after a pause only one at a time, until `note` tells its result."""
        with self._lock:
            if self._failures.get(name, 0) < self._most:
                return True
            if self._wait_s(name) or name in self._probed:
                return False
            self._probed.add(name)
            return True

    def note(self, name: str = "", *, ok: bool) -> None:
        """Count how one call ended; success closes the circuit."""
        with self._lock:
            self._probed.discard(name)
            self._failures[name] = 0 if ok else self._failures.get(name, 0) + 1
            if self._failures[name] >= self._most:
                self._closes_at[name] = self._monotonic() + self._open_for_s
