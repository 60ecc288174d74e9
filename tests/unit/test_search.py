"""Search over the reference store: filters, floors, conversation evidence, time, folding, cache (strategy 5 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import ACTOR, Bench, ids

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Actor, Layer, Scope, Status, Tag, Visibility
from memory_anchor.domain.ports import DENSE, Entry
from memory_anchor.recall.cooccurrence import TagNeighbours, count_tags
from memory_anchor.recall.request import SearchRequest, admits, where_of
from memory_anchor.testing import START, HashEmbedder, make_searcher


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_words_meaning_and_identifiers_find_a_fact(bench: Bench) -> None:
    """Rule search.hybrid: a fact comes back by its words, its identifiers whole or split, in either script."""
    qdrant = bench.fact("We chose Qdrant as vector database", key="vector store")
    parser = bench.fact("getUserName in src/api.py returns None when the session expired")
    chinese = bench.fact("我们使用向量数据库保存长期记忆")

    assert bench.ask("which vector database did we choose")[0] == qdrant.id
    assert bench.ask("user name")[0] == parser.id
    assert bench.ask("src/api.py")[0] == parser.id
    assert bench.ask("长期记忆放在哪里")[0] == chinese.id


@pytest.mark.parametrize("is_whole", [True, False])
def test_parts_of_an_identifier_in_a_question_are_looked_for(bench: Bench, is_whole: bool) -> None:
    """Rule search.hybrid: by the engine as by the mirror, and without an embedder too."""
    fact = bench.fact("The header of each HTTP answer is parsed lazily")
    words = make_searcher(bench.store, None, bench.clock)
    if is_whole:
        words.index.warm()

    assert ids(words.search(ACTOR, SearchRequest("parseHttpHeader"))) == [fact.id]


def test_coverage_is_the_known_share_of_the_question(bench: Bench) -> None:
    """Rule fusion.coverage: about 0 for a question in another language; 0 for a question without terms."""
    bench.fact("The API listens on port 8080")

    def coverage(query: str) -> float:
        [found] = bench.search(query, detail=True).snippets
        return float(found.signals["coverage"])

    assert coverage("API port") == 1.0
    assert 0 < coverage("API port whale") < 1
    assert coverage("鲸鱼喜欢什么") == coverage("the") == 0.0


def test_what_answers_nothing_is_never_strong(bench: Bench) -> None:
    """Rule search.floor: not the five least bad, and those that are shown say that they are weak."""
    for content in ("The parser rejects trailing commas", "Deploys need an approval", "The office is in Berlin"):
        bench.fact(content)
    snippets = bench.search("favourite whale documentary").snippets
    assert all(snippet.weak for snippet in snippets)


def test_an_event_is_found_by_words_before_it_is_embedded(bench: Bench) -> None:
    """Rule search.deferred: an acknowledged memory is findable at once; the backlog is counted and drained."""
    events = [bench.event(f"deployed build {number} to staging", embed=False) for number in range(6)]
    assert bench.searcher.index.unembedded() == 6
    answer = bench.search("staging build 3")
    assert answer.snippets[0].id == events[3].id
    assert any("not embedded" in note for note in answer.notes)

    assert bench.searcher.index.embed_pending(100) == 6
    assert bench.searcher.index.unembedded() == 0
    assert not bench.search("staging build 3").notes


def test_what_was_erased_before_its_turn_keeps_no_other_waiting_for_its_vector(bench: Bench) -> None:
    """Rule search.deferred: a whole batch of the queue may be gone; the next one is embedded all the same."""
    gone = [bench.event(f"deployed build {number} to staging", embed=False) for number in range(8)]
    bench.event("rotated the API keys", embed=False)
    bench.store.erase(Layer.EVENT_LOG.value, [memory.point_id for memory in gone])

    assert bench.searcher.index.embed_pending(100) == 1
    assert bench.searcher.index.unembedded() == 0


def test_a_search_embeds_the_last_few_writes_first(bench: Bench) -> None:
    """Rule search.drain: a small backlog never outlives a search."""
    bench.event("rotated the API keys", embed=False)
    bench.ask("keys")
    assert bench.searcher.index.unembedded() == 0


def test_a_cached_answer_lives_until_a_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule search.cache: keyed by scope and request; a write invalidates it, so does its age."""
    bench.fact("The retry limit is three")
    first = bench.ask("retry limit")
    calls: list[str] = []
    get = bench.store.get
    monkeypatch.setattr(bench.store, "get", lambda *a, **k: calls.append("x") or get(*a, **k))
    assert bench.ask("retry limit") == first
    assert not calls
    second = bench.fact("The retry limit of uploads is five")
    assert second.id in bench.ask("retry limit")
    count = len(calls)
    bench.clock.advance(minutes=5)
    bench.ask("retry limit")
    assert len(calls) > count


