"""Candidates to scores: every signal of one search as aligned arrays, and their sum.

Signals: meaning (centred cosine), words (BM25 times the query's coverage), and, only where events belong to a
conversation, the neighbouring events, the whole conversation's words and the named person. How likely a candidate is
right is computed apart from order (`relevance`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.json_values import Json
from memory_anchor.domain.ports import DENSE
from memory_anchor.language.coverage import alike
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.shape import wants_number, wants_time
from memory_anchor.language.terms import is_compound, normal, term_id, terms
from memory_anchor.recall import ranking, relevance
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.cooccurrence import affinity
from memory_anchor.recall.relevance import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.model import Layer
    from memory_anchor.domain.ports import Matrix
    from memory_anchor.language.questions import End
    from memory_anchor.language.timewords import TimeWords
    from memory_anchor.recall.mirror import Mirror, OtherLanguage
    from memory_anchor.recall.mirror_row import RowTraits
    from memory_anchor.recall.ranking import RankingWeights, Scores
    from memory_anchor.recall.search_context import PrecomputedWords
    from memory_anchor.recall.word_table import WordScores

WITH_NEIGHBOURS = 60
"""How many of the best candidates bring their neighbouring events along."""
ABOVE_ALL = 100.0
"""More than any score: what is strong comes before what is weak."""
KINDRED = 60
"""How many of the best candidates may be of one kind, where the newest of it is asked for."""
SAME_KIND = 0.5
"""Centred cosine with the best candidate from which another is of its kind (0.55: may be the same fact)."""
KIND_SHARE = 0.5
"""Share of the best score that one of its kind must have."""
KIND_WORDS = 0.7
"""Share of the query's words in the best one that one of its kind must hold: another service's load test is none."""
KIND_STEP = 0.1
"""Between two of a kind: more than priors move."""
REPEATED = 3
"""Candidates of one kind, the first among them, from which a thing counts as recurring."""
REPEATED_SHARE = 0.8
"""Share of the best score that these must have."""
MIN_NAME_CHARS = 2
FIRST_OF_SEVERAL = 0.6
_TOGETHER = bounded(r"\s*(?:,|、|&|\+|and|or|和|与|跟|同)\s*")


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query made ready: its script, distinct terms and normalised text, and its raw row once it is embedded.

    abroad: its words in the other language, as far as the glossary knows. using: the named vector that the row may be
    compared with. tags: how much it wants each tag, 0 to 1. layer: the one it points at. end: whether the newest or the
    oldest of what it names is meant. precomputed: its words, scored while it was embedded.
    """

    text: str
    script: int
    terms: tuple[str, ...]
    term_ids: tuple[int, ...]
    project: str
    abroad: OtherLanguage = ()
    row: Matrix | None = None
    using: str = DENSE
    tags: Mapping[str, float] = field(default_factory=dict)
    layer: Layer | None = None
    end: End | None = None
    is_statement: bool = False
    precomputed: PrecomputedWords | None = field(default=None, compare=False)

    @classmethod
    def of(cls, text: str, *, project: str) -> PreparedQuery:
        distinct = tuple(dict.fromkeys(terms(text)))
        return cls(normal(text), script_of(text), distinct, tuple(map(term_id, distinct)), project)


@dataclass(frozen=True, slots=True)
class Scored:
    """Aligned arrays, one place a candidate; `total` is what orders, `relevance` how likely each is right.

    mirror: whose rows they are; traits: what it knows of them. dense: centred cosine, NaN when not embedded. share:
    part of the query's IDF mass that the memory has, 0 to about 2. idf: of each of the query's terms.
    """

    mirror: Mirror
    rows: NDArray[np.int64]
    total: Scores
    dense: Scores
    share: Scores
    parts: dict[str, Scores]
    relevance: Scores
    evidence: Evidence
    traits: RowTraits
    idf: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def best_first(self) -> NDArray[np.int64]:
        """Return the places of the candidates: strong ones first, then by score, equals newest first."""
        score = self.total + (self.relevance >= relevance.STRONG) * ABOVE_ALL
        return np.lexsort((-self.traits.happened.astype(np.int64), -score))


