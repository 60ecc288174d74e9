"""Candidates to scores: every signal of one search as aligned arrays, and their sum.

Signals: meaning (centred cosine), words (BM25 times the query's coverage), and, only where events belong to a
conversation, the events beside, the whole conversation's words and the named person. Relevance is judged apart from
order: a candidate that neither means nor says enough of the query is left out, however well it ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_anchor.retrieval import ranking
from memory_anchor.text.terms import is_compound, normal, term_id, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.ports import Matrix
    from memory_anchor.retrieval.mirror import Mirror
    from memory_anchor.retrieval.ranking import RankingWeights, Scores
    from memory_anchor.retrieval.timewords import TimeWords

NEIGHBOURS = ((1, 1.0), (-1, 1.0), (2, 0.5), (-2, 0.5))
"""Distance in the conversation and the share of the neighbour weight that it counts."""
MIN_NAME_CHARS = 2


@dataclass(frozen=True, slots=True)
class Question:
    """A query made ready: its raw row (None without an embedder), script, distinct terms and normalised text."""

    text: str
    row: Matrix | None
    script: int
    terms: tuple[str, ...]
    term_ids: tuple[int, ...]
    project: str

    @classmethod
    def of(cls, text: str, *, row: Matrix | None, script: int, project: str) -> Question:
        found = tuple(dict.fromkeys(terms(text)))
        return cls(normal(text), row, script, found, tuple(term_id(term) for term in found), project)


@dataclass(frozen=True, slots=True)
class Scored:
    """Aligned arrays, one place a candidate; `total` is what orders, `relevant` what may be shown.

    dense: centred cosine, NaN when not embedded. share: part of the query's IDF mass the memory holds, 0 to about 2.
    """

    rows: NDArray[np.int64]
    total: Scores
    dense: Scores
    share: Scores
    parts: dict[str, Scores]
    relevant: NDArray[np.bool_]
    coverage: float


def score(
    mirror: Mirror,
    question: Question,
    rows: NDArray[np.int64],
    *,
    weights: RankingWeights,
    conversation: bool,
    period: TimeWords | None,
) -> Scored:
    """Score these mirror rows for the question. conversation: whether conversation evidence counts."""
    words = mirror.words(question.term_ids, question.project)
    counted = np.asarray(
        [known or not is_compound(term) for term, known in zip(question.terms, words.known, strict=True)], dtype=bool
    )
    mass = float(words.idf[counted].sum()) if len(counted) else 0.0
    known = float(words.idf[counted & words.known].sum()) if len(counted) else 0.0
    covered = ranking.coverage(known, mass)
    if question.row is None:
        dense = np.full(len(rows), np.nan, dtype=np.float32)
    else:
        dense = mirror.cosines(question.row, question.script, rows)
    share = np.asarray(words.scores[rows] / max(mass, 1e-9), dtype=np.float32)
    parts = {
        "dense": np.float32(weights.dense) * ranking.scaled(dense),
        "words": np.float32(weights.words * covered) * ranking.scaled(words.scores[rows], low=0.0),
    }
    relevant = (np.nan_to_num(dense, nan=-1.0) >= weights.dense_floor) | (share >= weights.words_floor)
    total = parts["dense"] + parts["words"]
    if conversation:
        links = _links(mirror, rows)
        shares = tuple(weights.neighbour * part for _, part in NEIGHBOURS)
        parts["neighbours"] = ranking.with_neighbours(total, links, shares) - total
        parts["conversation"] = np.float32(weights.conversation * covered) * _talks(mirror, words.conversations, rows)
        parts["name"] = np.float32(weights.name) * _named(mirror, question.text, rows)
        relevant |= np.append(relevant, False)[links[:, :2]].any(axis=1)
        total = total + parts["neighbours"] + parts["conversation"] + parts["name"]
    if period is not None and not period.is_hard:
        happened = mirror.happened(rows)
        inside = (happened >= period.start.timestamp()) & (happened < period.end.timestamp())
        parts["time"] = np.float32(weights.time) * inside.astype(np.float32)
        total = total + parts["time"]
    return Scored(rows, np.asarray(total, dtype=np.float32), dense, share, parts, relevant, covered)


def beside(mirror: Mirror, rows: NDArray[np.int64], *, besides: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows next to `rows` in their conversations that are not among `besides`."""
    found = {mirror.beside(int(row), distance) for row in rows for distance, _ in NEIGHBOURS}
    return np.asarray(sorted(found - set(besides.tolist()) - {-1}), dtype=np.int64)


def _links(mirror: Mirror, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    place = {int(row): position for position, row in enumerate(rows)}
    found = [[place.get(mirror.beside(int(row), distance), -1) for distance, _ in NEIGHBOURS] for row in rows]
    return np.asarray(found, dtype=np.int64).reshape(len(rows), len(NEIGHBOURS))


def _talks(mirror: Mirror, conversations: Scores, rows: NDArray[np.int64]) -> Scores:
    """Return each row's conversation's BM25, 0..1; 0 outside conversations."""
    return np.append(ranking.scaled(conversations, low=0.0), np.float32(0))[mirror.conversations(rows)]


def _named(mirror: Mirror, query: str, rows: NDArray[np.int64]) -> Scores:
    """Return 1 for rows in which the only person named by the query took part; all 0 when none or several are named."""
    people = [mirror.people[int(row)] for row in rows]
    named = {name for group in people for name in group if len(name) >= MIN_NAME_CHARS and _mentions(query, name)}
    if len(named) != 1:
        return np.zeros(len(rows), dtype=np.float32)
    wanted = next(iter(named))
    return np.asarray([wanted in group for group in people], dtype=np.float32)


def _mentions(query: str, name: str) -> bool:
    return re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", query, re.IGNORECASE) is not None


def signals(scored: Scored, places: Sequence[int], weights: RankingWeights) -> dict[int, dict[str, Any]]:
    """Return what made each of these candidates rank where it does: per part its rank, what it measured and added."""
    ranks = {}
    for name, values in scored.parts.items():
        rank = np.empty(len(values), dtype=np.int64)
        rank[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
        ranks[name] = rank
    measured: dict[str, Scores] = {"dense": scored.dense, "words": scored.share}
    told: dict[int, dict[str, Any]] = {}
    for place in places:
        told[place] = {"coverage": round(scored.coverage, 3)}
        for name, values in scored.parts.items():
            part: dict[str, Any] = {"rank": int(ranks[name][place]), "added": round(float(values[place]), 4)}
            if name in measured:
                raw = float(measured[name][place])
                part |= {"score": None if np.isnan(raw) else round(raw, 4), "weight": getattr(weights, name)}
            if part["added"] or name in measured:
                told[place][name] = part
    return told
