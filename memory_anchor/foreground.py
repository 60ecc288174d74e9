"""Requests first: background work stands aside while somebody waits for an answer.

Python runs one thread at a time, so a job that computes in one thread makes a search in another wait for its turn, up
to the switch interval at every call that let go of the interpreter. Measured over 15,000 memories, a search took 2.4
times as long beside a job. So front ends say when a request is in work, and background loops ask between small pieces
of their own. Asking costs one attribute read. Patience is bounded: a request that takes long (a model's answer) slows a
job down and never stops it. Rejected: priorities of the operating system, which do not know the interpreter's lock.
"""

from __future__ import annotations

import threading
from types import TracebackType

PATIENCE_S = 0.1
"""One wait at most; then the background does one piece and asks again."""


class Foreground:
    """How many requests are in work. Thread-safe; `with foreground:` around each."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._inside = 0
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
                self._idle.notify_all()

    def let_pass(self) -> None:
        """Return when no request is in work, at once or after `patience_s`. Never asked while a lock is held."""
        if not self._inside:
            return
        with self._idle:
            self._idle.wait_for(lambda: not self._inside, self._patience_s)