def test_without_an_embedder_words_still_find_and_a_note_says_so() -> None:
    """Rule search.words_only: no embedder is a normal mode."""
    bench = Bench()
    fact = bench.fact("The retry limit is three")
    words_only = make_searcher(bench.store, None, bench.clock)
    answer = words_only.search(ACTOR, SearchRequest("retry limit"))
    assert ids(answer) == [fact.id]
    assert "words only" in answer.notes[0]


def test_an_embedder_that_fails_costs_a_note_not_the_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule search.words_only: Unavailable from the embedder is survived."""
    fact = bench.fact("The retry limit is three")

    def fails(texts: Sequence[str]) -> Any:
        raise Unavailable("the model is gone")

    monkeypatch.setattr(bench.embedder, "queries", fails)
    answer = bench.search("retry limit")
    assert ids(answer) == [fact.id]
    assert "the model is gone" in answer.notes[0]


def test_the_answer_behind_a_question_is_found_through_its_conversation(bench: Bench) -> None:
    """Rule conversation.context: "Yes, in Lisbon" is about what was asked before it."""
    turns = bench.talk(
        "c1",
        ("anna", "Good morning, how are the children doing?"),
        ("tom", "Where will the pottery workshop take place?"),
        ("anna", "In Lisbon, near the old harbour"),
        ("tom", "I have to feed the cat now"),
    )
    bench.talk("c2", ("tom", "The harbour was closed for repairs"), ("anna", "Sad to hear"))
    found = bench.ask("where is the pottery workshop")
    assert set(found[:2]) == {turns[1].id, turns[2].id}
    assert turns[3].id not in found[:2]


def test_the_person_named_in_the_query_is_preferred(bench: Bench) -> None:
    """Rule conversation.name: the one whose words are asked for comes first."""
    anna, tom = bench.talk("c1", ("anna", "I like jazz concerts most"), ("tom", "I like jazz concerts most"))
    assert bench.ask("what music does Tom like, jazz?")[0] == tom.id
    assert bench.ask("what music does Anna like, jazz?")[0] == anna.id


def test_hidden_memories_do_not_come_back_as_neighbours(bench: Bench) -> None:
    """Rule scope.leak: an event beside a hit is checked like every other."""
    scope = Scope(conversation="c1")
    hit = bench.event("Where is the pottery workshop?", scope=scope, conversation_seq=0)
    bench.event(
        "In Lisbon, near the harbour",
        scope=replace(scope, agent="other"),
        visibility=Visibility.AGENT,
        conversation_seq=1,
    )
    assert bench.ask("where is the pottery workshop") == [hit.id]


def test_a_relative_time_filters_and_everything_in_it_answers(bench: Bench) -> None:
    """Strategy 7.1: "今天修复了什么" gives today's events and facts recorded today; "上周完成了什么" last week's."""
    now = bench.clock.now()
    bench.event("修复了登录页面的错误", when=now - timedelta(days=7))
    today = bench.event("修复了空查询返回 None 的问题", when=now - timedelta(hours=1))
    fixed = bench.fact("空查询应返回空列表")
    assert set(bench.ask("今天修复了什么")) == {today.id, fixed.id}
    assert len(bench.ask("上周完成了什么")) == 1


def test_an_empty_period_is_said(bench: Bench) -> None:
    """Rule time.fallback: when nothing lies in the period, other times answer with a note."""
    old = bench.event("migrated the billing database", when=bench.clock.now() - timedelta(days=90))
    answer = bench.search("billing database migration last week")
    assert ids(answer) == [old.id]
    assert "other times" in answer.notes[0]
    assert bench.ask("what did we do last week") == []


def test_since_until_and_as_of_are_exact(bench: Bench) -> None:
    """Rule time.filters: half-open on an event's `when` and a fact's `recorded_at`; as_of asks what was believed."""
    start = bench.clock.now()
    event = bench.event("release of version two", when=start - timedelta(days=3))
    fact = bench.fact("release manager is Anna")
    assert bench.ask("release", since=start - timedelta(days=3), until=start) == [event.id]
    assert bench.ask("release", since=start) == [fact.id]
    bench.clock.advance(days=1)
    changed = bench.clock.now()
    bench.add(fact.closed(changed))
    bench.add(replace(fact, content="release manager is Tom", version=2, recorded_at=changed))
    now_known = bench.search("release manager")
    then_known = bench.search("release manager", as_of=start + timedelta(hours=1))
    assert [s.text for s in now_known.snippets if s.layer is Layer.VERIFIED_FACT] == ["release manager is Tom"]
    assert [s.text for s in then_known.snippets if s.layer is Layer.VERIFIED_FACT] == ["release manager is Anna"]


def test_an_expired_event_is_not_an_answer(bench: Bench) -> None:
    """Rule L2.ttl: gone from search at its deadline, before any job archives it."""
    bench.event("CI flaked on test_edge", expires_at=bench.clock.now() + timedelta(days=30), ttl_days=30)
    assert len(bench.ask("CI flaked")) == 1
    bench.clock.advance(days=31)
    assert bench.ask("CI flaked") == []


def test_pending_memories_come_only_when_asked_for(bench: Bench) -> None:
    """Rule gate.pending: found with include_pending, and marked."""
    bench.fact("The project may need a cache", status=Status.PENDING)
    assert bench.ask("cache needed") == []
    answer = bench.search("project cache", include_pending=True)
    assert [snippet.status for snippet in answer.snippets] == [Status.PENDING]


def test_types_tags_people_and_places_narrow(bench: Bench) -> None:
    """Rule search.filters: tags match any, where a prefix, who any."""
    tagged = bench.fact("timeouts are 30 seconds", tags=(Tag("network"),))
    bench.fact("timeouts annoy the users")
    placed = bench.event("timeouts fixed", where="backend/http", who=("marcus",))
    assert bench.ask("timeouts", tags=("network", "other")) == [tagged.id]
    assert bench.ask("timeouts", where="backend") == [placed.id]
    assert bench.ask("timeouts", who=("marcus", "anna")) == [placed.id]
    assert bench.ask("timeouts", layers=(Layer.EVENT_LOG,)) == [placed.id]
    assert bench.ask("timeouts", types=("event",)) == [placed.id]


def test_importance_breaks_near_ties_and_never_buries_a_better_match(bench: Bench) -> None:
    """Rule search.priors: small and bounded."""
    plain = bench.fact("the cache holds 512 queries", importance=0.5)
    dear = bench.fact("the cache holds 512 answers", importance=1.0)
    bench.fact("queries are logged", importance=1.0)
    assert bench.ask("cache holds 512")[0] == dear.id
    assert bench.ask("cache holds 512 queries")[0] == plain.id


def test_detail_says_what_each_channel_gave(bench: Bench) -> None:
    """Rule search.explain: rank, score and weight per channel, and what boosted it."""
    bench.fact("the cache holds 512 queries")
    found = bench.search("cache queries", detail=True).snippets[0]
    assert found.signals is not None
    assert {"rank", "score", "weight", "added"} <= set(found.signals["dense"])
    assert found.signals["words"]["rank"] == 1
    assert 0 <= found.signals["coverage"] <= 1
    assert bench.search("cache queries").snippets[0].signals is None


def test_why_not_names_the_reason(bench: Bench) -> None:
    """Rule search.why_not: status, visibility, filters, relevance or rank."""
    shown = bench.fact("the cache holds 512 queries")
    hidden = bench.fact("the cache holds secrets", status=Status.ARCHIVED)
    far = bench.fact("whales sing at night")
    request = SearchRequest("cache queries", weak=0)
    assert bench.searcher.why_not(ACTOR, request, shown)["found"]
    assert "archived" in bench.searcher.why_not(ACTOR, request, hidden)["reason"]
    assert not bench.searcher.why_not(ACTOR, request, far)["found"]
    stranger = Actor(scope=Scope(project="elsewhere"))
    assert "visible" in bench.searcher.why_not(stranger, request, shown)["reason"]


def test_why_not_agrees_with_the_search(bench: Bench) -> None:
    """Rule search.why_not: time words and folding count there as in the search itself."""
    old = bench.event("the importer was fixed", when=bench.clock.now() - timedelta(days=9))
    new = bench.event("the importer was fixed again", when=bench.clock.now())
    asked = SearchRequest("what happened to the importer today")
    assert ids(bench.searcher.search(ACTOR, asked)) == [new.id]
    told = bench.searcher.why_not(ACTOR, asked, old)
    assert not told["found"] and "outside of 'today'" in told["reason"]
    assert bench.searcher.why_not(ACTOR, asked, new)["found"]

    first, second = bench.fact("the port is 8443"), bench.fact("the port is 8443")
    asked = SearchRequest("which port", weak=0)
    [shown] = bench.searcher.search(ACTOR, asked).snippets
    hidden = second if shown.id == first.id else first
    told = bench.searcher.why_not(ACTOR, asked, hidden)
    assert not told["found"] and f"the same as {shown.id}" in told["reason"]


def test_similar_finds_the_same_fact_in_other_words(bench: Bench) -> None:
    """Rule L3.reconcile: centred cosine, best first, never another scope's."""
    near = bench.fact("the default timeout is 30 seconds")
    bench.fact("whales sing at night")
    found = bench.searcher.similar(ACTOR, "the default timeout is 60 seconds", layer=Layer.VERIFIED_FACT, limit=2)
    assert found[0][0].id == near.id
    assert found[0][1] > 0.45
    stranger = Actor(scope=Scope(project="elsewhere"))
    assert bench.searcher.similar(stranger, "the default timeout", layer=Layer.VERIFIED_FACT, limit=2) == []


