"""What a memory meets that comes into force later: accepted in review, said again by a human, restored. Pure.

A save meets its neighbours when it is written. What waited or was archived did not meet what was stored since, so it is
compared once more: it ends what it was to replace, or what it says has changed; against anything else that it
contradicts it stands as disputed. Two active memories that contradict each other are never the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_anchor.domain.model import Layer, Memory, Outcome, Status
from memory_anchor.domain.rights import have_same_readers, is_read_by_all_of
from memory_anchor.domain.versions import Revision, revise
from memory_anchor.ingest.reconcile import Decision

IN_FORCE = (Status.ACTIVE, Status.DISPUTED)


@dataclass(frozen=True, slots=True)
class LetIn:
    """memory: with the status and the disputes that it gets. revisions: of what it ends or disputes."""

    memory: Memory
    outcome: Outcome
    why: str = ""
    target_id: str | None = None
    revisions: tuple[Revision, ...] = ()


def let_in(
    memory: Memory,
    *,
    named: Sequence[Memory],
    replaces: Memory | None,
    decision: Decision,
    may_end: Callable[[Memory], bool],
    opponents_of: Callable[[Memory], Sequence[Memory]],
    at: datetime,
    author: str,
) -> LetIn:
    """Return how a memory comes into force beside what is stored now.

    named: what it was known to contradict. replaces: what it was saved to replace. decision: how it relates to its
    neighbours. may_end: whether the caller may end a memory. opponents_of: what a memory is in dispute with.
    """
    if memory.layer is not Layer.VERIFIED_FACT:
        return LetIn(replace(memory, status=Status.ACTIVE), Outcome.UPDATED)
    found = [decision.target, *decision.ends] if decision.target is not None and decision.disagrees else []
    if replaces is not None:
        to_end = [replaces]
    else:  # what it says has changed is what was said before it
        changes = decision.outcome is Outcome.SUPERSEDED
        to_end = [other for other in found if changes and other.learned_at <= memory.learned_at]
    ended = {
        other.id: other
        for other in to_end
        if other.status in IN_FORCE and is_read_by_all_of(memory, other) and may_end(other)
    }
    met = [*named, *found, *to_end, *(other for old in ended.values() for other in opponents_of(old))]
    rivals = {
        other.id: other
        for other in met
        if other.id not in ended and other.id != memory.id
        if other.status in IN_FORCE and have_same_readers(memory, other)
    }
    status = Status.DISPUTED if rivals else Status.ACTIVE
    new = replace(memory, status=status, disputes=tuple(rivals))
    revisions = []
    for other in ended.values():
        old = replace(other, status=Status.SUPERSEDED, valid_to=at)
        revisions.append(revise(other, old, at=at, author=author, reason=f"superseded by {memory.id}"))
    for other in rivals.values():
        left = (name for name in other.disputes if name not in ended)
        disputed = replace(other, status=Status.DISPUTED, disputes=tuple(dict.fromkeys((*left, memory.id))))
        revisions.append(revise(other, disputed, at=at, author=author, reason=f"disputed by {memory.id}"))
    if rivals:
        why = f"it contradicts {' and '.join(rivals)}; they stand as disputed until `memory-anchor review`"
        return LetIn(new, Outcome.NEEDS_REVIEW, why, next(iter(rivals)), tuple(revisions))
    if ended:
        why = f"it superseded {' and '.join(ended)}"
        return LetIn(new, Outcome.SUPERSEDED, why, next(iter(ended)), tuple(revisions))
    return LetIn(new, Outcome.UPDATED)
