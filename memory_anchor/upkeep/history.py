"""Every version of a memory, who wrote it, when, why and from what, with what changed; and the story across memories.

Versions are points in the store, so history is read, never kept beside. A version that took another memory's place
names it in `previous_version_id`, which makes the chain readable backwards over ids: its trajectory.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from itertools import pairwise

from memory_anchor.errors import NotFound
from memory_anchor.json_values import Json
from memory_anchor.model import Memory, Scope, Status, audiences
from memory_anchor.ports import MemoryStore
from memory_anchor.versions import FieldValue, believed_at, changed_fields, written_by
from memory_anchor.where import OneOf, Where

HISTORY_COLLECTIONS = ("event_log", "verified_fact", "identity_schema")
VERSIONS_MAX = 1_000
TRAJECTORY_MAX = 1_000
DIFF_PIECES = 200
"""Sentences that are aligned one by one; of more, those between what both begin and end with are all exchanged."""
UNDO_REASON = "undo: "
"""How the reason of every version begins that an undo wrote."""
_WORDS = re.compile(r"[\w-]+")
_PIECES = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])|\n")


@dataclass(frozen=True, slots=True)
class Step:
    """One version as a reader sees it. changes: field -> (before, after), without content; diff: lines of content,
    each led by `+ `, `- ` or two blanks."""

    version_id: str
    at: datetime
    until: datetime | None
    by: str
    why: str
    conversation: str
    came_from: str | None
    status: Status
    content: str
    changes: dict[str, tuple[Json, Json]] = field(default_factory=dict)
    diff: tuple[str, ...] = ()


def versions_of(store: MemoryStore, memory_id: str, reader: Scope | None) -> list[Memory]:
    """Return every version that the reader may see, oldest first; None reads all. Raises NotFound: none."""
    conditions: list[OneOf] = [OneOf("id", (memory_id,))]
    if reader is not None:
        conditions.append(OneOf("audience", tuple(sorted(audiences(reader)))))
    for collection in HISTORY_COLLECTIONS:
        found = store.find(collection, Where(tuple(conditions)), limit=VERSIONS_MAX, order_by="version")
        if found:
            return found
    raise NotFound(f"no memory {memory_id!r} here; `search_memory` or `memory-anchor list` gives the ids there are")


def history(versions: Sequence[Memory]) -> tuple[Step, ...]:
    """Return one step a version, oldest first, each with what it changed. versions: of one memory, any order."""
    ordered = sorted(versions, key=lambda v: v.version)
    steps = []
    for before, version in zip([None, *ordered[:-1]], ordered, strict=True):
        changes = changed_fields(before, version) if before is not None else {}
        said_before = before.content if before is not None and "content" in changes else None
        steps.append(
            Step(
                version_id=version.version_id,
                at=version.recorded_at,
                until=version.recorded_to,
                by=version.author,
                why=version.reason,
                conversation=written_by(version),
                came_from=version.previous_version_id,
                status=version.status,
                content=version.content,
                changes={
                    name: (_plain(old), _plain(new))
                    for name, (old, new) in changes.items()
                    if name not in ("content", "content_hash")
                },
                diff=content_diff(said_before, version.content) if said_before is not None else (),
            )
        )
    return tuple(steps)


def content_diff(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a diff by sentences, unchanged ones included.

    >>> content_diff("Use pip. Pin it.", "Use uv. Pin it.")
    ('- Use pip.', '+ Use uv.', '  Pin it.')
    """
    old, new = (_sentences(text) for text in (before, after))
    alike = _alike(old, new)
    ended = _alike(old[alike:][::-1], new[alike:][::-1])
    if max(len(old), len(new)) - alike - ended > DIFF_PIECES:  # aligning takes the square of their number
        gone, come = old[alike : len(old) - ended], new[alike : len(new) - ended]
        parts = (("  ", old[:alike]), ("- ", gone), ("+ ", come), ("  ", old[len(old) - ended :]))
        return tuple(f"{mark}{piece}" for mark, pieces in parts for piece in pieces)
    lines: list[str] = []
    lines += [f"  {line}" for line in old[:alike]]
    last, old, new = old[len(old) - ended :], old[alike : len(old) - ended], new[alike : len(new) - ended]
    for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [f"  {line}" for line in old[i1:i2]]
        else:
            lines += [f"- {line}" for line in old[i1:i2]] + [f"+ {line}" for line in new[j1:j2]]
    return (*lines, *(f"  {line}" for line in last))


