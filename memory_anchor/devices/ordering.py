"""Which version of a memory stands when several devices wrote: pure, and the same for the same set everywhere.

A synced version names those it was written over (`parents`). Its `hint` is the number it had where it was written, and
always above its parents' hints, so that order by (hint, instant, name) puts what was known before what was written
over it. Merging is union. Versions that nothing was written over are heads: one head stands. Of several that say
different things the newest stands, in a version of its own that every device makes alike (so all agree without
asking); a text that would stand nowhere becomes a memory of its own, disputed with the first until a human has looked
(`memory-anchor review`). A text written anew goes before a forgetting that did not know of it.

Rejected: version vectors (they tell the same and grow with every device) and the newest wins (half of the texts gone).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memory_anchor.adapters.system import ALPHABET, ID_LENGTH
from memory_anchor.model import Layer, Memory, Status, Tag, Usage
from memory_anchor.versions import same_meaning

FOUND = (Status.ACTIVE, Status.DISPUTED)
LIVE = (*FOUND, Status.PENDING)
TAGS_MAX = 32
JOINED = "written on several devices at once: the newest stands"
"""The reason of a version that ends a disagreement of heads."""
PARENTS_MAX = 64
"""Heads of one memory: one a device at most."""


@dataclass(frozen=True, slots=True)
class SyncedVersion:
    """One version as devices name it. name: hash of what it says and its hint. memory: as this store numbers it."""

    name: str
    hint: int
    parents: frozenset[str]
    memory: Memory

    @property
    def key(self) -> tuple[int, str, str]:
        return self.hint, self.memory.recorded_at.isoformat(), self.name


def in_order(versions: Iterable[SyncedVersion]) -> list[SyncedVersion]:
    """Return the versions of one memory, the one that stands last, numbered without a gap that was not there."""
    number, told, before = 0, [], ""
    ordered = sorted(versions, key=lambda one: one.key)
    stands = max(heads_of(ordered), key=lambda one: one.key, default=None)
    for one in [*(one for one in ordered if one is not stands), *([stands] if stands else ())]:
        number = max(one.hint, number + 1)
        previous = before or (one.memory.previous_version_id if one.hint == 1 else None)
        told.append(replace(one, memory=replace(one.memory, version=number, previous_version_id=previous)))
        before = f"{one.memory.id}@{number}"
    ends = [one.memory.recorded_at for one in told[1:]]
    closed = [
        replace(one, memory=replace(one.memory.closed(max(one.memory.recorded_at, end)), receipts=()))
        for one, end in zip(told, ends, strict=False)
    ]
    last = [replace(one, memory=replace(one.memory, is_current=True, recorded_to=None)) for one in told[-1:]]
    return [*closed, *last]


def heads_of(versions: Sequence[SyncedVersion], over: Iterable[str] = ()) -> list[SyncedVersion]:
    """Return those that nothing was written over, in their order; over: names that something not here was written over.

    A version that only ended a disagreement says nothing where another head knew all that it joined.
    """
    parents = {parent for one in versions for parent in one.parents} | set(over)
    heads = [one for one in versions if one.name not in parents]
    if len(heads) < 2:
        return heads
    before = _before(versions, heads)

    def is_idle(one: SyncedVersion) -> bool:
        return one.memory.reason == JOINED and any(
            one.parents <= {version.name for version in before[other.name]} for other in heads if other is not one
        )

    return [one for one in heads if not is_idle(one)] or heads


def joined(versions: Sequence[SyncedVersion], over: Iterable[str] = ()) -> tuple[Memory, list[Memory]] | None:
    """Return the version that ends a disagreement of heads and the memories of their own; None where there is none.

    versions: of one memory, in order. over: see `heads_of`.
    """
    heads = heads_of(versions, over)
    if len(heads) < 2 or all(same_meaning(heads[0].memory, one.memory) for one in heads[1:]):
        return None
    before = _before(versions, heads)

    def has_news(one: SyncedVersion) -> bool:
        known = {other.memory.content_hash for head in heads if head is not one for other in before[head.name]}
        return one.memory.status in LIVE and one.memory.content_hash not in known

    winner = max(heads, key=lambda one: (has_news(one), one.memory.recorded_at, one.name))
    others = sorted((one for one in heads if one is not winner), key=lambda one: one.key)
    beside: dict[str, Memory] = {}
    for one in others:
        if has_news(one) and one.memory.content_hash != winner.memory.content_hash:
            apart = _apart(one.memory)
            beside.setdefault(apart.id, apart)
    disputes = [*winner.memory.disputes, *(name for one in others for name in one.memory.disputes), *beside]
    tags = {tag.name: tag for one in (*reversed(others), winner) for tag in one.memory.tags}
    disputed = bool(beside) and winner.memory.layer is Layer.VERIFIED_FACT and winner.memory.status in FOUND
    new = replace(
        winner.memory,
        version=versions[-1].memory.version + 1,
        recorded_at=max(one.memory.recorded_at for one in heads),
        first_recorded_at=winner.memory.learned_at,
        content_at=winner.memory.told_at,
        status=Status.DISPUTED if disputed else winner.memory.status,
        disputes=tuple(dict.fromkeys(disputes)) if winner.memory.status in LIVE else winner.memory.disputes,
        tags=_kept(winner.memory.tags, tags),
        reason=JOINED,
        written_in="",
    )
    return new, list(beside.values())


def apart_id(memory_id: str, content_hash: str) -> str:
    """Return the id of a text that stands beside the memory it was written for: the same on every device."""
    number = int.from_bytes(hashlib.sha256(f"{memory_id} beside {content_hash}".encode()).digest()[:9], "big")
    return "".join(ALPHABET[number >> (5 * place) & 31] for place in reversed(range(ID_LENGTH)))


def _apart(memory: Memory) -> Memory:
    is_fact = memory.layer is Layer.VERIFIED_FACT and memory.status in FOUND
    return replace(
        memory,
        id=apart_id(memory.id, memory.content_hash),
        version=1,
        previous_version_id=None,
        is_current=True,
        recorded_to=None,
        first_recorded_at=None,
        content_at=None,
        status=Status.DISPUTED if is_fact else memory.status,
        disputes=(memory.id,) if is_fact else (),
        reason=f"written on another device beside {memory.id}",
        usage=Usage(),
        receipts=(),
        context="",
    )


def _kept(own: Sequence[Tag], every: Mapping[str, Tag]) -> tuple[Tag, ...]:
    names = {tag.name for tag in own}
    return (*own, *(tag for name, tag in sorted(every.items()) if name not in names))[: max(TAGS_MAX, len(own))]


def _before(versions: Sequence[SyncedVersion], heads: Sequence[SyncedVersion]) -> dict[str, list[SyncedVersion]]:
    """Return, for each head, what was written before it and known to it."""
    by_name = {one.name: one for one in versions}
    found: dict[str, list[SyncedVersion]] = {}
    for head in heads:
        left, seen = list(head.parents), set()
        while left:
            name = left.pop()
            if name not in seen and name in by_name:
                seen.add(name)
                left += by_name[name].parents
        found[head.name] = [by_name[name] for name in seen]
    return found
