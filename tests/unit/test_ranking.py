"""Fusion as arithmetic (strategy 5: meaning and words together)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.errors import BadInput
from memory_anchor.recall.ranking import (
    RELATED_SPAN,
    RankingWeights,
    best_of_group,
    from_neighbours,
    inverse_frequency,
    scaled,
    stretched,
)


def floats(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)


@given(st.lists(st.floats(-1, 1, width=32), max_size=30))
def test_scaled_scores_stay_between_0_and_1_and_keep_their_order(values: list[float]) -> None:
    """Rule fusion.scale: channels become comparable without changing who is better."""
    given_scores = floats(*values)
    found = scaled(given_scores)
    assert ((found >= 0) & (found <= 1)).all()
    order = np.argsort(given_scores, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


def test_a_memory_not_embedded_yet_scores_nothing_by_meaning() -> None:
    """Rule fusion.unembedded: NaN means unknown, and unknown adds nothing."""
    assert stretched(floats(np.nan, 0.5)).tolist() == [0.0, 1.0]
    assert stretched(floats(np.nan)).tolist() == [0.0]


def test_noise_is_not_stretched_into_a_full_score() -> None:
    """Rule fusion.noise: cosines around zero stay small although one of them is the best."""
    assert stretched(floats(0.01, 0.0)).max() < 0.5


def test_meaning_counts_as_much_as_the_nearest_is_near() -> None:
    """Rule fusion.near: asked for, what is nearest without being related is no full score; from 0.4 on it is one."""
    assert stretched(floats(0.175, 0.1, 0.0), span=RELATED_SPAN).max() == pytest.approx(0.5)
    assert stretched(floats(0.4, 0.1), span=RELATED_SPAN).max() == pytest.approx(1.0)
    assert stretched(floats(0.8, 0.1), span=RELATED_SPAN).max() == 1.0
    assert stretched(floats(0.175, 0.1)).max() == pytest.approx(1.0)


def test_rare_terms_weigh_more() -> None:
    """Rule words.idf: Lucene's formula, positive even for a term in every memory."""
    found = inverse_frequency(np.asarray([0.0, 1.0, 10.0]), 10)
    assert found[0] > found[1] > found[2] > 0


def test_a_neighbour_gives_its_share() -> None:
    """Rule conversation.neighbours: missing neighbours (-1) give nothing."""
    links = np.asarray([[1, -1], [0, 1]])
    assert from_neighbours(floats(1.0, 2.0), links, floats(0.5, 0.1)).tolist() == pytest.approx([1.0, 0.7])


def test_the_best_of_a_talk_counts_for_all_of_it() -> None:
    """Rule conversation.talk: outside any conversation (-1) nothing is added."""
    groups = np.asarray([0, 0, -1, 1], dtype=np.int32)
    assert best_of_group(floats(0.2, 0.9, 0.8, 0.1), groups).tolist() == pytest.approx([0.9, 0.9, 0.0, 0.1])


def test_an_unknown_or_absurd_weight_is_refused() -> None:
    """Rule settings.weights: one sentence with the value and what is allowed."""
    assert RankingWeights.of({"dense": 0.7}).dense == 0.7
    with pytest.raises(BadInput, match="densee"):
        RankingWeights.of({"densee": 0.7})
    with pytest.raises(BadInput, match="allowed are 0 to 2"):
        RankingWeights.of({"dense": 3})
