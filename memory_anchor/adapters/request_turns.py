"""One request that is sent to two replicas in the same moment: the second waits until the first is answered.

A record made once is the turn. Whoever finds it there waits until it goes, and then finds by its receipt what the first
one did. A replica that was killed holds it for `HELD_S` at most. Rejected: a write that carries its request as its
point's id, since what a request stores is decided after it was recognised.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator

from memory_anchor.errors import ChangedMeanwhile, MemoryAnchorError, Unavailable
from memory_anchor.hashing import stable_hash
from memory_anchor.ports import SharedRecords

FOLDER = "turns"
HELD_S = 20.0
WAIT_S = 25.0
PAUSE_S = 0.02
NAME_CHARS = 40


class RequestTurns:
    """Thread-safe."""

    def __init__(self, records: SharedRecords) -> None:
        self._records = records

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Hold a request's turn for the block; a request that nothing names has none to wait for.

        Raises Unavailable: it is at work elsewhere all the time.
        """
        if not key:
            yield
            return
        name = f"{FOLDER}/{stable_hash('turn', key)[:NAME_CHARS]}"
        revision = self._taken(name)
        try:
            yield
        finally:
            with contextlib.suppress(MemoryAnchorError):  # it ends by itself
                self._records.delete(name, before=revision)

    def _taken(self, name: str) -> str:
        end, pause, before = time.monotonic() + WAIT_S, threading.Event(), ""
        while True:
            try:
                return self._records.write(name, json.dumps(time.time() + HELD_S).encode(), before=before)
            except ChangedMeanwhile:
                held = self._records.read(name)
                before = held.revision if held is not None and float(json.loads(held.content)) < time.time() else ""
            if time.monotonic() > end:
                raise Unavailable("another replica does the same request at this moment; send it again")
            pause.wait(PAUSE_S)
