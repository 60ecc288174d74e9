"""Candidates of one search: what the engine finds by words and by meaning in every layer, asked for side by side.

Words need no embedder, so their queries run while the query is embedded; those by meaning run together once its row is
there. On two cores this gains little: embedding and one engine query already keep both busy. A layer that fails is left
out and said in a note; the others answer.

The embedded engine scans every vector exactly, and checking its filter on each takes as long again (50,000 vectors: 12
ms, with the filter 19 ms). A search that filters by nothing but who may read what therefore asks for the nearest of
all, twice as many as it needs, and keeps those that the mirror knows to be readable and current. If enough are left
they are, the scan being exact, the very ones that the filter would have given; if not, the filter is used, and goes on
being used for this reader. Memories are checked once more before they are shown, as always.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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

    Result = TypeVar("Result")
    Readable = Callable[[str, Sequence[str], Sequence[str]], Sequence[bool] | None]

CANDIDATES = 80
"""Hits a channel and a collection: 64, 120, 200 and 400 measured the same (docs/retrieval.md)."""
WORKERS = 4
"""Two layers, each by words and by meaning; with more searches at once their queries wait in line."""
OPEN_DEPTH = 2
"""How many times as many are asked for without the filter."""
READERS_REMEMBERED = 256
EXACT = ("edge", "dict")
"""Kinds of store that scan exactly, in this process."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One request whose word queries are under way. layers: collection and filter, in the order of the request."""

    request: SearchRequest
    readers: tuple[str, ...]
    layers: tuple[tuple[str, Where], ...]
    words: tuple[Future[list[Hit]] | None, ...]


class Candidates:
    """Thread-safe. The threads end with the object.

    readable: (collection, point ids, audiences) -> which of them one of the audiences may read and are current; None
    while that is not known of every memory.
    """

    def __init__(self, store: MemoryStore, readable: Readable) -> None:
        self._store = store
        self._readable = readable
        self._crowded: LRUCache[tuple[str, tuple[str, ...]], bool] = LRUCache(READERS_REMEMBERED)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="search")

    def beside(self, work: Callable[[], Result]) -> Future[Result]:
        """Let something else of the same search run on one of the threads."""
        return self._pool.submit(work)

    def ask(self, actor: Actor, request: SearchRequest) -> Asking:
        """Start the word queries of a request and return at once."""
        words = query_terms(request.query)
        layers = tuple((layer.value, where_of(actor, request, layer)) for layer in request.searched())
        started = tuple(
            self._pool.submit(self._store.matching, name, words, where, limit=CANDIDATES) if words.indices else None
            for name, where in layers
        )
        return Asking(request, tuple(sorted(audiences_of(actor.scope))), layers, started)

    def points(
        self, asking: Asking, row: Matrix | None, *, using: str, notes: MutableMapping[str, bool]
    ) -> dict[str, str]:
        """Return point id -> collection of everything found. row: the query's, None for words alone.

        notes: takes a sentence for each layer that failed, True: the next search may do better.
        """
        near: list[Future[list[Hit]] | None] = [
            None if row is None else self._pool.submit(self._nearest, asking, name, row, where, using)
            for name, where in asking.layers
        ]
        points: dict[str, str] = {}
        for (name, where), meant, worded in zip(asking.layers, near, asking.words, strict=True):
            try:
                hits = [hit for found in (meant, worded) if found is not None for hit in found.result()]
                if not hits and asking.request.since is not None:
                    hits = [Hit(one.point_id, 0.0) for one in self._store.find(name, where, limit=CANDIDATES)]
            except MemoryAnchorError as error:
                notes[f"{name} was skipped: {error}"] = True
                continue
            points.update((hit.point_id, name) for hit in hits)
        return points

    def _nearest(self, asking: Asking, name: str, row: Matrix, where: Where, using: str) -> list[Hit]:
        if self._store.kind in EXACT and asking.request.is_open:
            found = self._of_all(asking.readers, name, row, using)
            if found is not None:
                return found
        return self._store.nearest(name, row, where, limit=CANDIDATES, using=using)

    def _of_all(self, readers: tuple[str, ...], name: str, row: Matrix, using: str) -> list[Hit] | None:
        """Return the nearest readable ones out of the nearest of all; None when that may not be all of them."""
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
