"""Ranking as arithmetic on plain arrays: fusion, conversation evidence. No store, no clock, no memory.

Scores are fused, not ranks: reciprocal rank fusion of the same two channels scored below BM25 alone, because it throws
away how much better the best hit is (docs/retrieval.md). Every array is aligned with one list of candidates; every
function is deterministic, and ties keep the order that went in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]
    Rows = NDArray[np.int64]

SPAN_EPSILON = 1e-6
LEAST_COSINE = -0.05
"""Centred cosine that counts 0: what unrelated texts have at the candidate depth used."""
LEAST_SPAN = 0.15
"""Cosines are never stretched from less than this, or noise would become a full score."""
RELATED_SPAN = 0.45
"""The same where something is asked: what is nearest but less than related (0.4) is no full score, and words decide."""


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """What each signal counts, in units of the fused score; docs/retrieval.md gives the measurement behind each.

    dense, words: the two channels, each scaled to 0..1 over the candidates; words also times the query's coverage.
    next, near: share of the next event's score, and of those two away. answers: share of a question's score that the
    event after it gets. conversation: BM25 of the whole conversation. talk: score of its best event. name: the one
    person named in the query took part. asks: taken off what is itself a question. when, number: the query asks for a
    time or a number and the memory tells one. said: times the log of how much the memory says.
    time: the memory lies in a period the query names. tags: at most this for tags that the query names or that occur
    with those. layer: a rule or a choice is asked for and the memory is a fact, or what happened and it is an event.
    abroad: a memory in the other language says what is asked, by the glossary.
    newer: of two that say nearly the same, the newer comes first where its score is at most so much lower.
    prior: the most that a memory's weight, use and checking may add.
    rerank: what a reranker's best score adds, where one is set.
    """

    dense: float = 0.5
    words: float = 0.35
    next: float = 0.08
    near: float = 0.04
    answers: float = 0.12
    conversation: float = 0.3
    talk: float = 0.12
    name: float = 0.25
    asks: float = 0.07
    when: float = 0.14
    number: float = 0.09
    said: float = 0.03
    time: float = 0.15
    tags: float = 0.05
    layer: float = 0.05
    abroad: float = 0.3
    newer: float = 0.03
    prior: float = 0.03
    rerank: float = 0.5

    @classmethod
    def of(cls, chosen: Mapping[str, float]) -> RankingWeights:
        """Return the defaults with `chosen` put in. Raises BadInput: an unknown name or a weight outside 0 to 2."""
        known = {item.name for item in fields(cls)}
        for name, value in chosen.items():
            if name not in known:
                raise BadInput(f"retrieval.weights has {name!r}; known are {', '.join(sorted(known))}.")
            if not 0 <= value <= 2:
                raise BadInput(f"retrieval.weights.{name} is {value}; allowed are 0 to 2.")
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The settings of a search.

    lens: share of the conversation's topic (`SearchRequest.topic`) in the query's vector.
    """

    weights: RankingWeights = field(default_factory=RankingWeights)
    conversation: bool = True
    fold: bool = True
    priors: bool = True
    lens: float = 0.0


def scaled(scores: Scores, *, low: float | None = None, high: float | None = None) -> Scores:
    """Return the scores mapped from low..high (default: their own range) to 0..1, clipped; all 0 when nothing spans.

    NaN marks a candidate that the channel knows nothing of; it becomes 0.
    """
    if not scores.size or np.isnan(scores).all():
        return np.zeros_like(scores)
    bottom = float(np.nanmin(scores)) if low is None else low
    top = float(np.nanmax(scores)) if high is None else high
    if top - bottom < SPAN_EPSILON:
        return np.zeros_like(scores)
    return np.asarray(np.nan_to_num(np.clip((scores - bottom) / (top - bottom), 0, 1)), dtype=np.float32)


def stretched(cosines: Scores, *, span: float = LEAST_SPAN) -> Scores:
    """Return centred cosines mapped from -0.05..best to 0..1; NaN (not embedded) becomes 0. span: the least range."""
    if not cosines.size or np.isnan(cosines).all():
        return np.zeros_like(cosines)
    return scaled(cosines, low=LEAST_COSINE, high=max(float(np.nanmax(cosines)), LEAST_COSINE + span))


def sigmoid(log_odds: Scores) -> Scores:
    """Return the chance, 0 to 1, of each of these log-odds; beyond 30 either way they count as 30."""
    return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -30, 30))), dtype=np.float32)


def inverse_frequency(frequency: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return Lucene's IDF ln(1 + (n - df + 0.5) / (df + 0.5)) for each document frequency."""
    return np.asarray(np.log1p((np.maximum(count - frequency, 0) + 0.5) / (frequency + 0.5)))


def saturated(frequency: Scores, length: Scores, *, k1: float = 1.2, b: float = 0.75) -> Scores:
    """Return BM25's tf part for texts of different length: tf (k1 + 1) / (tf + k1 (1 - b + b length / mean))."""
    mean = max(float(length.mean()), 1.0) if length.size else 1.0
    return np.asarray(frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length / mean)), dtype=np.float32)


def from_neighbours(base: Scores, links: NDArray[np.int64], shares: NDArray[np.float32]) -> Scores:
    """Return what each candidate gets of its neighbours' base scores.

    links: (n, k) positions of the neighbours within `base`, -1 where there is none. shares: (k,) or (n, k).
    """
    padded = np.append(base, np.float32(0))
    return np.asarray((padded[links] * shares).sum(axis=1), dtype=np.float32)


def best_of_group(scores: Scores, groups: NDArray[np.int32]) -> Scores:
    """Return for each candidate the best score in its group; 0 where the group is -1."""
    best = np.zeros(int(groups.max(initial=-1)) + 2, dtype=np.float32)
    np.maximum.at(best, groups, scores)
    best[-1] = 0  # group -1
    return best[groups]
