"""What an answer holds: periods, quoted phrases, both sides of a dispute, one snippet a text (strategy 5 and 7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from searching import ACTOR, Bench, ids

from memory_anchor.domain.model import Actor, Memory, MemoryType, Status
from memory_anchor.process.wiring import Core
from memory_anchor.recall.request import SearchRequest
from memory_anchor.testing import START, ManualClock
from memory_anchor.upkeep.forgetting import citations_of
from memory_anchor.use_cases.memory import MemoryAnchor


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_quoted_phrase_must_match(bench: Bench) -> None:
    """Rule words.phrase: only memories that hold the quoted words, and none when no memory does."""
    exact = bench.fact("The rule is: fail fast and loudly")
    bench.fact("Fast builds fail less, the rule of thumb says")
    assert bench.ask('rule "fail fast"') == [exact.id]
    answer = bench.search('rule "fail slowly"')
    assert answer.snippets == ()
    assert "quoted" in answer.notes[0]


def test_a_question_about_a_title_also_finds_what_was_said_about_it(bench: Bench) -> None:
    """Rule words.phrase: holders of the phrase first; asking about it also takes what stands right behind it."""
    turns = bench.talk(
        "c1",
        ("anna", 'What did you learn from "Becoming Bold"?'),
        ("tom", "I learned to take courage from small steps"),
    )
    assert bench.ask('"Becoming Bold"') == [turns[0].id]
    assert bench.ask('what did Tom learn about courage from "Becoming Bold"?') == [turns[0].id, turns[1].id]


@pytest.mark.parametrize("days", [-20, 20])
def test_an_answer_of_another_time_is_not_kept_for_now(bench: Bench, days: int) -> None:
    """Rule search.cache: a search as if at another time neither takes an answer of now nor leaves one behind."""
    bench.event("the boiler was inspected", when=START - timedelta(days=1))
    asked = "what was inspected yesterday?"
    now = bench.search(asked)
    assert len(now.snippets) == 1
    bench.clock.advance(days=days)
    moved = bench.search(asked)
    assert moved.notes != now.notes
    bench.clock.advance(days=-days)
    assert bench.search(asked) == now


def test_an_expired_event_is_no_answer_however_lately_it_was_one(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule search.cache: an answer is kept until the first of its memories expires, whatever the cache's age."""
    anchor.log_event("The staging database is frozen", ttl_days=1)
    lasting = anchor.log_event("The staging database moved to Postgres")
    clock.advance(hours=23, minutes=59, seconds=45)
    for _ in range(3):  # the first search embeds what was written, so that its answer is not kept
        assert len(anchor.search("staging database").snippets) == 2
    assert core.services.searcher.cache_counts()[0] > 0

    clock.advance(seconds=20)

    assert [hit.id for hit in anchor.search("staging database").snippets] == [lasting.id]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/St_Johns"])
@pytest.mark.parametrize("asked", ["what happened today?", "今天发生了什么"])
def test_today_is_over_at_the_readers_midnight(
    core: Core, agent: Actor, clock: ManualClock, zone: str, asked: str
) -> None:
    """Rule search.cache: an answer is kept until midnight in its reader's zone, at which "today" is another day."""
    local = ZoneInfo(zone)
    clock.set(datetime(2025, 12, 16, 23, 59, 40, tzinfo=local))
    anchor = core.anchor(replace(agent, zone=zone))
    event = anchor.log_event("The boiler was inspected", when="2025-12-16T09:00:00")
    for _ in range(3):
        assert [hit.id for hit in anchor.search(asked).snippets] == [event.id]
    assert core.services.searcher.cache_counts()[0] > 0

    clock.advance(seconds=30)

    answer = anchor.search(asked)
    assert not answer.snippets or any("other times" in note for note in answer.notes)


@pytest.mark.parametrize("zones", [("UTC", "Asia/Shanghai"), ("Asia/Shanghai", "UTC")])
def test_today_is_each_readers_own(bench: Bench, zones: tuple[str, str]) -> None:
    """Rule search.cache x zone: the answer for one zone's today is not told in another, where the day is over."""
    bench.clock.set(datetime(2025, 12, 16, 20, 0, tzinfo=UTC))
    bench.event("The boiler was inspected", when=datetime(2025, 12, 16, 10, 0, tzinfo=UTC))

    answers = {zone: bench.search("was the boiler inspected today?", replace(ACTOR, zone=zone)) for zone in zones}

    assert answers["UTC"].notes == ()
    assert "Nothing is recorded for 'today'" in answers["Asia/Shanghai"].notes[0]


@pytest.mark.parametrize("first", ["expires", "lasts"])
def test_a_kept_answer_cites_nothing_whose_time_is_over(bench: Bench, first: str) -> None:
    """Rule search.cache x ttl: what was folded into another snippet ends the answer as well."""
    ends = START + timedelta(seconds=20)
    for kind in ("expires", "lasts") if first == "expires" else ("lasts", "expires"):
        bench.event("deployed the billing service", expires_at=ends if kind == "expires" else None)
    cited = {citation.ref for citation in bench.search("billing deployed").snippets[0].citations}
    assert len(cited) == 2

    bench.clock.advance(seconds=30)

    (left,) = bench.search("billing deployed").snippets
    assert [citation.ref for citation in left.citations] == [left.id] and left.id in cited


