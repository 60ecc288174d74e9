"""Undo writes back what was before; others' later changes stay; undoing can be undone."""

from __future__ import annotations

from timekit import T0, a_memory, change, current, day, put, undo_last, upkeep

from memory_anchor.domain.model import SEARCHABLE_STATES, MemoryType, Origin, Scope, Status, Visibility
from memory_anchor.domain.versions import MEANING
from memory_anchor.upkeep import history
from memory_anchor.upkeep.history import versions_of

READER = Scope()


def view(up):
    """Return what searches can find: the meaning of every memory that is not archived or superseded."""
    return {
        k: {name: getattr(m, name) for name in MEANING} for k, m in current(up).items() if m.state in SEARCHABLE_STATES
    }


def test_undo_last_takes_back_a_whole_change_even_over_several_memories():
    """Rule: what one author wrote at one instant is one change."""
    up = upkeep()
    put(up, a_memory("old", "Use pip", MemoryType.DECISION))
    before = view(up)
    put(up, a_memory("new", "Use uv", MemoryType.DECISION, recorded_at=day(1), previous_version_id="old@1"))
    change(up, "old", day(1), "agent:tester", status=Status.SUPERSEDED, valid_to=day(1))

    plan = history.plan_last(up, READER, human=True)
    history.apply(up, plan, at=day(2), author="human:me")

    assert view(up) == before
    assert sorted((p.id, p.action) for p in plan.preview()) == [("new", "archive"), ("old", "restore")]


def test_a_plan_changes_nothing_until_it_is_applied():
    """Rule: preview first."""
    up = upkeep()
    put(up, a_memory("m"))
    change(up, "m", day(1), content="other")
    before = current(up)

    assert [p.action for p in history.plan_last(up, READER, human=True).preview()] == ["restore"]
    assert current(up) == before


def test_undoing_an_undo_gives_the_change_back():
    """Rule: undoing is itself a version and can be undone."""
    up = upkeep()
    put(up, a_memory("m", "one"))
    change(up, "m", day(1), content="two")
    for at in (2, 3, 4, 5):
        undo_last(up, day(at))

    versions = versions_of(up.store, "m", None)
    assert [v.content for v in versions] == ["one", "two"] * 3
    assert [v.reason[:21] for v in versions][2:] == ["undo: the last change"] * 4


def test_undoing_a_creation_archives_and_undoing_that_brings_it_back():
    """Rule: nothing is erased by undo."""
    up = upkeep()
    put(up, a_memory("m"))
    undo_last(up, day(1))
    gone = current(up)["m"].status
    undo_last(up, day(2))

    assert (gone, current(up)["m"].status) == (Status.ARCHIVED, Status.ACTIVE)


def test_a_conversation_is_undone_and_what_others_changed_since_is_left_and_listed():
    """Rule: `undo --conversation ID`; what others changed since is left alone and listed."""
    up = upkeep()
    put(up, a_memory("mine", scope=Scope(conversation="c1")), a_memory("edited", "v1"), a_memory("theirs", "v1"))
    change(up, "edited", day(1), conversation="c1", content="v2")
    change(up, "theirs", day(1), conversation="c1", content="v2")
    change(up, "theirs", day(2), "agent:b", conversation="c2", content="v3")

    plan = history.plan_conversation(up, "c1", READER, human=True)
    history.apply(up, plan, at=day(3), author="human:me")

    after = current(up)
    assert (after["mine"].status, after["edited"].content, after["theirs"].content) == (Status.ARCHIVED, "v1", "v3")
    assert [(left.id, left.changed_by) for left in plan.left] == [("theirs", "agent:b")]


def test_the_same_conversation_undone_twice_changes_nothing_more():
    """Rule: undo is idempotent: the undo itself is a later change by somebody else."""
    up = upkeep()
    put(up, a_memory("mine", scope=Scope(conversation="c1")))
    history.apply(up, history.plan_conversation(up, "c1", READER, human=True), at=day(1), author="human:me")
    before = current(up)

    plan = history.plan_conversation(up, "c1", READER, human=True)

    assert plan.steps == ()
    history.apply(up, plan, at=day(2), author="human:me")
    assert current(up) == before


