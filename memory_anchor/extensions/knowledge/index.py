"""An in-memory index of passages for ranking, as `recall.mirror` is of memories, so that both rank alike.

A document is to its passages what a conversation is to its events: neighbours of the best passage count a little, and
so does the whole document. The first search starts loading the collection, page by page in the background
(`load_page`); once it is loaded, a search without filter finds its passages here. Until then, for a filtered search,
and on a server that others write to, the engine finds the candidates and only these are loaded. Results are read from
the store and checked once more before they are shown.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import Memory, Status
from memory_anchor.domain.ports import Entry
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.recall import candidates, scoring
from memory_anchor.recall.mirror import Mirror

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix, MemoryStore
    from memory_anchor.language.timewords import TimeWords
    from memory_anchor.recall.ranking import RankingWeights
    from memory_anchor.recall.scoring import PreparedQuery, Scored

COLLECTION = "knowledge"
PAGE = 200
LOADED_MAX = 120_000
"""Passages that are loaded, at about 2 kB each; in larger collections the engine finds the candidates."""
ACTIVE = Where((OneOf("state", (Status.ACTIVE.value,)),))
_SEPARATOR = "\n"


def counted_for(readers: Collection[str]) -> str:
    """Return the name of the word counts over the passages that these audiences may read."""
    return _SEPARATOR.join(sorted(readers))


class _Passages(Mirror):
    """Rows of passages: their document is their conversation; words are counted over what a reader may read."""

    def conversation_place(self, memory: Memory, collection: str) -> tuple[str, int] | None:
        if not memory.citations:
            return None
        return f"{collection}|{memory.author}|{memory.where}", memory.citations[0].locator.chunk_index or 0

    def counted_rows(self, project: str) -> NDArray[np.bool_]:
        return self.readable(np.arange(len(self)), project.split(_SEPARATOR))


class PassageIndex:
    """The rows of all passages. Thread-safe; the store is called without holding the lock."""

    def __init__(self, store: MemoryStore, identities: Mapping[str, EmbedderIdentity]) -> None:
        self._store, self._identities = store, identities
        self._lock = threading.RLock()
        self.invalidate()

    def invalidate(self) -> None:
        """Drop every row: passages were written without telling this index."""
        with self._lock:
            self._mirror = _Passages(self._identities)
            self._is_requested = False
            self._after: str | None = None
            self._changed_since: set[str] = set()
            """Points written since loading began: a page that is being read may be older."""

    # --- changes ---------------------------------------------------------------------------------------------------

    def update(self, entries: Sequence[Entry]) -> None:
        """Replace the rows of passages that were stored; nothing is loaded before the first search."""
        with self._lock:
            self.drop(entry.memory.point_id for entry in entries)
            if self._is_requested:
                self._add(entries)

    def drop(self, points: Iterable[str]) -> None:
        """Drop the rows of these passages."""
        with self._lock:
            dropped = list(points)
            self._note_changed(dropped)
            self._mirror.drop(dropped)

    def set_vectors(self, using: str, vectors: Mapping[str, Matrix]) -> None:
        """Set the vectors of passages."""
        with self._lock:
            self._note_changed(vectors)
            self._mirror.set_vectors(vectors, using)

    def _note_changed(self, points: Iterable[str]) -> None:
        if self._after is not None:
            self._changed_since.update(points)

    def _add(self, entries: Sequence[Entry]) -> None:
        """Add the passages that have no row yet; the caller holds the lock."""
        era, points = self._mirror.era, self._mirror.points
        new = {e.memory.point_id: e for e in entries if e.memory.point_id not in points and e.memory.content}
        self._mirror.add_all(new, COLLECTION)
        if self._mirror.era != era:  # the mirror was full of dropped rows and was cleared
            self._after = None

    def load_page(self) -> bool:
        """Load the next page; return whether there was any. For one thread in the background."""
        with self._lock:
            mirror = self._mirror
            if not self._is_requested or mirror.is_whole or self._store.kind not in candidates.WRITTEN_HERE:
                return False
            if self._after is None:
                self._after, self._changed_since = "", set()
        if not self._after and self._store.count(COLLECTION, ACTIVE) > LOADED_MAX:
            self._is_requested = False
            return False
        page, after = self._store.scan(COLLECTION, ACTIVE, page=PAGE, after=self._after or None, with_vectors=True)
        with self._lock:
            if self._mirror is not mirror or self._after is None:
                return True
            self._add([entry for entry in page if entry.memory.point_id not in self._changed_since])
            if after is None:
                late = [point for point in self._changed_since if point not in mirror.points]
                self._add(self._store.get(COLLECTION, late, with_vectors=True))
            self._after, mirror.is_whole = after, after is None
        return True

    # --- for searches ----------------------------------------------------------------------------------------------

    def scored(
        self,
        question: PreparedQuery,
        where: Where,
        *,
        readers: Collection[str],
        weights: RankingWeights,
        period: TimeWords | None,
    ) -> Scored | None:
        """Return the scores of the passages that a question finds, None for none. where: an empty filter searches all
        that the readers may read."""
        audiences = tuple(sorted(readers))

        def score(rows: NDArray[np.int64] | None) -> Scored | None:
            words = mirror.words(question.term_ids, question.project, question.abroad)
            if rows is None:
                rows = candidates.among(mirror, [mirror.readable_in(COLLECTION, audiences)], question, words)
            if not len(rows):
                return None
            return scoring.score(
                mirror, question, rows, words, weights=weights, readers=audiences, period=period, is_levelled=True
            )

        with self._lock:
            self._is_requested = True
            mirror = self._mirror
            if mirror.is_whole and where == Where():
                return score(None)
            centring = mirror.centring(question.using)
            query_row = question.row
            if query_row is not None and centring is not None:
                query_row = centring.query(query_row, question.script)
        points = [hit.point_id for hit in candidates.store_hits(self._store, COLLECTION, where, question, query_row)]
        with self._lock:
            to_read = candidates.points_to_read(self._store, mirror, points, self._identities)
            unembedded = {point for point in to_read if point in mirror.points}
        entries = self._store.get(COLLECTION, to_read, with_vectors=True)
        with self._lock:
            if self._mirror is mirror:
                self._add(entries)
                vectors = {e.memory.point_id: e.vectors for e in entries if e.memory.point_id in unembedded}
                for name in self._identities:
                    mirror.set_vectors({point: rows[name] for point, rows in vectors.items() if name in rows}, name)
            return score(np.unique(mirror.rows(points)))
