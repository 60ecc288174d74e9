"""What a memory is connected with: what it replaces or contradicts, what caused it, who, where and when else.

Some links were written with the memory (disputes, citations, what superseded what, promotions); the others are looked
up by indexes on request: the same conversation within half an hour, the same person, the same file. Rejected: storing
the second kind too, by a job; they would be stale after each edit and purge. Bounded: `LINKS_MAX` in all, `EACH_MAX` of
a kind, written ones first.
Invariant: a link names only what its reader may read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, Scope, audiences
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.where import Between, Condition, OneOf, Where
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import query_terms
from memory_anchor.layers.records import RECORD_COLLECTIONS

LINKS_MAX, EACH_MAX = 12, 4
LOOKED_AT = 20
"""Memories read of each kind before the nearest in time are chosen."""
EPISODE = timedelta(minutes=30)
"""Memories of one conversation so near in time belong together."""
TEXT_CHARS = 100
_SUPERSEDED = late(r"superseded by ([a-z0-9]{6,16})\b")
_STATES = tuple(sorted(SEARCHABLE_STATES))

LinkKind = Literal[
    "contradicts", "replaces", "replaced_by", "caused_by", "became", "same_file", "same_episode", "same_person"
]


@dataclass(frozen=True, slots=True)
class MemoryLink:
    """text: how the other memory begins."""

    kind: LinkKind
    id: str
    text: str


def links_of(store: MemoryStore, memory: Memory, reader: Scope) -> tuple[MemoryLink, ...]:
    """Return what a memory is connected with, written links first, each other memory once."""
    seen = {memory.id}
    links: list[MemoryLink] = []
    for kind, other in _connected(store, memory, OneOf("audience", tuple(sorted(audiences(reader))))):
        if other.id not in seen and sum(link.kind == kind for link in links) < EACH_MAX and len(links) < LINKS_MAX:
            seen.add(other.id)
            text = " ".join(other.content.split())
            links.append(MemoryLink(kind, other.id, text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"))
    return tuple(links)


def _connected(store: MemoryStore, memory: Memory, readable: OneOf) -> Iterator[tuple[LinkKind, Memory]]:
    def nearest(*conditions: Condition, states: tuple[str, ...] = _STATES) -> list[Memory]:
        """Return readable memories that meet the conditions, those nearest in time to this one first."""
        where = Where((readable, OneOf("state", states), *conditions))
        memories: list[Memory] = []
        for name in RECORD_COLLECTIONS:
            memories += store.find(name, where, limit=LOOKED_AT, order_by="recorded_at", descending=True)
        return sorted(memories, key=lambda other: abs((other.recorded_at - memory.recorded_at).total_seconds()))

    if written := list(_written(memory)):
        ids = OneOf("id", tuple(other_id for _, other_id in written))
        by_id = {other.id: other for other in nearest(ids, states=(*_STATES, "superseded", "archived", "pending"))}
        yield from ((kind, by_id[other_id]) for kind, other_id in written if other_id in by_id)
    for path in [citation.ref for citation in memory.citations if citation.kind == "file"][:EACH_MAX]:
        where = Where((readable, OneOf("state", _STATES)))
        for name in RECORD_COLLECTIONS:
            points = [hit.point_id for hit in store.matching(name, query_terms(path), where, limit=LOOKED_AT)]
            for entry in store.get(name, points):
                if any(citation.kind == "file" and citation.ref == path for citation in entry.memory.citations):
                    yield "same_file", entry.memory
    if memory.scope.conversation:
        near = Between("recorded_at", at_least=memory.recorded_at - EPISODE, below=memory.recorded_at + EPISODE)
        same = nearest(OneOf("conversation", (memory.scope.conversation,)), near)
        yield from (("same_episode", other) for other in same if other.scope.project == memory.scope.project)
    if memory.who:
        yield from (("same_person", other) for other in nearest(OneOf("who", memory.who)))


def _written(memory: Memory) -> Iterator[tuple[LinkKind, str]]:
    """Yield (kind, id) of the links that were written with the memory."""
    yield from (("contradicts", other_id) for other_id in memory.disputes)
    before = (memory.previous_version_id or "").partition("@")[0]
    if before and before != memory.id:
        yield "replaces", before
    if match := _SUPERSEDED.search(memory.reason):
        yield "replaced_by", match[1]
    for citation in memory.citations:
        if citation.kind in ("event", "memory_entry"):
            yield "caused_by", citation.ref.partition("@")[0]
    if memory.promoted_to:
        yield "became", memory.promoted_to
