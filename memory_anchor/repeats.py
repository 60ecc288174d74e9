"""First answers of this process: a request that is sent again while its first is at work waits, and gets its answer.

What a write stores carries its own answer in the same batch (`Receipt`), which outlives a kill. This is for the rest:
answers that store nothing (L1, "it is pinned already"), and the moment between two sendings of one request. Bounded in
number and size; what has left is answered anew, from receipts where there are any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, cast

from cachetools import LRUCache

A = TypeVar("A")
ANSWERS_KEPT = 2_000
ANSWER_CHARS_MAX = 32_000
"""Longer answers are not kept: they tell much and change nothing that receipts do not hold."""


class FirstAnswers:
    """Thread-safe; other requests never wait for one another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[str, tuple[str, object]] = LRUCache(ANSWERS_KEPT)
        self._turns: dict[str, tuple[threading.RLock, int]] = {}

    def once(self, key: str, fingerprint: str, work: Callable[[], A]) -> A:
        """Return the answer of `work`, or the first one that this request got.

        key: names the request, "" for one that cannot be recognised again. fingerprint: what was asked; the same key
        for something else is another request. Raises what `work` raises; a failure is no answer.
        """
        if not key:
            return work()
        with self._lock:
            turn, waiting = self._turns.get(key, (threading.RLock(), 0))
            self._turns[key] = (turn, waiting + 1)
        try:
            with turn:
                with self._lock:
                    held = self._kept.get(key)
                if held is not None and held[0] == fingerprint:
                    return cast(A, held[1])
                answer = work()
                if len(str(answer)) <= ANSWER_CHARS_MAX:
                    with self._lock:
                        self._kept[key] = (fingerprint, answer)
                return answer
        finally:
            with self._lock:
                turn, waiting = self._turns[key]
                if waiting <= 1:
                    del self._turns[key]
                else:
                    self._turns[key] = (turn, waiting - 1)
