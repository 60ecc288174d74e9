"""Memories waiting for a vector: what this process wrote first, then what the store has without one, newest first.

The store itself is the queue that survives a crash; the one here only keeps a search from having to ask it. One thread
of a process works through it (`EmbeddingThread`), and through whatever else waits for a model.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable, WrongEmbedder
from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, Status
from memory_anchor.domain.ports import DENSE
from memory_anchor.domain.where import HasVector, OneOf, Where
from memory_anchor.recall.embedding import document_rows
from memory_anchor.recall.request import SEARCHED_LAYERS

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Embedder, Matrix, MemoryStore

log = logging.getLogger("memory_anchor")
BATCH = 8
"""Memories embedded between two writes to the store."""
RETRY_S = 30.0
STOP_WAIT_S = 10.0
LOADED_BY = "memory"
"""Embedded to load the model."""


def quarantine_name(memory: Memory) -> str:
    """Return what a memory is called in the quarantine."""
    return f"memory {memory.id}"


class EmbeddingQueue:
    """Thread-safe. on_rows: called with the new rows by point id once they are stored. using: the vector filled.

    wait: returns when no request waits for an answer, or soon; called before each memory that nobody waits for. None:
    the embedder computes elsewhere, and gets a batch at a time.
    """

    def __init__(
        self,
        store: MemoryStore,
        embedder: Embedder,
        on_rows: Callable[[Mapping[str, Matrix]], None],
        *,
        using: str = DENSE,
        quarantine: Quarantine,
        wait: Callable[[], None] | None,
    ) -> None:
        self._quarantine, self._wait = quarantine, wait
        self._store, self._embedder, self._on_rows, self._using = store, embedder, on_rows, using
        self.waiting: deque[tuple[str, str]] = deque()
        self._lock = threading.Lock()
        searchable = OneOf("state", (*sorted(SEARCHABLE_STATES), Status.PENDING.value))
        self.lacking = Where(all_of=(searchable,), none_of=(HasVector(using),))

    def add(self, collection: str, point: str) -> None:
        """Queue a version that was just written."""
        self.waiting.append((collection, point))

    def unembedded(self) -> int:
        """Return how many searchable versions of the store have no dense vector."""
        return sum(self._store.count(layer.value, self.lacking) for layer in SEARCHED_LAYERS)

    def embed(self, limit: int, *, by: Embedder | None = None) -> int:
        """Embed and store up to `limit` rows; return how many.

        by: the same embedder for a caller who waits. Raises Unavailable, WrongEmbedder: the embedder cannot run now;
        what was taken waits on.
        """
        done = 0
        while done < limit:
            taken = self._taken(min(BATCH, limit - done))
            batch = self._batch(taken, min(BATCH, limit - done))
            if not batch and taken:  # all of them were erased, or crash the engine: others may wait behind
                continue
            if not batch:
                break
            for collection, memories in batch:
                whole = by is not None or self._wait is None
                pieces = [memories] if whole else [[memory] for memory in memories]
                try:
                    rows = np.concatenate([self._rows(piece, by) for piece in pieces])
                except MemoryAnchorError:
                    self.waiting.extendleft(reversed(taken))
                    raise
                vectors = {memory.point_id: row for memory, row in zip(memories, rows, strict=True)}
                self._store.set_vectors(collection, {point: {self._using: row} for point, row in vectors.items()})
                self._on_rows(vectors)
                done += len(memories)
        return done

    def _rows(self, memories: list[Memory], by: Embedder | None) -> Matrix:
        """Return a row a memory; a save, a search or a hook goes first. A process killed meanwhile charges no text."""
        if by is None and self._wait is not None:
            self._wait()
        with self._quarantine.reading({quarantine_name(memory): memory.content for memory in memories}, step="embed"):
            return document_rows(by or self._embedder, memories, whole=True)

    def _taken(self, size: int) -> list[tuple[str, str]]:
        with self._lock:
            return [self.waiting.popleft() for _ in range(min(size, len(self.waiting)))]

    def _batch(self, taken: list[tuple[str, str]], size: int) -> list[tuple[str, list[Memory]]]:
        batch: list[tuple[str, list[Memory]]] = []
        for layer in SEARCHED_LAYERS:
            if taken:
                points = [point for collection, point in taken if collection == layer.value]
                found = [entry.memory for entry in self._store.get(layer.value, points)]
            else:
                most = size + self._quarantine.count_quarantined()  # the store keeps listing those
                found = self._store.find(layer.value, self.lacking, limit=most, order_by="recorded_at", descending=True)
            batch += [
                (layer.value, group) for group in self._quarantine.safe_groups(found, lambda memory: memory.content)
            ]
        return batch


class EmbeddingThread:
    """Embeds what waits, on a thread of its own, from `start` to `end`; asleep until woken when nothing waits.

    some: embeds a batch of what waits and returns how many. before: done once, before the first batch. loaded: the
    embedder that is loaded then, so that the first question does not wait for it.
    """

    def __init__(self, some: Callable[[], int], loaded: Embedder | None, *, before: Callable[[], None]) -> None:
        self._some, self._loaded, self._before = some, loaded, before
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, settled: Callable[[], None] | None = None) -> None:
        """Begin, unless it has begun. settled: called once, when nothing is left to embed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(settled,), name="embed", daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Say that something waits. For any thread, at any time."""
        self._wake.set()

    def end(self) -> None:
        """Stop after the current batch; `join` waits for it."""
        self._ending.set()
        self._wake.set()

    def join(self) -> None:
        """Return when the thread has ended, or after `STOP_WAIT_S`."""
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)

    def _run(self, settled: Callable[[], None] | None) -> None:
        self._before()
        self._load()
        while not self._ending.is_set():
            try:
                done = self._some()
            except (Unavailable, WrongEmbedder) as error:
                log.warning("embedding in the background waits: %s", error)
                self._wake.wait(RETRY_S)  # a write may get its local row meanwhile
                self._wake.clear()
                continue
            if not done:
                if settled is not None:
                    settled()
                    settled = None
                self._wake.wait()
                self._wake.clear()

    def _load(self) -> None:
        if self._loaded is None or not self._loaded.available():
            return
        try:
            self._loaded.queries([LOADED_BY])
        except Unavailable as error:
            log.warning("the embedder could not be loaded: %s", error)
