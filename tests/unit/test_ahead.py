"""Time ahead and behind: a time to live counts from what happened, plans head no list, overdue comes first."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from memory_anchor.domain.model import Actor, Outcome, Status
from memory_anchor.domain.ports import Entry
from memory_anchor.extensions.dashboard import wording
from memory_anchor.front.calls import run
from memory_anchor.hooks import brief
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import LifecycleSettings, Settings
from memory_anchor.testing import START, ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

DAY = timedelta(days=1)


def iso(days: float) -> str:
    return (START + days * DAY).isoformat()


# --- time to live -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [-5, -1, 0, 3, 400])
def test_a_time_to_live_counts_from_what_happened(anchor: MemoryAnchor, clock: ManualClock, days: int) -> None:
    """Rule L2.ttl: a demo in a year with 30 days to live is there that day; what was two days ago has two days less."""
    event = anchor.log_event("The demo with the board", when=iso(days), ttl_days=30)

    assert event.outcome is Outcome.ADDED
    assert anchor.get(event.id).expires_at == START + (days + 30) * DAY
    clock.advance(days=days + 30 - 0.01)
    assert [found.id for found in anchor.search_events()] == [event.id]
    clock.advance(days=0.02)
    assert anchor.search_events() == []


def test_what_was_over_before_it_was_told_is_archived_and_says_so(core: Core, anchor: MemoryAnchor) -> None:
    """Rule L2.ttl: stored, in no search, restorable; the answer says what became of it, and so does its repeat."""
    told = anchor.log_event("The crane was greased", when=iso(-40), ttl_days=30, request_id="r")

    assert (told.outcome, told.status) == (Outcome.ARCHIVED, Status.ARCHIVED)
    assert told.reason == f"its time to live of 30 days ended on {START - 10 * DAY:%Y-%m-%d}"
    assert anchor.log_event("The crane was greased", when=iso(-40), ttl_days=30, request_id="r") == told
    assert anchor.search("crane greased").snippets == ()
    assert anchor.get(str(told.id)).status is Status.ARCHIVED


@pytest.mark.parametrize(("when", "lives_until"), [(-40, 7), (0, 7), (20, 27)])
def test_the_default_time_to_live_ends_nothing_that_is_told_late(
    tmp_path: Path, agent: Actor, when: int, lives_until: int
) -> None:
    """Rule L2.ttl: `lifecycle.default_ttl_days` was asked for by nobody: an old talk that is imported gets its time."""
    settings = Settings(lifecycle=LifecycleSettings(default_ttl_days=7))
    with closing(ephemeral_core(tmp_path / "x", settings=settings, clock=ManualClock())) as core:
        anchor = core.anchor(agent)
        event = anchor.log_event("The crane was greased", when=iso(when))
        assert anchor.get(str(event.id)).expires_at == START + lives_until * DAY


# --- what lies ahead ----------------------------------------------------------------------------------------------


@pytest.fixture
def planned(anchor: MemoryAnchor) -> list[str]:
    """What happened, newest first, then plans, soonest first; told in another order."""
    far = anchor.log_event("The year 2999 begins at the harbour", when="2999-01-01T00:00:00Z")
    near = anchor.log_event("The harbour festival opens", when=iso(9))
    old = anchor.log_event("The harbour was dredged", when=iso(-9))
    tomorrow = anchor.log_event("The harbour pilot comes", when=iso(1))
    new = anchor.log_event("The harbour crane was greased")
    return [str(told.id) for told in (tomorrow, new, old, near, far)]


def test_what_lies_ahead_heads_no_list(anchor: MemoryAnchor, planned: list[str]) -> None:
    """Rule due.ahead: beyond what `due` shows an event is a plan, which follows what happened in every list."""
    assert [event.id for event in anchor.search_events()] == planned
    assert [event.id for event in anchor.search_events(limit=3)] == planned[:3]
    assert [event.id for event in anchor.search_events(start=iso(-10), limit=4)] == planned[:4]
    assert [event.id for event in anchor.search_events(start=iso(5))] == planned[3:]
    assert [event.id for event in anchor.search_events(end=iso(1.5))] == planned[:3]
    assert [memory.id for memory in anchor.curation.listing()] == planned


def test_what_lies_ahead_stands_in_no_context_and_no_brief(
    core: Core, anchor: MemoryAnchor, planned: list[str]
) -> None:
    """Rule due.ahead: recent events of a context, a session's start and a hand-over are what happened."""
    start = brief.start(anchor, "startup")
    assert [line.id for line in start.lines] == planned[:3]  # the first is due tomorrow
    events = core.context_builder(anchor)._sources.recent_events(5)
    assert [snippet.id for snippet in events] == planned[:3]
    caller = Preamble(project_dir=anchor.actor.project_dir, cwd=anchor.actor.project_dir)
    built = json.dumps(run(core, caller, "context", {"task": "anything at all"}), default=str)
    assert "2999" not in built and "festival" not in built


