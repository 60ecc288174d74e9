"""What an answer leaves room for: time words, repeated events, facts beside talks, and the reasons that are given."""

from __future__ import annotations

from datetime import timedelta

import pytest
from searching import ACTOR, Bench, ids

from memory_anchor.recall.request import SearchRequest
from memory_anchor.testing import make_searcher


@pytest.fixture
def bench() -> Bench:
    return Bench(cache_ttl_s=0)


@pytest.mark.parametrize(
    ("content", "query", "plain"),
    [
        ("replaced the router", "what did we do about the router 4 days ago", "what did we do about the router"),
        ("replaced the router", "anything about the router since last month?", "anything about the router?"),
        ("更换了办公室的路由器", "4天前路由器做了什么", "路由器做了什么"),
    ],
)
def test_words_that_became_a_filter_do_not_count_against_a_memory(
    bench: Bench, content: str, query: str, plain: str
) -> None:
    """Rule search.time: "4 days ago" says when; how much of the question a memory covers is counted without it."""
    for number in range(6):
        bench.event(f"note {number} about lunch", when=bench.clock.now() - timedelta(days=4, minutes=number))
    router = bench.event(content, when=bench.clock.now() - timedelta(days=4))

    timed, untimed = (bench.search(text, detail=True).snippets[0] for text in (query, plain))

    assert timed.id == untimed.id == router.id
    assert timed.signals is not None and untimed.signals is not None
    assert timed.signals["coverage"] == untimed.signals["coverage"]
    assert timed.signals["dense"]["score"] == untimed.signals["dense"]["score"]


@pytest.mark.parametrize("query", ["what happened today", "今天发生了什么"])
def test_what_happened_is_answered_with_events_and_the_newest_first(bench: Bench, query: str) -> None:
    """Rule search.routing: what happened when comes from L2; a fact of that day follows."""
    now = bench.clock.now()
    fact = bench.fact("what happened on failure: the job is retried today")
    events = [bench.event(f"step {n} of the release", when=now - timedelta(minutes=n)) for n in range(3)]
    bench.event("an older step", when=now - timedelta(days=3))

    assert bench.ask(query) == [*(event.id for event in events), fact.id]


def test_a_busy_day_shows_its_newest_events(bench: Bench) -> None:
    """Rule search.time: a period with more in it than any list of candidates is read from its end."""
    start = bench.clock.now().replace(hour=0, minute=0) - timedelta(days=1)
    events = [bench.event(f"step {n} of yesterday", when=start + timedelta(minutes=n)) for n in range(120)]

    assert bench.ask("what happened yesterday", limit=3) == [event.id for event in reversed(events[-3:])]


def test_an_event_told_many_times_leaves_room_for_others(bench: Bench) -> None:
    """Rule search.diversity: near-duplicates are one snippet, and the places they free are filled."""
    for _ in range(30):
        bench.event("ran the tests")
    fact, event = bench.fact("tests need Docker to run"), bench.event("the tests failed because the disk was full")

    found = bench.ask("tests", limit=3)

    assert len(found) == 3 and {fact.id, event.id} < set(found)


def test_an_event_told_every_day_for_a_year_leaves_room_for_others() -> None:
    """Rule search.diversity: however often it was told, one text never takes every candidate."""
    bench = Bench(cache_ttl_s=0)
    bench.searcher.index.warm()
    event = bench.event("the tests failed because the disk was full", when=bench.clock.now() - timedelta(days=400))
    for number in range(365):
        bench.event("ran the tests", when=bench.clock.now() - timedelta(days=number))

    assert event.id in bench.ask("ran the tests", limit=3)


def test_the_same_words_about_others_are_another_memory(bench: Bench) -> None:
    """Rule search.diversity: who and where tell events apart, however often their text was told."""
    bench.searcher.index.warm()
    toms = bench.event("deployed successfully", who=("Tom",), where="staging")
    for _ in range(12):
        bench.event("deployed successfully", who=("Anna",), where="production")

    assert toms.id in bench.ask("Tom staging")


