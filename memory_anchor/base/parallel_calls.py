"""Calls that may be late or fail without holding up a context: one deadline for all, and a circuit breaker over each.

The calls run in parallel on daemon threads; one that is not back in time is left to finish by itself and its answer is
thrown away. A thread cannot be stopped, so the breaker (`base/circuit`) bounds how many can be stuck: after a few
failures of one call in a row it is not made until a pause has passed, while the others go on. Failures of ours come
back as values, bugs are raised in the caller.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused

FAILURES_TO_OPEN, OPEN_FOR_S = 3, 30.0
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


def call_circuit(monotonic: Callable[[], float]) -> CircuitBreaker:
    """Return a circuit breaker for the calls of all contexts over one store, by name."""
    return CircuitBreaker(monotonic, failures=FAILURES_TO_OPEN, open_for_s=OPEN_FOR_S)


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