def score(
    mirror: Mirror,
    question: PreparedQuery,
    rows: NDArray[np.int64],
    words: WordScores,
    *,
    weights: RankingWeights,
    readers: Collection[str] | None,
    period: TimeWords | None,
    is_levelled: bool = False,
) -> Scored:
    """Score these mirror rows, and the events next to the best of them, for the question and its words' scores.

    readers: the audiences the caller holds, which neighbouring events must be for; None leaves conversations out.
    is_levelled: what few texts in the question's language all have in common with it counts for none of them.
    """
    # A whole identifier that the project does not have is no gap: its parts are terms too.
    counts = words.known | ~np.asarray([is_compound(term) for term in question.terms], dtype=bool)
    mass = float(words.idf[counts].sum())
    covered = float(words.idf[counts & words.known].sum()) / mass if mass > 0 else 0.0  # about 0 for another language
    dense = mirror.cosines(question.row, question.script, rows, using=question.using)
    traits = mirror.traits(rows)
    has_conversations = readers is not None and bool((traits.conversations >= 0).any())
    if readers is not None and has_conversations:  # neighbours are of one conversation
        near = words.scores[rows] / max(float(words.scores.max(initial=0)), ranking.SPAN_EPSILON)
        best = rows[np.argsort(-(covered * near + np.nan_to_num(dense)), kind="stable")[:WITH_NEIGHBOURS]]
        added = np.setdiff1d(mirror.neighbours(best), np.append(rows, -1))
        added = added[mirror.readable(added, readers)]
        near = mirror.cosines(question.row, question.script, added, using=question.using)
        rows, dense = np.concatenate([rows, added]), np.concatenate([dense, near])
        traits = mirror.traits(rows)
    share = np.asarray(words.scores[rows] / max(mass, ranking.SPAN_EPSILON), dtype=np.float32)
    worded_for = ranking.scaled(words.scores[rows], low=0.0)
    foreign = traits.scripts != question.script
    own = dense - np.float32(_level(mirror, question)) if is_levelled and foreign.any() else dense
    nearness = np.where(foreign, np.float32(relevance.ACROSS) * dense, own)
    meaning = ranking.stretched(nearness, span=ranking.LEAST_SPAN if question.is_statement else ranking.RELATED_SPAN)
    if question.row is not None:
        # Not embedded yet is not far: until its row is there, a memory's words stand in for its meaning.
        meaning = np.where(np.isnan(dense), worded_for, meaning)
        # Nor does a memory in another language lack the query's words: there its meaning stands in for them.
        worded_for = np.where(foreign, np.maximum(worded_for, meaning), worded_for)
    parts = {
        "dense": np.float32(weights.dense) * np.asarray(meaning, dtype=np.float32),
        "words": np.float32(weights.words * covered) * worded_for,
        "abroad": np.zeros(len(rows), dtype=np.float32),
    }
    if words.abroad is not None:
        parts["abroad"] = np.where(foreign, np.float32(weights.abroad) * words.abroad[rows], parts["abroad"])
    base = np.asarray(sum(parts.values()), dtype=np.float32)
    if has_conversations:
        parts |= _conversation_parts(base, _links(mirror, rows), traits, weights)
    if readers is not None and any(traits.people):
        parts["name"] = np.float32(weights.name) * _named(traits, question.text)
    if has_conversations:
        whole = np.append(ranking.scaled(words.conversations, low=0.0), np.float32(0))
        parts["conversation"] = np.float32(weights.conversation * covered) * whole[traits.conversations]
        parts["alone"] = _alone(base, traits.conversations, weights, covered)
    parts["asks"] = np.float32(-weights.asks) * traits.shapes[:, 0]
    parts["when"] = np.float32(weights.when * wants_time(question.text)) * traits.shapes[:, 1]
    parts["number"] = np.float32(weights.number * wants_number(question.text)) * traits.shapes[:, 2]
    parts["said"] = np.float32(weights.said) * traits.shapes[:, 3]
    if period is not None and not period.is_hard:
        inside = (traits.happened >= period.start.timestamp()) & (traits.happened < period.end.timestamp())
        parts["time"] = np.float32(weights.time) * inside.astype(np.float32)
    if question.tags:
        meets = [affinity(tags, question.tags) if tags else 0.0 for tags in mirror.tags(rows)]
        parts["tags"] = np.float32(weights.tags) * np.asarray(meets, dtype=np.float32)
    if question.layer is not None:
        parts["layer"] = np.float32(weights.layer) * mirror.within(rows, question.layer.value).astype(np.float32)
    total = np.asarray(sum(parts.values()), dtype=np.float32)
    level = total - parts["abroad"]  # what the model of relevance has learned from
    evidence = Evidence(
        nearness,
        share,
        level - level.max(initial=0.0),
        ~foreign,
        coverage=covered,
        terms=len(question.terms),
        asks=relevance.asks(question.text),
    )
    likely = relevance.probabilities(evidence)
    if (traits.conversations >= 0).any():
        likely = _by_conversation(likely, total, traits.conversations)
    return Scored(mirror, rows, total, dense, share, parts, likely, evidence, traits, words.idf)