def test_a_day_of_heartbeats_shows_what_else_happened(bench: Bench) -> None:
    """Rule search.time: a period is looked through for different events."""
    others = [bench.event(f"step {number} of the release") for number in range(4)]
    for _ in range(150):
        bench.event("gateway heartbeat received")

    found = bench.ask("what happened today", limit=10)

    assert {event.id for event in others} < set(found) and len(found) == 5


def test_a_fact_is_not_buried_by_what_was_said_around_an_event(bench: Bench) -> None:
    """Rule search.priors: a talk never lifts an unrelated event above the fact that holds the identifier."""
    bench.talk(
        "c1",
        ("Tom", "looked at the dashboards"),
        ("Tom", "saw ERR_QUOTA_77 in the console"),
        ("Tom", "ordered pizza for the team"),
    )
    fact = bench.fact("ERR_QUOTA_77 means the disk quota of a tenant is used up")

    assert fact.id in bench.ask("ERR_QUOTA_77", limit=2)


def test_facts_alone_are_scored_as_they_always_were(bench: Bench) -> None:
    """Rule search.conversation: where no event has a conversation, nothing is added for being alone."""
    bench.fact("the gateway listens on port 8443")
    bench.event("the gateway was restarted")

    snippets = bench.search("gateway port", detail=True).snippets

    assert snippets and all("alone" not in (snippet.signals or {}) for snippet in snippets)


@pytest.mark.parametrize(
    ("phrase", "holds", "lacks"), [("茶", "喝茶有益健康", "他喜欢喝咖啡"), ("2", "limit is 2", "since 2024")]
)
def test_a_phrase_of_one_character_must_match_too(bench: Bench, phrase: str, holds: str, lacks: str) -> None:
    """Rule search.quoted: what is quoted is in the text, however short; a digit stands alone."""
    right, wrong = bench.fact(holds), bench.fact(lacks)

    found = bench.ask(f'"{phrase}"')

    assert found == [right.id] and wrong.id not in found


def test_why_not_counts_what_the_answer_would_show(bench: Bench) -> None:
    """Rule search.why_not: neither duplicates nor what lies outside of the period rank above anything."""
    day = bench.clock.now() - timedelta(days=1)
    for _ in range(12):
        bench.event("ran the tests", when=day)
    events = [bench.event(f"step {n}", when=day - timedelta(minutes=n + 1)) for n in range(3)]
    bench.event("step of another week", when=day - timedelta(days=20))

    verdict = bench.searcher.why_not(ACTOR, SearchRequest("what happened yesterday", limit=2), events[2])

    assert not verdict["found"] and verdict["rank"] == 4
    assert verdict["reason"] == "3 others rank above it and 2 are shown"


def test_why_not_answers_before_the_store_was_read(bench: Bench) -> None:
    """Rule search.why_not: a memory that the search did not meet has its reason too."""
    facts = [bench.fact(f"lunch number {number} was fine") for number in range(90)]
    cold = make_searcher(bench.store, bench.embedder, bench.clock, cache_ttl_s=0)

    request = SearchRequest("invoice export")
    unmet = next(fact for fact in facts if fact.id not in ids(bench.searcher.search(ACTOR, request)))

    verdict = cold.why_not(ACTOR, request, unmet)

    assert not verdict["found"] and verdict["reason"]


def test_why_not_names_those_that_stand_for_an_older_one(bench: Bench) -> None:
    """Rule search.why_not: the eleventh of one text is no candidate."""
    bench.searcher.index.warm()
    events = [bench.event("ran the tests", when=bench.clock.now() - timedelta(days=n)) for n in range(12)]

    assert "very same" in bench.searcher.why_not(ACTOR, SearchRequest("tests"), events[-1])["reason"]


def test_what_another_process_stored_without_a_row_is_told_too(bench: Bench) -> None:
    """Rule search.deferred: the note counts the store, not the queue of this process."""
    for number in range(6):
        bench.event(f"sensor reading {number}", embed=False)
    other = make_searcher(bench.store, bench.embedder, bench.clock, cache_ttl_s=0)
    request = SearchRequest("sensor reading 3")

    before = other.search(ACTOR, request).notes
    other.index.warm()
    whole = other.search(ACTOR, request).notes
    other.index.embed_pending(10)

    note = "6 memories are not embedded yet and are found by their words only."
    assert note in before and note in whole
    assert other.search(ACTOR, request).notes == ()
