"""How likely each candidate is to be right, 0 to 1: a small logistic model over what a search measures anyway.

Order is one thing, relevance another: an answer always holds the best there is, and says of each snippet how often such
snippets were right. The model reads the candidate's own evidence (cosine, share of the query's rarity), how far it is
above the background and below the best, and what kind of query it is; no text and no store is in it. What has no vector
is judged by words alone. The numbers (1 KB) are in `relevance.json`; `scripts/train_relevance.py` makes
them and docs/retrieval.md has their calibration. Rejected: gates on single figures (fitted to questions, they left six
of ten statements without any answer) and a bar for a whole answer (one strong memory says nothing about the next).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.terms import terms
from memory_anchor.recall import ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]

NUMBERS = Path(__file__).with_name("relevance.json")
STRONG = 0.5
"""From here on a snippet is more likely right than not; what lies below is `weak`."""
SURE = 0.95
"""What the best of an answer to a question must reach, or all of it is marked: what a store says of a question's
subject is near it and has its words, whether or not it is what was asked (docs/retrieval.md)."""
WEAK_SHOWN = 3
"""Weak snippets that join the strong ones, unless more than `PLAIN_LIMIT` are asked for."""
PLAIN_LIMIT = 5
BACKGROUND = slice(10, 40)
"""By falling cosine, the candidates that stand for what has nothing to do with the query."""
FEW = 10.0
"""Of so many background candidates the usual level (`USUAL`) counts as much as their own."""
USUAL = 0.05
ACROSS = 1.4
"""What a cosine across two languages counts against one within a language, where texts share more than meaning."""
SHARE_MAX = 1.2
STATEMENT_TERMS = 5
"""Terms from which a query that is no question is more than keywords."""
_SENTENCE = late(r"[。！？!?…]|\.(?=\s|$)|\n")
_ASKS = bounded(
    r"[?？]\s*$|^\W*(?:what|who|whom|whose|when|where|which|how|why|can|could|do|does|did|is|are|was|were|should|may|will)\b"
    r"|什么|怎么|怎样|如何|哪|谁|吗|呢|多少|几[个次点天]|多[久大长]|为何|是否|能不能|可不可以|有没有",
    re.IGNORECASE,
)


def asks(query: str) -> bool:
    """Return whether a query is a question."""
    return bool(_ASKS.search(query))


def says(query: str) -> bool:
    """Return whether a query is a statement: it has several sentences, or is neither a question nor keywords."""
    parts = [part for part in _SENTENCE.split(query) if part.strip()]
    return len(parts) > 1 or (not asks(query) and len(terms(query)) >= STATEMENT_TERMS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is measured of the candidates of one query, aligned.

    cosines: centred, NaN where there is no vector, `ACROSS` as much across languages. shares: part of the query's IDF
    mass that each holds. lean: its score less the best one's, from all that orders an answer. same_script: it is in the
    query's language. coverage: part of the IDF mass that is known at all. terms: distinct terms of the query.
    """

    cosines: Scores
    shares: Scores
    lean: Scores
    same_script: NDArray[np.bool_]
    coverage: float
    terms: int
    asks: bool


class Spread(NamedTuple):
    """How candidates compare. near, share: of each; level: of the background; best, most: the greatest of each."""

    near: Scores
    share: Scores
    level: float
    best: float
    most: float
    few: float


def spread_of(evidence: Evidence, background: slice = BACKGROUND) -> Spread:
    """Return how candidates compare; one without a vector is near nothing. background: as `BACKGROUND`."""
    near = np.nan_to_num(evidence.cosines, nan=0.0)
    share = np.minimum(evidence.shares, SHARE_MAX)
    known = np.sort(evidence.cosines[~np.isnan(evidence.cosines)])[::-1]
    rest = known[background]
    level = (float(rest.sum()) + FEW * USUAL) / (len(rest) + FEW)
    best, most = float(near.max(initial=0.0)), float(share.max(initial=0.0))
    return Spread(near, share, level, best, most, 1.0 / max(evidence.terms, 1))


def features(evidence: Evidence) -> tuple[Scores, Scores]:
    """Return (n, 15) features where there is a vector and (n, 8) of words alone, each with a constant first."""
    near, share, level, best, most, few = spread_of(evidence)
    same, ones = evidence.same_script.astype(np.float32), np.ones(len(evidence.cosines), dtype=np.float32)
    by_words = (
        ones,
        share,
        share - most,
        evidence.lean,
        ones * np.float32(evidence.coverage),
        share * few,
        ones * np.float32(few),
        ones * np.float32(evidence.asks),
    )
    both = (*by_words, near, near - level, near - best, near * share, same * near, near * float(evidence.asks), same)
    return np.stack(both, axis=1).astype(np.float32), np.stack(by_words, axis=1).astype(np.float32)


@cache
def _numbers() -> tuple[Scores, Scores]:
    stored = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return np.asarray(stored["both"], dtype=np.float32), np.asarray(stored["words"], dtype=np.float32)


def probabilities(evidence: Evidence) -> Scores:
    """Return how likely each candidate is right, 0 to 1."""
    if not len(evidence.cosines):
        return np.zeros(0, dtype=np.float32)
    (with_vector, by_words), (both, words) = features(evidence), _numbers()
    logit = np.where(np.isnan(evidence.cosines), by_words @ words, with_vector @ both)
    return ranking.sigmoid(logit)


def max_weak(limit: int) -> int:
    """Return how many weak snippets an answer of this limit may hold."""
    return WEAK_SHOWN if limit <= PLAIN_LIMIT else limit