def test_a_searcher_over_a_filled_store_answers_like_the_one_that_filled_it(bench: Bench) -> None:
    """Rule search.derived: the mirror is rebuilt from the store, warm or as candidates are met."""
    bench.talk("c1", ("anna", "Where is the workshop?"), ("tom", "In Lisbon, near the harbour"), ("anna", "Lovely"))
    for number in range(20):
        bench.fact(f"fact number {number} about the workshop planning")
    wanted = bench.ask("where is the workshop", limit=10)
    cold, warm = (make_searcher(bench.store, bench.embedder, bench.clock) for _ in range(2))
    assert warm.index.warm() == 23
    for searcher in (cold, warm):
        answer = searcher.search(ACTOR, SearchRequest("where is the workshop", limit=10))
        assert ids(answer) == wanted


SCOPES = st.builds(
    Scope,
    project=st.sampled_from(["p1", "p2"]),
    user=st.sampled_from(["u1", "u2"]),
    agent=st.sampled_from(["a1", "a2"]),
    conversation=st.sampled_from(["c1", "c2"]),
)


def _reads(reader: Scope, owner: Scope, seen: Visibility) -> bool:
    """The contract's rule of visibility, written down again without the keys that the product goes by."""
    here = reader.project == owner.project
    return {
        Visibility.CONVERSATION: here and reader.conversation == owner.conversation,
        Visibility.AGENT: here and (reader.user, reader.agent) == (owner.user, owner.agent),
        Visibility.PROJECT: here,
        Visibility.USER: reader.user == owner.user,
        Visibility.ACCOUNT: True,
    }[seen]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(SCOPES, st.sampled_from(list(Visibility)), st.sampled_from(list(Status))), max_size=8),
    SCOPES,
    st.booleans(),
)
def test_no_search_leaks_another_scope(
    owned: list[tuple[Scope, Visibility, Status]], reader: Scope, pending: bool
) -> None:
    """Rule scope.leak: an answer holds only what a naive filter lets through, and both forms of the product's agree."""
    bench = Bench()
    memories = [
        bench.event(f"shared topic number {place}", scope=scope, visibility=seen, status=status, conversation_seq=place)
        for place, (scope, seen, status) in enumerate(owned)
    ]
    actor, request = Actor(scope=reader), SearchRequest("shared topic number", limit=20, include_pending=pending)
    found = {Status.ACTIVE, Status.DISPUTED} | ({Status.PENDING} if pending else set())
    allowed = {
        memory.id
        for memory, (owner, seen, status) in zip(memories, owned, strict=True)
        if status in found and _reads(reader, owner, seen)
    }
    assert allowed == {one.id for one in memories if admits(actor, request, one, now=START)}
    pushed = bench.store.find(Layer.EVENT_LOG.value, where_of(actor, request, Layer.EVENT_LOG), limit=50)
    assert {one.id for one in pushed} == allowed
    assert set(bench.ask(request.query, actor, limit=20, include_pending=pending)) <= allowed


