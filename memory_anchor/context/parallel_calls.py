"""Calls that may be late or fail without holding up a context: one deadline for all, and a circuit breaker over each.

The calls run in parallel on daemon threads; one that is not back in time is left to finish by itself and its answer is
thrown away. A thread cannot be stopped, so the breaker bounds how many can be stuck: after a few failures of one call
in a row it is not made until a pause has passed, while the others go on. Failures of ours come back as values, bugs are
raised in the caller.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused

FAILURES_TO_OPEN = 3
PAUSE_S = 30.0
_CALLERS_FAULT = (BadInput, NotFound, Refused)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """What became of one call: its value, or the failure, or neither when it was late."""

    value: T | None = None
    error: MemoryAnchorError | None = None
    late: bool = False

    @property
    def ok(self) -> bool:
        return self.error is None and not self.late


class CircuitBreaker:
    """Remembers failures in a row by the name of the call; thread-safe, one per store.

    monotonic: seconds that never go back.
    """

    def __init__(
        self, monotonic: Callable[[], float], *, failures: int = FAILURES_TO_OPEN, pause_s: float = PAUSE_S
    ) -> None:
        self._monotonic = monotonic
        self._most = failures
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}
        self._closes_at: dict[str, float] = {}

    def retry_in_s(self, name: str) -> float:
        """Return the seconds until this call may be made again, 0 when it may now."""
        with self._lock:
            if self._failures.get(name, 0) < self._most:
                return 0.0
            return max(0.0, self._closes_at[name] - self._monotonic())

    def note(self, name: str, *, ok: bool) -> None:
        """Count one call; success closes the circuit, one more failure after the pause opens it again."""
        with self._lock:
            self._failures[name] = 0 if ok else self._failures.get(name, 0) + 1
            if self._failures[name] >= self._most:
                self._closes_at[name] = self._monotonic() + self._pause_s


def call_in_parallel(
    calls: Mapping[str, Callable[[], T]], *, deadline_s: float, monotonic: Callable[[], float]
) -> dict[str, Returned[T]]:
    """Return the result of each call within `deadline_s` seconds of now; those not back yet are `late`.

    Raises BadInput, NotFound, Refused, and whatever is not an error of ours, as the call raised it.
    """
    done: queue.SimpleQueue[tuple[str, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(name: str, call: Callable[[], T]) -> None:
        try:
            done.put((name, call(), None))
        except BaseException as error:  # handed over below: nothing is swallowed
            done.put((name, None, error))

    for name, call in calls.items():
        threading.Thread(target=run, args=(name, call), name=f"context-{name}", daemon=True).start()
    results: dict[str, Returned[T]] = {}
    ends_at = monotonic() + deadline_s
    while len(results) < len(calls):
        try:
            name, value, error = done.get(timeout=max(0.0, ends_at - monotonic()))
        except queue.Empty:
            break
        if isinstance(error, _CALLERS_FAULT) or (error is not None and not isinstance(error, MemoryAnchorError)):
            raise error
        results[name] = Returned(value, error)
    return {name: results.get(name, Returned(late=True)) for name in calls}
