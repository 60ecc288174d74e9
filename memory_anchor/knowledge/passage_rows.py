"""Vectors of passages: those that any passage of the same text has already, and those that are made now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from memory_anchor.knowledge.index import ACTIVE, COLLECTION, PassageIndex
from memory_anchor.where import HasVector, OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix, MemoryStore
    from memory_anchor.quarantine import Quarantine

SPARE = 200
"""Passages read beyond the texts asked for: one text may stand in several sources."""


def rows_of(store: MemoryStore, hashes: Sequence[str]) -> dict[str, Mapping[str, Matrix]]:
    """Return content hash -> the vectors that any passage of that text has."""
    if not hashes:
        return {}
    where = Where((OneOf("content_hash", tuple(dict.fromkeys(hashes))), HasVector()))
    entries, _ = store.scan(COLLECTION, where, page=len(hashes) + SPARE, with_vectors=True)
    return {entry.memory.content_hash: dict(entry.vectors) for entry in entries}


def embed(
    store: MemoryStore, index: PassageIndex, embedders: Mapping[str, Embedder], quarantine: Quarantine, limit: int
) -> int:
    """Embed a few passages that have no row; return how many. Raises Unavailable, WrongEmbedder."""
    from memory_anchor.recall.embedding import document_rows

    done = 0
    for name, embedder in embedders.items():
        found = store.find(COLLECTION, ACTIVE.but_not(HasVector(name)), limit=limit + quarantine.aside())
        for group in quarantine.apart(found, lambda memory: memory.content):
            with quarantine.reading({f"passage {m.id}": m.content for m in group}, step="embed"):
                rows = document_rows(embedder, group, whole=True, headed=True)
            made = {memory.point_id: {name: row} for memory, row in zip(group, rows, strict=True)}
            store.set_vectors(COLLECTION, made)
            index.embedded(name, {point: rows[name] for point, rows in made.items()})
            done += len(made)
    return done
