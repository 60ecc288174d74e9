"""Ranking as arithmetic on plain arrays: fusion, conversation evidence, floors. No store, no clock, no memory.

Scores are fused, not ranks: reciprocal rank fusion of the same two channels scored below BM25 alone, because it throws
away how much better the best hit is (docs/retrieval.md). Every array is aligned with one list of candidates; every
function is deterministic, and ties keep the order that went in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]
    Rows = NDArray[np.int64]

SPAN_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """What each signal counts, in units of the fused score; docs/retrieval.md gives the measurement behind each.

    dense, words: the two channels, each scaled to 0..1 over the candidates; words also times the query's coverage.
    neighbour: share of an adjacent event's score, halved at distance 2. conversation: BM25 of the whole conversation.
    name: the one person named in the query took part. time: the memory lies in a period the query names.
    prior: the most that importance, use and verification together may add. route: the most a layer may gain.
    dense_floor, words_floor: below both, a memory is not relevant at all.
    """

    dense: float = 0.5
    words: float = 0.5
    neighbour: float = 0.2
    conversation: float = 0.3
    name: float = 0.2
    time: float = 0.15
    prior: float = 0.03
    route: float = 0.02
    dense_floor: float = 0.30
    words_floor: float = 0.34

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


def coverage(known_idf: float, all_idf: float) -> float:
    """Return the share of the query's IDF mass that the store knows, 0..1; about 0 for another language."""
    return known_idf / all_idf if all_idf > 0 else 0.0


def inverse_frequency(frequency: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return Lucene's IDF ln(1 + (n - df + 0.5) / (df + 0.5)) for each document frequency."""
    return np.asarray(np.log1p((np.maximum(count - frequency, 0) + 0.5) / (frequency + 0.5)))


def saturated(frequency: Scores, length: Scores, *, k1: float = 1.2, b: float = 0.75) -> Scores:
    """Return BM25's tf part for texts of different length: tf (k1 + 1) / (tf + k1 (1 - b + b length / mean))."""
    mean = max(float(length.mean()), 1.0) if length.size else 1.0
    return np.asarray(frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length / mean)), dtype=np.float32)


def with_neighbours(base: Scores, links: NDArray[np.int64], shares: tuple[float, ...]) -> Scores:
    """Return base plus a share of each neighbour's base.

    links: (n, len(shares)) positions of the neighbours within `base`, -1 where there is none.
    """
    padded = np.append(base, np.float32(0))
    return np.asarray(base + (padded[links] * np.asarray(shares, dtype=np.float32)).sum(axis=1), dtype=np.float32)


def best_first(scores: Scores, ties: NDArray[np.int64]) -> Rows:
    """Return positions by falling score; equal scores by rising `ties`, so that a repeat gives the same list."""
    return np.lexsort((ties, -scores))