def _alike(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many pieces both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


def _sentences(text: str) -> list[str]:
    return [piece.strip() for piece in _PIECES.split(text) if piece.strip()]


def _plain(value: FieldValue) -> Json:
    """Return a value as JSON-native parts."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, dict, type(None))) else str(value)


def trajectory(store: MemoryStore, memory_id: str, reader: Scope | None) -> tuple[Step, ...]:
    """Return the story that led to a memory, oldest first: its own versions and those it took the place of.

    Where a version names one of another memory, that memory's versions up to the named one come before it. A chain that
    leads to something erased or unreadable begins where it can be read.
    """
    story: list[Step] = []
    seen: set[str] = set()
    wanted, up_to = memory_id, VERSIONS_MAX
    while wanted not in seen and len(story) < TRAJECTORY_MAX:
        seen.add(wanted)
        try:
            versions = versions_of(store, wanted, reader)
        except NotFound:
            if not story:
                raise
            break
        part = [v for v in versions if v.version <= up_to]
        if not part:
            break
        story = [*history(part), *story]
        earlier = parse_version_id(part[0].previous_version_id)
        if earlier is None:
            break
        wanted, up_to = earlier
    return tuple(story)


def parse_version_id(version_id: str | None) -> tuple[str, int] | None:
    """Return (id, version) of `m1@2`, None for anything else.

    >>> parse_version_id("m1@2"), parse_version_id("m1"), parse_version_id(None)
    (('m1', 2), None, None)
    """
    memory_id, at, number = (version_id or "").rpartition("@")
    return (memory_id, int(number)) if at and number.isdigit() else None


def version(store: MemoryStore, version_id: str, reader: Scope | None) -> Memory:
    """Return one version by its id (`m1@2`). Raises NotFound: there is none that the reader may see."""
    memory_id, number = parse_version_id(version_id) or (version_id, 0)
    for one in versions_of(store, memory_id, reader):
        if one.version == number:
            return one
    raise NotFound(f"memory {memory_id!r} has no version {number}; `memory-anchor history` gives those it has")


def as_of(store: MemoryStore, memory_id: str, instant: datetime, reader: Scope | None) -> Memory:
    """Return the version that was believed at `instant`. Raises NotFound: the memory was not known then."""
    believed = believed_at(versions_of(store, memory_id, reader), instant)
    if believed is None:
        raise NotFound(f"memory {memory_id!r} was not known at {instant.isoformat()}; ask for a later instant")
    return believed


def words_of(reason: str) -> set[str]:
    """Return the words of a version's reason, among them the ids it names.

    >>> sorted(words_of("superseded by 1m8x, which says what changed"))[:3]
    ['1m8x', 'by', 'changed']
    """
    return set(_WORDS.findall(reason))


def took_back(version: Memory) -> bool:
    """Return whether an undo wrote this version."""
    return version.reason.startswith(UNDO_REASON)


def undone_between(store: MemoryStore, one: Memory, other: Memory) -> bool:
    """Return whether an undo took back that one of two was ended, merged or disputed for the other.

    Jobs ask before they decide between two, so that an undo stays. One that was erased meanwhile has no history.
    """
    return any(
        took_back(after)
        and ended.status in (Status.SUPERSEDED, Status.DISPUTED)
        and beside.id in {*ended.disputes, *after.disputes, *words_of(ended.reason)}
        for memory, beside in ((one, other), (other, one))
        for ended, after in pairwise(_stored(store, memory))
    )


def _stored(store: MemoryStore, memory: Memory) -> list[Memory]:
    where = Where((OneOf("id", (memory.id,)),))
    return store.find(memory.layer.value, where, limit=VERSIONS_MAX, order_by="version")
