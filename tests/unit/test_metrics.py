"""Metrics against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.extensions.evaluation.metrics import (
    Answered,
    figures,
    mean_metrics,
    ndcg,
    percentile,
    question_metrics,
)


def test_recall_counts_the_share_of_the_wanted_memories() -> None:
    """Rule eval.recall: two of three wanted within five, one within the first."""
    row = question_metrics(["a", "x", "b", "y", "z", "c"], {"a", "b", "c"})

    assert row["R@1"] == pytest.approx(1 / 3)
    assert row["R@5"] == pytest.approx(2 / 3)
    assert row["R@10"] == 1.0


def test_any_hit_and_all_hits_are_told_apart() -> None:
    """Rule eval.hits: any@k asks for one of the gold, all@k for the whole of it."""
    row = question_metrics(["x", "a", "y", "z", "w", "b"], {"a", "b"})

    assert (row["any@1"], row["any@5"], row["any@10"]) == (0.0, 1.0, 1.0)
    assert (row["all@1"], row["all@5"], row["all@10"]) == (0.0, 0.0, 1.0)


def test_the_reciprocal_rank_is_that_of_the_first_hit_only() -> None:
    """Rule eval.mrr: third place is a third, whatever follows; nothing found is 0."""
    assert question_metrics(["x", "y", "a", "b"], {"a", "b"})["MRR"] == pytest.approx(1 / 3)
    assert question_metrics(["x", "y"], {"a"})["MRR"] == 0.0


def test_ndcg_is_what_a_pencil_says() -> None:
    """Rule eval.ndcg: hits at places 2 and 4 of two wanted: (1/log2 3 + 1/log2 5) / (1/log2 2 + 1/log2 3)."""
    wanted = (1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3))

    assert ndcg(["x", "a", "y", "b"], {"a", "b"}) == pytest.approx(wanted)
    assert ndcg(["x", "a", "y", "b"], {"a", "b"}) == pytest.approx(0.6509, abs=1e-4)


@pytest.mark.parametrize(
    ("ranked", "gold"),
    [
        (["a", "b"], {"a", "b"}),
        ([f"g{n}" for n in range(10)], {f"g{n}" for n in range(12)}),  # the ideal list is no longer than the depth
        (["a", "a", "a"], {"a"}),  # repeating a hit is not finding another
    ],
)
def test_the_best_order_has_an_ndcg_of_one(ranked: list[str], gold: set[str]) -> None:
    """Rule eval.ndcg: and nothing has more."""
    assert ndcg(ranked, gold) == pytest.approx(1.0)


def test_a_question_without_gold_has_no_recall() -> None:
    """Rule eval.unanswerable: those count apart, never as a recall of 0 or 1."""
    with pytest.raises(ValueError, match="gold"):
        question_metrics(["a"], set())


def test_percentiles_are_nearest_ranks() -> None:
    """Rule eval.latency: of 1..100 the 50th and the 95th value; of one value that value; of none 0."""
    assert percentile(range(1, 101), 0.5) == 50
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7.0], 0.95) == 7.0
    assert percentile([], 0.95) == 0.0


def test_means_and_token_counts() -> None:
    """Rule eval.means: plain means over what has an answer, named as in the rows."""
    answers = [
        Answered(name, "?", frozenset(gold), ("a",), 1.0, tokens)
        for name, gold, tokens in (("1", "a", 10), ("2", "b", 30))
    ]
    assert mean_metrics(answers)["R@5"] == 0.5
    assert mean_metrics([]) == {}
    assert figures(answers)["answer_tokens"] == {"mean": 20.0, "p95": 30}
    assert figures([])["answer_tokens"] == {"mean": 0.0, "p95": 0.0}


@given(st.lists(st.sampled_from("abcdefghijklmn"), unique=True), st.sets(st.sampled_from("abcdefghijklmn"), min_size=1))
def test_every_metric_stays_between_nothing_and_all(ranked: list[str], gold: set[str]) -> None:
    """Law: 0 <= metric <= 1; deeper is never worse; all implies any; a perfect head gives an nDCG of 1."""
    row = question_metrics(ranked, gold)

    assert all(0.0 <= value <= 1.0 + 1e-9 for value in row.values())
    assert row["R@1"] <= row["R@5"] <= row["R@10"]
    assert all(row[f"all@{k}"] <= row[f"any@{k}"] for k in (1, 5, 10))
    assert question_metrics([*sorted(gold), *ranked], gold)["nDCG@10"] == pytest.approx(1.0)
