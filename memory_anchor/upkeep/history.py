"""The versions of a memory: read as its history, and gone back to by undo.

Every version of a memory, who wrote it, when, why and from what, with what changed; and the story across memories.

Versions are points in the store, so history is read, never kept beside. A version that took another memory's place
names it in `previous_version_id`, which makes the chain readable backwards over ids: its trajectory.

Undo gives back what was before, by writing it again as a new version: nothing is taken out of history.

A plan is made first and shown; it is a value. The changes to undo are a set of versions: the last change (everything
written at one instant by one author: a supersede, or a whole night's forgetting), all of one conversation, or all of
one author since a time. Each memory goes back to its latest version outside that set; one that was created by the set
is archived. A memory that somebody else changed afterwards is left alone and listed, and so is, unless a human asks,
what a human wrote or pinned. Since undoing writes versions, it is undone in the same way.

A change that ended one memory for another (a supersede, a dispute, a merge, or the undo of one) goes back whole or not
at all, in one batch: half of it would leave two facts that contradict each other, or neither. What jobs decided and
somebody took back, they do not decide again (`history.undone_between`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import pairwise

from memory_anchor.errors import NotFound
from memory_anchor.json_values import Json, items, text, texts
from memory_anchor.model import Memory, Origin, Scope, Status, audiences
from memory_anchor.ports import MemoryStore
from memory_anchor.rights import HUMAN_AUTHOR, pinned_by_a_human
from memory_anchor.upkeep.upkeep import COLLECTIONS_KEPT, Change, Planned, Upkeep, batches, write
from memory_anchor.versions import (
    FieldValue,
    believed_at,
    changed_fields,
    revise,
    same_meaning,
    with_meaning_of,
    written_by,
)
from memory_anchor.where import AnyOf, Between, Condition, OneOf, Where

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


def version_named(store: MemoryStore, version_id: str, reader: Scope | None) -> Memory:
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


UNDO = "undo"
UNDO_MAX = 10_000
"""Versions one undo looks at; more is refused by leaving the rest, and says so."""
CHUNK = 500
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class UndoStep:
    """current: what stands now. target: the version to give back, None where the memory is archived instead.

    deed: the same for steps that are written together or not at all, "" for a step that stands alone.
    """

    current: Memory
    target: Memory | None
    deed: str = ""

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
    """what: the changes in words. left: what others changed since. cut: more changes matched than one undo takes."""

    what: str
    steps: tuple[UndoStep, ...]
    left: tuple[LeftAlone, ...] = ()
    cut: bool = False

    def preview(self) -> tuple[Planned, ...]:
        """Return what applying the plan would do, one line a memory."""
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
    latest: Memory | None = None
    for collection in COLLECTIONS_KEPT:
        found = up.store.find(collection, _seen_by(reader), limit=1, order_by="recorded_at", descending=True)
        if found and (latest is None or found[0].recorded_at > latest.recorded_at):
            latest = found[0]
    if latest is None:
        return UndoPlan("nothing was written yet", ())
    at, author = latest.recorded_at, latest.author
    found_all, cut = _find(
        up, reader, OneOf("author", (author,)), Between("recorded_at", at_least=at, below=at + _INSTANT)
    )
    return _plan(
        up,
        f"the last change, by {author or 'unknown'} at {at.isoformat()}",
        found_all,
        lambda v: v.recorded_at == at and v.author == author,
        cut=cut,
        human=human,
    )


def plan_conversation(up: Upkeep, conversation: str, reader: Scope, *, human: bool = False) -> UndoPlan:
    """Return the plan that undoes everything written in one conversation."""
    either = AnyOf((Where((OneOf("conversation", (conversation,)),)), Where((OneOf("written_in", (conversation,)),))))
    found, cut = _find(up, reader, either)
    return _plan(
        up,
        f"everything written in conversation {conversation}",
        found,
        lambda v: written_by(v) == conversation,
        cut=cut,
        human=human,
    )


def plan_agent(up: Upkeep, name: str, since: datetime, reader: Scope, *, human: bool = False) -> UndoPlan:
    """Return the plan that undoes everything an agent (or human, or job) of this name wrote from `since` on."""
    authors = (name, *(f"{kind}:{name}" for kind in ("agent", "human", "system", "job")))
    found, cut = _find(up, reader, OneOf("author", authors), Between("recorded_at", at_least=since))
    return _plan(
        up,
        f"everything {name} wrote since {since.isoformat()}",
        found,
        lambda v: v.author in authors and v.recorded_at >= since,
        cut=cut,
        human=human,
    )


def noted(plan: UndoPlan) -> list[Json]:
    """Return a plan as JSON: names of versions, no texts."""
    steps = [[one.current.version_id, one.target.version_id if one.target else "", one.deed] for one in plan.steps]
    return [plan.what, steps, [[one.id, one.changed_by, one.reason] for one in plan.left], plan.cut]


def as_noted(up: Upkeep, note: Sequence[Json], plan: UndoPlan) -> UndoPlan:
    """Return the plan that was noted; `plan` itself when that is the one. What was erased since is left out."""
    if list(note) == noted(plan):
        return plan
    what, steps, left, cut = note
    found: list[UndoStep] = []
    for step in items(steps):
        current, target, deed = texts(step)
        with suppress(NotFound):
            back = version_named(up.store, target, None) if target else None
            found.append(UndoStep(version_named(up.store, current, None), back, deed))
    return UndoPlan(text(what), tuple(found), tuple(LeftAlone(*texts(one)) for one in items(left)), cut is True)


def apply(up: Upkeep, plan: UndoPlan, *, at: datetime, author: str, written_in: str = "") -> list[Memory]:
    """Write the compensating versions; return them. What changed between plan and now is left as it is."""
    reason = f"{UNDO_REASON}{plan.what}"
    deeds: dict[str, list[Change]] = {}
    gone = {step.deed or step.current.id for step in plan.steps if not step.current.is_current}
    for step in plan.steps:
        if (step.deed or step.current.id) in gone:  # a plan of before a kill, carried out in part
            continue
        now = step.current
        back = replace(now, status=Status.ARCHIVED) if step.target is None else with_meaning_of(now, step.target)
        revision = revise(now, back, at=at, author=author, reason=reason, written_in=written_in)
        deeds.setdefault(step.deed, []).append(Change(revision, source=step.target))
    written: list[Memory] = []
    for batch in batches(deeds.pop("", ())):
        written += write(up, batch, kind=UNDO, by=author, at=at)
    for whole in deeds.values():
        written += write(up, whole, kind=UNDO, by=author, at=at, whole=True)
    return written


def _seen_by(reader: Scope, *conditions: Condition) -> Where:
    return Where((OneOf("audience", tuple(sorted(audiences(reader)))), *conditions))


def _find(up: Upkeep, reader: Scope, *conditions: Condition) -> tuple[list[Memory], bool]:
    found: list[Memory] = []
    for collection in COLLECTIONS_KEPT:
        found += up.store.find(collection, _seen_by(reader, *conditions), limit=UNDO_MAX)
    return found[:UNDO_MAX], len(found) >= UNDO_MAX


def _plan(
    up: Upkeep, what: str, found: Sequence[Memory], undone: Callable[[Memory], bool], *, cut: bool, human: bool
) -> UndoPlan:
    stories = {name: versions_of(up.store, name, None) for name in sorted({v.id for v in found if undone(v)})}
    steps: dict[str, UndoStep] = {}
    left: dict[str, LeftAlone] = {}
    for memory_id, versions in stories.items():
        current = versions[-1]
        if not undone(current):
            left[memory_id] = LeftAlone(memory_id, current.author, f"changed since, in version {current.version}")
            continue
        target = _before(versions, undone)
        if not human and _is_a_humans(versions, target):
            why = "only a human takes back what a human wrote or pinned"
            left[memory_id] = LeftAlone(memory_id, current.author, why)
            continue
        if target is None and current.status is Status.ARCHIVED:
            continue
        if target is None or not same_meaning(target, current):
            steps[memory_id] = UndoStep(current, target)
    for deed in _deeds(stories, undone):
        kept = next((name for name in deed if name in left), None)
        for name in deed:
            if name not in steps:
                continue
            if kept is None:
                steps[name] = replace(steps[name], deed=deed[0])
            else:
                author = steps.pop(name).current.author
                left[name] = LeftAlone(name, author, f"goes back only together with {kept}, which is left alone")
    return UndoPlan(what, tuple(steps.values()), tuple(left[name] for name in sorted(left)), cut)


def _is_a_humans(versions: Sequence[Memory], target: Memory | None) -> bool:
    """Return whether going back to `target` takes back what a human wrote, or touches what a human pinned.

    Of what a human wrote, an agent's own pin is all that an agent may take back.
    """
    current = versions[-1]
    gone = versions[versions.index(target) + 1 :] if target is not None else versions
    if any(version.author.startswith(HUMAN_AUTHOR) for version in gone):
        return True
    if pinned_by_a_human(versions):
        return True
    if current.origin is not Origin.HUMAN:
        return False
    return target is None or not same_meaning(replace(target, pinned=current.pinned), current)


def _deeds(stories: Mapping[str, Sequence[Memory]], undone: Callable[[Memory], bool]) -> list[tuple[str, ...]]:
    """Return the groups of memories, two or more each, that one change ended for another; sorted.

    stories: id -> its versions, oldest first. An undo names nobody, so what it took back is asked instead.
    """
    group = {name: {name} for name in stories}
    for name, versions in stories.items():
        for place, version in enumerate(versions):
            if not undone(version):
                continue
            while place and took_back(versions[place]):
                place -= 1
            for other in _named(versions[place], versions[place - 1] if place else None):
                if other in stories and stories[other][0].layer is version.layer and group[other] is not group[name]:
                    group[name] |= group[other]
                    for member in group[other]:
                        group[member] = group[name]
    return sorted({tuple(sorted(members)) for members in group.values() if len(members) > 1})


def _named(version: Memory, before: Memory | None) -> set[str]:
    """Return ids that a version speaks of as the other side of what it changed."""
    earlier = parse_version_id(version.previous_version_id)
    disputes = set(version.disputes) ^ set(before.disputes if before is not None else ())
    return {*disputes, *words_of(version.reason), *((earlier[0],) if earlier is not None else ())}


def _before(versions: Iterable[Memory], undone: Callable[[Memory], bool]) -> Memory | None:
    """Return the latest version that is not undone and has only undone ones after it."""
    kept = [v for v in versions if not undone(v)]
    return max(kept, key=lambda v: v.version, default=None)