def _by_conversation(relevances: Scores, total: Scores, conversations: NDArray[np.int32]) -> Scores:
    """Return the relevance, where an event of a conversation is at least as relevant as what ranks below it.

    Its own words may say little ("Yes, last week!"); its conversation brought it up, and was more often right.
    """
    order = np.argsort(-total, kind="stable")
    below = np.empty_like(relevances)
    below[order] = np.maximum.accumulate(relevances[order][::-1])[::-1]
    return np.where(conversations >= 0, below, relevances)


def with_word_similarity(
    cosines: NDArray[np.float32], embedded: NDArray[np.bool_], texts: Sequence[str]
) -> NDArray[np.float32]:
    """Return the (n, n) cosines, those of texts without a vector yet filled in by their words."""
    filled = cosines.copy()
    for place in np.flatnonzero(~embedded).tolist():
        filled[place] = filled[:, place] = [alike(texts[place], other) for other in texts]
    return filled


def newest_of_kind_first(
    scored: Scored, end: End, alike: NDArray[np.float32], chosen: NDArray[np.int64], ahead: float = np.inf
) -> Scored:
    """Return the same candidates with the best one's kind before all others, the newest (or oldest) of it first.

    "The last deploy" is the newest of what the query names: subject first, then time. chosen: places of the best
    candidates, the strong ones first, then the best. alike: (n, n) centred cosines among these. ahead: the timestamp
    from which on something is planned and not the newest.
    """
    best = float(scored.total[chosen].max())
    first = _recurring(scored, alike, chosen)
    near = alike[first] >= SAME_KIND
    near[first] = True
    near &= scored.total[chosen] >= KIND_SHARE * float(scored.total[chosen[first]])
    kind = chosen[near & (scored.share[chosen] >= KIND_WORDS * scored.share[chosen[first]])]
    happened = scored.traits.happened[kind].astype(np.float64)
    if end == "newest":
        happened[happened >= ahead] = -np.inf
    order = kind[np.argsort(-happened if end == "newest" else happened, kind="stable")]
    total, likely = scored.total.copy(), scored.relevance.copy()
    total[order] = best + KIND_STEP * np.arange(len(order), 0, -1, dtype=np.float32)
    likely[order[0]] = likely[kind].max()
    parts = scored.parts | {"recency": total - scored.total}
    return replace(scored, total=total, relevance=likely, parts=parts)


def _recurring(scored: Scored, alike: NDArray[np.float32], chosen: NDArray[np.int64]) -> int:
    """Return the place in `chosen` of what the query names: the first, where that is strong; else the first of which
    others nearly as good are of a kind, since what has a newest recurs. A conversation counts once.
    """
    if scored.relevance[chosen[0]] >= relevance.STRONG:
        return 0
    total, conversations = scored.total[chosen], scored.traits.conversations[chosen]
    times = np.where(conversations < 0, -1 - np.arange(len(chosen)), conversations)
    close = total >= REPEATED_SHARE * total[0]
    for place in np.flatnonzero(close):
        if len(set(times[close & (alike[place] >= SAME_KIND)].tolist())) >= REPEATED:
            return int(place)
    return 0


