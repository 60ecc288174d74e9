"""Which version of a memory is current after several devices wrote. Pure: same versions, same result on every device.

A synced version names those it was written over (`parents`). Its `hint` is its number on the device that wrote it,
always above its parents' hints, so that the order by (hint, instant, name) puts a version before those written over it.
Merging is union. Versions that no version was written over are heads: one head is current. Of several with different
content the newest wins, in a version of its own that each device writes identically (so all agree without messages); a
text that would be in no current version becomes a separate memory, disputed with the first until a human decides
(`memory-anchor review`). A new text wins over an archiving that did not know of it.

Rejected: version vectors (the same information, growing with each device) and the newest wins (half of the texts lost).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memory_anchor.adapters.system import encode_id
from memory_anchor.domain.model import Layer, Memory, Status, Usage
from memory_anchor.domain.versions import same_meaning

SEARCHABLE = (Status.ACTIVE, Status.DISPUTED)
LIVE = (*SEARCHABLE, Status.PENDING)
TAGS_MAX = 32
MERGED = "written on several devices at once: the newest stands"
"""The reason in a version that merges heads."""
PARENTS_MAX = 64
"""Heads of one memory: at most one for each device."""


@dataclass(frozen=True, slots=True)
class SyncedVersion:
    """One version as devices name it. name: see `segments.version_name`. memory: as this store numbers it."""

    name: str
    hint: int
    parents: frozenset[str]
    memory: Memory

    @property
    def key(self) -> tuple[int, str, str]:
        return self.hint, self.memory.recorded_at.isoformat(), self.name


def in_order(versions: Iterable[SyncedVersion]) -> list[SyncedVersion]:
    """Return the versions of one memory, the current one last, numbered by their hints and without repeats."""
    number, numbered, previous_id = 0, [], ""
    ordered = sorted(versions, key=lambda version: version.key)
    current = max(heads_of(ordered), key=lambda head: head.key, default=None)
    for version in [*(version for version in ordered if version is not current), *([current] if current else ())]:
        number = max(version.hint, number + 1)
        memory = version.memory
        previous = previous_id or (memory.previous_version_id if version.hint == 1 else None)
        numbered.append(replace(version, memory=replace(memory, version=number, previous_version_id=previous)))
        previous_id = f"{memory.id}@{number}"
    closed = []
    for version, following in pairwise(numbered):
        end = max(version.memory.recorded_at, following.memory.recorded_at)
        closed.append(replace(version, memory=replace(version.memory.closed(end), receipts=())))
    last = [replace(v, memory=replace(v.memory, is_current=True, recorded_to=None)) for v in numbered[-1:]]
    return [*closed, *last]


def heads_of(versions: Sequence[SyncedVersion], overwritten: Iterable[str] = ()) -> list[SyncedVersion]:
    """Return the versions that no version was written over, in order. overwritten: names of others that are no heads.

    A version that only merged others is no head where another head has all that it merged among its ancestors.
    """
    parents = {parent for version in versions for parent in version.parents} | set(overwritten)
    heads = [version for version in versions if version.name not in parents]
    if len(heads) < 2:
        return heads
    ancestors = _ancestors(versions, heads)

    def is_redundant(head: SyncedVersion) -> bool:
        return head.memory.reason == MERGED and any(
            head.parents <= {version.name for version in ancestors[other.name]} for other in heads if other is not head
        )

    return [head for head in heads if not is_redundant(head)] or heads


def merged(versions: Sequence[SyncedVersion], overwritten: Iterable[str] = ()) -> tuple[Memory, list[Memory]] | None:
    """Return the version that merges heads which differ, and the memories that become separate; None if none differ.

    versions: of one memory, in order. overwritten: see `heads_of`.
    """
    heads = heads_of(versions, overwritten)
    if len(heads) < 2 or all(same_meaning(heads[0].memory, head.memory) for head in heads[1:]):
        return None
    ancestors = _ancestors(versions, heads)

    def has_new_text(head: SyncedVersion) -> bool:
        known = {past.memory.content_hash for other in heads if other is not head for past in ancestors[other.name]}
        return head.memory.status in LIVE and head.memory.content_hash not in known

    winner = max(heads, key=lambda head: (has_new_text(head), head.memory.recorded_at, head.name))
    others = sorted((head for head in heads if head is not winner), key=lambda head: head.key)
    memory = winner.memory
    separate: dict[str, Memory] = {}
    for head in others:
        if has_new_text(head) and head.memory.content_hash != memory.content_hash:
            own_memory = _as_separate(head.memory)
            separate.setdefault(own_memory.id, own_memory)
    disputes = [*memory.disputes, *(id for head in others for id in head.memory.disputes), *separate]
    tags = {tag.name: tag for head in (*reversed(others), winner) for tag in head.memory.tags}
    tag_names = {tag.name for tag in memory.tags}
    more_tags = [tag for name, tag in sorted(tags.items()) if name not in tag_names]
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
        reason=MERGED,
        written_in="",
    )
    return new, list(separate.values())


def _as_separate(memory: Memory) -> Memory:
    """Return a version as a separate memory, with an id that is the same on every device."""
    digest = hashlib.sha256(f"{memory.id} beside {memory.content_hash}".encode()).digest()
    is_fact = memory.layer is Layer.VERIFIED_FACT and memory.status in SEARCHABLE
    return replace(
        memory,
        id=encode_id(int.from_bytes(digest[:9], "big")),
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


def _ancestors(versions: Sequence[SyncedVersion], heads: Sequence[SyncedVersion]) -> dict[str, list[SyncedVersion]]:
    """Return, for each head, its ancestors."""
    by_name = {version.name: version for version in versions}
    ancestors: dict[str, list[SyncedVersion]] = {}
    for head in heads:
        pending, visited = list(head.parents), set()
        while pending:
            name = pending.pop()
            if name not in visited and name in by_name:
                visited.add(name)
                pending += by_name[name].parents
        ancestors[head.name] = [by_name[name] for name in visited]
    return ancestors
