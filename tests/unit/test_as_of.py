"""`search(as_of=...)` answers as a search did then (strategy section 6: history; bi-temporal memory)."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

QUERY = "release manager"


def found(anchor: MemoryAnchor, **more: object) -> list[tuple[str, str]]:
    return [(one.id, one.text) for one in anchor.search(QUERY, limit=50, **more).snippets]


def test_an_edited_fact_says_then_what_it_said_then(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule as_of.edited: the version that was believed, under the same id."""
    kept = anchor.save_memory("The release manager is Anna").id
    before = clock.now()
    clock.advance(days=3)
    anchor.curation.edit(kept, "The release manager is Anna Weber")

    assert found(anchor, as_of=before.isoformat()) == [(kept, "The release manager is Anna")]
    assert found(anchor) == [(kept, "The release manager is Anna Weber")]


def test_a_superseded_fact_is_found_before_and_not_after(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule as_of.superseded: one truth at a time, whichever time."""
    old = anchor.save_memory("The release manager is Anna").id
    before = clock.now()
    clock.advance(days=3)
    new = anchor.save_memory("The release manager is Tom", replaces=old).id
    since = clock.now()
    clock.advance(days=3)

    assert found(anchor, as_of=before.isoformat()) == [(old, "The release manager is Anna")]
    for when in ({"as_of": since.isoformat()}, {"as_of": clock.now().isoformat()}, {}):
        assert found(anchor, **when) == [(new, "The release manager is Tom")]


def test_an_archived_memory_is_found_before_and_not_between(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule as_of.archived: forgetting hides from its time on, restoring shows again."""
    kept = anchor.save_memory("The release manager is Anna").id
    known, hidden = [clock.now()], []
    clock.advance(days=1)
    anchor.forget(kept)
    hidden.append(clock.now())
    clock.advance(days=1)
    hidden.append(clock.now())
    clock.advance(days=1)
    anchor.curation.restore(kept)
    known.append(clock.now())
    clock.advance(days=1)

    assert [[one for one, _ in found(anchor, as_of=at.isoformat())] for at in known] == [[kept], [kept]]
    assert [found(anchor, as_of=at.isoformat()) for at in hidden] == [[], []]


def test_an_expired_event_was_there_until_it_expired(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule L2.ttl: before its end it answers, at its end no more, whether a job archived it or not."""
    event = anchor.log_event("The release manager signed version two", ttl_days=2).id
    start = clock.now()
    clock.advance(days=1)
    alive = clock.now()
    clock.advance(days=1)
    gone = clock.now()
    clock.advance(days=30)

    assert [one for one, _ in found(anchor, as_of=alive.isoformat())] == [event]
    assert [one for one, _ in found(anchor, as_of=start.isoformat())] == [event]
    assert found(anchor, as_of=gone.isoformat()) == []


def test_what_waited_for_review_is_found_when_asked_for_alone(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule as_of.pending: pending then is pending now."""
    kept = anchor.save_memory("The release manager is Anna", confidence=0.8).id
    then = clock.now().isoformat()
    clock.advance(days=1)

    assert found(anchor, as_of=then) == []
    assert [one for one, _ in found(anchor, as_of=then, include_pending=True)] == [kept]


def test_as_of_from_now_on_is_the_plain_search(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule as_of.now: the very same answer, constitution, scores, order and all."""
    for name in ("Anna", "Tom"):
        anchor.save_memory(f"The release manager of {name}'s team is {name}")
        anchor.log_event(f"{name} the release manager signed")
    for days in (0, 400):
        at = clock.now() + timedelta(days=days)
        assert anchor.search(QUERY, as_of=at.isoformat()) == anchor.search(QUERY)


STEPS = st.lists(
    st.tuples(st.sampled_from(["save", "replace", "edit", "forget", "restore", "log"]), st.integers(0, 5)),
    min_size=1,
    max_size=10,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_any_past_search_can_be_asked_again(steps: list[tuple[str, int]]) -> None:
    """Law: after any writes, as_of an instant finds what a plain search found at that instant; as_of now, now."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        core = ephemeral_core(
            Path(folder),
            clock=clock,
            embedder=HashEmbedder(dimensions=256),
            settings=Settings.model_validate({"retrieval": {"fold_duplicates": False}}),
        )
        anchor = core.anchor(Actor(Caller.HUMAN, Scope(agent="a", conversation="c1"), client="a"))
        seen = []
        for number, (step, which) in enumerate(steps):
            _do(core, anchor, step, which, number)
            seen.append((clock.now(), set(found(anchor))))
            clock.advance(hours=1)
        for at, then in seen:
            assert set(found(anchor, as_of=at.isoformat())) == then
        assert found(anchor, as_of=clock.now().isoformat()) == found(anchor)
        core.close()


def _do(core: Core, anchor: MemoryAnchor, step: str, which: int, number: int) -> None:
    """Make one write, on the `which`-th memory where it needs one; none where there is none that fits."""
    text = f"release manager of plan{which} is name{number}"
    known = sorted(anchor.curation.listing(limit=200), key=lambda memory: memory.id)
    one = known[which % len(known)] if known else None
    match step:
        case "save":
            anchor.save_memory(text)
        case "log":
            anchor.log_event(text, ttl_days=which and 1)
        case "replace" if one is not None and one.layer.value == "verified_fact" and one.status.value == "active":
            anchor.save_memory(text, replaces=one.id)
        case "edit" if one is not None:
            anchor.curation.edit(one.id, text)
        case "forget" if one is not None:
            anchor.forget(one.id)
        case "restore" if one is not None and one.status.value == "archived":
            anchor.curation.restore(one.id)
        case _:
            core.services.searcher.index.embed_pending(10)


@pytest.mark.parametrize("as_of", ["yesterdayish", 7])
def test_a_time_that_is_none_is_refused(anchor: MemoryAnchor, as_of: object) -> None:
    """Rule input.time: one sentence."""
    with pytest.raises(BadInput, match="as_of"):
        anchor.search(QUERY, as_of=as_of)
