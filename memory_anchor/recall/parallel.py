"""What a search can do before its query has a row, done on another thread while the query is embedded.

Embedding is native code that leaves the interpreter to others, and takes four fifths of a search. It stays on the
calling thread, so that it begins at once; what reads words, rules and names is handed over. Rejected: embedding on the
other thread, which then waits for the interpreter to be let go.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from memory_anchor.recall.mirror import Mirror, WordScores

T = TypeVar("T")
S = TypeVar("S")
Meanwhile = Callable[[], object]
"""What is done beside an embedding."""
THREADS = 8
"""Of as many searches at once the work is done beside; of more, before and after."""
_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="beside-embedding")


@dataclass(frozen=True, slots=True)
class PrecomputedWords:
    """Words scored before the row was there; they count while the mirror is the one they were scored over.

    changes: `Mirror.changes` at that moment.
    """

    mirror: Mirror
    changes: int
    words: WordScores


def nothing() -> None:
    """Do nothing meanwhile."""


def beside(embedding: Callable[[], T], other: Callable[[], S]) -> tuple[T, S]:
    """Return what both return, `other` done in this thread's context; raises what either does."""
    waiting = _POOL.submit(copy_context().run, other)
    try:
        found = embedding()
    finally:
        done = other() if waiting.cancel() else waiting.result()  # cancelled: every thread was taken
    return found, done
