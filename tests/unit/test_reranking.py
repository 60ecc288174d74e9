"""A ranking and a reranker: who moves, who stays, and what a missing one costs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope
from memory_anchor.recall.order import DEPTH, LATE, SHARE, Ordering
from memory_anchor.recall.order import reranked as step
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.snippets import RankedMemory

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Scripted:
    name = "scripted"

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.seen: list[str] = []

    def scores(self, query: str, texts: Sequence[str], *, deadline_s: float) -> list[float] | None:
        self.seen = list(texts)
        if isinstance(self.answer, Exception):
            raise self.answer
        return None if self.answer is None else [float(self.answer(text)) for text in texts]


def ranking(count: int) -> list[RankedMemory]:
    return [
        RankedMemory(
            Memory(f"m{n}", f"text {n}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON), 1.0 - n / 100, n
        )
        for n in range(count)
    ]


def reranked(judge: Scripted, hits: list[RankedMemory], *, share: float = SHARE) -> tuple[list[RankedMemory], str]:
    """Return the list after the reranker's step, and its note."""
    notes: dict[str, bool] = {}
    seen = Ordering(SearchRequest("q"), notes, 0.0, (), judge, lambda *_: (), share)
    return step(hits, seen), "".join(notes)


def ids(ranked: Sequence[RankedMemory]) -> list[str]:
    return [hit.memory.id for hit in ranked]


def test_the_rerankers_favourite_comes_first() -> None:
    """Rule rerank.share: with all the weight on the reranker, its order is the order."""
    found, note = reranked(Scripted(lambda text: int(text.split()[1])), ranking(5), share=1.0)

    assert ids(found) == ["m4", "m3", "m2", "m1", "m0"]
    assert note == ""
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_the_fused_score_keeps_its_say() -> None:
    """Rule rerank.share: without weight nothing moves; at half a clear favourite wins over a near tie."""
    judge = Scripted(lambda text: text == "text 2")

    assert ids(reranked(judge, ranking(5), share=0.0)[0]) == ["m0", "m1", "m2", "m3", "m4"]
    assert ids(reranked(judge, ranking(5))[0])[:2] == ["m2", "m0"]


def test_what_it_did_not_see_stays_behind_what_it_saw() -> None:
    """Rule rerank.depth: bounded work; scores of the head never fall below the tail's."""
    judge = Scripted(lambda text: -int(text.split()[1]))
    found, _ = reranked(judge, ranking(DEPTH + 4), share=1.0)

    assert len(judge.seen) == DEPTH
    assert ids(found)[DEPTH:] == [f"m{n}" for n in range(DEPTH, DEPTH + 4)]
    assert min(one.score for one in found[:DEPTH]) > max(one.score for one in found[DEPTH:])


@pytest.mark.parametrize(
    ("answer", "said"), [(None, LATE), (Unavailable("no reranker here"), "Not reranked: no reranker here")]
)
def test_late_or_failing_leaves_the_order_and_says_so(answer: object, said: str) -> None:
    """Rule rerank.absence: never worse off than without one, and never silent about it."""
    found, note = reranked(Scripted(answer), ranking(4))

    assert found == ranking(4)
    assert note == said


def test_one_memory_or_equal_scores_change_nothing() -> None:
    """Rule rerank.ties: nothing to say is no reordering, and one memory is not worth a model."""
    judge = Scripted(lambda _: 3)

    assert ids(reranked(judge, ranking(3), share=1.0)[0]) == ["m0", "m1", "m2"]
    reranked(judge := Scripted(lambda _: 1), ranking(1))
    assert judge.seen == []
