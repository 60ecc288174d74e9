"""The versions of a memory: its history, and undo.

History: every version with who wrote it, when, why, from what, and what changed. Versions are points in the store, so
history is read, never stored separately. A version that replaced another memory names it in `previous_version_id`, so
the chain can be read backwards across ids: the trajectory.

Undo writes the earlier version again as a new one; nothing leaves history. A plan is made and shown first. The changes
to undo are a set of versions: the last change (everything written at one instant by one author: a supersede, or a whole
night's forgetting), all of one conversation, or all of one author since a time. Each memory goes back to its latest
version outside that set; one created by the set is archived. A memory that somebody else changed afterwards is left
alone and listed, and so is, unless a human asks, what a human wrote or pinned. An undo can itself be undone.

A change that ended one memory for another (a supersede, a dispute, a merge, or the undo of one) is undone completely or
not at all, in one batch: half of it would leave two facts that contradict each other, or neither. What jobs decided and
an undo reversed, they do not decide again (`undone_between`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice, pairwise

from memory_anchor.base.json_values import Json, items, text, texts
from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Memory, Origin, Scope, Status, audiences
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.rights import HUMAN_AUTHOR, pinned_by_human
from memory_anchor.domain.versions import (
    FieldValue,
    believed_at,
    changed_fields,
    parse_version_id,
    revise,
    same_meaning,
    with_meaning_of,
    written_by,
)
from memory_anchor.domain.where import AnyOf, Between, Condition, OneOf, Where
from memory_anchor.language.safe_regex import late
from memory_anchor.layers.records import newest_versions
from memory_anchor.upkeep.job_kit import COLLECTIONS_KEPT, Change, Planned, Upkeep, batches, write

HISTORY_COLLECTIONS = ("event_log", "verified_fact", "identity_schema")
TRAJECTORY_MAX = 1_000
DIFF_PIECES = 200
"""Most sentences that are aligned one by one; beyond it, all between the common start and end count as changed."""
UNDO_REASON = "undo: "
"""Prefix of the reason of every version that an undo wrote."""
_INSTANT = timedelta(microseconds=1)
_WORDS = late(r"[\w-]+")
_PIECES = late(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])|\n")


@dataclass(frozen=True, slots=True)
class Step:
    """One version as a reader sees it. changes: field -> (before, after), without content. diff: lines of content,
    each with the prefix `+ `, `- ` or two blanks."""

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
    if versions := _newest(store, memory_id, reader):
        return versions[::-1]
    raise NotFound(f"no memory {memory_id!r} here; `search_memory` or `memory-anchor list` gives the ids there are")


def _newest(
    store: MemoryStore,
    memory_id: str,
    reader: Scope | None,
    *conditions: Condition,
    below: int | None = None,
    most: int | None = None,
) -> list[Memory]:
    """Return versions that the reader may see and that meet the conditions, newest first."""
    readable = (OneOf("id", (memory_id,)), *conditions, *(_readable(reader).all_of if reader is not None else ()))
    each = (newest_versions(store, collection, *readable, below=below) for collection in HISTORY_COLLECTIONS)
    return next((versions for newest in each if (versions := list(islice(newest, most)))), [])


def history(versions: Sequence[Memory]) -> tuple[Step, ...]:
    """Return one step per version, oldest first, each with what it changed. versions: of one memory, any order."""
    ordered = sorted(versions, key=lambda v: v.version)
    return tuple(_step(before, version) for before, version in zip([None, *ordered[:-1]], ordered, strict=True))


def _step(before: Memory | None, version: Memory) -> Step:
    changes = changed_fields(before, version) if before is not None else {}
    return Step(
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
        diff=content_diff(before.content, version.content) if before is not None and "content" in changes else (),
    )


def content_diff(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a diff by sentences, unchanged ones included.

    >>> content_diff("Use pip. Pin it.", "Use uv. Pin it.")
    ('- Use pip.', '+ Use uv.', '  Pin it.')
    """
    old, new = (_sentences(text) for text in (before, after))
    head = _common_start(old, new)
    tail = _common_start(old[head:][::-1], new[head:][::-1])
    first, last = old[:head], old[len(old) - tail :]
    old, new = old[head : len(old) - tail], new[head : len(new) - tail]
    parts = [("  ", first)]
    if max(len(old), len(new)) > DIFF_PIECES:  # aligning takes the square of their number
        parts += [("- ", old), ("+ ", new)]
    else:
        for kind, i1, i2, j1, j2 in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            parts += [("  ", old[i1:i2])] if kind == "equal" else [("- ", old[i1:i2]), ("+ ", new[j1:j2])]
    return tuple(f"{mark}{sentence}" for mark, sentences in [*parts, ("  ", last)] for sentence in sentences)