@pytest.mark.parametrize("asked", ["what happened in May 2023?", "2023年5月发生了什么"])
def test_what_happened_in_a_month_is_all_that_happened_then(bench: Bench, asked: str) -> None:
    """Rule search.time: where a query asks for nothing but a dated period, what lies in it answers first."""
    wanted = [bench.event("数据库迁移完成", when=datetime(2023, 5, 14, tzinfo=UTC))]
    wanted.append(bench.event("Rain flooded the cellar", when=datetime(2023, 5, 2, tzinfo=UTC)))
    fact = bench.fact("The freeze of May 2023 ended on 2023-02-30, says the log")
    for month in range(6, 12):
        bench.event(f"Shipped build {month}", when=datetime(2023, month, 10, tzinfo=UTC))
    found = bench.ask(asked)
    assert set(found[:2]) == {one.id for one in wanted}
    assert found[2:] == [fact.id]


def test_a_dated_period_in_which_nothing_lies_is_searched_as_words(bench: Bench) -> None:
    """Rule search.time: what is told about that time, whenever it was told."""
    fact = bench.fact("In May 2021 the office moved to Lisbon")
    assert bench.ask("what happened in May 2021?") == [fact.id]


def test_the_same_text_twice_is_one_snippet_that_cites_both(bench: Bench) -> None:
    """Rule search.fold: near-duplicates are folded, the siblings are cited."""
    first = bench.event("deployed the billing service")
    second = bench.event("deployed the billing service")
    answer = bench.search("billing deployed")
    assert len(answer.snippets) == 1
    assert {citation.ref for citation in answer.snippets[0].citations} == {first.id, second.id}


def test_disputed_memories_are_shown_together(bench: Bench) -> None:
    """Rule search.conflicts: both sides, and the pair is named."""
    one = bench.fact("the timeout is 30 seconds", status=Status.DISPUTED, disputes=("m002",))
    other = bench.fact("sixty is what Tom says", status=Status.DISPUTED, disputes=("m001",))
    bench.fact("timeouts are retried")
    answer = bench.search("timeout seconds", limit=3)
    shown = ids(answer)
    assert shown.index(other.id) == shown.index(one.id) + 1
    assert answer.conflicts == ((one.id, other.id),)


def disputed(bench: Bench) -> tuple[Memory, Memory]:
    """Two facts that contradict each other, the first the better match of "dark mode"."""
    one = bench.fact("Anna prefers dark mode in the editor", status=Status.DISPUTED)
    other = bench.fact("Anna likes a light theme", status=Status.DISPUTED, disputes=(one.id,))
    bench.store.erase(one.layer.value, [one.point_id])
    return bench.add(replace(one, disputes=(other.id,))), other


def test_the_other_side_of_a_disputed_memory_takes_the_place_of_the_last_hit(bench: Bench) -> None:
    """Rule search.conflict: both sides are within the limit, however good the others are."""
    for number in range(4):
        bench.fact(f"dark mode in the editor dark mode, theme {number}")
    one, other = disputed(bench)
    answer = bench.search("dark mode in the editor dark mode theme Anna", limit=5)
    shown = ids(answer)
    assert len(shown) == 5
    assert shown.index(other.id) == shown.index(one.id) + 1
    assert answer.conflicts == ((one.id, other.id),)


def test_a_limit_of_one_says_that_the_other_side_is_left_out(bench: Bench) -> None:
    """Rule search.conflict: what cannot be shown is said."""
    one, _ = disputed(bench)
    answer = bench.search("Anna dark mode editor", limit=1)
    assert ids(answer) == [one.id]
    assert answer.notes == (f"{one.id} is disputed; a higher limit shows the other side too.",)


@pytest.mark.parametrize("content", ["The audit found two broken badge readers", "审计发现两个坏掉的读卡器"])
def test_the_same_words_at_two_places_of_a_talk_are_one_snippet(bench: Bench, content: str) -> None:
    """Rule search.fold: what was said before each makes the vectors differ and the texts no other."""
    lines = ["Rain flooded the cellar", content, "Maya baked a cake", content]
    turns = bench.talk("c1", *(("maya", line) for line in lines))
    answer = bench.search(content)
    assert [snippet.text for snippet in answer.snippets].count(content) == 1
    first = answer.snippets[0]
    assert {turns[1].id, turns[3].id} <= {cited.ref for cited in first.citations}


def test_a_question_and_its_answer_in_the_same_words_are_two(bench: Bench) -> None:
    """Rule search.fold: a mark that changes what is said keeps texts apart."""
    bench.talk("c1", ("maya", "We ship on Monday?"), ("tom", "Rain all day"), ("tom", "We ship on Monday."))
    assert len([1 for _ in bench.ask("ship on Monday")]) >= 2


