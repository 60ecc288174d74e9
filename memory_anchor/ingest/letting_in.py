"""What a memory meets that comes into force later: accepted in review, said again by a human, restored. Pure.

A save meets its neighbours when it is written. What waited or was archived did not meet what was stored since, so it is
compared once more: it ends what it was to replace, or what it says has changed; against anything else that it
contradicts it stands as disputed. Two active memories that contradict each other are never the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from memory_anchor.ingest.reconcile import Decision
from memory_anchor.model import Layer, Memory, Outcome, Status
from memory_anchor.rights import have_same_readers, is_read_by_all_of
from memory_anchor.versions import Revision, revise

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
    ends: bool,
    opponents: Sequence[Memory],
    at: datetime,
    author: str,
) -> LetIn:
    """Return how a memory comes into force beside what is stored now.

    named: what it was known to contradict. replaces: what it was saved to replace. decision: how it relates to its
    neighbours. ends: whether the caller may end `replaces`, or the decision's target. opponents: of what it would end.
    """
    if memory.layer is not Layer.VERIFIED_FACT:
        return LetIn(replace(memory, status=Status.ACTIVE), Outcome.UPDATED)
    found = decision.target if decision.disagrees else None
    ended = replaces
    if ended is None and found is not None and decision.outcome is Outcome.SUPERSEDED:
        ended = found if found.learned_at <= memory.learned_at else None
    if ended is not None and not (ends and ended.status in IN_FORCE and is_read_by_all_of(memory, ended)):
        ended = None
    met = [*named, *((found,) if found is not None else ()), *((replaces,) if replaces is not None else ())]
    met = [other for other in met if ended is None or other.id != ended.id]
    met += opponents if ended is not None else ()
    rivals = {
        other.id: other
        for other in met
        if other.status in IN_FORCE and other.id != memory.id and have_same_readers(memory, other)
    }
    status = Status.DISPUTED if rivals else Status.ACTIVE
    new = replace(memory, status=status, disputes=tuple(rivals))
    revisions = []
    if ended is not None:
        old = replace(ended, status=Status.SUPERSEDED, valid_to=at)
        revisions.append(revise(ended, old, at=at, author=author, reason=f"superseded by {memory.id}"))
    for other in rivals.values():
        left = (name for name in other.disputes if ended is None or name != ended.id)
        disputed = replace(other, status=Status.DISPUTED, disputes=tuple(dict.fromkeys((*left, memory.id))))
        revisions.append(revise(other, disputed, at=at, author=author, reason=f"disputed by {memory.id}"))
    if rivals:
        why = f"it contradicts {' and '.join(rivals)}; they stand as disputed until `memory-anchor review`"
        return LetIn(new, Outcome.NEEDS_REVIEW, why, next(iter(rivals)), tuple(revisions))
    if ended is not None:
        return LetIn(new, Outcome.SUPERSEDED, f"it superseded {ended.id}", ended.id, tuple(revisions))
    return LetIn(new, Outcome.UPDATED)
