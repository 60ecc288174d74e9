"""A fact that replaces a disputed one takes over the dispute: a contradiction ends by a verdict and by nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_anchor.domain.model import Actor, Caller, Memory, Outcome, Status
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep import history
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.use_cases.memory import MemoryAnchor

FIRST, SECOND = "The team lunch is on Tuesday at noon", "The team lunch is on Friday at noon"
CHANGED = "The team lunch is now on Thursday at noon, no longer on Friday"


@pytest.fixture
def human(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(replace(agent, caller=Caller.HUMAN))


def disputed_pair(core: Core, first: MemoryAnchor, agent: Actor) -> tuple[Memory, Memory]:
    """What `first` said, and the agent's word against it."""
    one = first.save_memory(FIRST)
    other = core.anchor(agent).save_memory(SECOND)
    assert other.outcome is Outcome.NEEDS_REVIEW
    return first.get(one.id), first.get(other.id)


@pytest.mark.parametrize("by_name", [True, False], ids=["replaces", "a word of change"])
@pytest.mark.parametrize("whose", ["human", "agent"])
def test_what_replaces_one_side_stands_against_the_other(
    core: Core, agent: Actor, human: MemoryAnchor, whose: str, by_name: bool
) -> None:
    """Rule conflicts: contradictions are never silent, and nobody but a human displaces what a human said."""
    anchor = core.anchor(agent)
    kept, replaced = disputed_pair(core, human if whose == "human" else anchor, agent)

    answer = anchor.save_memory(CHANGED, replaces=replaced.id if by_name else None)

    new = anchor.get(answer.id)
    assert (answer.outcome, new.status, new.disputes) == (Outcome.NEEDS_REVIEW, Status.DISPUTED, (kept.id,))
    assert kept.id in answer.reason
    assert anchor.get(replaced.id).status is Status.SUPERSEDED
    assert anchor.get(kept.id).status is Status.DISPUTED and anchor.get(kept.id).disputes == (new.id,)


def test_it_waits_in_the_review_and_no_night_frees_it(core: Core, agent: Actor, human: MemoryAnchor) -> None:
    """Rule conflicts: a human's word waits for a human, through every job."""
    kept, replaced = disputed_pair(core, human, agent)
    new = core.anchor(agent).save_memory(CHANGED, replaces=replaced.id)

    core.scheduler.run("reconsolidate", core.clock.now(), Limits())

    waiting = {one.id for one in human.curation.listing(status="disputed", limit=10)}
    assert waiting == {kept.id, new.id}


def test_it_goes_back_whole(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule undo: the dispute is between the first two again."""
    anchor = core.anchor(agent)
    kept, replaced = disputed_pair(core, anchor, agent)
    clock.advance(minutes=1)
    new = anchor.save_memory(CHANGED, replaces=replaced.id)
    clock.advance(minutes=1)

    plan = history.plan_last(core.upkeep, anchor.actor.scope)
    history.apply(core.upkeep, plan, at=clock.now(), author="human:me")

    assert anchor.get(kept.id).disputes == (replaced.id,)
    assert anchor.get(replaced.id).status is Status.DISPUTED and anchor.get(replaced.id).disputes == (kept.id,)
    assert anchor.get(new.id).status is Status.ARCHIVED
