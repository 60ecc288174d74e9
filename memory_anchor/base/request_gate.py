"""Requests first: background work yields while a request is being answered.

Python runs one thread at a time, so a job that computes in one thread makes a search in another wait for the
interpreter, up to the switch interval at every call that released it. Measured over 15,000 memories, a search took 2.4
times as long during a job. So front ends enter the gate for each request, and background loops wait for quiet between
small pieces of work. An agent that sends several requests in a row leaves a millisecond or two between them, too short
for a piece. Waiting is bounded: a long request (a model's answer) slows a job down and never stops it. Rejected:
priorities of the operating system, which do not know the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

PATIENCE_S = 0.2
"""The longest wait; then the background does one piece of work."""
QUIET_S = 0.03
"""Without a request for so long, the background goes on."""

_BACKGROUND: ContextVar[bool] = ContextVar("background", default=False)


@contextmanager
def in_background() -> Iterator[None]:
    """Mark the block as work that no caller waits for: a job, or what a hook starts after its answer."""
    before = _BACKGROUND.set(True)
    try:
        yield
    finally:
        _BACKGROUND.reset(before)


def is_background() -> bool:
    """Return whether no caller waits for this code."""
    return _BACKGROUND.get()


class RequestGate:
    """Counts the requests in progress. Thread-safe; `with foreground:` around each. monotonic: seconds."""

    def __init__(
        self, monotonic: Callable[[], float], *, patience_s: float = PATIENCE_S, quiet_s: float = QUIET_S
    ) -> None:
        self._monotonic, self._patience_s, self._quiet_s = monotonic, patience_s, quiet_s
        self._inside = 0
        self._idle_since = -quiet_s
        self._idle = threading.Condition()

    def __enter__(self) -> None:
        with self._idle:
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._idle:
            self._inside -= 1
            if not self._inside:
                self._idle_since = self._monotonic()
                self._idle.notify_all()

    def wait_until_quiet(self) -> None:
        """Return after `quiet_s` without a request, or after `patience_s`. Never called while a lock is held."""
        until = self._monotonic() + self._patience_s
        with self._idle:
            while (left := until - (now := self._monotonic())) > 0:
                quiet = self._idle_since + self._quiet_s - now
                if not self._inside and quiet <= 0:
                    return
                self._idle.wait(left if self._inside else min(left, quiet))


class FairLock:
    """A lock that a waiting thread gets before the last holder: a loop that takes it again lets others in between."""

    def __init__(self) -> None:
        self._turn, self._lock = threading.Lock(), threading.Lock()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Return whether it was acquired, which `blocking` always does."""
        if not self._turn.acquire(blocking=blocking):
            return False
        try:
            return self._lock.acquire(blocking=blocking)
        finally:
            self._turn.release()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()