def test_an_agents_work_is_undone_from_a_time_on_only():
    """Rule: `undo --agent NAME --since T`."""
    up = upkeep()
    put(up, a_memory("m", "v1"))
    change(up, "m", day(1), "agent:codex", content="v2")
    change(up, "m", day(5), "agent:codex", content="v3")
    change(up, "m", day(6), "agent:codex", content="v4")

    history.apply(up, history.plan_agent(up, "codex", day(5), READER, human=True), at=day(9), author="human:me")

    assert current(up)["m"].content == "v2"


def test_undo_reaches_only_what_the_reader_may_see():
    """Rule: scope never leaks."""
    up = upkeep()
    other = Scope(user="you", agent="x")
    put(up, a_memory("theirs", scope=other, visibility=Visibility.USER, recorded_at=day(2)), a_memory("mine"))

    assert [p.id for p in history.plan_last(up, READER, human=True).preview()] == ["mine"]
    assert history.plan_agent(up, "tester", T0, READER, human=True).preview()[0].id == "mine"


def test_a_change_between_plan_and_apply_is_not_overwritten():
    """Rule: two writers are compared."""
    up = upkeep()
    put(up, a_memory("m", "v1"))
    change(up, "m", day(1), content="v2")
    plan = history.plan_last(up, READER, human=True)
    change(up, "m", day(2), "agent:b", content="v3")

    assert history.apply(up, plan, at=day(3), author="human:me") == []
    assert current(up)["m"].content == "v3"


def test_an_agent_takes_back_nothing_that_a_human_wrote_or_pinned():
    """Rule: from an agent's shell a command is an agent; the human's word stands and is listed."""
    up = upkeep()
    put(up, a_memory("edited", "v1"), a_memory("pinned", "v1", scope=Scope(conversation="c")), a_memory("own", "v1"))
    for name, author in (("edited", "human:me"), ("own", "agent:a")):
        change(up, name, day(1), author, "c", content="v2")
    change(up, "pinned", day(1), "human:me", "c", pinned=True)

    plan = history.plan_conversation(up, "c", READER)

    assert [p.id for p in plan.preview()] == ["own"]
    assert [left.id for left in plan.left] == ["edited", "pinned"]
    assert len(history.plan_conversation(up, "c", READER, human=True).steps) == 3


def test_an_agent_takes_back_its_own_pin_and_not_a_humans():
    """Rule: who pinned decides; an agent's later edit makes a human's pin no agent's."""
    up = upkeep()
    put(up, a_memory("own"), a_memory("theirs"), a_memory("written", origin=Origin.HUMAN, author="human:me"))
    for name in ("own", "written"):
        change(up, name, day(1), pinned=True)
    change(up, "theirs", day(1), "human:me", pinned=True)
    change(up, "theirs", day(2), content="v2")

    assert [left.id for left in history.plan_last(up, READER).left] == ["theirs"]
    plan = history.plan_agent(up, "a", day(1), READER)
    history.apply(up, plan, at=day(3), author="agent:a")

    assert [left.id for left in plan.left] == ["theirs"]
    assert {name: memory.pinned for name, memory in current(up).items()} == {
        "own": False,
        "theirs": True,
        "written": False,
    }


def test_an_agent_takes_back_no_version_of_a_human_below_its_own():
    """Rule: an agent's pin on top of a human's words does not make the words the agent's."""
    up = upkeep()
    put(up, a_memory("edited", "v1"), a_memory("made", scope=Scope(conversation="c"), author="human:me"))
    change(up, "edited", day(1), "human:me", "c", content="v2")
    for name in ("edited", "made"):
        change(up, name, day(2), "agent:a", "c", pinned=True)

    plan = history.plan_conversation(up, "c", READER)

    assert (plan.steps, [left.id for left in plan.left]) == ((), ["edited", "made"])


def test_nothing_written_yet_is_nothing_to_undo():
    """Rule: an empty store is no error."""
    plan = history.plan_last(upkeep(), READER)

    assert (plan.steps, plan.what) == ((), "nothing was written yet")