def _common_start(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many sentences both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(old), len(new)))


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
    """Return the versions that led to a memory, oldest first: its own and those of the memories it replaced.

    Of a replaced memory, the versions up to the named one are included. A chain that leads to something erased or
    unreadable starts where it can be read.
    """
    steps: list[Step] = []
    seen_ids: set[str] = set()
    earlier: tuple[str, int | None] | None = (memory_id, None)
    while earlier is not None and earlier[0] not in seen_ids and len(steps) < TRAJECTORY_MAX:
        wanted_id, up_to = earlier
        seen_ids.add(wanted_id)
        below, most = (None if up_to is None else up_to + 1), TRAJECTORY_MAX - len(steps)
        versions = _newest(store, wanted_id, reader, below=below, most=most)[::-1]
        steps = [*(history(versions) if versions else ()), *steps]
        earlier = parse_version_id(versions[0].previous_version_id) if versions else None
    return tuple(steps or history(versions_of(store, memory_id, reader)))


def version_named(store: MemoryStore, version_id: str, reader: Scope | None) -> Memory:
    """Return one version by its id (`m1@2`). Raises NotFound: there is none that the reader may see."""
    memory_id, number = parse_version_id(version_id) or (version_id, 0)
    of_number = Between("version", at_least=number, below=number + 1)
    if found := _newest(store, memory_id, reader, of_number):
        return found[0]
    versions_of(store, memory_id, reader)  # that there is no such memory is said first
    raise NotFound(f"memory {memory_id!r} has no version {number}; `memory-anchor history` gives those it has")


def as_of(store: MemoryStore, memory_id: str, instant: datetime, reader: Scope | None) -> Memory:
    """Return the version that was current at `instant`. Raises NotFound: the memory was not known then."""
    tick = instant + _INSTANT
    then = Between("recorded_at", below=tick), Between("recorded_to", at_least=tick)
    believed = believed_at(_newest(store, memory_id, reader, *then), instant)
    if believed is None:
        versions_of(store, memory_id, reader)
        raise NotFound(f"memory {memory_id!r} was not known at {instant.isoformat()}; ask for a later instant")
    return believed


def words_of(reason: str) -> set[str]:
    """Return the words of a version's reason, among them the ids it names.

    >>> sorted(words_of("superseded by 1m8x, which says what changed"))[:3]
    ['1m8x', 'by', 'changed']
    """
    return set(_WORDS.findall(reason))


def is_undo(version: Memory) -> bool:
    """Return whether an undo wrote this version."""
    return version.reason.startswith(UNDO_REASON)


def undone_between(store: MemoryStore, first: Memory, second: Memory) -> bool:
    """Return whether an undo reversed that one of two was ended, merged or disputed for the other.

    Jobs check this before they decide between two, so that an undo lasts. An erased memory has no history.
    """

    def stored(memory: Memory) -> list[Memory]:
        return list(newest_versions(store, memory.layer.value, OneOf("id", (memory.id,))))[::-1]

    return any(
        is_undo(after)
        and ended.status in (Status.SUPERSEDED, Status.DISPUTED)
        and opponent.id in {*ended.disputes, *after.disputes, *words_of(ended.reason)}
        for memory, opponent in ((first, second), (second, first))
        for ended, after in pairwise(stored(memory))
    )


UNDO = "undo"
UNDO_MAX = 10_000
"""Versions one undo reads at most; the rest is left as it is, and the plan says so."""


@dataclass(frozen=True, slots=True)
class UndoStep:
    """current: the version now. target: the version to restore, None if the memory is archived instead.

    group: the same for steps that are written together or not at all, "" for a single step.
    """

    current: Memory
    target: Memory | None
    group: str = ""

    @property
    def action(self) -> str:
        return "archive" if self.target is None else "restore"


