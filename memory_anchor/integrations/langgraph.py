"""LangGraph's long-term store in this memory (extra `langgraph`): `graph.compile(store=LangGraphStore(memory))`.

An item is one note of the event log: its value as JSON, its key, its namespace as the place, and tags for the item and
each prefix of its namespace. Putting an item again logs the new note first and archives the old one, so that a crash
loses none. Rejected: facts, since two items with the same text would be one. A value is at most 8,000 characters of
JSON, and secrets in it are removed as everywhere. TTLs are not supported. Of a namespace 1,000 items are listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote, unquote

import anyio.to_thread
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp
from langgraph.store.memory import _compare_values, _does_match

from memory_anchor.extensions.library.answers import StoredMemory
from memory_anchor.extensions.library.memory import Memory

TAG, UNINDEXED = "langgraph", "langgraph-unindexed"
LISTED_MAX, SEARCHED_MAX = 1_000, 50
Namespace = tuple[str, ...]


class LangGraphStore(BaseStore):
    """LangGraph's `BaseStore` on a `Memory`, for any number of threads."""

    supports_ttl = False

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        last: dict[tuple[Namespace, str], PutOp] = {}
        results: list[Result] = []
        for op in ops:
            results.append(self._read(op) if not isinstance(op, PutOp) else None)
            if isinstance(op, PutOp):
                last[op.namespace, op.key] = op
        for put in last.values():
            self._put(put)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await anyio.to_thread.run_sync(self.batch, list(ops))

    def _read(self, op: Op) -> Result:
        match op:
            case GetOp():
                notes = self._notes(op.namespace, op.key)
                return _item(notes[0]) if notes else None
            case SearchOp():
                return self._search(op)
            case ListNamespacesOp():
                return self._namespaces(op)
        raise ValueError(f"unknown operation {type(op).__name__}")

    def _notes(self, namespace: Namespace, key: str) -> list[StoredMemory]:
        """Return the notes of an item, the current one first."""
        notes = self._memory.list(layer="event_log", tag=_tag("item", *namespace, key), limit=LISTED_MAX)
        return sorted(notes, key=lambda note: (note.recorded_at or datetime.min.replace(tzinfo=UTC), note.id))[::-1]

    def _put(self, op: PutOp) -> None:
        if op.value is not None:
            self._memory.log(
                json.dumps(op.value, ensure_ascii=False),
                type="note",
                key=op.key,
                where=_place(op.namespace),
                tags=[
                    TAG,
                    _tag("item", *op.namespace, op.key),
                    *(_tag("in", *op.namespace[:depth]) for depth in range(1, len(op.namespace) + 1)),
                    *([UNINDEXED] if op.index is False else []),
                ],
            )
        for old in self._notes(op.namespace, op.key)[op.value is not None :]:
            self._memory.forget(old.id, reason="put again" if op.value is not None else "deleted")

    def _search(self, op: SearchOp) -> list[SearchItem]:
        inside = _tag("in", *op.namespace_prefix) if op.namespace_prefix else TAG
        scores: dict[str, float] = {}
        if op.query:
            most = SEARCHED_MAX if op.filter else min(op.offset + op.limit, SEARCHED_MAX)
            hits = self._memory.search(op.query, layers="event_log", tags=inside, limit=most)
            scores = {hit.id: hit.score for hit in hits if UNINDEXED not in hit.tags}
            notes = [self._memory.get(id) for id in scores]
        else:
            notes = self._memory.list(layer="event_log", tag=inside, limit=LISTED_MAX)[::-1]
        items = [(note.id, _item(note)) for note in notes]
        asked = (op.filter or {}).items()
        fitting = [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, scores.get(id))
            for id, item in items
            if all(_compare_values(item.value.get(name), wanted) for name, wanted in asked)
        ]
        return fitting[op.offset : op.offset + op.limit]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        notes = self._memory.list(layer="event_log", tag=TAG, limit=LISTED_MAX)
        known = {_namespace(note) for note in notes}
        conditions = op.match_conditions or ()
        fitting = {each for each in known if all(_does_match(condition, each) for condition in conditions)}
        return sorted({each[: op.max_depth] for each in fitting})[op.offset : op.offset + op.limit]


def _tag(kind: str, *names: str) -> str:
    return f"{kind}-{sha256(_place(names).encode()).hexdigest()[:24]}"


def _place(names: Namespace) -> str:
    return "/".join(quote(name, safe="") for name in names)


def _namespace(note: StoredMemory) -> Namespace:
    return tuple(unquote(name) for name in note.where.split("/"))


def _item(note: StoredMemory) -> Item:
    value: Any = json.loads(note.content)
    at = note.recorded_at or note.when
    return Item(value=value, key=note.key, namespace=_namespace(note), created_at=at, updated_at=at)
