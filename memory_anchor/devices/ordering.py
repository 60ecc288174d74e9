"""Which version of a memory is current after several devices wrote: pure, the same everywhere for the same versions.

A synced version names those it was written over (`parents`). Its `hint` is the number it had where it was written, and
always above its parents' hints, so that the order by (hint, instant, name) puts a version before those written over it.
Merging is union. Versions that nothing was written over are heads: one head is current. Of several that say different
things the newest wins, in a version of its own that each device makes alike (so all agree without talking); a text that
would be in no current version becomes a memory of its own, disputed with the first until a human has looked
(`memory-anchor review`). A new text wins over a forgetting that did not know of it.

Rejected: version vectors (they say the same and grow with each device) and the newest wins (half of the texts gone).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memory_anchor.adapters.system import ALPHABET, ID_LENGTH
from memory_anchor.model import Layer, Memory, Status, Usage
from memory_anchor.versions import same_meaning

SEARCHABLE = (Status.ACTIVE, Status.DISPUTED)
LIVE = (*SEARCHABLE, Status.PENDING)
TAGS_MAX = 32
JOINED = "written on several devices at once: the newest stands"
"""The reason of a version that merges heads."""
PARENTS_MAX = 64
"""Heads of one memory: at most one for each device."""


@dataclass(frozen=True, slots=True)
class SyncedVersion:
    """One version as devices name it. name: see `segments.name_of`. memory: as this store numbers it."""

    name: str
    hint: int
    parents: frozenset[str]
    memory: Memory

    @property
    def key(self) -> tuple[int, str, str]:
        return self.hint, self.memory.recorded_at.isoformat(), self.name


def in_order(versions: Iterable[SyncedVersion]) -> list[SyncedVersion]:
    """Return the versions of one memory, the current one last, numbered by their hints and without repeats."""
    number, numbered, before = 0, [], ""
    ordered = sorted(versions, key=lambda version: version.key)
    current = max(heads_of(ordered), key=lambda head: head.key, default=None)
    for version in [*(version for version in ordered if version is not current), *([current] if current else ())]:
        number = max(version.hint, number + 1)
        memory = version.memory
        previous = before or (memory.previous_version_id if version.hint == 1 else None)
        numbered.append(replace(version, memory=replace(memory, version=number, previous_version_id=previous)))
        before = f"{memory.id}@{number}"
    closed = []
    for version, following in pairwise(numbered):
        end = max(version.memory.recorded_at, following.memory.recorded_at)
        closed.append(replace(version, memory=replace(version.memory.closed(end), receipts=())))
    last = [replace(v, memory=replace(v.memory, is_current=True, recorded_to=None)) for v in numbered[-1:]]
    return [*closed, *last]


def heads_of(versions: Sequence[SyncedVersion], over: Iterable[str] = ()) -> list[SyncedVersion]:
    """Return the versions that nothing was written over, in their order. over: further names that something was.

    A version that only merged others is none where another head knew all that it merged.
    """
    parents = {parent for version in versions for parent in version.parents} | set(over)
    heads = [version for version in versions if version.name not in parents]
    if len(heads) < 2:
        return heads
    before = _before(versions, heads)

    def is_idle(head: SyncedVersion) -> bool:
        return head.memory.reason == JOINED and any(
            head.parents <= {version.name for version in before[other.name]} for other in heads if other is not head
        )

    return [head for head in heads if not is_idle(head)] or heads


def merged(versions: Sequence[SyncedVersion], over: Iterable[str] = ()) -> tuple[Memory, list[Memory]] | None:
    """Return the version that merges heads which disagree, and the memories that become separate; None for no need.

    versions: of one memory, in order. over: see `heads_of`.
    """
    heads = heads_of(versions, over)
    if len(heads) < 2 or all(same_meaning(heads[0].memory, head.memory) for head in heads[1:]):
        return None
    before = _before(versions, heads)

    def has_news(head: SyncedVersion) -> bool:
        known = {past.memory.content_hash for other in heads if other is not head for past in before[other.name]}
        return head.memory.status in LIVE and head.memory.content_hash not in known

    winner = max(heads, key=lambda head: (has_news(head), head.memory.recorded_at, head.name))
    others = sorted((head for head in heads if head is not winner), key=lambda head: head.key)
    memory = winner.memory
    separate: dict[str, Memory] = {}
    for head in others:
        if has_news(head) and head.memory.content_hash != memory.content_hash:
            apart = _apart(head.memory)
            separate.setdefault(apart.id, apart)
    disputes = [*memory.disputes, *(id for head in others for id in head.memory.disputes), *separate]
    tags = {tag.name: tag for head in (*reversed(others), winner) for tag in head.memory.tags}
    own_tags = {tag.name for tag in memory.tags}
    more_tags = [tag for name, tag in sorted(tags.items()) if name not in own_tags]
    is_disputed = bool(separate) and memory.layer is Layer.VERIFIED_FACT and memory.status in SEARCHABLE
    new = replace(
        memory,
        version=versions[-1].memory.version + 1,
        recorded_at=max(head.memory.recorded_at for head in heads),
        first_recorded_at=memory.learned_at,
        content_at=memory.stated_at,
        status=Status.DISPUTED if is_disputed else memory.status,
        disputes=tuple(dict.fromkeys(disputes)) if memory.status in LIVE else memory.disputes,
        tags=(*memory.tags, *more_tags)[: max(TAGS_MAX, len(memory.tags))],
        reason=JOINED,
        written_in="",
    )
    return new, list(separate.values())


def _apart(memory: Memory) -> Memory:
    """Return a text as a separate memory, with an id that is the same on every device."""
    digest = hashlib.sha256(f"{memory.id} beside {memory.content_hash}".encode()).digest()
    number = int.from_bytes(digest[:9], "big")
    is_fact = memory.layer is Layer.VERIFIED_FACT and memory.status in SEARCHABLE
    return replace(
        memory,
        id="".join(ALPHABET[number >> (5 * digit) & 31] for digit in reversed(range(ID_LENGTH))),
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


def _before(versions: Sequence[SyncedVersion], heads: Sequence[SyncedVersion]) -> dict[str, list[SyncedVersion]]:
    """Return, for each head, its ancestors."""
    by_name = {version.name: version for version in versions}
    ancestors: dict[str, list[SyncedVersion]] = {}
    for head in heads:
        left, seen = list(head.parents), set()
        while left:
            name = left.pop()
            if name not in seen and name in by_name:
                seen.add(name)
                left += by_name[name].parents
        ancestors[head.name] = [by_name[name] for name in seen]
    return ancestors