@dataclass(frozen=True, slots=True)
class LeftAlone:
    id: str
    changed_by: str
    reason: str


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """what: the changes in words. left: what others changed since. cut: more changes matched than one undo reads."""

    what: str
    steps: tuple[UndoStep, ...]
    left: tuple[LeftAlone, ...] = ()
    cut: bool = False

    def of(self, ids: Collection[str]) -> UndoPlan:
        """Return the part for some memories, with those that go back only together with one of them."""
        groups = {step.group for step in self.steps if step.group and step.current.id in ids}
        steps = tuple(step for step in self.steps if step.current.id in ids or step.group in groups)
        return replace(self, steps=steps, left=tuple(memory for memory in self.left if memory.id in ids))

    def preview(self) -> tuple[Planned, ...]:
        """Return what applying the plan would do, one line per memory."""
        return tuple(
            Planned(
                step.current.id,
                step.action,
                f"back to version {step.target.version}, written by {step.target.author or 'unknown'}"
                if step.target is not None
                else "it did not exist before",
            )
            for step in self.steps
        )


def plan_last(up: Upkeep, reader: Scope, *, human: bool = False) -> UndoPlan:
    """Return the plan that undoes the latest change this reader can see: all that one author wrote at one instant."""
    newest = [
        memory
        for collection in COLLECTIONS_KEPT
        for memory in up.store.find(collection, _readable(reader), limit=1, order_by="recorded_at", descending=True)
    ]
    if not newest:
        return UndoPlan("nothing was written yet", ())
    latest = max(newest, key=lambda memory: memory.recorded_at)
    at, author = latest.recorded_at, latest.author
    conditions = OneOf("author", (author,)), Between("recorded_at", at_least=at, below=at + _INSTANT)
    what = f"the last change, by {author or 'unknown'} at {at.isoformat()}"
    return _plan(up, what, reader, conditions, lambda v: v.recorded_at == at and v.author == author, human=human)


def plan_conversation(up: Upkeep, conversation: str, reader: Scope, *, human: bool = False) -> UndoPlan:
    """Return the plan that undoes everything written in one conversation."""
    either = AnyOf((Where((OneOf("conversation", (conversation,)),)), Where((OneOf("written_in", (conversation,)),))))
    what = f"everything written in conversation {conversation}"
    return _plan(up, what, reader, (either,), lambda v: written_by(v) == conversation, human=human)


def plan_agent(up: Upkeep, name: str, since: datetime, reader: Scope, *, human: bool = False) -> UndoPlan:
    """Return the plan that undoes everything an agent (or human, or job) of this name wrote from `since` on."""
    authors = (name, *(f"{kind}:{name}" for kind in ("agent", "human", "system", "job")))
    conditions = OneOf("author", authors), Between("recorded_at", at_least=since)
    what = f"everything {name} wrote since {since.isoformat()}"
    return _plan(up, what, reader, conditions, lambda v: v.author in authors and v.recorded_at >= since, human=human)


def plan_record(plan: UndoPlan) -> list[Json]:
    """Return a plan as JSON: ids of versions, no texts."""
    steps = [
        [step.current.version_id, step.target.version_id if step.target else "", step.group] for step in plan.steps
    ]
    return [plan.what, steps, [[memory.id, memory.changed_by, memory.reason] for memory in plan.left], plan.cut]


def recorded_plan(up: Upkeep, record: Sequence[Json], plan: UndoPlan) -> UndoPlan:
    """Return the recorded plan, without what was erased since; `plan` itself if it is the same."""
    if list(record) == plan_record(plan):
        return plan
    what, parts, left, cut = record
    steps: list[UndoStep] = []
    for part in items(parts):
        current, target, group = texts(part)
        with suppress(NotFound):
            back = version_named(up.store, target, None) if target else None
            steps.append(UndoStep(version_named(up.store, current, None), back, group))
    return UndoPlan(text(what), tuple(steps), tuple(LeftAlone(*texts(part)) for part in items(left)), cut is True)


def apply(up: Upkeep, plan: UndoPlan, *, at: datetime, author: str, written_in: str = "") -> list[Memory]:
    """Write the compensating versions; return them. What changed between plan and now is left as it is."""
    reason = f"{UNDO_REASON}{plan.what}"
    groups: dict[str, list[Change]] = {}
    stale = {step.group or step.current.id for step in plan.steps if not step.current.is_current}
    for step in plan.steps:
        if (step.group or step.current.id) in stale:  # a plan from before a kill, carried out in part
            continue
        now = step.current
        back = replace(now, status=Status.ARCHIVED) if step.target is None else with_meaning_of(now, step.target)
        revision = revise(now, back, at=at, author=author, reason=reason, written_in=written_in)
        groups.setdefault(step.group, []).append(Change(revision, source=step.target))
    written: list[Memory] = []
    for batch in batches(groups.pop("", ())):
        written += write(up, batch, kind=UNDO, by=author, at=at)
    for changes in groups.values():
        written += write(up, changes, kind=UNDO, by=author, at=at, whole=True)
    return written


