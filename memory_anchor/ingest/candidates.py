"""What a conversation may be remembered by: a candidate as rules and models find it, and which candidates are news.

Only what deviates from what is known already is kept, with the gap: what was predicted, what was said or done instead,
and how much that is. What memory itself said is no news; of what was said twice the last word counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from memory_anchor.ingest.messages import fold
from memory_anchor.ingest.reconcile import Relation, relation
from memory_anchor.json_values import Json, number
from memory_anchor.language.slots import contrast, read
from memory_anchor.language.terms import is_chinese
from memory_anchor.model import MemoryType

MAX_CANDIDATES = 200
"""Of one conversation; the most important are kept, in the order they were said."""
MAX_COMPARED = 8
"""Earlier candidates of a conversation that a new one is compared with: those that share the most words with it."""
MIN_GAP = 0.3
"""A deviation at or below this importance is no memory (prediction-gap rule of the extraction design)."""

About = Literal["user", "agent", "project"]
Similarity = Callable[[str, str], float]
"""Centred cosine of two texts, -1 to 1."""


class StoredAs(TypedDict):
    """What a kind of statement is stored as, and how important it is, 0 to 1."""

    type: MemoryType
    importance: float


TYPE_OF: dict[str, StoredAs] = {
    "rule": {"type": MemoryType.INSTRUCTION, "importance": 0.8},
    "decision": {"type": MemoryType.DECISION, "importance": 0.7},
    "fix": {"type": MemoryType.BUGFIX, "importance": 0.65},
    "fact": {"type": MemoryType.FACT, "importance": 0.6},
    "task": {"type": MemoryType.PROJECT_STATE, "importance": 0.7},
    "person": {"type": MemoryType.FACT, "importance": 0.6},
    "preference": {"type": MemoryType.PREFERENCE, "importance": 0.7},
    "emotion": {"type": MemoryType.EMOTION, "importance": 0.4},
}
"""What a kind of sentence is stored as, and how much it weighs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible memory. quote: verbatim from message `seq`. about: whose it is (a user's facts are shared by that
    user's agents, an agent's memories are its own). gap: predicted, actual, type, importance. redactions: kinds.
    from_tools: read off what was run, so that saying nearly the same twice is no repeat."""

    key: str
    content: str
    type: MemoryType
    importance: float
    confidence: float
    quote: str
    about: About
    seq: int
    tags: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    sentiment: float | None = None
    gap: dict[str, Json] | None = field(default=None)
    redactions: tuple[str, ...] = ()
    from_tools: bool = False

    def with_gap(self, gap: dict[str, Json]) -> Candidate:
        """Return it with what it deviates from, and as important as that."""
        return replace(self, gap=gap, importance=gap_size(gap))


class StrictAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


class Gap(StrictAnswer):
    """What was expected from the known memories, and what was said or done instead."""

    predicted: str = Field(max_length=1000)
    actual: str = Field(max_length=1000)
    type: Literal["preference_shift", "new_behavior", "contradiction"]
    importance: float = Field(ge=0, le=1)


class ModelMemory(StrictAnswer):
    """One memory a model proposes, with its answers to the three questions."""

    key: str = Field(min_length=1, max_length=200)
    content: str = Field(min_length=1, max_length=2000)
    type: Literal["preference", "fact", "decision", "instruction", "workflow", "bugfix", "episode", "emotion"]
    about: Literal["user", "agent", "project"]
    importance: float = Field(ge=0, le=1)
    confidence: float = Field(ge=0, le=1)
    message: int = Field(ge=0, description="number of the message it comes from")
    quote: str = Field(default="", max_length=500, description="verbatim words of that message, in its language")
    needed_when: str = Field(min_length=1, max_length=300)
    asked_as: list[str] = Field(min_length=1, max_length=3)
    wrong_without: str = Field(max_length=300, description="the mistake an agent makes without it; empty: none")
    tags: list[str] = Field(default_factory=list, max_length=8)
    sentiment: float | None = Field(default=None, ge=-1, le=1)
    gap: Gap | None = None

    def stored_as(self) -> StoredAs:
        """Return its type, and how important it is: as the model says, of itself or of what deviates."""
        return {
            "type": MemoryType(self.type),
            "importance": max(self.importance, self.gap.importance if self.gap else 0.0),
        }

    @property
    def deviates(self) -> bool:
        """Return whether it is important enough to be a memory."""
        return self.stored_as()["importance"] > MIN_GAP


def new_candidates(
    found: Sequence[Candidate], from_memory: str, known: Sequence[str], similarity: Similarity | None = None
) -> list[Candidate]:
    """Return those candidates that are news: not recalled, not said twice, not known; each with its gap, in order."""
    compare = similarity or shared_words
    said = _latest_word((candidate for candidate in found if not _comes_from(candidate, from_memory)), compare)
    news = [gap for candidate in said if (gap := _with_gap(candidate, known, compare)) is not None]
    if len(news) > MAX_CANDIDATES:
        news = most_important(news, MAX_CANDIDATES)
    return sorted(news, key=lambda candidate: candidate.seq)


def _comes_from(candidate: Candidate, from_memory: str) -> bool:
    """Return whether memory itself said this in the conversation: a loop, not news."""
    return bool(from_memory) and (
        fold(candidate.quote).rstrip(".。!！") in from_memory or fold(candidate.content).rstrip(".。!！") in from_memory
    )


def shared_words(one: str, other: str) -> float:
    """Return a stand-in for the centred cosine where no embedder runs: the share of words in common, 0 to 1.

    Chinese paraphrases share fewer bigrams than English ones share stems, hence the offset.
    """
    first, second = read(one).content, read(other).content
    shared = len(first & second) / (min(len(first), len(second)) or 1)
    return min(1.0, shared + 0.15) if shared and is_chinese(one) else shared


def _latest_word(candidates: Iterable[Candidate], similarity: Similarity) -> list[Candidate]:
    """Return the candidates without repeats, and without what a later one of the same owner ended."""
    kept: list[Candidate] = []
    seen: set[str] = set()
    for candidate in sorted(candidates, key=lambda candidate: candidate.seq):
        folded = fold(candidate.content)
        if folded in seen:
            continue
        seen.add(folded)
        words = read(candidate.content).content
        repeated = False
        for place in _closest(words, kept):
            earlier = kept[place]
            kind, _ = relation(earlier.content, candidate.content, similarity(earlier.content, candidate.content))
            if kind is Relation.DUPLICATE and not candidate.from_tools:
                repeated = True
                break
            if kind is Relation.CONFLICT and earlier.about == candidate.about and _ended(earlier, candidate):
                del kept[place]
        if not repeated:
            kept.append(candidate)
    return kept


def _closest(words: frozenset[str], kept: Sequence[Candidate]) -> list[int]:
    """Return the places of the candidates to compare with, latest first: few, since a comparison costs the most."""
    places = range(max(0, len(kept) - MAX_CANDIDATES), len(kept))
    shared = [(len(words & read(kept[place].content).content), place) for place in places]
    best = sorted((pair for pair in shared if pair[0]), reverse=True)[:MAX_COMPARED]
    return sorted((place for _, place in best), reverse=True)


def _ended(earlier: Candidate, later: Candidate) -> bool:
    """Return whether of two contradicting candidates the later one alone stands; else reconcile sees both.

    It says that something changed, or it gives the same subject another number or value. The quote is asked too, since
    an opening "actually" is no part of the content.
    """
    after = read(later.content)
    if after.changed or read(later.quote).changed:
        return True
    seen = contrast(read(earlier.content), after)
    return seen.value or (seen.span and (seen.counted or seen.opposites))


def _with_gap(candidate: Candidate, known: Sequence[str], similarity: Similarity) -> Candidate | None:
    """Return the candidate with what was predicted beside what was said, or None where nothing deviates."""
    if candidate.gap is not None:
        return candidate if gap_size(candidate.gap) > MIN_GAP else None
    predicted, kind, importance = "", "new_behavior", candidate.importance
    words = read(candidate.content).content
    for text in known:
        if not words & read(text).content:
            continue
        related, _ = relation(text, candidate.content, similarity(text, candidate.content))
        if related is Relation.DUPLICATE:
            return None
        if related is Relation.CONFLICT:
            predicted = text
            kind = "preference_shift" if candidate.type is MemoryType.PREFERENCE else "contradiction"
            importance = min(1.0, candidate.importance + 0.2)
    if importance <= MIN_GAP:
        return None
    return candidate.with_gap(gap_of(predicted, candidate.content, kind, round(importance, 2)))


def gap_of(predicted: str, actual: str, kind: str, size: float) -> dict[str, Json]:
    """Return what was expected, what was said or done instead, and how much that is, 0 to 1."""
    return {"predicted": predicted, "actual": actual, "type": kind, "importance": size}


def gap_size(gap: Mapping[str, Json] | None) -> float:
    """Return how much was not predicted, 0 for nothing."""
    return number(gap.get("importance", 0.0)) if gap else 0.0


def most_important(found: Sequence[Candidate], most: int) -> list[Candidate]:
    """Return so many of these, the most important first."""
    return sorted(found, key=lambda candidate: -candidate.importance)[:most]
