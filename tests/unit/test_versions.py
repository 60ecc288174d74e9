"""A memory changes only by a new version; the old one is closed at the same instant and stays as it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain import versions
from memory_anchor.domain.model import Layer, Memory, MemoryType, Receipt, Scope, Status, Usage
from memory_anchor.domain.versions import believed_at, changed_fields, revise, same_meaning, with_meaning_of, written_by

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def a_memory(**changes: object) -> Memory:
    memory = Memory(
        "m1", "Deploy with uv", Layer.VERIFIED_FACT, MemoryType.DECISION, Scope(), recorded_at=T0, valid_from=T0
    )
    return replace(memory, **changes)  # type: ignore[arg-type]


def test_a_revision_closes_the_old_version_at_the_instant_the_new_one_begins():
    """Rule: versions of one memory neither overlap nor leave a gap."""
    memory = a_memory()
    step = revise(
        memory, replace(memory, content="Deploy with nix"), at=T0 + timedelta(days=3), author="ana", reason="moved"
    )

    assert step.closed.recorded_to == step.new.recorded_at == T0 + timedelta(days=3)
    assert (step.closed.state, step.new.state) == ("history", "active")
    assert (step.new.version_id, step.new.previous_version_id) == ("m1@2", "m1@1")
    assert (step.new.author, step.new.reason) == ("ana", "moved")
    assert step.closed.content == "Deploy with uv"


def test_age_counts_from_the_first_version_whatever_was_revised_since():
    """Rule: archiving and restoring makes no memory younger."""
    memory = a_memory()
    for day in (1, 2, 3):
        pinned = replace(memory, pinned=day % 2 == 0)
        memory = revise(memory, pinned, at=T0 + timedelta(days=day), author="j", reason="r").new

    assert memory.learned_at == T0
    assert memory.recorded_at == T0 + timedelta(days=3)


def test_usage_and_receipts_move_on_to_the_new_version():
    """Rule: use belongs to the memory, and a resent request finds its receipt on the current version only."""
    receipt = Receipt("k", "f", {"outcome": "added"})
    memory = a_memory(usage=Usage(count=4), receipts=(receipt,))

    step = revise(memory, replace(memory, status=Status.ARCHIVED), at=T0, author="j", reason="r")

    assert (step.new.usage.count, step.new.receipts, step.closed.receipts) == (4, (receipt,), ())


def test_a_clock_that_went_back_ends_no_version_before_it_began():
    """Rule: recorded_at never falls along a chain."""
    step = revise(a_memory(), a_memory(pinned=True), at=T0 - timedelta(days=9), author="j", reason="r")

    assert step.new.recorded_at == step.closed.recorded_to == T0


def test_history_and_bookkeeping_cannot_be_revised():
    """Rule: only a current version has a next one, and nobody forges which version it is."""
    with pytest.raises(ValueError, match="is history"):
        revise(a_memory().closed(T0), a_memory(), at=T0, author="j", reason="r")
    with pytest.raises(ValueError, match="cannot change usage, version"):
        revise(a_memory(), a_memory(version=9, usage=Usage(count=1)), at=T0, author="j", reason="r")


def test_every_field_is_either_bookkeeping_or_meaning():
    """Rule: a field added to Memory later is given back by undo unless it is named bookkeeping."""
    names = set(Memory.__dataclass_fields__)

    assert set(versions.MEANING) | versions.BOOKKEEPING == names
    assert set(versions.MEANING) & versions.BOOKKEEPING == set()


def test_the_meaning_of_a_version_given_back_says_the_same_again():
    """Law: revising with an older version's meaning restores it exactly."""
    first = a_memory()
    other = replace(first, content="Deploy with nix", importance=0.9)
    second = revise(first, other, at=T0, author="a", reason="r").new

    third = revise(second, with_meaning_of(second, first), at=T0, author="b", reason="undo").new

    assert same_meaning(first, third)
    assert not same_meaning(first, second)
    assert changed_fields(first, second) == {"content": ("Deploy with uv", "Deploy with nix"), "importance": (0.5, 0.9)}


def test_a_version_names_the_conversation_that_wrote_it_and_not_the_owner():
    """Rule: version 1 belongs to its scope's conversation; a later one to the caller's, a job's to none."""
    first = a_memory(scope=Scope(conversation="c1"))
    by_other = revise(first, replace(first, pinned=True), at=T0, author="b", reason="r", written_in="c2").new
    by_job = revise(by_other, replace(by_other, pinned=False), at=T0, author="job", reason="r").new

    assert [written_by(v) for v in (first, by_other, by_job)] == ["c1", "c2", ""]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(-5, 500))
def test_at_any_instant_at_most_one_version_was_believed(gaps: list[int], day: int):
    """Law: as_of picks exactly one version from the first record on, none before."""
    memory, chain, at = a_memory(), [], T0
    for gap in gaps:
        at += timedelta(days=gap)
        step = revise(memory, replace(memory, importance=gap / 50), at=at, author="j", reason="r")
        chain.append(step.closed)
        memory = step.new
    chain.append(memory)
    instant = T0 + timedelta(days=day)

    believed = believed_at(chain, instant)

    holding = [v for v in chain if v.recorded_at <= instant and (v.recorded_to is None or instant < v.recorded_to)]
    assert len(holding) == (1 if day >= 0 else 0)
    assert believed == (holding[0] if holding else None)
