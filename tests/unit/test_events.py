"""L2: what happened, when, where, who."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, Layer, Origin, Outcome, Status
from memory_anchor.process.wiring import Core
from memory_anchor.testing import START, ManualClock
from memory_anchor.use_cases.memory import MemoryAnchor


def test_an_event_has_a_when_even_if_nobody_gave_one(anchor: MemoryAnchor) -> None:
    """Rule L2.when: `when` is required and defaults to now."""
    done = anchor.log_event("CI flaked on test_edge")

    event = anchor.get(done.id)
    assert (done.outcome, event.layer, event.when) == (Outcome.ADDED, Layer.EVENT_LOG, START)


def test_an_event_keeps_where_who_and_source(anchor: MemoryAnchor) -> None:
    """Rule L2.shape: when, where, who, source and days to live are stored as given."""
    done = anchor.log_event(
        "修复了 search_memory 空查询返回 None 的 Bug",
        when="2025-12-15T14:30:00Z",
        where="backend/services/memory.py",
        who=["claude-code"],
        ttl_days=30,
        source="ai",
    )

    event = anchor.get(done.id)
    assert event.when == datetime(2025, 12, 15, 14, 30, tzinfo=UTC)
    assert (event.where, event.who, event.ttl_days) == ("backend/services/memory.py", ("claude-code",), 30)
    assert event.origin is Origin.AGENT
    assert event.expires_at == event.when + timedelta(days=30)


def test_events_are_found_by_time_newest_first(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule L2.time: a time range alone answers, newest first; a bare end date includes its day."""
    for day in (10, 11, 12):
        anchor.log_event(f"deployed build {day}", when=f"2025-12-{day}T09:00:00Z")

    found = anchor.search_events(start="2025-12-11", end="2025-12-12")

    assert [event.content for event in found] == ["deployed build 12", "deployed build 11"]


def test_events_are_found_by_meaning_within_a_place_and_people(anchor: MemoryAnchor) -> None:
    """Rule L2.meaning: with a query best first; `where` is a prefix, `who` any of these."""
    anchor.log_event("rotated the signing key", where="ops/keys", who=["Ana"])
    anchor.log_event("rotated the signing key again", where="ops/keys", who=["Bo"])
    anchor.log_event("rotated the logo", where="design", who=["Ana"])

    found = anchor.search_events(query="rotated signing key", where="ops", who=["Ana"])

    assert [event.content for event in found] == ["rotated the signing key"]


def test_turns_of_one_conversation_keep_their_order_and_context(anchor: MemoryAnchor) -> None:
    """Rule L2.sequence: turns that share one time keep their order, and know what went before."""
    ids = [anchor.log_event(text, when="2025-12-01").id for text in ("Shall we use uv?", "Yes, from next week.")]

    first, second = (anchor.get(name) for name in ids)
    assert (first.conversation_seq, second.conversation_seq) == (1, 2)
    assert second.context == "Shall we use uv?"
    assert second.content == "Yes, from next week."


def test_what_was_logged_before_but_happened_on_another_day_is_no_context(anchor: MemoryAnchor, core: Core) -> None:
    """Events: a talk is one conversation on one day; a connection in which months are told is many of them."""
    anchor.log_event("We won the school's race.", when="2025-03-07")
    second = anchor.get(anchor.log_event("The bridge was closed.", when="2025-12-25").id)
    core.services.events.clear_cache()
    third = anchor.get(anchor.log_event("It opened again.", when="2025-12-25").id)
    core.services.events.clear_cache()
    fourth = anchor.get(anchor.log_event("The lamp was mended.", when="2026-01-02").id)

    assert (second.context, third.context, fourth.context) == ("", "The bridge was closed.", "")


def test_the_date_that_the_event_before_opens_with_is_not_its_context(anchor: MemoryAnchor) -> None:
    anchor.log_event("[8 May 2026] Anna: Shall we use uv?", when="2026-05-08")
    second = anchor.get(anchor.log_event("[8 May 2026] Tom: Yes.", when="2026-05-08").id)

    assert second.context == "Anna: Shall we use uv?"


def test_a_new_process_goes_on_counting_where_the_conversation_stopped(anchor: MemoryAnchor, core: Core) -> None:
    """Rule L2.sequence: the number comes from the store, not from a process's memory."""
    anchor.log_event("one")
    core.services.events._last.clear()

    assert anchor.get(anchor.log_event("two").id).conversation_seq == 2