def test_long_memories_are_embedded_whole_behind(bench: Bench) -> None:
    """Rule dense.long: its words at once, its row in pieces behind, one vector in the end."""
    text = "The first part is about whales. " * 60 + "Only the end mentions the pottery workshop in Lisbon. " * 20
    fact = bench.fact(text)
    assert not bench.store.get(Layer.VERIFIED_FACT.value, [fact.point_id], with_vectors=True)[0].vectors
    assert bench.searcher.index.embed_pending(5) == 1
    row = bench.store.get(Layer.VERIFIED_FACT.value, [fact.point_id], with_vectors=True)[0].vectors[DENSE]
    assert not np.allclose(row, bench.embedder.documents([text])[0])


def test_a_plain_memory_may_be_noted_without_its_vectors(bench: Bench) -> None:
    """Rule search.note_written: a changed state counts at once, whoever wrote it."""
    fact = bench.fact("the cache holds 512 queries")
    archived = replace(fact, status=Status.ARCHIVED)
    bench.store.put(Layer.VERIFIED_FACT.value, [Entry(archived)])
    bench.searcher.index.note_written(archived)
    assert bench.ask("cache queries") == []


def test_a_clock_moved_by_hand_moves_the_meaning_of_today(bench: Bench) -> None:
    """Rule time.clock: time words follow the clock port, never the machine."""
    event = bench.event("shipped the parser")
    assert bench.ask("what did we ship today") == [event.id]
    bench.clock.set(datetime.fromisoformat("2025-12-20T12:00:00+00:00"))
    assert bench.ask("what happened today") == []


