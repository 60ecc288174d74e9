"""Candidates of one search: what is found by words and by meaning in every layer.

Where the mirror holds the whole store and follows it, every search finds them there, among the rows that its filter
lets through. Of a store that does not number its writes, and that this process alone writes to, it answers what is
limited by nothing but who may read what: no trip to the engine, which checks its filter on every vector and builds an
object a hit (10,000 memories: 0.7 ms instead of 6; 100,000: 3 instead of 30). The rest goes to the engine, every filter
pushed down. A layer that fails there is left out with a note; the others answer. Either way memories are checked once
more before they are shown.

Rejected: asking the engine for words while the query is embedded, and for the layers side by side: on two cores it took
as long, since embedding and a single engine query keep both of them busy. The mirror's part of it is asked then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Layer, Status
from memory_anchor.domain.model import audiences as audiences_of
from memory_anchor.domain.ports import Hit, SparseVector, VectorQuery
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.language.coverage import alike
from memory_anchor.language.terms import phrases, query_terms
from memory_anchor.recall.mirror import ROWS_OF_A_TEXT
from memory_anchor.recall.point_table import NONE, packed_points
from memory_anchor.recall.request import SearchRequest, where_of
from memory_anchor.recall.vector_rows import least

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.model import Actor, Memory
    from memory_anchor.domain.ports import Matrix, MemoryStore
    from memory_anchor.recall.index import Index
    from memory_anchor.recall.mirror import Mirror
    from memory_anchor.recall.scoring import PreparedQuery
    from memory_anchor.recall.search_context import SearchContext
    from memory_anchor.recall.word_table import WordScores

CANDIDATES = 80
"""Hits a channel and a collection: 64, 120, 200 and 400 measured the same (docs/retrieval.md)."""
QUOTED = 1000
"""Hits by words for a query that quotes: its phrase may stand in one of many memories with the same words."""
OF_A_KIND = 400
"""Hits where the newest of a kind is asked for: it may be the last of many that say almost the same."""
JUST_WRITTEN = 40
"""Memories of a layer without a vector yet, the newest first, that are candidates whatever their words."""
LISTED_MAX = 2_000
"""Memories of a period that are looked through for different ones."""
WRITTEN_HERE = ("sqlite",)
"""Kinds of store that no other process writes to."""
BARE_READ = 50
"""Memories without a vector that a search reads again, the newest of them, where other engines embed too."""


Asked = Mapping[str, tuple[Where, Sequence[int] | None]]
"""Collection -> its filter, and the versions that the store finds by what the mirror does not know of it."""


def points_to_read(store: MemoryStore, mirror: Mirror, points: Sequence[str], embedders: Iterable[str]) -> list[str]:
    """Return which of these points a search reads of the store: those that the mirror does not know, and, where another
    engine may have embedded them since they were read, those without a vector."""
    known = mirror.points.rows(packed_points(points)).tolist()
    missing = [point for point, row in zip(points, known, strict=True) if row == NONE]
    if store.kind in WRITTEN_HERE:
        return missing
    rows = mirror.rows(points)
    waiting = [mirror.newest_without_row(rows, limit=BARE_READ, using=name) for name in embedders]
    return [*missing, *{point for found in waiting for point in mirror.points.texts(found)}]


def audience_key(actor: Actor) -> tuple[str, ...]:
    """Return the audiences an actor belongs to, as `Mirror.readable_in` wants them."""
    return tuple(sorted(audiences_of(actor.scope)))


def asked_of_index(index: Index, context: SearchContext) -> Asked:
    """Return what the mirror needs of the store to find what the request does; nothing for an open request."""
    request = context.request
    if request.is_unfiltered:
        return {}
    wheres = {layer.value: where_of(context.actor, request, layer) for layer in request.searched()}
    return {name: (where, index.asked_of_store(name, where)) for name, where in wheres.items()}


def from_mirror(mirror: Mirror, context: SearchContext, words: WordScores, asked: Asked) -> NDArray[np.int64]:
    """Return the rows of a whole mirror that the request finds, sorted. asked: `asked_of_index`."""
    readers = audience_key(context.actor)
    groups = [
        mirror.found_by(layer.value, *asked[layer.value])
        if layer.value in asked
        else mirror.readable_in(layer.value, readers)
        for layer in context.request.searched()
    ]
    breadth = CANDIDATES if context.query.end is None else OF_A_KIND
    depth = QUOTED if phrases(context.request.query) else breadth
    return among(mirror, groups, context.query, words, depth=depth, breadth=breadth)


def among(
    mirror: Mirror,
    groups: Sequence[NDArray[np.int64]],
    question: PreparedQuery,
    words: WordScores,
    *,
    depth: int = CANDIDATES,
    breadth: int = CANDIDATES,
) -> NDArray[np.int64]:
    """Return the rows of each group that a question finds: `depth` by words, `breadth` by meaning; sorted."""
    matching = [group[words.scores[group] > 0] for group in groups]
    found = [rows[least(-words.scores[rows], depth)] for rows in matching]
    if words.abroad is not None:
        translated = [group[words.abroad[group] > 0] for group in groups]
        found += [rows[least(-words.abroad[rows], CANDIDATES)] for rows in translated]
    if question.row is not None:
        found += [mirror.newest_without_row(group, limit=JUST_WRITTEN, using=question.using) for group in groups]
        found.append(mirror.nearest(question.row, question.script, groups, limit=breadth, using=question.using))
    return np.unique(np.concatenate(found))


def from_store(store: MemoryStore, context: SearchContext, row: Matrix | None) -> dict[str, str]:
    """Return point id -> collection of everything the engine finds. row: what is near, None for words alone.

    A layer that failed gets a note: the next search may do better.
    """
    request = context.request
    points: dict[str, str] = {}
    breadth = CANDIDATES if context.query.end is None else OF_A_KIND
    depth = QUOTED if phrases(context.request.query) else breadth
    for layer in request.searched():
        name, where = layer.value, where_of(context.actor, request, layer)
        time_field = "when" if layer is Layer.EVENT_LOG else "recorded_at"
        try:
            if context.lists_period:
                newest = _newest(store, name, where, time_field, request.limit)
                hits = [Hit(memory.point_id, 0.0) for memory in newest]
            else:
                hits = store_hits(store, name, where, context.query, row, depth=depth, breadth=breadth)
        except MemoryAnchorError as error:
            context.notes[f"{name} was skipped: {error}"] = True
            continue
        points.update((hit.point_id, name) for hit in hits)
    return points


def store_hits(
    store: MemoryStore,
    collection: str,
    where: Where,
    question: PreparedQuery,
    row: Matrix | None,
    *,
    depth: int = CANDIDATES,
    breadth: int = CANDIDATES,
) -> list[Hit]:
    """Return what the engine finds of a collection by meaning, by words and by words of the other language, at once."""
    queries = []
    if row is not None:
        queries.append(VectorQuery(row, breadth, question.using))
    if terms := question.term_ids:
        queries.append(VectorQuery(SparseVector(terms, (1.0,) * len(terms)), depth))
    if translated := {term for word in question.abroad for phrase in word for term in phrase}:
        words = SparseVector(tuple(sorted(translated)), (1.0,) * len(translated))
        queries.append(VectorQuery(words, CANDIDATES))
    return list(chain.from_iterable(store.query_batch(collection, queries, where)))


def similar_by_words(
    store: MemoryStore, actor: Actor, text: str, layer: Layer, *, limit: int
) -> list[tuple[Memory, float]]:
    """Return the readable memories of a layer that share words with a text, best first, each with `alike`."""
    words = query_terms(text)
    if not words.indices:
        return []
    request = SearchRequest(query=text, layers=(layer,), include_pending=True)
    hits = store.matching(layer.value, words, where_of(actor, request, layer), limit=CANDIDATES)
    entries = store.get(layer.value, [hit.point_id for hit in hits])
    near = [(entry.memory, alike(entry.memory.content, text)) for entry in entries]
    return sorted(near, key=lambda pair: -pair[1])[:limit]


def any_pending(store: MemoryStore, actor: Actor) -> bool:
    """Return whether a fact that the actor reads waits for review."""
    readable = OneOf("audience", tuple(sorted(audiences_of(actor.scope))))
    return store.count(Layer.VERIFIED_FACT.value, Where((readable, OneOf("state", (Status.PENDING.value,))))) > 0


def _newest(store: MemoryStore, name: str, where: Where, by: str, wanted: int) -> list[Memory]:
    """Return the newest of a period, so many that as many different texts as asked for are among them."""
    depth = CANDIDATES
    while True:
        found = store.find(name, where, limit=depth, order_by=by, descending=True)
        texts = Counter[str]()
        newest = []
        for memory in found:
            texts[memory.content] += 1
            if texts[memory.content] <= ROWS_OF_A_TEXT:
                newest.append(memory)
        if len(texts) >= wanted or len(found) < depth or depth >= LISTED_MAX:
            return newest
        depth *= 5
