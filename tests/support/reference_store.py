"""The reference store: plain dicts and numpy, in memory, slow and obvious.

It says what the store port means; the contract suite compares every store with it. Records are kept as payloads, as in
the stores, so what does not survive the payload does not survive here either.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, assert_never

import numpy as np

from memory_anchor.adapters.payload import Payload, from_payload, to_payload, usage_payload
from memory_anchor.base.json_values import Json, number
from memory_anchor.domain.model import COLLECTIONS, Memory
from memory_anchor.domain.ports import DENSE, WORDS, CollectionSpec, EmbedderIdentity, Entry, Hit, Mark, SparseVector
from memory_anchor.domain.where import AnyOf, Between, Condition, HasVector, OneOf, StartsWith, Where
from memory_anchor.store import revisions
from memory_anchor.store.tables import checked_rows, identity_conflict, inverse_frequency

if TYPE_CHECKING:
    from memory_anchor.domain.model import Usage
    from memory_anchor.domain.ports import Matrix, VectorQuery


@dataclass(slots=True)
class _Record:
    payload: Payload
    vectors: dict[str, Matrix]
    words: SparseVector | None


@dataclass(slots=True)
class _Collection:
    embedders: dict[str, EmbedderIdentity]
    records: dict[str, _Record] = field(default_factory=dict)


class DictStore:
    kind = "dict"

    def __init__(self) -> None:
        self._collections: dict[str, _Collection] = {}
        self._lock = threading.RLock()

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        if name not in COLLECTIONS:
            raise ValueError(f"{name!r} is not one of the collections {COLLECTIONS}")
        with self._lock:
            collection = self._collections.setdefault(name, _Collection(dict(spec.embedders)))
            if conflict := identity_conflict(name, collection.embedders, spec.embedders):
                raise conflict
            collection.embedders.update(spec.embedders)

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec`; vectors made by another one are dropped, to be made again."""
        with self._lock:
            target = self._collections.setdefault(name, _Collection({}))
            for record in target.records.values():
                for vector in list(record.vectors):
                    if target.embedders[vector] != spec.embedders.get(vector):
                        del record.vectors[vector]
            target.embedders = dict(spec.embedders)

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return dict(self._collections[name].embedders)

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        with self._lock:
            target = self._collections[collection]
            fresh = {}
            for entry in entries:
                memory, stored = entry.memory, target.records.get(entry.memory.point_id)
                before = stored.payload if stored else None
                revisions.check(memory, before)
                fresh[memory.point_id] = _Record(
                    revisions.with_revision(to_payload(memory)),
                    checked_rows(entry.vectors, target.embedders),
                    entry.words if entry.words and entry.words.indices else None,
                )
            target.records.update(fresh)

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        with self._lock:
            target = self._collections[collection]
            rows = {point: checked_rows(named, target.embedders) for point, named in vectors.items()}
            for point, named in rows.items():
                if record := target.records.get(point):
                    record.vectors.update(named)

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        with self._lock:
            records = self._collections[collection].records
            for point, usage in usages.items():
                if record := records.get(point):
                    record.payload.update(usage_payload(usage))

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        with self._lock:
            records = self._collections[collection].records
            return [_entry(records[point], with_vectors) for point in point_ids if point in records]

    def find(
        self, collection: str, where: Where, *, limit: int, order_by: str | None = None, descending: bool = False
    ) -> list[Memory]:
        with self._lock:
            matches = self._matches(collection, where)
            if order_by is not None:
                matches = [(point, record) for point, record in matches if record.payload.get(order_by) is not None]
                matches.sort(key=lambda item: (_place(item[1].payload[order_by]), item[0]), reverse=descending)
            return [from_payload(record.payload) for _, record in matches[:limit]]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        with self._lock:
            rest = [item for item in self._matches(collection, where) if after is None or item[0] >= after]
            entries = [_entry(record, with_vectors) for _, record in rest[:page]]
            return entries, rest[page][0] if len(rest) > page else None

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        entries, following = self.scan(collection, where, page=page, after=after)
        memories = [entry.memory for entry in entries]
        return [Mark(memory.point_id, memory.state, memory.audience) for memory in memories], following

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        with self._lock:
            query = _unit(np.asarray(vector, dtype=np.float32))
            hits = [
                Hit(point, float(query @ _unit(record.vectors[using])))
                for point, record in self._matches(collection, where)
                if using in record.vectors
            ]
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]]:
        return [
            self.matching(collection, query.vector, where, limit=query.limit)
            if isinstance(query.vector, SparseVector)
            else self.nearest(collection, query.vector, where, limit=query.limit, using=query.using)
            for query in queries
        ]

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit]:
        with self._lock:
            corpus = [record.words for record in self._collections[collection].records.values() if record.words]
            frequency = Counter(term for stored in corpus for term in stored.indices)
            weights = {
                term: value * inverse_frequency(frequency[term], len(corpus))
                for term, value in zip(words.indices, words.values, strict=True)
            }
            hits = []
            for point, record in self._matches(collection, where):
                if record.words and (shared := weights.keys() & set(record.words.indices)):
                    stored = dict(zip(record.words.indices, record.words.values, strict=True))
                    hits.append(Hit(point, sum(weights[term] * stored[term] for term in shared)))
        return sorted(hits, key=lambda hit: -hit.score)[:limit]

    def count(self, collection: str, where: Where) -> int:
        with self._lock:
            return len(self._matches(collection, where))

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        with self._lock:
            counts = Counter(
                value
                for _, record in self._matches(collection, where)
                for value in set(_values(record.payload, field))
                if isinstance(value, str)
            )
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        with self._lock:
            for point in point_ids:
                self._collections[collection].records.pop(point, None)

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        with self._lock:
            self._collections.clear()

    def _matches(self, collection: str, where: Where) -> list[tuple[str, _Record]]:
        """Return the records that fulfil `where`, in point-id order."""
        records = self._collections[collection].records
        return [(point, records[point]) for point in sorted(records) if _fulfils(records[point], where)]


def _fulfils(record: _Record, where: Where) -> bool:
    return all(_meets(record, condition) for condition in where.all_of) and not any(
        _meets(record, condition) for condition in where.none_of
    )


def _meets(record: _Record, condition: Condition) -> bool:
    match condition:
        case OneOf(field, values):
            return any(value in values for value in _values(record.payload, field))
        case Between(field, at_least, below):
            numbers = map(_place, _values(record.payload, field))  # texts of indexed ranges are instants
            low = -math.inf if at_least is None else _place(at_least)
            high = math.inf if below is None else _place(below)
            return any(low <= number < high for number in numbers)
        case StartsWith(field, prefix):
            return any(isinstance(value, str) and value.startswith(prefix) for value in _values(record.payload, field))
        case HasVector(name):
            return name in record.vectors or (name == WORDS and record.words is not None)
        case AnyOf(options):
            return any(_fulfils(record, option) for option in options)
        case _:
            assert_never(condition)


def _values(payload: Payload, field: str) -> list[Json]:
    value = payload.get(field)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _place(value: Json | datetime) -> float:
    """Return where a number or an instant lies on its axis."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.timestamp() if isinstance(value, datetime) else number(value)


def _unit(row: Matrix) -> Matrix:
    length = float(np.linalg.norm(row))
    return row / np.float32(length) if length else row


def _entry(record: _Record, with_vectors: bool) -> Entry:
    memory = from_payload(record.payload)
    return Entry(memory, dict(record.vectors), record.words) if with_vectors else Entry(memory)
