"""Vectors held against the texts they were made of: the engine keeps no checksum, and a flipped bit moves one unseen.

Each row is made anew with the embedder that runs here and compared number by number; one behind an API is not asked
again, since it costs money and need not answer alike. Rejected: a checksum beside the vector, since the engine keeps a
row in 16 bits that nobody sees before it is read back. Cost: 60 to 130 ms of CPU a memory, in steps that may be left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import Embedder, MemoryStore
from memory_anchor.recall.embedding import document_rows
from memory_anchor.where import HasVector, Where

if TYPE_CHECKING:
    from memory_anchor.model import Memory
    from memory_anchor.ports import Matrix

TOLERANCE = 3e-5
"""Most that one of 384 numbers differs: storing in 16 bits changes it by 6e-6, a flipped bit by 5e-5 to 1. Flips below
move no cosine by more than 1e-6."""
PAGE = 16


@dataclass(slots=True)
class Looked:
    """What was found. odd: version ids. left: (vector's name, collection, after) to go on with, None at the end."""

    count: int = 0
    odd: list[str] = field(default_factory=list)
    left: tuple[str, str, str | None] | None = None


def look(
    store: MemoryStore,
    embedders: Mapping[str, Embedder],
    *,
    start: Sequence[str | None] = (),
    enough: Callable[[], bool],
) -> Looked:
    """Return what vectors are not those of their texts, from `start` on, until `enough` or the end.

    embedders: vector's name -> who makes it here. start: what `left` said. Raises Unavailable: an embedder cannot run.
    """
    looked = Looked()
    places = [(name, collection) for name in sorted(embedders) for collection in COLLECTIONS]
    places = [one for one in places if store.embedders(one[1]).get(one[0]) == embedders[one[0]].identity]
    after: str | None = None
    if start:
        name, collection, after = start
        places = places[places.index((str(name), str(collection))) :]
    for name, collection in places:
        while True:
            if enough():
                looked.left = (name, collection, after)
                return looked
            page, after = store.scan(collection, Where((HasVector(name),)), page=PAGE, after=after, with_vectors=True)
            rows = {entry.memory.version_id: entry.vectors[name] for entry in page}
            looked.odd += _odd(embedders[name], [entry.memory for entry in page], rows)
            looked.count += len(page)
            if after is None:
                break
    return looked


def _odd(embedder: Embedder, memories: Sequence[Memory], stored: Mapping[str, Matrix]) -> list[str]:
    """Return the version ids whose row is neither the whole text's nor the one of what a write waits for."""
    left = list(memories)
    for whole in (True, False):
        if left:
            rows = document_rows(embedder, left, whole=whole)
            near = [np.abs(stored[m.version_id] - row).max() <= TOLERANCE for m, row in zip(left, rows, strict=True)]
            left = [memory for memory, is_near in zip(left, near, strict=True) if not is_near]
    return [memory.version_id for memory in left]
