"""First answers: a request sent again, while its first is at work or after a kill, has one effect and that answer.

What one write stores carries its own answer in the same batch (`Receipt`), which outlives a kill. This is for the rest.
In memory: answers that store nothing ("it is pinned already"), and the moment between two sendings of one request. On
disk, a file a request: what a deed of many writes began from (`noted`), so that it goes on where it was cut off and
tells what it would have told, and the answer of such a deed (`lasting`). Not synced: who would ask again is a process
of this machine, which a power cut ends too. Bounded in number and size; what has left is answered anew.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from cachetools import LRUCache

from memory_anchor.errors import ChangedMeanwhile, MemoryAnchorError, retry_on_conflict
from memory_anchor.files import read_bounded, write_atomic
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Json
from memory_anchor.ports import SharedRecords

A = TypeVar("A")
FOLDER = "requests"
ANSWERS_KEPT = 2_000
ANSWER_CHARS_MAX = 32_000
"""Longer answers are not kept: they tell much and change nothing that receipts do not hold."""
FILES_KEPT = 256
FILES_BEYOND = 64
"""How many files more there may be before the oldest are removed together."""
FILE_BYTES_MAX = 1_000_000
RECORDS_KEPT = 2_000
"""Of several replicas, which all their clients share."""


class FirstAnswers:
    """Thread-safe; other requests never wait for one another. folder: where it lasts, None for memory alone."""

    def __init__(self, folder: Path | None = None, records: SharedRecords | None = None) -> None:
        """records: of several replicas, where it lasts instead."""
        self._folder, self._records = folder, records
        self._written = 0
        self._lock = threading.Lock()
        self._kept: LRUCache[str, tuple[str, object]] = LRUCache(ANSWERS_KEPT)
        self._turns: dict[str, tuple[threading.RLock, int]] = {}

    def once(self, key: str, fingerprint: str, work: Callable[[], A], *, lasting: bool = False) -> A:
        """Return the answer of `work`, or the first one that this request got.

        key: names the request, "" for one that cannot be recognised again. fingerprint: what was asked; the same key
        for something else is another request. lasting: also after a kill; the answer is JSON. Raises what `work`
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
                    held = self._kept.get(key)
                if held is not None and held[0] == fingerprint:
                    return cast(A, held[1])
                name = stable_hash("answer", key, fingerprint)
                first = self._read(name) if lasting else None
                answer = work() if first is None else cast(A, first)
                if len(str(answer)) <= ANSWER_CHARS_MAX:
                    with self._lock:
                        self._kept[key] = (fingerprint, answer)
                    if lasting and first is None:
                        with contextlib.suppress(MemoryAnchorError):  # it is done; a full disk takes nothing back
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
        """Return what an earlier sending of this request noted, None for none. parts: name the request, nonce last."""
        return self._read(stable_hash("noted", *parts)) if parts[-1] else None

    def write_note(self, value: Json, *parts: str) -> None:
        """Keep what a request starts from, JSON, before it writes anything. Raises ours: it cannot be written."""
        if parts[-1]:
            self._write(stable_hash("noted", *parts), value)

    def note_once(self, make: Callable[[], A], *parts: str) -> A:
        """Return what the first sending of this request noted; the first one notes what `make` returns, JSON."""
        before = self.read_note(*parts)
        if before is not None:
            return cast(A, before)
        made = make()
        if parts[-1]:
            self._write(stable_hash("noted", *parts), made)
        return made

    def _read(self, name: str) -> Json:
        try:
            if self._records is not None:
                held = self._records.read(f"{FOLDER}/{name}")
                return None if held is None else json.loads(held.content)
            if self._folder is None:
                return None
            found = read_bounded(self._folder / name, most_bytes=FILE_BYTES_MAX)
            return None if found is None else json.loads(found)
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, name: str, value: A) -> None:
        content = json.dumps(value, ensure_ascii=False).encode()
        if self._records is not None:
            retry_on_conflict(partial(self._write_record, self._records, f"{FOLDER}/{name}", content))
            return
        if self._folder is None:
            return
        write_atomic(self._folder / name, content, durable=False)
        with contextlib.suppress(OSError):
            files = list(self._folder.iterdir())
            if len(files) > FILES_KEPT + FILES_BEYOND:
                for file in sorted(files, key=lambda one: one.stat().st_mtime_ns)[:-FILES_KEPT]:
                    file.unlink(missing_ok=True)

    def _write_record(self, records: SharedRecords, name: str, content: bytes) -> None:
        records.write(name, content, before=records.revisions([name]).get(name, ""), durable=False)
        self._written += 1
        if self._written % FILES_BEYOND:
            return
        for one in sorted(records.listed(FOLDER), key=lambda one: one.at)[:-RECORDS_KEPT]:
            with contextlib.suppress(ChangedMeanwhile):
                records.delete(one.name, before=one.revision)
