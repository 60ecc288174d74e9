"""Requests first: background work stands aside while somebody waits for an answer.

Python runs one thread at a time, so a job that computes in one thread makes a search in another wait for its turn, up
to the switch interval at every call that let go of the interpreter. Measured over 15,000 memories, a search took 2.4
times as long beside a job. So front ends say when a request is in work, and background loops ask between small pieces
of their own. An agent that asks several things in a row leaves a millisecond or two between them, no time for a piece:
it would be in the next request's way. Patience is bounded: a request that takes long (a model's answer) slows a job
down and never stops it. Rejected: priorities of the operating system, which do not know the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

PATIENCE_S = 0.2
"""One wait at most; then the background does one piece and asks again."""
QUIET_S = 0.03
"""Nobody has asked for as long when the background goes on."""


_BEHIND: ContextVar[bool] = ContextVar("behind", default=False)


@contextmanager
def behind() -> Iterator[None]:
    """Say that nobody waits for what is done here: a job, what a hook sets off after its answer."""
    before = _BEHIND.set(True)
    try:
        yield
    finally:
        _BEHIND.reset(before)


def is_background() -> bool:
    """Return whether nobody waits for this."""
    return _BEHIND.get()


class RequestGate:
    """How many requests are in work, and since when none is. Thread-safe; `with foreground:` around each.

    monotonic: seconds that never go back.
    """

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
        """Return when nobody has asked for `quiet_s`, or after `patience_s`. Never asked while a lock is held."""
        until = self._monotonic() + self._patience_s
        with self._idle:
            while (left := until - (now := self._monotonic())) > 0:
                quiet = self._idle_since + self._quiet_s - now
                if not self._inside and quiet <= 0:
                    return
                self._idle.wait(left if self._inside else min(left, quiet))


class FairLock:
    """A lock that whoever waits gets before the one that held it last: a long loop over it lets others in between."""

    def __init__(self) -> None:
        self._next, self._held = threading.Lock(), threading.Lock()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Return whether it is held now, which it always is for `blocking`."""
        if not self._next.acquire(blocking=blocking):
            return False
        try:
            return self._held.acquire(blocking=blocking)
        finally:
            self._next.release()

    def release(self) -> None:
        self._held.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()
