"""How likely a snippet is right, and what an answer does with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from searching import ACTOR, Bench, ids

from memory_anchor.domain.model import Actor, Layer, RetrievedSnippet, SearchAnswer, Status, Tag
from memory_anchor.process.app import build_core
from memory_anchor.recall.order import with_freshness
from memory_anchor.recall.relevance import STRONG, SURE, WEAK_SHOWN, Evidence, asks, max_weak, probabilities
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.snippets import TO_VERIFY
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.use_cases.memory import MemoryAnchor


def evidence(cosine: float = 0.0, share: float = 0.0, *, others: int = 20, **more: object) -> Evidence:
    """Return one candidate with this much evidence before others that have none."""
    cosines = np.asarray([cosine, *[0.03] * others], dtype=np.float32)
    shares = np.asarray([share, *[0.0] * others], dtype=np.float32)
    lean = np.asarray([0.0, *[-0.5] * others], dtype=np.float32)
    seen = Evidence(cosines, shares, lean, np.ones(others + 1, dtype=bool), coverage=0.9, terms=6, asks=True)
    return replace(seen, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "strong"),
    [
        (evidence(cosine=0.6, share=0.7), True),
        (evidence(cosine=0.6, share=0.7, others=0), True),
        (evidence(cosine=0.1, share=0.05), False),
        (evidence(cosine=0.1, share=0.05, others=0), False),
        (evidence(cosine=float("nan"), share=0.9), True),
        (evidence(cosine=float("nan"), share=0.1), False),
    ],
)
def test_evidence_decides_what_is_strong(seen: Evidence, strong: bool) -> None:
    """Rule search.relevance: by meaning and words, by words alone without a vector, in a store of one memory too."""
    assert (probabilities(seen)[0] >= STRONG) == strong


def test_more_evidence_is_never_less_relevant() -> None:
    """Rule search.relevance: whatever was learned, a nearer memory that says more of the query is more likely right."""
    grid = [float(probabilities(evidence(cosine=c, share=c))[0]) for c in np.linspace(0.0, 1.0, 11)]
    assert all(after >= before - 0.001 for before, after in pairwise(grid))
    assert all(0 <= chance <= 1 for chance in grid)


@pytest.mark.parametrize("query", ["who leads payments", "为什么换库", "can we ship on Friday?", "缓存多久过期"])
def test_a_question_is_known_for_one(query: str) -> None:
    assert asks(query)
    assert not asks("I merged it and will release tonight.")
    assert not asks("昨天的对账没有跑出来。")


def test_an_answer_holds_the_best_there_is_and_says_that_it_is_weak() -> None:
    """Rule search.relevance: what nothing answers gets three weak snippets, as many as asked for beyond five."""
    bench = Bench(cache_ttl_s=0)
    for number in range(12):
        bench.fact(f"note {number}: the lease of flat {number} ends in May")
    plain = bench.search("how do I prune an apple tree").snippets
    many = bench.search("how do I prune an apple tree", limit=10, weak=max_weak(10)).snippets
    assert len(plain) == WEAK_SHOWN
    assert len(many) == 10
    for found in (plain, many):
        assert all(one.weak and one.relevance is not None and one.relevance < STRONG for one in found)


def test_strong_ones_come_first_and_carry_no_mark() -> None:
    """Rule search.relevance: a snippet below the point is marked, one above is not, and stands before it."""
    bench = Bench(cache_ttl_s=0)
    right = bench.fact("Messages that fail five times go to the dead letter queue")
    for number in range(12):
        bench.fact(f"note {number}: the lease of flat {number} ends in May")
    snippets = bench.search("where do messages go that fail five times").snippets
    assert snippets[0].id == right.id
    assert not snippets[0].weak
    assert [snippet.weak for snippet in snippets] == sorted(one.weak for one in snippets)
    assert len(snippets) == 1 + WEAK_SHOWN


def test_a_dispute_never_removes_a_better_memory() -> None:
    """Rule search.order: what comes before a pair keeps its place; a side without room is named in a note."""
    bench = Bench(cache_ttl_s=0)
    better = [bench.fact(f"the timeout of the gateway is thirty seconds, rule {number}") for number in range(4)]
    pair = ("m005", "m006")
    for own, other in (pair, pair[::-1]):
        bench.fact(f"a timeout, says {own}", status=Status.DISPUTED, disputes=(other,))
    request = SearchRequest("timeout of the gateway thirty seconds rule", limit=5, weak=5)

    answer = bench.searcher.search(ACTOR, request)

    shown = ids(answer)
    assert set(shown[:4]) == {one.id for one in better}
    assert len(shown) == 5
    assert any("disputed" in note for note in answer.notes)


def test_what_no_longer_stands_never_passes_what_is_strong() -> None:
    """Rule search.order: freshness lowers within the strong and within the weak."""
    stale = Tag(TO_VERIFY)
    strong = RetrievedSnippet("a", "a", 0.3, Layer.VERIFIED_FACT, "fact", None, tags=(stale,), relevance=0.9)
    weak = RetrievedSnippet("b", "b", 0.8, Layer.VERIFIED_FACT, "fact", None, relevance=0.2, weak=True)

    assert [snippet.id for snippet in with_freshness(SearchAnswer((strong, weak)), None).snippets] == ["a", "b"]


@pytest.fixture(scope="module")
def kiosk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryAnchor]:
    """A whole memory with the bundled model over its database: what two shops know, in either language."""
    data = tmp_path_factory.mktemp("kiosk")
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(Settings(), data_dir=data, lock=lock)) as core,
    ):
        anchor = core.anchor(Actor())
        for text in (
            "Redis keeps login sessions for 14 days",
            "Webhooks are retried five times, then they go to the dead letter queue",
            "Kiosk devices update at night from the channel 'stable'",
            "回调失败重试五次，最后进死信队列",
            "搬运机器人只走仓库的蓝色通道",
            "面单用 Jasper 生成，不走浏览器打印",
        ):
            anchor.save_memory(text)
        core.services.searcher.index.embed_pending(20)
        yield anchor


@pytest.mark.parametrize(
    "question",
    [
        "Which port does Redis listen on?",
        "How many kiosk devices are there?",
        "搬运机器人的电池能用多久？",
        "面单打印机是哪个型号？",
    ],
)
def test_what_only_knows_the_subject_of_a_question_is_marked(question: str, kiosk: MemoryAnchor) -> None:
    """Rule search.sure: nothing is unmarked where the store knows of what is asked about, and not what is asked."""
    found = kiosk.search(question).snippets
    assert found and all(one.weak for one in found)
    assert max(one.relevance or 0 for one in found) < SURE


@pytest.mark.parametrize(
    ("query", "right"),
    [
        ("How often are webhooks retried?", "Webhooks are"),
        ("回调失败会重试几次？", "回调失败"),
        ("kiosk update channel", "Kiosk devices"),
        ("I saw that Redis keeps the sessions for two weeks.", "Redis keeps"),
        ('what is "dead letter queue" for?', "Webhooks are"),
    ],
)
def test_what_answers_and_what_is_no_question_is_as_before(query: str, right: str, kiosk: MemoryAnchor) -> None:
    """Rule search.sure: an answer stands unmarked; keywords, statements and phrases are judged one by one."""
    best = kiosk.search(query).snippets[0]
    assert best.text.startswith(right) and not best.weak