def by_time(scored: Scored, *, events: NDArray[np.bool_]) -> Scored:
    """Return the same candidates, events first, then the rest, newest first. events: which candidates are.

    "What happened today" resembles no memory, so that how near one is to these words says nothing. Newest counts up to
    1, an event 1 more.
    """
    count = len(scored.rows)
    newest = np.argsort(np.argsort(scored.traits.happened, kind="stable"), kind="stable")
    total = (events + (newest + 1) / max(count, 1)).astype(np.float32)
    parts = {"listed": total}
    return replace(scored, total=total, parts=parts, relevance=np.ones(count, dtype=np.float32))


def _level(mirror: Mirror, question: PreparedQuery) -> float:
    centring = mirror.centring(question.using) if question.row is not None else None
    if question.row is None or centring is None:
        return 0.0
    return centring.level(centring.query(question.row, question.script), question.script)


def _conversation_parts(
    base: Scores, links: NDArray[np.int64], traits: RowTraits, weights: RankingWeights
) -> dict[str, Scores]:
    """Return what the events around each candidate add."""
    shares = np.asarray([weights.next, 0.0, weights.near, weights.near], dtype=np.float32)
    before = links[:, 1]
    is_question = np.append(traits.shapes[:, 0], np.float32(0))[before]
    its_score = np.append(base, np.float32(0))[before]
    return {
        "neighbours": ranking.from_neighbours(base, links, shares),
        "answers": np.float32(weights.answers) * is_question * its_score,
        "talk": np.float32(weights.talk) * ranking.best_of_group(base, traits.conversations),
    }


def _alone(base: Scores, conversations: NDArray[np.int32], weights: RankingWeights, covered: float) -> Scores:
    """Return what evidence outside any conversation gets where others have one: the most that a conversation gives, in
    proportion to its own score.

    A fact is a conversation of one; without this an event next to the answer outranks the fact that is the answer.
    """
    if not (conversations >= 0).any():
        return np.zeros_like(base)
    most = weights.dense + weights.words * covered
    share = weights.talk + weights.conversation * covered / max(most, ranking.SPAN_EPSILON)
    return np.where(conversations < 0, np.float32(share) * base, np.float32(0))


def _links(mirror: Mirror, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n, 4) positions within `rows` of the events next to each, as of `Mirror.neighbours`; -1 for none."""
    position = np.full(len(mirror) + 1, -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    return np.asarray(position[mirror.neighbours(rows)])


def _named(traits: RowTraits, query: str) -> Scores:
    """Return 1 for rows in which the person whom the query names took part, 0 for the others.

    With several people the first one counts, less ("what does Anna think of Tom's idea" is Anna's to answer); people
    named side by side ("Anna and Tom") count for nothing.
    """
    people = {name for group in traits.people for name in group if len(name) >= MIN_NAME_CHARS and name in query}
    pattern = r"(?<![A-Za-z]){}(?![A-Za-z])"
    spans = sorted(
        (match.span(), name) for name in people if (match := re.search(pattern.format(re.escape(name)), query))
    )
    if not spans:
        return np.zeros(len(traits.group), dtype=np.float32)
    together = len(spans) > 1 and _TOGETHER.fullmatch(query[spans[0][0][1] : spans[1][0][0]])
    weight = 1.0 if len(spans) == 1 else 0.0 if together else FIRST_OF_SEVERAL
    return np.asarray([weight * (spans[0][1] in group) for group in traits.people], dtype=np.float32)[traits.group]


def signals(scored: Scored, places: Sequence[int], weights: RankingWeights) -> dict[int, dict[str, Json]]:
    """Return why each of these candidates ranks where it does: per part its rank, what it measured and added."""
    ranks = {}
    for name, values in scored.parts.items():
        rank = np.empty(len(values), dtype=np.int64)
        rank[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
        ranks[name] = rank
    measured: dict[str, Scores] = {"dense": scored.dense, "words": scored.share}
    signals: dict[int, dict[str, Json]] = {}
    for place in places:
        signals[place] = {
            "coverage": round(scored.evidence.coverage, 3),
            "relevance": round(float(scored.relevance[place]), 3),
        }
        for name, values in scored.parts.items():
            part: dict[str, Json] = {"rank": int(ranks[name][place]), "added": round(float(values[place]), 4)}
            if name in measured:
                raw = float(measured[name][place])
                part |= {"score": None if np.isnan(raw) else round(raw, 4), "weight": getattr(weights, name)}
            if part["added"] or name in measured:
                signals[place][name] = part
    return signals
