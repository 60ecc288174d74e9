"""What searches read of the store, kept in step with it: the mirror, what waits to be embedded, and when both changed.

Whoever writes calls `note_written`; everything else comes from the store, at once for what a search meets (`_fill`) or
page by page behind (`warm`). The generation moves with every change, so that an answer kept from before is not given.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_anchor.errors import MemoryAnchorError, Unavailable, WrongEmbedder
from memory_anchor.model import FOUND_STATES, Memory, Status
from memory_anchor.ports import DENSE, DENSE_LOCAL, Entry
from memory_anchor.retrieval.backlog import Backlog
from memory_anchor.retrieval.embedding import awaited_text, is_long
from memory_anchor.retrieval.mirror import Mirror
from memory_anchor.retrieval.request import SEARCHED
from memory_anchor.text.indexing import embedded_text, searched_words
from memory_anchor.where import OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix, MemoryStore
    from memory_anchor.retrieval.meaning import Meaning

DRAINED_BY_SEARCH = 3
"""Memories a search embeds first when no more are waiting: about 0.3 s of CPU at most."""
WARM_PAGE = 100
"""Memories read in one go: about 10 ms in which a search waits."""


class Index:
    """Thread-safe; embedding and the store run outside its lock."""

    def __init__(self, store: MemoryStore, meaning: Meaning, stand_aside: Callable[[], None]) -> None:
        self._store, self._meaning, self._stand_aside = store, meaning, stand_aside
        self._mirror = Mirror(meaning.identities)
        self._lock = threading.RLock()
        self._generation = 0
        self._is_cold = True
        self._written_meanwhile: set[str] | None = None
        self._backlogs = {
            name: Backlog(store, one, partial(self._embedded, name), using=name)
            for name, one in meaning.embedders.items()
        }

    # --- writing ---------------------------------------------------------------------------------------------------

    def entry_of(self, memory: Memory, *, embed: bool) -> Entry:
        """Return the memory with the vectors to store it with.

        embed: wait for a row, as facts do; a text of more than `AWAITED_TOKENS` gets it behind all the same.
        """
        own = embedded_text(memory)
        found = self._meaning.written(own) if embed and awaited_text(own) == own else None
        return Entry(memory, dict([found]) if found else {}, searched_words(memory))

    def note_written(self, written: Memory | Entry) -> None:
        """Take a stored version into account at once: cached answers go, words count, a missing row is queued."""
        entry = written if isinstance(written, Entry) else Entry(written)
        memory, collection = entry.memory, entry.memory.layer.value
        if collection not in (layer.value for layer in SEARCHED):
            return
        with self._lock:
            self._generation += 1
            if self._written_meanwhile is not None:
                self._written_meanwhile.add(memory.point_id)
            known, era = memory.point_id in self._mirror.row_of, self._mirror.era
            self._mirror.add(entry, collection)
            self._is_cold |= self._mirror.era != era  # full of old versions: it began anew
            fresh = isinstance(written, Entry) and not known and memory.state in FOUND_STATES
            for name, backlog in self._backlogs.items():
                if fresh and (name not in entry.vectors or is_long(memory)):
                    backlog.add(collection, memory.point_id)

    def invalidate(self) -> None:
        """Drop every cached answer and all that is derived: after an import, a restore or a reindex."""
        with self._lock:
            self._generation += 1
            self._mirror.clear()
            self._is_cold = True

    def warm(self) -> int:
        """Read every current version into the mirror, page by page; return how many. Searching goes on meanwhile.

        The mirror is whole afterwards, unless it was emptied meanwhile. A page is older than what was written since.
        """
        with self._lock:
            era, self._written_meanwhile = self._mirror.era, set()
        try:
            read = sum(self._read_all(layer.value, era) for layer in SEARCHED)
            with self._lock:
                self._mirror.is_whole = self._mirror.era == era
        finally:
            with self._lock:
                self._written_meanwhile = None
        return read

    def _read_all(self, collection: str, era: int) -> int:
        """Read a collection into the mirror and return how many; it stops where the mirror is emptied meanwhile."""
        current = Where(all_of=(OneOf("state", (*sorted(FOUND_STATES), Status.PENDING.value)),))
        read, after = 0, None
        while True:
            self._stand_aside()
            page, after = self._store.scan(collection, current, page=WARM_PAGE, after=after, with_vectors=True)
            entries = {entry.memory.point_id: entry for entry in page}
            with self._lock:
                if self._mirror.era != era:
                    return read
                newer = self._written_meanwhile or set()
                self._mirror.add_all({p: e for p, e in entries.items() if p not in newer}, collection)
                self._mirror.sign()
            read += len(page)
            if after is None:
                return read

    def in_memory(self) -> dict[str, Any]:
        """Return how many versions searches need not read from the store, and whether these are all that they ask."""
        with self._lock:
            return {"versions": len(self._mirror), "complete": self._mirror.is_whole}

    def unembedded(self) -> int:
        """Return how many searchable versions lack the row of the store's embedder; 0 without one."""
        return self._backlogs[DENSE].unembedded() if DENSE in self._backlogs else 0

    def embed_pending(self, limit: int) -> int:
        """Embed up to `limit` memories that wait, writes of this process first; return how many were done.

        Made for a background loop: its first call also reads the store into memory (`warm`).
        Raises Unavailable, WrongEmbedder: nothing was done, the embedder cannot run now.
        """
        with self._lock:
            is_cold, self._is_cold = self._is_cold, False
        if is_cold:
            try:
                self.warm()
            except MemoryAnchorError:
                self._is_cold = True
                raise
        done = self._backlogs[DENSE_LOCAL].embed(limit) if DENSE_LOCAL in self._backlogs else 0
        if DENSE in self._backlogs:
            try:
                done += self._backlogs[DENSE].embed(limit)
            except (Unavailable, WrongEmbedder):
                if not done:
                    raise
        return done

    # --- for searches ----------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Embed the last few writes first; a longer backlog is left to the background and said in a note."""
        for name, backlog in self._backlogs.items():
            embedder = self._meaning.prompt[name]
            if 0 < len(backlog) <= DRAINED_BY_SEARCH and embedder.available():
                with contextlib.suppress(Unavailable, WrongEmbedder):  # `_question` tells
                    backlog.embed(DRAINED_BY_SEARCH, by=embedder)

    def _get(self, points: Sequence[str]) -> dict[str, Memory]:
        with self._lock:
            rows = self._mirror.rows(points)
            known = np.asarray([self._mirror.points[row] for row in rows.tolist()], dtype=object)
            inside = {layer.value: known[self._mirror.within(rows, layer.value)].tolist() for layer in SEARCHED}
        return {
            entry.memory.point_id: entry.memory
            for collection, wanted in inside.items()
            if wanted
            for entry in self._store.get(collection, wanted)
        }

    def _embedded(self, using: str, vectors: Mapping[str, Matrix]) -> None:
        with self._lock:
            self._generation += 1
            self._mirror.set_vectors(vectors, using)

    def _fill(self, points: dict[str, str]) -> None:
        """Read the versions that the mirror does not know yet."""
        with self._lock:
            missing = self._mirror.missing(points)
        if not missing:
            return
        for layer in SEARCHED:
            wanted = [point for point in missing if points[point] == layer.value]
            entries = self._store.get(layer.value, wanted, with_vectors=True)
            with self._lock:
                self._mirror.add_all({entry.memory.point_id: entry for entry in entries}, layer.value)
