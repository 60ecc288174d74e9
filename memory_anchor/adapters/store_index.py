"""The index port over a store that is asked as one: a Qdrant server, where many memories are searched, or a dict.

Its collections stay readable while they are brought after the truth. A server removes what is erased in its own time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters.payload import from_payload
from memory_anchor.base.json_values import parsed, record, whole
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry, Hit, Mark, SparseVector
from memory_anchor.domain.where import Where

if TYPE_CHECKING:
    from memory_anchor.domain.ports import EmbedderIdentity, Matrix, MemoryStore, WholePoint

PAGE = 500
_TERM_WEIGHT = np.dtype([("term", "<u4"), ("weight", "<f4")])


class StoreIndex:
    """The port `SearchIndex`. The store is the caller's to close."""

    def __init__(self, name: str, store: MemoryStore) -> None:
        """name: what the watermark is kept under; another one for another server."""
        self.name, self._store = name, store
        self._anew: dict[str, set[str]] = {}

    def fingerprint(self) -> str:
        return ""

    def begin(self, collections: Mapping[str, Mapping[str, EmbedderIdentity]], *, anew: bool) -> None:
        self._anew.clear()
        for name, embedders in collections.items():
            spec = CollectionSpec(embedders)
            found = self._store.peek(name)
            if anew and found is not None:
                self._store.open_collection(name, CollectionSpec(found[1]))
                self._store.erase(name, [mark.point_id for mark in self.marks(name)])
                if dict(found[1]) != dict(embedders):
                    self._store.reindex(name, spec)
            self._store.open_collection(name, spec)

    def count(self, collection: str) -> int:
        return self._store.count(collection, Where())

    def apply(self, collection: str, points: Sequence[WholePoint]) -> None:
        self._store.put(collection, [_entry_of(point) for point in points])
        if collection in self._anew:
            self._anew[collection].update(point.point_id for point in points)

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        self._store.erase(collection, point_ids)

    def marks(self, collection: str) -> Iterator[Mark]:
        after: str | None = None
        while True:
            page, after = self._store.marks(collection, Where(), page=PAGE, after=after)
            yield from page
            if after is None:
                return

    def begin_anew(self, collection: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        del embedders
        self._anew[collection] = set()

    def put_in_place(self, collection: str) -> None:
        kept = self._anew.pop(collection)
        self.erase(collection, [mark.point_id for mark in self.marks(collection) if mark.point_id not in kept])

    def nearest(self, collection: str, vector: Matrix, *, limit: int, using: str = DENSE) -> list[Hit]:
        return self._store.nearest(collection, vector, Where(), limit=limit, using=using)

    def matching(self, collection: str, words: SparseVector, *, limit: int) -> list[Hit]:
        return self._store.matching(collection, words, Where(), limit=limit)

    def flush(self) -> None:
        self._store.flush()

    def end(self) -> None:
        """Do nothing: the store stays open."""

    def give_up(self) -> None:
        """Do nothing: what was applied stays, and is applied again."""


def _entry_of(point: WholePoint) -> Entry:
    vectors: dict[str, Matrix] = {}
    at = 0
    for name, length in record(parsed(point.names)).items() if point.names else ():
        vectors[name] = np.frombuffer(point.dense, "<f4", count=whole(length), offset=4 * at).astype(np.float32)
        at += whole(length)
    words = np.frombuffer(point.words, _TERM_WEIGHT)
    sparse = SparseVector(tuple(words["term"].tolist()), tuple(words["weight"].tolist())) if len(words) else None
    memory = replace(from_payload(dict(record(parsed(point.payload)))), revision=None)  # it is the truth, not an answer
    return Entry(memory, vectors, sparse)