def test_what_lies_ahead_is_not_the_last_of_its_kind(anchor: MemoryAnchor) -> None:
    """Rule search.recency: "the last release" was released."""
    anchor.log_event("Released version 9 of the crane", when="2999-01-01T00:00:00Z")
    for number in (1, 2, 3):
        anchor.log_event(f"Released version {number} of the crane", when=iso(number - 9))

    assert "version 3" in anchor.search("what was the last release of the crane").snippets[0].text


def test_what_lies_ahead_heads_no_timeline(planned: list[str]) -> None:
    """Rule due.ahead: the dashboard's days are those of what happened, newest first, then the plans."""
    del planned
    whens = [iso(400), iso(-9), iso(0), iso(1), iso(9)]
    records = [{"id": when, "when": when, "recorded_at": iso(0), "scope": {}} for when in whens]
    words = wording.Words("en", zone="UTC", now=START)

    days = wording.by_day(wording.newest_first(records, START), words)

    assert [day for day, _ in days] == [iso(n)[:10] for n in (1, 0, -9, 9, 400)]


def test_a_plan_fades_from_the_day_it_is_for(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule forget.plan: the night that forgets counts a planned event's age from its day, as its time to live does."""
    plan = anchor.log_event("The demo with the board is in hall 4", when=iso(40)).id
    told = anchor.log_event("The crane was greased").id

    clock.advance(days=39)
    anchor.maintenance.run_job("forget")

    assert [anchor.get(str(name)).status for name in (plan, told)] == [Status.ACTIVE, Status.ARCHIVED]
    clock.advance(days=40)
    anchor.maintenance.run_job("forget")
    assert anchor.get(str(plan)).status is Status.ARCHIVED


# --- what is overdue ----------------------------------------------------------------------------------------------


def test_what_is_overdue_is_the_first_that_due_tells_until_it_is_done(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule due.over: what had to be done by a day stays, however long ago; what was planned for a day passes."""
    tagged = anchor.save_memory("Renew the certificate", tags=["due:2025-12-16"]).id
    said = anchor.save_memory("The tax return must be filed by 18 December").id
    chinese = anchor.save_memory("年报最晚12月19日交").id
    anchor.log_event("Demo with the board", when=iso(2))
    task = anchor.save_memory("Water the plants in the office", tags=["todo"]).id
    clock.advance(days=60)
    soon = anchor.save_memory("Order the paint", tags=[f"due:{clock.now() + DAY:%Y-%m-%d}"]).id

    listed = anchor.due()

    assert [due.memory.id for due in listed] == [tagged, said, chinese, soon, task]
    caller = Preamble(project_dir=anchor.actor.project_dir, cwd=anchor.actor.project_dir)
    shown = run(core, caller, "due", {})["due"]
    assert [item["overdue"] for item in shown] == [True, True, True, False, False]
    assert [due.memory.id for due in anchor.due(done=tagged)] == [said, chinese, soon, task]
    assert {line.id for line in brief.due_lines(anchor)} == {soon, task}  # nobody is reminded for ever


def test_a_date_is_due_however_many_memories_came_after(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Due: a date in the words of a fact or an event, a plan, a tag; 410 facts and 410 events were written since."""
    dated = [
        anchor.save_memory("The licence of the crane must be renewed by 12 January 2026").id,
        anchor.log_event("温室的合同最晚1月10日续签").id,
        anchor.log_event("The demo with the board", when=iso(20)).id,
        anchor.save_memory("The left greenhouse needs a new lock", tags=["todo"]).id,
        anchor.save_memory("The insurance of the van ends", tags=["due:2026-01-05"]).id,
    ]
    clock.advance(seconds=1)
    later = [anchor.save_memory("The crane was painted blue").id, anchor.log_event("Lorry 7 left").id]
    for one in map(anchor.get, later):
        copies = [replace(one, id=f"later{number:04}{one.id[-4:]}", revision=None) for number in range(410)]
        core.services.store.put(one.layer.value, [Entry(copy) for copy in copies])

    found = [item.memory.id for item in anchor.due(days=60)]

    assert sorted(found) == sorted(map(str, dated))
    anchor.forget(str(dated[0]))
    assert dated[0] not in [item.memory.id for item in anchor.due(days=60)]
