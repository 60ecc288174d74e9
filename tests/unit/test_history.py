"""History: every version, who, when, why, from what, with diffs; trajectories; what was believed then."""

from __future__ import annotations

import pytest
from timekit import a_memory, change, day, put, upkeep

from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import MemoryType, Scope, Status, Tag, Visibility
from memory_anchor.upkeep import history


def test_each_step_says_who_when_why_from_what_and_what_changed():
    """Rule: `history ID` shows every version with its diff."""
    up = upkeep()
    put(up, a_memory("m", "Use pip. Pin versions.", MemoryType.DECISION, scope=Scope(conversation="c1")))
    change(up, "m", day(1), "agent:codex", reason="moved to uv", content="Use uv. Pin versions.", tags=(Tag("build"),))
    change(up, "m", day(2), "job:forget", reason="faded", status=Status.ARCHIVED)

    first, second, third = history.history(history.versions_of(up.store, "m", None))

    assert (first.by, first.conversation, first.changes, first.diff) == ("agent:tester", "c1", {}, ())
    assert (second.by, second.why, second.at, second.came_from) == ("agent:codex", "moved to uv", day(1), "m@1")
    assert second.diff == ("- Use pip.", "+ Use uv.", "  Pin versions.")
    assert set(second.changes) == {"tags"}
    assert third.changes == {"status": ("active", "archived")}
    assert (first.until, third.until) == (day(1), None)


def test_a_diff_of_chinese_text_goes_by_sentences_too():
    """Rule: both languages are first-class."""
    assert history.content_diff("部署用 pip。版本要固定!", "部署用 uv。版本要固定!") == (
        "- 部署用 pip。",
        "+ 部署用 uv。",
        "  版本要固定!",
    )


def test_history_of_what_the_reader_may_not_see_is_not_found():
    """Rule: scope never leaks, not even that an id exists."""
    up = upkeep()
    put(up, a_memory("m", scope=Scope(user="you"), visibility=Visibility.USER))

    with pytest.raises(NotFound, match="no memory 'm' here"):
        history.versions_of(up.store, "m", Scope(user="me"))
    with pytest.raises(NotFound):
        history.versions_of(up.store, "nothing", None)


def test_a_trajectory_reads_back_through_the_memories_that_were_replaced():
    """Rule: `previous_version_id` chains are readable as a story."""
    up = upkeep()
    put(up, a_memory("a", "SQLite", MemoryType.DECISION))
    change(up, "a", day(1), content="Postgres")
    put(up, a_memory("b", "Qdrant", MemoryType.DECISION, recorded_at=day(2), previous_version_id="a@2"))
    change(up, "a", day(2), status=Status.SUPERSEDED)
    change(up, "b", day(3), content="Qdrant Edge")

    steps = [(step.version_id, step.content) for step in history.trajectory(up.store, "b", None)]

    assert steps == [("a@1", "SQLite"), ("a@2", "Postgres"), ("b@1", "Qdrant"), ("b@2", "Qdrant Edge")]


def test_a_trajectory_that_bites_its_tail_ends():
    """Rule: every loop is bounded."""
    up = upkeep()
    put(up, a_memory("a", previous_version_id="b@1"), a_memory("b", previous_version_id="a@1"))

    assert [s.version_id for s in history.trajectory(up.store, "a", None)] == ["b@1", "a@1"]


def test_a_trajectory_begins_where_it_can_be_read():
    """Rule: what was erased is not an error."""
    up = upkeep()
    put(up, a_memory("b", previous_version_id="gone@4"))

    assert [s.version_id for s in history.trajectory(up.store, "b", None)] == ["b@1"]
    with pytest.raises(NotFound):
        history.trajectory(up.store, "gone", None)


def test_as_of_gives_the_version_believed_then():
    """Rule: recorded_at <= t < recorded_to."""
    up = upkeep()
    put(up, a_memory("m", "one"))
    change(up, "m", day(2), content="two")

    contents = [history.as_of(up.store, "m", day(d), None).content for d in (0, 1.9, 2, 50)]

    assert contents == ["one", "one", "two", "two"]
    with pytest.raises(NotFound, match="was not known"):
        history.as_of(up.store, "m", day(-1), None)


def test_a_version_is_found_by_its_id_in_any_collection():
    """Rule: a citation to a version can be followed."""
    up = upkeep()
    put(up, a_memory("e"), a_memory("f", kind=MemoryType.FACT))

    assert [history.version_named(up.store, v, None).id for v in ("e@1", "f@1")] == ["e", "f"]
    for missing in ("e@2", "nonsense", "nothing@1"):
        with pytest.raises(NotFound):
            history.version_named(up.store, missing, None)
    with pytest.raises(NotFound):
        history.version_named(up.store, "e@1", Scope(account="another"))