def _readable(reader: Scope, *conditions: Condition) -> Where:
    return Where((OneOf("audience", tuple(sorted(audiences(reader)))), *conditions))


def _plan(
    up: Upkeep,
    what: str,
    reader: Scope,
    conditions: Sequence[Condition],
    is_undone: Callable[[Memory], bool],
    *,
    human: bool,
) -> UndoPlan:
    where = _readable(reader, *conditions)
    matching = [v for name in COLLECTIONS_KEPT for v in up.store.find(name, where, limit=UNDO_MAX)]
    ids = sorted({v.id for v in matching[:UNDO_MAX] if is_undone(v)})
    versions_by_id = {memory_id: versions_of(up.store, memory_id, None) for memory_id in ids}
    steps: dict[str, UndoStep] = {}
    left_alone: dict[str, LeftAlone] = {}
    for memory_id, versions in versions_by_id.items():
        current = versions[-1]
        if not is_undone(current):
            left_alone[memory_id] = LeftAlone(memory_id, current.author, f"changed since, in version {current.version}")
            continue
        target = max((v for v in versions if not is_undone(v)), key=lambda v: v.version, default=None)
        if not human and _touches_humans(versions, target):
            why = "only a human takes back what a human wrote or pinned"
            left_alone[memory_id] = LeftAlone(memory_id, current.author, why)
            continue
        if target is None and current.status is Status.ARCHIVED:
            continue
        if target is None or not same_meaning(target, current):
            steps[memory_id] = UndoStep(current, target)
    for group in _groups(versions_by_id, is_undone):
        blocker = next((memory_id for memory_id in group if memory_id in left_alone), None)
        for memory_id in [memory_id for memory_id in group if memory_id in steps]:
            if blocker is None:
                steps[memory_id] = replace(steps[memory_id], group=group[0])
            else:
                author = steps.pop(memory_id).current.author
                why = f"goes back only together with {blocker}, which is left alone"
                left_alone[memory_id] = LeftAlone(memory_id, author, why)
    is_cut = len(matching) >= UNDO_MAX
    return UndoPlan(
        what, tuple(steps.values()), tuple(left_alone[memory_id] for memory_id in sorted(left_alone)), is_cut
    )


def _touches_humans(versions: Sequence[Memory], target: Memory | None) -> bool:
    """Return whether going back to `target` reverses what a human wrote, or touches what a human pinned.

    Of what a human wrote, an agent may only take back its own pin.
    """
    current = versions[-1]
    undone = versions[versions.index(target) + 1 :] if target is not None else versions
    if any(version.author.startswith(HUMAN_AUTHOR) for version in undone) or pinned_by_human(versions):
        return True
    if current.origin is not Origin.HUMAN:
        return False
    return target is None or not same_meaning(replace(target, pinned=current.pinned), current)


def _groups(
    versions_by_id: Mapping[str, Sequence[Memory]], is_undone: Callable[[Memory], bool]
) -> list[tuple[str, ...]]:
    """Return the groups of memories, two or more each, that one change ended for another; sorted.

    versions_by_id: oldest version first. An undo names no other memory, so the version it reversed is read instead.
    """
    groups = {memory_id: {memory_id} for memory_id in versions_by_id}
    for memory_id, versions in versions_by_id.items():
        for index, version in enumerate(versions):
            if not is_undone(version):
                continue
            while index and is_undo(versions[index]):
                index -= 1
            for counterpart in _counterparts(versions[index], versions[index - 1] if index else None):
                if counterpart not in versions_by_id or versions_by_id[counterpart][0].layer is not version.layer:
                    continue
                if groups[counterpart] is not groups[memory_id]:
                    groups[memory_id] |= groups[counterpart]
                    for member in groups[counterpart]:
                        groups[member] = groups[memory_id]
    return sorted({tuple(sorted(members)) for members in groups.values() if len(members) > 1})


def _counterparts(version: Memory, before: Memory | None) -> set[str]:
    """Return the ids of the memories on the other side of what a version changed (with words that are no ids)."""
    earlier = parse_version_id(version.previous_version_id)
    disputes = set(version.disputes) ^ set(before.disputes if before is not None else ())
    return {*disputes, *words_of(version.reason), *((earlier[0],) if earlier is not None else ())}
