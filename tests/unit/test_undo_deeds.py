"""A change that ended one memory for another goes back whole, and no job makes it again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from timekit import a_memory, current, day, put, statuses, upkeep

from memory_anchor.domain.model import Actor, Caller, MemoryType, Origin, Outcome, Scope, Status
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep import history
from memory_anchor.upkeep.history import UndoPlan
from memory_anchor.upkeep.registry import merge_duplicates
from memory_anchor.upkeep.settling import finish_supersedes, reconsolidate
from memory_anchor.use_cases.memory import MemoryAnchor

READER = Scope()
OLD, NEW = "The gateway listens on port 8443", "The gateway now listens on port 9443, no longer 8443"
STAGING = ("The staging server runs on port 8080.", "The staging server now runs on port 9090.")


class PassingClock(ManualClock):
    """A clock that moves whenever it is read, as a real one does between two steps of one write."""

    def now(self) -> datetime:
        self.advance(seconds=0.001)
        return super().now()


@pytest.fixture
def clock() -> ManualClock:
    return PassingClock()


@pytest.fixture
def superseded(anchor: MemoryAnchor) -> tuple[str, str]:
    """Ids of a fact and of the one that superseded it."""
    old, new = (anchor.save_memory(text) for text in (OLD, NEW))
    assert (new.outcome, new.target_id) == (Outcome.SUPERSEDED, old.id)
    return str(old.id), str(new.id)


def undo_last(core: Core, anchor: MemoryAnchor, plan: UndoPlan | None = None, *, human: bool = True) -> UndoPlan:
    chosen = plan or history.plan_last(core.upkeep, anchor.actor.scope, human=human)
    history.apply(core.upkeep, chosen, at=core.clock.now(), author="human:me")
    return chosen


def statuses_of(anchor: MemoryAnchor, *ids: str) -> list[Status]:
    return [anchor.get(memory_id).status for memory_id in ids]


def found_texts(anchor: MemoryAnchor) -> list[str]:
    return [snippet.text for snippet in anchor.search("which port does the gateway listen on").snippets]


def test_undoing_the_last_write_takes_a_supersede_back_whole(
    core: Core, anchor: MemoryAnchor, superseded: tuple[str, str]
) -> None:
    """Rule undo: the old fact is current again, the new one is out of search and kept in history with the reason."""
    old, new = superseded

    undo_last(core, anchor)

    assert found_texts(anchor) == [OLD]
    assert statuses_of(anchor, old, new) == [Status.ACTIVE, Status.ARCHIVED]
    assert anchor.get(old).valid_to is None
    assert [v.status for v in anchor.history(new)] == [Status.ACTIVE, Status.ARCHIVED]
    assert anchor.history(new)[-1].reason.startswith("undo: the last change, by agent:claude-code")


def test_what_an_undo_gave_back_no_job_takes_away_again(
    core: Core, anchor: MemoryAnchor, superseded: tuple[str, str]
) -> None:
    """Rule undo: a human's undo is not reversed in silence, whatever is recalled together afterwards."""
    undo_last(core, anchor)
    before = statuses_of(anchor, *superseded)

    for job in ("reconsolidate", "finish_supersedes", "merge_duplicates"):
        found_texts(anchor)
        assert core.scheduler.run(job, core.clock.now()).changed == 0, job

    assert statuses_of(anchor, *superseded) == before


def test_both_sides_go_back_in_one_batch_and_again_with_the_undo_of_the_undo(
    core: Core, anchor: MemoryAnchor, superseded: tuple[str, str]
) -> None:
    """Rule undo: one action is one batch; undoing the undo gives the new fact back, and so on to and fro."""
    old, new = superseded
    gone, back = [Status.ACTIVE, Status.ARCHIVED], [Status.SUPERSEDED, Status.ACTIVE]

    for wanted in (gone, back, gone, back):
        undo_last(core, anchor)

        assert statuses_of(anchor, old, new) == wanted
        one, other = anchor.history(old)[-1], anchor.history(new)[-1]
        assert (one.recorded_at, one.reason) == (other.recorded_at, other.reason)

    assert found_texts(anchor) == [NEW]