def test_a_tag_that_occurs_with_the_one_asked_for_breaks_a_tie() -> None:
    """Rule search.tags: of two memories that say the same of the query, the one with a neighbouring tag comes first."""
    tags = TagNeighbours(lambda: None)
    tags.replace(count_tags([("p|local|default", ("nginx", "gateway"))] * 3))
    bench = Bench(tags=tags)
    plain = bench.fact("the timeout was raised on Monday morning")
    near = bench.fact("the timeout was raised on Monday evening", tags=(Tag("gateway"),))
    assert plain.audience == "p|local|default"

    answer = bench.search("nginx timeout raised on Monday", detail=True)

    assert ids(answer) == [near.id, plain.id]
    assert answer.snippets[0].signals["tags"]["added"] > 0
    assert "tags" not in answer.snippets[1].signals


class TwoLanguages(HashEmbedder):
    """Gives a question in Chinese a row that leans to that of the English memory which answers it."""

    def queries(self, texts: Sequence[str]) -> Any:
        answer = self.documents(["retries wait thirty seconds at most"])
        return np.asarray(0.2 * answer + 0.4 * super().queries(texts), dtype=np.float32)


def test_a_memory_in_another_language_is_not_outranked_by_shared_characters() -> None:
    """Rule search.across: where a memory cannot hold the query's words, its meaning stands in for them."""
    bench = Bench()
    bench.embedder.__class__ = TwoLanguages
    wanted = bench.fact("retries wait thirty seconds at most")
    bench.fact("重试按钮的上限颜色是蓝色")
    bench.fact("上限由财务定")
    assert bench.ask("重试上限是多少")[0] == wanted.id
