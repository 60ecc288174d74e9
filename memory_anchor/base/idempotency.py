"""First answers: a request that is sent again, meanwhile or after a kill, has one effect and gets the first answer.

A single write stores its answer in the same batch (`Receipt`), which outlives a kill. This is for the rest. In memory:
answers that store nothing ("it is pinned already"), and repeats that come while the first is in progress. As records,
one a request: what an action of many writes started from (a note), so that it goes on where it was interrupted with
the same result, and the answer of such an action (`lasting`). Files are not synced: the caller is a process of this
machine, which a power cut ends too. Bounded in number and size; beyond that a repeat is answered like a new request.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from cachetools import LRUCache

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json
from memory_anchor.domain.errors import MemoryAnchorError, StoreDamaged

if TYPE_CHECKING:
    from memory_anchor.domain.ports import SmallRecords

A = TypeVar("A")
FOLDER = "requests"
ANSWERS_KEPT = 2_000
ANSWER_CHARS_MAX = 32_000
"""Longer answers are not kept: they only report, and what was changed has its receipts."""
KEPT = 256
SLACK = 64
"""How many more there may be before the oldest are removed together."""


class FirstAnswers:
    """Thread-safe; different requests never wait for one another."""

    def __init__(self, records: SmallRecords) -> None:
        """records: where answers outlive the process."""
        self._records = records
        self._lock = threading.Lock()
        self._answers: LRUCache[str, tuple[str, object]] = LRUCache(ANSWERS_KEPT)
        self._turns: dict[str, tuple[threading.RLock, int]] = {}

    def once(self, key: str, fingerprint: str, work: Callable[[], A], *, lasting: bool = False) -> A:
        """Return the answer of `work`, or the one that this request got before.

        key: names the request, "" for one that cannot be recognised again. fingerprint: of its content; the same key
        with other content is another request. lasting: also after a kill; the answer is JSON. Raises what `work`
        raises; a failure is no answer.
        """
        if not key:
            return work()
        with self._lock:
            turn, waiting = self._turns.get(key, (threading.RLock(), 0))
            self._turns[key] = (turn, waiting + 1)
        try:
            with turn:
                with self._lock:
                    cached = self._answers.get(key)
                if cached is not None and cached[0] == fingerprint:
                    return cast(A, cached[1])
                name = stable_hash("answer", key, fingerprint)
                stored = self._read(name) if lasting else None
                answer = work() if stored is None else cast(A, stored)
                if len(str(answer)) <= ANSWER_CHARS_MAX:
                    with self._lock:
                        self._answers[key] = (fingerprint, answer)
                    if lasting and stored is None:
                        with contextlib.suppress(MemoryAnchorError):  # the work is done, whatever the disk says
                            self._write(name, answer)
                return answer
        finally:
            with self._lock:
                turn, waiting = self._turns[key]
                if waiting <= 1:
                    del self._turns[key]
                else:
                    self._turns[key] = (turn, waiting - 1)

    def read_note(self, *parts: str) -> Json:
        """Return the note of this request, None for none. parts: name the request, its nonce last."""
        return self._read(stable_hash("noted", *parts)) if parts[-1] else None

    def write_note(self, value: Json, *parts: str) -> None:
        """Store what a request starts from, JSON, before it writes anything. Raises one of ours on failure."""
        if parts[-1]:
            self._write(stable_hash("noted", *parts), value)

    def note_once(self, make: Callable[[], A], *parts: str) -> A:
        """Return the note of this request; the first time, the note is what `make` returns, JSON."""
        note = self.read_note(*parts)
        if note is not None:
            return cast(A, note)
        new = make()
        if parts[-1]:
            self._write(stable_hash("noted", *parts), new)
        return new

    def _read(self, name: str) -> Json:
        try:
            stored = self._records.read(f"{FOLDER}/{name}")
            return None if stored is None else json.loads(stored.content)
        except (ValueError, RecursionError, StoreDamaged):
            return None

    def _write(self, name: str, value: A) -> None:
        content = json.dumps(value, ensure_ascii=False).encode()
        records = self._records
        with records.unit():
            records.write(f"{FOLDER}/{name}", content, before=None)
            with contextlib.suppress(MemoryAnchorError):
                stored = records.listed(FOLDER)
                if len(stored) > KEPT + SLACK:
                    for old in sorted(stored, key=lambda record: record.at)[:-KEPT]:
                        records.delete(old.name, before=None)