def test_a_plan_applied_twice_changes_nothing_more(
    core: Core, anchor: MemoryAnchor, superseded: tuple[str, str]
) -> None:
    """Rule undo: idempotent."""
    plan = undo_last(core, anchor)
    before = [len(anchor.history(memory_id)) for memory_id in superseded]

    assert history.apply(core.upkeep, plan, at=core.clock.now(), author="human:me") == []

    assert [len(anchor.history(memory_id)) for memory_id in superseded] == before


@pytest.mark.parametrize("side", [0, 1])
def test_a_deed_of_which_one_side_was_changed_since_is_left_alone_whole(
    core: Core, anchor: MemoryAnchor, agent: Actor, superseded: tuple[str, str], side: int
) -> None:
    """Rule undo: half a supersede would leave two facts that contradict each other, or none."""
    scope = anchor.actor.scope
    human = core.anchor(replace(agent, caller=Caller.HUMAN, scope=replace(scope, conversation="theirs")))
    human.curation.pin(superseded[side])
    before = statuses_of(anchor, *superseded)

    plan = undo_last(core, anchor, history.plan_conversation(core.upkeep, scope.conversation, scope, human=True))

    assert plan.steps == ()
    assert {left.id for left in plan.left} == set(superseded)
    assert any(superseded[side] in left.reason for left in plan.left)
    assert statuses_of(anchor, *superseded) == before


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_changed_between_plan_and_apply_keeps_the_other_as_it_is(
    core: Core, anchor: MemoryAnchor, superseded: tuple[str, str], side: int
) -> None:
    """Rule undo: two writers are compared, and a action is written together or not at all."""
    plan = history.plan_last(core.upkeep, anchor.actor.scope, human=True)
    anchor.curation.pin(superseded[side])
    before = statuses_of(anchor, *superseded)

    assert history.apply(core.upkeep, plan, at=core.clock.now(), author="human:me") == []

    assert statuses_of(anchor, *superseded) == before


@pytest.mark.parametrize("named", ["conversation", "agent"])
def test_a_conversation_and_an_agents_work_take_a_supersede_back_too(
    core: Core, anchor: MemoryAnchor, agent: Actor, named: str
) -> None:
    """Rule undo: whichever way the action is named."""
    scope = anchor.actor.scope
    old = str(anchor.save_memory(OLD).id)
    other = core.anchor(replace(agent, scope=replace(agent.scope, agent="codex", conversation="c2"), client="codex"))
    since = core.clock.now()
    new = str(other.save_memory(NEW).id)
    way = {
        "conversation": lambda: history.plan_conversation(core.upkeep, "c2", scope, human=True),
        "agent": lambda: history.plan_agent(core.upkeep, "codex", since, scope, human=True),
    }[named]

    undo_last(core, anchor, way())

    assert statuses_of(anchor, old, new) == [Status.ACTIVE, Status.ARCHIVED]
    assert way().steps == ()


def test_a_dispute_is_taken_back_whole(core: Core, anchor: MemoryAnchor) -> None:
    """Rule undo: the write that disputed is gone, and what it disputed stands as before."""
    old = anchor.save_memory("The gateway listens on port 8443")
    new = anchor.save_memory("The gateway listens on port 9443")
    assert new.outcome is Outcome.NEEDS_REVIEW

    undo_last(core, anchor)
    core.scheduler.run("reconsolidate", core.clock.now())

    assert statuses_of(anchor, str(old.id), str(new.id)) == [Status.ACTIVE, Status.ARCHIVED]
    assert anchor.get(str(old.id)).disputes == ()


def disputed_pair() -> Any:
    up = upkeep()
    old = a_memory("old", STAGING[0], MemoryType.FACT, status=Status.DISPUTED, disputes=("new",))
    new = a_memory("new", STAGING[1], MemoryType.FACT, status=Status.DISPUTED, disputes=("old",), recorded_at=day(1))
    put(up, old, new)
    return up


