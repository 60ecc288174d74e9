"""Searches of a store that is too large for a mirror: an index on a server answers, and the rows it has not got yet.

The index holds what the store does up to its watermark. What was written or erased since is left out of its answer and
searched here, by reading those rows: so a search finds its own writes. Words of such rows are weighed as if they were
rare in all of the collection; they are many only while an import is being applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from memory_anchor.domain.errors import BadInput, DiskFull, MemoryAnchorError, Refused, StoreDamaged, Unavailable
from memory_anchor.domain.ports import DENSE, Hit, SparseVector
from memory_anchor.domain.where import Where
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower

if TYPE_CHECKING:
    from memory_anchor.domain.ports import AskedIndex, Matrix
    from memory_anchor.store.point_source import PointSource
    from memory_anchor.store.sql_store import SqlStore

LEFT_OUT_MAX = 2_000
"""Hits asked for beyond those wanted, since some may have changed."""


class IndexSearch:
    """The port `CandidateSearch`. None where the index has nothing yet, or does not answer."""

    def __init__(self, index: AskedIndex, follower: IndexFollower, source: PointSource, store: SqlStore) -> None:
        self._index, self._follower, self._source, self._store = index, follower, source, store

    def nearest(
        self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE
    ) -> list[Hit] | None:
        at = self._follower.applied() if collection in FOLLOWED else 0
        if not at or using not in self._store.embedders(collection):
            return None
        since = self._since(collection, at)
        with suppress(MemoryAnchorError):
            hits = self._index.nearest(
                collection, vector, where, limit=limit + min(len(since), LEFT_OUT_MAX), using=using
            )
            fresh = self._store.nearest_here(collection, vector, where, limit=limit, using=using, above=at)
            return self._merged(hits, fresh, since, limit, at)
        return None

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit] | None:
        at = self._follower.applied() if collection in FOLLOWED else 0
        if not at:
            return None
        since = self._since(collection, at)
        with suppress(MemoryAnchorError):
            hits = self._index.matching(collection, words, where, limit=limit + min(len(since), LEFT_OUT_MAX))
            fresh = self._store.matching_here(collection, words, where, limit=limit, above=at)
            return self._merged(hits, fresh, since, limit, at)
        return None

    def fault(self) -> str:
        """Return why the index does not answer, "" where it does, or has nothing yet."""
        try:
            self._index.matching(FOLLOWED[0], SparseVector((0,), (1.0,)), Where(), limit=1)
        except (Unavailable, Refused, BadInput, DiskFull) as error:
            return str(error)
        except StoreDamaged:  # it has no such collection yet
            pass
        return ""

    def _since(self, collection: str, at: int) -> set[str]:
        """Return the points of which the index may say something old."""
        gone = self._source.gone(collection, above=at, up_to=self._source.last_change())
        return {*gone, *self._source.touched(collection, above=at)}

    def _merged(
        self, hits: Sequence[Hit], fresh: Sequence[Hit], since: set[str], limit: int, at: int
    ) -> list[Hit] | None:
        """Return the answer, None where the index was thrown away meanwhile: it may lack what it should hold."""
        if self._follower.applied() < at:
            return None
        kept = [hit for hit in hits if hit.point_id not in since]
        return sorted([*kept, *fresh], key=lambda hit: -hit.score)[:limit]
