"""Undo gives back what was before, by writing it again as a new version: nothing is taken out of history.

A plan is made first and shown; it is a value. The changes to undo are a set of versions: the last change (everything
written at one instant by one author: a supersede, or a whole night's forgetting), all of one conversation, or all of
one author since a time. Each memory goes back to its latest version outside that set; one that was created by the set
is archived. A memory that somebody else changed afterwards is left alone and listed, and so is, unless a human asks,
what a human wrote or pinned. Since undoing writes versions, it is undone in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory_anchor.lifecycle.history import versions_of
from memory_anchor.lifecycle.upkeep import COLLECTIONS_KEPT, Change, Planned, Upkeep, batches, write
from memory_anchor.model import Memory, Origin, Scope, Status, audiences
from memory_anchor.versions import meaning_of, revise, same_meaning, written_by
from memory_anchor.where import AnyOf, Between, Condition, OneOf, Where

UNDO = "undo"
HUMAN_AUTHOR = "human:"
UNDO_MAX = 10_000
"""Versions one undo looks at; more is refused by leaving the rest, and says so."""
CHUNK = 500
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class UndoStep:
    """current: what stands now. target: the version to give back, None where the memory is archived instead."""

    current: Memory
    target: Memory | None

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


def apply(up: Upkeep, plan: UndoPlan, *, at: datetime, author: str, written_in: str = "") -> list[Memory]:
    """Write the compensating versions; return them. What changed between plan and now is left as it is."""
    reason = f"undo: {plan.what}"
    changes = [
        Change(
            revise(
                step.current,
                at=at,
                author=author,
                reason=reason,
                written_in=written_in,
                **(meaning_of(step.target) if step.target is not None else {"status": Status.ARCHIVED}),
            ),
            source=step.target,
        )
        for step in plan.steps
    ]
    written: list[Memory] = []
    for batch in batches(changes):
        written += write(up, batch, kind=UNDO, by=author, at=at)
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
    steps: list[UndoStep] = []
    left: list[LeftAlone] = []
    for memory_id in sorted({v.id for v in found if undone(v)}):
        versions = versions_of(up.store, memory_id, None)
        current = versions[-1]
        if not undone(current):
            left.append(LeftAlone(memory_id, current.author, f"changed since, in version {current.version}"))
            continue
        if not human and (current.pinned or current.origin is Origin.HUMAN or current.author.startswith(HUMAN_AUTHOR)):
            left.append(LeftAlone(memory_id, current.author, "only a human takes back what a human wrote or pinned"))
            continue
        target = _before(versions, undone)
        if target is None and current.status is Status.ARCHIVED:
            continue
        if target is None or not same_meaning(target, current):
            steps.append(UndoStep(current, target))
    return UndoPlan(what, tuple(steps), tuple(left), cut)


def _before(versions: Iterable[Memory], undone: Callable[[Memory], bool]) -> Memory | None:
    """Return the latest version that is not undone and has only undone ones after it."""
    kept = [v for v in versions if not undone(v)]
    return max(kept, key=lambda v: v.version, default=None)