def test_what_a_job_settled_and_a_human_took_back_waits_for_a_human() -> None:
    """Rule undo: the job that settled a contradiction does not settle it again; it counts as waiting."""
    up = disputed_pair()
    assert reconsolidate(up, day(2)).changed == 2

    history.apply(up, history.plan_last(up, READER, human=True), at=day(3), author="human:me")
    report = reconsolidate(up, day(4))

    assert statuses(up) == {"old": Status.DISPUTED, "new": Status.DISPUTED}
    assert (report.changed, report.counts["waiting"] > 0) == (0, True)


def test_a_job_that_superseded_what_was_recalled_together_does_so_once(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule undo: recalled again, the two stand as the undo left them."""
    old, new = imported(core, anchor, clock)
    anchor.search("which port does the staging server run on")
    core.scheduler.run("reconsolidate", clock.now())
    assert statuses_of(anchor, old, new) == [Status.SUPERSEDED, Status.ACTIVE]

    undo_last(core, anchor)
    anchor.search("which port does the staging server run on now")
    core.scheduler.run("reconsolidate", clock.now())

    assert statuses_of(anchor, old, new) == [Status.ACTIVE, Status.ACTIVE]


def imported(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> list[str]:
    """Put two facts that contradict each other into the store as an import does: nothing compares them."""
    names = []
    for number, text in enumerate(STAGING):
        clock.advance(minutes=1)
        memory = a_memory(f"staging{number}", text, MemoryType.FACT, scope=anchor.actor.scope, recorded_at=clock.now())
        entry = core.services.records.entry(memory, embed=True)
        core.services.store.put(memory.layer.value, [entry])
        core.services.searcher.index.note_written(entry)
        names.append(memory.id)
    return names


def test_a_merge_taken_back_stays_apart() -> None:
    """Rule undo: both wordings stand again as they were, and the next night does not merge them."""
    up = upkeep(max_archived_share=1.0, merge_threshold=0.5)
    fact = {"kind": MemoryType.FACT, "origin": Origin.EXTRACTED}
    put(up, a_memory("long", "The API server runs on port 8377 in production", **fact))
    put(up, a_memory("short", "The API server runs on port 8377", recorded_at=day(1), **fact))
    before = {name: (m.status, m.citations, m.content) for name, m in current(up).items()}
    assert merge_duplicates(up, day(2)).counts["merged"] == 1

    plan = history.plan_last(up, READER, human=True)
    history.apply(up, plan, at=day(3), author="human:me")

    assert len({step.group for step in plan.steps}) == 1
    assert {name: (m.status, m.citations, m.content) for name, m in current(up).items()} == before
    assert merge_duplicates(up, day(4)).counts["merged"] == 0


def test_deeds_of_one_night_go_back_each_for_itself() -> None:
    """Rule undo: one pair that was changed since holds back its own other side and nothing else."""
    up = upkeep()
    for name in ("a", "b"):
        old, new = f"{name}-old", f"{name}-new"
        text = {"a": STAGING, "b": (OLD, NEW)}[name]
        put(up, a_memory(old, text[0], MemoryType.FACT, status=Status.DISPUTED, disputes=(new,)))
        put(up, a_memory(new, text[1], MemoryType.FACT, status=Status.DISPUTED, disputes=(old,), recorded_at=day(1)))
    assert reconsolidate(up, day(2)).changed == 4
    put(up, replace(current(up)["a-new"], version=9, recorded_at=day(3), author="agent:b"))

    plan = history.plan_agent(up, "reconsolidate", day(2) - timedelta(hours=1), READER, human=True)
    history.apply(up, plan, at=day(4), author="human:me")

    assert {name: status for name, status in statuses(up).items() if name.startswith("b")} == {
        "b-old": Status.DISPUTED,
        "b-new": Status.DISPUTED,
    }
    assert statuses(up)["a-old"] is Status.SUPERSEDED
    assert sorted(left.id for left in plan.left) == ["a-new", "a-old"]
    assert finish_supersedes(up, day(5)).changed == 0
