"""An edit while something waits for a decision: the decision is about what stands now, and the edit decides nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Actor, Caller, Memory, Origin, Outcome, Status
from memory_anchor.domain.rights import version_stamp
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

PORT, OTHER = "The API listens on port 8080", "The API listens on port 9090"


@pytest.fixture
def human(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(replace(agent, caller=Caller.HUMAN))


def stamps(*memories: Memory) -> list[str]:
    return [version_stamp(one.id, one.version, one.content) for one in memories]


def disputed(anchor: MemoryAnchor) -> tuple[str, str]:
    """Save two facts that contradict each other; return their ids, the older first."""
    old, new = anchor.save_memory(PORT, confidence=0.95), anchor.save_memory(OTHER, confidence=0.95)
    assert new.outcome is Outcome.NEEDS_REVIEW
    return str(old.id), str(new.id)


@pytest.mark.parametrize("resolution", ["keep_new", "keep_old", "keep_both", "merge"])
@pytest.mark.parametrize("shown", ["one side", "the other as it was"])
def test_a_contradiction_is_settled_only_where_both_sides_were_shown_as_they_are(
    anchor: MemoryAnchor, human: MemoryAnchor, resolution: str, shown: str
) -> None:
    """Rule review.seen: an edit of the other side, or a side left out, refuses the decision and changes nothing."""
    old, new = disputed(anchor)
    sides = human.curation.sides(new)
    seen = stamps(sides[0]) if shown == "one side" else stamps(*sides)
    if shown != "one side":
        anchor.curation.edit(old, f"{PORT} on weekdays")

    with pytest.raises(Refused, match="changed since it was shown"):
        human.curation.settle(new, resolution=resolution, seen=seen)

    assert {human.get(name).status for name in (old, new)} == {Status.DISPUTED}
    assert (
        human.curation.settle(new, resolution=resolution, seen=stamps(*human.curation.sides(new))).status
        is Status.ACTIVE
    )


def test_a_text_that_a_human_wrote_in_the_review_counts_in_full(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Rule review.edit: it is the human's word, as an edit at the keyboard is, not the agent's doubt."""
    waiting = str(anchor.save_memory(PORT, confidence=0.8).id)

    human.curation.accept(waiting, seen=stamps(human.get(waiting)), content=f"{PORT} everywhere")

    memory = human.get(waiting)
    assert (memory.content, memory.origin, memory.confidence) == (f"{PORT} everywhere", Origin.HUMAN, 1.0)


@pytest.mark.parametrize("by_human", [True, False])
def test_an_edit_of_one_side_ends_no_contradiction(anchor: MemoryAnchor, human: MemoryAnchor, by_human: bool) -> None:
    """Rule conflicts: both stand as disputed, and the inbox asks about the text that there is now."""
    old, new = disputed(anchor)
    text = f"{OTHER} on weekdays"

    done = (human if by_human else anchor).curation.edit(new, text)

    assert done.status is Status.DISPUTED
    assert {human.get(name).disputes for name in (old, new)} == {(old,), (new,)}
    ((memory, against),) = [(item.memory, item.against) for item in human.curation.inbox().items]
    assert (memory.content, [one.id for one in against]) == (text, [old])


@pytest.mark.parametrize("by_human", [True, False])
def test_what_is_accepted_ends_what_it_replaces_also_where_that_was_edited_meanwhile(
    anchor: MemoryAnchor, human: MemoryAnchor, by_human: bool
) -> None:
    """Rule conflicts: the human was shown the edited text beside it, and decided."""
    old = str(anchor.save_memory(PORT).id)
    waiting = str(anchor.save_memory(OTHER, confidence=0.8, replaces=old).id)
    (human if by_human else anchor).curation.edit(old, f"{PORT} on weekdays")

    done = human.curation.accept(waiting, seen=stamps(*human.curation.sides(waiting)))

    assert (done.outcome, done.target_id) == (Outcome.SUPERSEDED, old)
    assert {name: human.get(name).status for name in (old, waiting)} == {
        old: Status.SUPERSEDED,
        waiting: Status.ACTIVE,
    }
