"""Memories that wait for their row: what this process wrote first, then what the store has without one, newest first.

The store itself is the queue that survives a crash; the one here only keeps a search from having to ask it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.model import FOUND_STATES, Memory, Status
from memory_anchor.ports import DENSE
from memory_anchor.quarantine import Quarantine
from memory_anchor.recall.embedding import document_rows
from memory_anchor.recall.request import SEARCHED
from memory_anchor.where import HasVector, OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix, MemoryStore

BATCH = 8
"""Memories embedded between two writes to the store."""


def named(memory: Memory) -> str:
    """Return what a memory is called where it is set aside."""
    return f"memory {memory.id}"


class EmbeddingQueue:
    """Thread-safe. on_rows: told the new rows by point id once they are stored. using: the vector that is filled."""

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder,
        on_rows: Callable[[Mapping[str, Matrix]], None],
        *,
        using: str = DENSE,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._quarantine = quarantine or Quarantine()
        self._store, self._embedder, self._on_rows, self._using = store, embedder, on_rows, using
        self._waiting: deque[tuple[str, str]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, collection: str, point: str) -> None:
        """Let a version that was just written wait for its row."""
        self._waiting.append((collection, point))

    def unembedded(self) -> int:
        """Return how many searchable versions of the store have no dense vector."""
        return sum(self._store.count(layer.value, self._without_row()) for layer in SEARCHED)

    def embed(self, limit: int, *, by: Embedder | None = None) -> int:
        """Embed and store up to `limit` rows; return how many.

        by: the same embedder for somebody who waits. Raises Unavailable, WrongEmbedder: the embedder cannot run now;
        what was taken waits on.
        """
        done = 0
        while done < limit:
            taken = self._taken(min(BATCH, limit - done))
            batch = self._batch(taken, min(BATCH, limit - done))
            if not batch:
                break
            for collection, memories in batch:
                try:
                    with self._quarantine.reading({named(memory): memory.content for memory in memories}, step="embed"):
                        rows = document_rows(by or self._embedder, memories, whole=True)
                except MemoryAnchorError:
                    self._waiting.extendleft(reversed(taken))
                    raise
                vectors = {memory.point_id: row for memory, row in zip(memories, rows, strict=True)}
                self._store.set_vectors(collection, {point: {self._using: row} for point, row in vectors.items()})
                self._on_rows(vectors)
                done += len(memories)
        return done

    def _taken(self, size: int) -> list[tuple[str, str]]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]

    def _batch(self, taken: list[tuple[str, str]], size: int) -> list[tuple[str, list[Memory]]]:
        batch: list[tuple[str, list[Memory]]] = []
        for layer in SEARCHED:
            if taken:
                points = [point for collection, point in taken if collection == layer.value]
                found = [entry.memory for entry in self._store.get(layer.value, points)]
            else:
                most = size + self._quarantine.aside()  # those keep being found
                found = self._store.find(
                    layer.value, self._without_row(), limit=most, order_by="recorded_at", descending=True
                )
            batch += [(layer.value, group) for group in self._quarantine.apart(found, lambda memory: memory.content)]
        return batch

    def _without_row(self) -> Where:
        searchable = OneOf("state", (*sorted(FOUND_STATES), Status.PENDING.value))
        return Where(all_of=(searchable,), none_of=(HasVector(self._using),))