def test_an_expired_event_is_archived_and_never_erased(anchor: MemoryAnchor, core: Core, clock: ManualClock) -> None:
    """Rule L2.ttl: an expired event leaves search; its id still reads."""
    done = anchor.log_event("CI flaked on test_edge", ttl_days=7)
    clock.advance(days=8)

    assert core.scheduler.run("expire_events", clock.now()).changed == 1

    assert anchor.search_events(query="CI flaked") == []
    assert anchor.search("CI flaked").snippets == ()
    assert anchor.get(done.id).status is Status.ARCHIVED


def test_an_event_without_days_to_live_stays(anchor: MemoryAnchor, core: Core, clock: ManualClock) -> None:
    """Rule L2.ttl: 0 and nothing mean for ever."""
    kept = [anchor.log_event("moved to uv", ttl_days=0).id, anchor.log_event("moved to ruff").id]
    clock.advance(days=4_000)

    core.scheduler.run("expire_events", clock.now())

    assert [anchor.get(name).status for name in kept] == [Status.ACTIVE, Status.ACTIVE]


def test_a_promoted_event_stays_as_the_source_of_its_fact(anchor: MemoryAnchor) -> None:
    """Rule L2.promote: the fact cites the event, the event is marked promoted and kept."""
    event = anchor.log_event("Fixed: an empty query returned None", type="discovery")

    fact = anchor.promote(event.id, content="An empty query returns an empty list, never None.")

    stored, source = anchor.get(fact.id), anchor.get(event.id)
    assert fact.outcome is Outcome.ADDED
    assert stored.layer is Layer.VERIFIED_FACT
    assert [(c.kind, c.ref) for c in stored.citations] == [("event", event.id)]
    assert (source.promoted_to, source.status) == (fact.id, Status.ACTIVE)


def test_promoting_twice_makes_one_fact(anchor: MemoryAnchor) -> None:
    """Rule L2.promote: an event is promoted once; asking again names the fact there is."""
    event = anchor.log_event("Backups ran dry on Friday")
    first = anchor.promote(event.id)

    again = anchor.promote(event.id)

    assert (again.outcome, again.id) == (Outcome.SKIPPED, first.id)


def test_a_repeated_log_without_a_request_id_is_two_events(anchor: MemoryAnchor) -> None:
    """Rule L2.repeat: events deduplicate by request_id only."""
    same = [anchor.log_event("CI flaked").id for _ in range(2)]
    named = [anchor.log_event("CI flaked", request_id="r1").id for _ in range(2)]

    assert len(set(same)) == 2
    assert len(set(named)) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"content": "  "}, "content is empty"),
        ({"content": "x" * 8001}, "content is 8001 characters long"),
        ({"content": "a\x00b"}, "NUL"),
        ({"content": "a\ud800b"}, "lone surrogate"),
        ({"content": "x", "when": "yesterdayish"}, "ISO 8601"),
        ({"content": "x", "when": "0001-01-01"}, "years 1900 to 9000"),
        ({"content": "x", "ttl_days": -1}, "ttl_days is -1"),
        ({"content": "x", "ttl_days": True}, "ttl_days is True"),
        ({"content": "x", "type": "rumour"}, "type is 'rumour'"),
        ({"content": "x", "tags": [f"t{n}" for n in range(33)]}, "tags has 33 entries"),
        ({"content": "x", "files": ["a.py:9-3"]}, "path:10-20"),
        ({"content": "x", "who": {"a": 1}}, "who is"),
    ],
)
def test_bad_input_is_one_sentence_and_stores_nothing(
    anchor: MemoryAnchor, arguments: dict[str, object], sentence: str
) -> None:
    """Rule bad-input: what, the value, what is allowed; nothing is written."""
    with pytest.raises(BadInput) as refused:
        anchor.log_event(**arguments)  # type: ignore[arg-type]

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert anchor.search_events() == []


def test_a_naive_time_is_local_to_the_caller(core: Core, agent: Actor) -> None:
    """Rule times: without a zone a time is the caller's; answers are UTC."""
    shanghai = core.anchor(replace(agent, zone="Asia/Shanghai"))

    event = shanghai.get(shanghai.log_event("standup", when="2025-12-15T09:00:00").id)

    assert event.when == datetime(2025, 12, 15, 1, 0, tzinfo=UTC)