def test_a_quoted_phrase_is_found_among_many_with_the_same_words(bench: Bench) -> None:
    """Rule search.phrase: words alone rank 260 others before it."""
    for number in range(260):
        bench.event(f"open door, is it? door open {number} is")
    padding = " ".join(f"filler{number}" for number in range(60))
    wanted = bench.event(f"{padding} so that the door is open on Sundays {padding}")
    assert bench.ask('"door is open"') == [wanted.id]
    assert bench.ask('"door is open"', types=("event",)) == [wanted.id]


def with_summary(bench: Bench, *texts: str, summary: str) -> tuple[list[Memory], Memory]:
    """Return events and the summary that consolidation writes of them, which cites each."""
    events = [bench.event(text) for text in texts]
    return events, bench.event(summary, type=MemoryType.SUMMARY, citations=citations_of(events))


def test_a_story_stands_in_the_places_of_what_is_folded_under_it(bench: Bench) -> None:
    """Rule search.fold: a digest and its events say the same; the cheaper is shown, and nothing weak fills up."""
    texts = [f"The migration of the billing database, step {n}, was finished by the team on call" for n in range(5)]
    events, summary = with_summary(bench, *texts, summary="The migration of the billing database took five steps")
    bench.event("A migration of birds was seen over the office")
    request = SearchRequest("migration of the billing database took five steps")
    answer = bench.searcher.search(ACTOR, request)
    assert ids(answer) == [summary.id]
    assert {source.ref.partition("@")[0] for source in answer.snippets[0].citations} >= {event.id for event in events}
    reason = bench.searcher.why_not(ACTOR, request, events[0])
    assert summary.id in reason["reason"]


@pytest.mark.parametrize(
    ("asked", "goal", "rest", "summary"),
    [
        (
            "why does the checkout page time out at peak hours",
            "The task is to find out why the checkout page does time out at peak hours",
            "Checkout page step {} was looked at for an hour by the whole team with Arthas on the second server",
            "The checkout page was slow at peak since exports held their transactions",
        ),
        (
            "订单详情页为什么在大促时变慢",
            "今天的目标：和平台组的同事一起查清楚订单详情页为什么在大促时变慢，先看监控再看日志",
            "订单详情页的第 {} 个接口由整个小组在第二台服务器上用 Arthas 查看了一个小时没有发现",
            "订单详情页在大促时慢，每单都查商品表",
        ),
    ],
)
def test_a_story_in_other_words_wins_over_the_event_that_repeats_the_question(
    bench: Bench, asked: str, goal: str, rest: str, summary: str
) -> None:
    """Rule search.fold: it need not say every word of the question that the event says which opened the matter."""
    events, stored = with_summary(bench, goal, *(rest.format(n) for n in range(4)), summary=summary)
    found = ids(bench.search(asked))
    assert stored.id in found
    assert not {event.id for event in events} & set(found)


def test_a_strong_value_that_a_thin_story_leaves_out_stays_beside_it(bench: Bench) -> None:
    """Rule search.fold: a summary without the numbers does not make the event vanish that has them."""
    texts = [
        "The kiln cracked at 90 degrees",
        *(f"The kiln cracked, said the {who}" for who in ("cook", "maid", "boss")),
    ]
    events, summary = with_summary(bench, *texts, summary="The kiln cracked in several runs")
    found = ids(bench.search("kiln cracked"))
    assert set(found) == {summary.id, events[0].id}


def test_one_event_that_answers_wins_over_the_long_story_that_tells_it(bench: Bench) -> None:
    """Rule search.fold: a summary of much else costs more than the event that was asked for, which then cites it."""
    texts = ["The kiln cracked at ninety degrees", "Rain fell on the roof", "Lunch was late", "The bus was full"]
    events, summary = with_summary(bench, *texts, summary="The kiln cracked at ninety degrees. " + ". ".join(texts * 3))
    answer = bench.search("kiln cracked at ninety degrees")
    found = ids(answer)
    assert found[0] == events[0].id
    assert summary.id not in found
    assert summary.id in {source.ref for source in answer.snippets[0].citations}


def test_a_weak_story_is_no_answer_where_its_events_are_none(bench: Bench) -> None:
    """Rule search.fold: what was found of neither is not shown as the summary; asked for stories, they are shown."""
    with_summary(
        bench, *(f"The kiln cracked on day {n}" for n in range(4)), summary="The kiln cracked four times in town"
    )
    with_summary(
        bench, *(f"The boiler leaked on day {n}" for n in range(4)), summary="The boiler leaked four times in town"
    )
    for number in range(400):
        bench.event(f"Rowing boats came by, number {number}")

    open_search = bench.search("where are boats taught the town")
    stories = bench.search("sailing", types=(MemoryType.SUMMARY,))

    assert all("boats" in snippet.text for snippet in open_search.snippets)
    assert len(stories.snippets) == 2
