"""Searches of a store that is too large for a mirror: an index on a server answers, and the rows it has not got yet.

The index holds what the store does up to its watermark. What was written or erased since is left out of its answer and
searched here, by reading those rows: so a search finds its own writes. Words of such rows are weighed as if they were
rare in all of the collection; they are many only while an import is being applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.domain.errors import BadInput, DiskFull, MemoryAnchorError, Refused, StoreDamaged, Unavailable
from memory_anchor.domain.ports import Hit, SparseVector, VectorQuery
from memory_anchor.domain.where import Where
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower

if TYPE_CHECKING:
    from memory_anchor.domain.ports import AskedIndex
    from memory_anchor.store.point_source import PointSource
    from memory_anchor.store.sql_store import SqlStore

LEFT_OUT_MAX = 2_000
"""Hits asked for beyond those wanted, since some may have changed."""


class IndexSearch:
    """The port `CandidateSearch`. None where the index has nothing yet, or does not answer."""

    def __init__(self, index: AskedIndex, follower: IndexFollower, source: PointSource, store: SqlStore) -> None:
        self._index, self._follower, self._source, self._store = index, follower, source, store

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]] | None:
        at = self._follower.applied() if collection in FOLLOWED else 0
        dense = {query.using for query in queries if not isinstance(query.vector, SparseVector)}
        if not at or dense - self._store.embedders(collection).keys():
            return None
        since = self._since(collection, at)
        more = min(len(since), LEFT_OUT_MAX)
        with suppress(MemoryAnchorError):
            asked = [replace(query, limit=query.limit + more) for query in queries]
            there = self._index.query_batch(collection, asked, where)
            since |= self._since(collection, at)  # what was written while the index answered
            fresh = self._store.query_here(collection, queries, where, at)
            if self._follower.applied() < at:  # thrown away meanwhile: it may lack what it should hold
                return None
            kept = [[hit for hit in hits if hit.point_id not in since] for hits in there]
            found = [sorted(old + new, key=lambda hit: -hit.score) for old, new in zip(kept, fresh, strict=True)]
            return [hits[: query.limit] for hits, query in zip(found, queries, strict=True)]
        return None

    def fault(self) -> str:
        """Return why the index does not answer, "" where it does, or has nothing yet."""
        try:
            self._index.query_batch(FOLLOWED[0], [VectorQuery(SparseVector((0,), (1.0,)), 1)], Where())
        except (Unavailable, Refused, BadInput, DiskFull) as error:
            return str(error)
        except StoreDamaged:  # it has no such collection yet
            pass
        return ""

    def _since(self, collection: str, at: int) -> set[str]:
        """Return the points of which the index may say something old."""
        gone = self._source.gone(collection, above=at, up_to=self._source.last_change())
        return {*gone, *self._source.touched(collection, above=at)}
