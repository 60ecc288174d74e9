"""Candidates of one search: what the engine finds by words and by meaning in every layer, asked for side by side.

Words need no embedder, so their queries run while the query is embedded; those by meaning run together once its row is
there. Each engine query releases the interpreter, so two layers cost the time of one. A layer that fails is left out
and said in a note; the others answer.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.ports import Hit
from memory_anchor.retrieval.request import where_of
from memory_anchor.text.terms import query_terms

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from memory_anchor.model import Actor
    from memory_anchor.ports import Matrix, MemoryStore
    from memory_anchor.retrieval.request import SearchRequest
    from memory_anchor.where import Where

    Result = TypeVar("Result")

CANDIDATES = 120
"""Hits a channel and a collection: 100, 200 and 400 measured the same (docs/retrieval.md)."""
WORKERS = 4
"""Two layers, each by words and by meaning; with more searches at once their queries wait in line."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One request whose word queries are under way. layers: collection and filter, in the order of the request."""

    request: SearchRequest
    layers: tuple[tuple[str, Where], ...]
    words: tuple[Future[list[Hit]] | None, ...]


class Candidates:
    """Thread-safe. The threads end with the object, or with `close`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="search")

    def close(self) -> None:
        """End the threads; a search after this raises RuntimeError."""
        self._pool.shutdown(wait=False)

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
        return Asking(request, layers, started)

    def points(
        self, asking: Asking, row: Matrix | None, *, using: str, notes: MutableMapping[str, bool]
    ) -> dict[str, str]:
        """Return point id -> collection of everything found. row: the query's, None for words alone.

        notes: takes a sentence for each layer that failed, True: the next search may do better.
        """
        near: list[Future[list[Hit]] | None] = [
            None if row is None else self._pool.submit(self._nearest, name, row, where, using)
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

    def _nearest(self, name: str, row: Matrix, where: Where, using: str) -> list[Hit]:
        return self._store.nearest(name, row, where, limit=CANDIDATES, using=using)
