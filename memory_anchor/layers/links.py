"""What a memory is connected with: what it replaces or contradicts, what it came of, who, where and when else.

The firm ones were written with the memory (disputes, citations, what superseded what, promotions); the others are
looked up by indexes when somebody asks: the same conversation within half an hour, the same person, the same file.
Rejected: storing the second kind too, by a job; they would be stale after each edit and purge. Bounded: `LINKS_MAX` in
all, `EACH_MAX` of a kind, firm ones first.
Invariant: a link names only what its reader may read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from memory_anchor.language.terms import query_terms
from memory_anchor.layers.records import RECORD_COLLECTIONS
from memory_anchor.model import FOUND_STATES, Memory, Scope, audiences
from memory_anchor.ports import MemoryStore
from memory_anchor.where import Between, Condition, OneOf, Where

LINKS_MAX, EACH_MAX = 12, 4
LOOKED_AT = 20
"""Memories read of each kind before the nearest in time are chosen."""
EPISODE = timedelta(minutes=30)
"""What was said in one conversation so near to a memory was said with it."""
TEXT_CHARS = 100
_SUPERSEDED = re.compile(r"superseded by ([a-z0-9]{6,16})\b")
_STATES = (*sorted(FOUND_STATES), "superseded", "archived", "pending")

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
    """Return what a memory is connected with, firm links first, each other memory once."""
    seen = {memory.id}
    found: list[MemoryLink] = []
    for kind, other in _others(store, memory, tuple(sorted(audiences(reader)))):
        if other.id not in seen and sum(one.kind == kind for one in found) < EACH_MAX and len(found) < LINKS_MAX:
            seen.add(other.id)
            text = " ".join(other.content.split())
            found.append(MemoryLink(kind, other.id, text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"))
    return tuple(found)


def _others(store: MemoryStore, memory: Memory, readable: tuple[str, ...]) -> Iterator[tuple[LinkKind, Memory]]:
    firm = list(_firm(memory))
    if firm:
        held = {
            one.id: one
            for one in _found(store, memory, readable, OneOf("id", tuple(name for _, name in firm)), _STATES)
        }
        yield from ((kind, held[name]) for kind, name in firm if name in held)
    for path in [cited.ref for cited in memory.citations if cited.kind == "file"][:EACH_MAX]:
        where = Where((OneOf("audience", readable), OneOf("state", tuple(sorted(FOUND_STATES)))))
        for name in RECORD_COLLECTIONS:
            points = [hit.point_id for hit in store.matching(name, query_terms(path), where, limit=LOOKED_AT)]
            for entry in store.get(name, points):
                if any(cited.kind == "file" and cited.ref == path for cited in entry.memory.citations):
                    yield "same_file", entry.memory
    if memory.scope.conversation:
        near = Between("recorded_at", at_least=memory.recorded_at - EPISODE, below=memory.recorded_at + EPISODE)
        said = _found(store, memory, readable, OneOf("conversation", (memory.scope.conversation,)), also=near)
        yield from (("same_episode", one) for one in said if one.scope.project == memory.scope.project)
    if memory.who:
        yield from (("same_person", one) for one in _found(store, memory, readable, OneOf("who", memory.who)))


def _firm(memory: Memory) -> Iterator[tuple[LinkKind, str]]:
    """Yield (kind, id) of what was written with the memory."""
    yield from (("contradicts", name) for name in memory.disputes)
    before = (memory.previous_version_id or "").partition("@")[0]
    if before and before != memory.id:
        yield "replaces", before
    if match := _SUPERSEDED.search(memory.reason):
        yield "replaced_by", match[1]
    for cited in memory.citations:
        if cited.kind in ("event", "memory_entry"):
            yield "caused_by", cited.ref.partition("@")[0]
    if memory.promoted_to:
        yield "became", memory.promoted_to


def _found(
    store: MemoryStore,
    memory: Memory,
    readable: tuple[str, ...],
    condition: Condition,
    states: tuple[str, ...] = tuple(sorted(FOUND_STATES)),
    also: Condition | None = None,
) -> list[Memory]:
    """Return readable memories that meet a condition, those nearest in time to this one first."""
    conditions = (OneOf("audience", readable), OneOf("state", states), condition, *((also,) if also else ()))
    found: list[Memory] = []
    for name in RECORD_COLLECTIONS:
        found += store.find(name, Where(conditions), limit=LOOKED_AT, order_by="recorded_at", descending=True)
    return sorted(found, key=lambda one: abs((one.recorded_at - memory.recorded_at).total_seconds()))
