"""Candidates of one search: what the engine finds by words and by meaning in every layer.

A layer that fails is left out and said in a note; the others answer. Rejected: asking for words while the query is
embedded, and for the layers side by side: on two cores it took as long (10,000 and 100,000 memories), since embedding
and a single engine query keep both of them busy.

The embedded engine scans every vector exactly, and checking its filter on each takes as long again (50,000 vectors: 12
ms, with the filter 19 ms). A search that filters by nothing but who may read what therefore asks for the nearest of
all, twice as many as it needs, and keeps those that the mirror knows to be readable and current. If enough are left
they are, the scan being exact, the very ones that the filter would have given; if not, the filter is used, and goes on
being used for this reader. Memories are checked once more before they are shown, as always.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cachetools import LRUCache

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.model import audiences as audiences_of
from memory_anchor.ports import Hit
from memory_anchor.retrieval.request import where_of
from memory_anchor.text.terms import query_terms
from memory_anchor.where import Where

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping, Sequence

    from memory_anchor.model import Actor
    from memory_anchor.ports import Matrix, MemoryStore
    from memory_anchor.retrieval.request import SearchRequest

    Readable = Callable[[str, Sequence[str], Sequence[str]], Sequence[bool] | None]

CANDIDATES = 80
"""Hits a channel and a collection: 64, 120, 200 and 400 measured the same (docs/retrieval.md)."""
OPEN_DEPTH = 2
"""How many times as many are asked for without the filter."""
READERS_REMEMBERED = 256
EXACT = ("edge", "dict")
"""Kinds of store that scan exactly, in this process."""


class Candidates:
    """Thread-safe.

    readable: (collection, point ids, audiences) -> which of them one of the audiences may read and are current; None
    while that is not known of every memory.
    """

    def __init__(self, store: MemoryStore, readable: Readable) -> None:
        self._store = store
        self._readable = readable
        self._crowded: LRUCache[tuple[str, tuple[str, ...]], bool] = LRUCache(READERS_REMEMBERED)
        self._lock = threading.Lock()

    def points(
        self,
        actor: Actor,
        request: SearchRequest,
        row: Matrix | None,
        *,
        using: str,
        notes: MutableMapping[str, bool],
    ) -> dict[str, str]:
        """Return point id -> collection of everything found. row: the query's, None for words alone.

        notes: takes a sentence for each layer that failed, True: the next search may do better.
        """
        words = query_terms(request.query)
        readers = tuple(sorted(audiences_of(actor.scope)))
        points: dict[str, str] = {}
        for layer in request.searched():
            name, where = layer.value, where_of(actor, request, layer)
            try:
                hits: list[Hit] = []
                if row is not None:
                    found = self._of_all(readers, name, row, using) if request.is_open else None
                    hits += (
                        self._store.nearest(name, row, where, limit=CANDIDATES, using=using) if found is None else found
                    )
                if words.indices:
                    hits += self._store.matching(name, words, where, limit=CANDIDATES)
                if not hits and request.since is not None:
                    hits += [Hit(one.point_id, 0.0) for one in self._store.find(name, where, limit=CANDIDATES)]
            except MemoryAnchorError as error:
                notes[f"{name} was skipped: {error}"] = True
                continue
            points.update((hit.point_id, name) for hit in hits)
        return points

    def _of_all(self, readers: tuple[str, ...], name: str, row: Matrix, using: str) -> list[Hit] | None:
        """Return the nearest readable ones out of the nearest of all; None when that may not be all of them."""
        if self._store.kind not in EXACT:
            return None
        with self._lock:
            if (name, readers) in self._crowded:
                return None
        if self._readable(name, (), readers) is None:
            return None
        depth = OPEN_DEPTH * CANDIDATES
        hits = self._store.nearest(name, row, Where(), limit=depth, using=using)
        kept = self._readable(name, [hit.point_id for hit in hits], readers)
        if kept is None:
            return None
        found = [hit for hit, may_read in zip(hits, kept, strict=True) if may_read][:CANDIDATES]
        if len(found) == CANDIDATES or len(hits) < depth:
            return found
        with self._lock:
            self._crowded[name, readers] = True
        return None
