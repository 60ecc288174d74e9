"""Memory candidates of a conversation, as rules and models propose them, and which of them are new.

Only what deviates from what is known is kept, with the gap: what was predicted, what was said or done instead, and how
large the difference is. What memory itself said is not new; of what was said twice the later counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from memory_anchor.base.json_values import Json, number
from memory_anchor.domain.model import LAYER_OF_TYPE, Layer, MemoryType
from memory_anchor.domain.versions import Draft
from memory_anchor.ingest.messages import fold
from memory_anchor.ingest.reconcile import Likeness, likeness
from memory_anchor.ingest.relations import Kind, compare, replacement, wording
from memory_anchor.language.coverage import covers
from memory_anchor.language.slots import read
from memory_anchor.language.terms import is_chinese

MAX_CANDIDATES = 200
"""Of one conversation: the most important, in the order they were said."""
MAX_COMPARED = 8
"""Earlier candidates that a new one is compared with: those that share the most words."""
MIN_GAP = 0.3
"""A deviation at or below this importance is no memory (prediction-gap rule of the extraction design)."""

About = Literal["user", "agent", "project"]
Similarity = Callable[[str, str], float]
"""Centred cosine of two texts, -1 to 1."""


class StoredAs(TypedDict):
    layer: Layer
    type: MemoryType
    importance: float


def stored_as(kind: MemoryType, importance: float) -> StoredAs:
    return {"layer": LAYER_OF_TYPE[kind], "type": kind, "importance": importance}


TYPE_OF: dict[str, StoredAs] = {
    "rule": stored_as(MemoryType.INSTRUCTION, 0.8),
    "decision": stored_as(MemoryType.DECISION, 0.7),
    "fix": stored_as(MemoryType.BUGFIX, 0.65),
    "fact": stored_as(MemoryType.FACT, 0.6),
    "task": stored_as(MemoryType.PROJECT_STATE, 0.7),
    "person": stored_as(MemoryType.FACT, 0.6),
    "preference": stored_as(MemoryType.PREFERENCE, 0.7),
    "emotion": stored_as(MemoryType.EMOTION, 0.4),
}
"""Kind of a sentence -> layer, type and importance, 0 to 1, of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Draft):
    """One possible memory. quote: verbatim from message `seq`. about: who may read it (a user's facts are shared by
    that user's agents, an agent's memories are private to it). gap: predicted, actual, type, importance. speaks: it is
    the user's own "I". context: what was said around it without which it cannot be understood."""

    quote: str
    about: About
    seq: int
    speaks: bool = False

    @property
    def whole(self) -> str:
        """Return its text with its context."""
        return f"{self.context} {self.content}".strip()

    def with_gap(self, gap: dict[str, Json]) -> Candidate:
        """Return it with this gap, as important as the gap is large."""
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
        """Return its importance as the model says, or its gap's where that is larger."""
        return stored_as(MemoryType(self.type), max(self.importance, self.gap.importance if self.gap else 0.0))

    @property
    def deviates(self) -> bool:
        """Whether it is important enough to be a memory."""
        return self.stored_as()["importance"] > MIN_GAP


def new_candidates(
    candidates: Sequence[Candidate], from_memory: str, known: Sequence[str], similarity: Similarity | None = None
) -> list[Candidate]:
    """Return the candidates that were not recalled, not said twice and not known, each with its gap, in order.

    from_memory: folded text that memory put into the conversation; repeating it would be a loop.
    """
    likeness_of = similarity or shared_words

    def is_recalled(candidate: Candidate) -> bool:
        texts = (candidate.whole,) if candidate.context else (candidate.quote, candidate.content)
        return any(fold(text).rstrip(".。!！") in from_memory for text in texts)

    said = [candidate for candidate in candidates if not (from_memory and is_recalled(candidate))]
    gaps = (_with_gap(candidate, known, likeness_of) for candidate in _without_repeats(said))
    new = [candidate for candidate in gaps if candidate is not None]
    return sorted(most_important(new, MAX_CANDIDATES), key=lambda candidate: candidate.seq)


def shared_words(first: str, second: str) -> float:
    """Return the share of words in common, 0 to 1: what stands in for the centred cosine where no embedder runs.

    Chinese paraphrases share fewer bigrams than English ones share stems, hence the offset.
    """
    ours, theirs = read(first).content, read(second).content
    shared = len(ours & theirs) / (min(len(ours), len(theirs)) or 1)
    return min(1.0, shared + 0.15) if shared and is_chinese(first) else shared


def _without_repeats(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates without those that an earlier one contains, and without what a later one ends.

    A change is read from the quote too, since an opening "actually" is no part of the content.
    """
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: candidate.seq):
        near = _closest(read(candidate.content).content, kept)
        if any(covers(earlier.whole, candidate.whole) for earlier in near):
            continue
        ended = [earlier for earlier in near if _ends(candidate, earlier)]
        kept = [*(one for one in kept if not any(one is other for other in ended)), candidate]
    return kept


def _closest(words: frozenset[str], kept: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that share the most words: few, since a comparison costs the most."""
    shared = ((len(words & read(one.content).content), at) for at, one in enumerate(kept[-MAX_CANDIDATES:]))
    best = sorted((pair for pair in shared if pair[0]), reverse=True)[:MAX_COMPARED]
    return [kept[-MAX_CANDIDATES:][at] for _, at in best]


def _ends(later: Candidate, earlier: Candidate) -> bool:
    """Return whether of two statements of one talk only the later counts: it says so, or gives another value.

    Another value counts only of what is about the same; a word of change whatever the two were taken to be about.
    """
    if changes(earlier.content, later):
        return True
    texts = (later.content, later.quote) if earlier.about == later.about else ()
    return any(compare(earlier.content, text) in (Kind.REPLACED, Kind.OPPOSED) for text in texts)


def changes(earlier: str, later: Candidate) -> bool:
    """Return whether a candidate says itself that what an earlier text says has changed, or takes it back."""
    found = {(replacement(earlier, text), wording(text).undoes) for text in (later.content, later.quote)}
    return any(kind is Kind.REPLACED or (kind is Kind.OVER and undoes) for kind, undoes in found)


def _with_gap(candidate: Candidate, known: Sequence[str], similarity: Similarity) -> Candidate | None:
    """Return the candidate with what was predicted and what was said instead, or None where nothing deviates."""
    if candidate.gap is not None:
        return candidate if gap_size(candidate.gap) > MIN_GAP else None
    predicted, kind, importance = "", "new_behavior", candidate.importance
    words = read(candidate.content).content
    for text in known:
        if not words & read(text).content:
            continue
        if covers(text, candidate.whole):
            return None
        is_other = any(compare(text, said) is not Kind.NONE for said in (candidate.content, candidate.quote))
        if is_other or likeness(text, candidate.content, similarity(text, candidate.content))[0] is Likeness.CONFLICT:
            predicted = text
            kind = "preference_shift" if candidate.type is MemoryType.PREFERENCE else "contradiction"
            importance = min(1.0, candidate.importance + 0.2)
    if importance <= MIN_GAP:
        return None
    return candidate.with_gap(gap_of(predicted, candidate.content, kind, round(importance, 2)))


def gap_of(predicted: str, actual: str, kind: str, size: float) -> dict[str, Json]:
    """Return a gap as it is stored: what was expected, what was said or done instead, and its size, 0 to 1."""
    return {"predicted": predicted, "actual": actual, "type": kind, "importance": size}


def gap_size(gap: Mapping[str, Json] | None) -> float:
    """Return the size of a gap, 0 for none."""
    return number(gap.get("importance", 0.0)) if gap else 0.0


def most_important(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates, the most important first; all of them in their order when they are no more."""
    if len(candidates) <= limit:
        return list(candidates)
    return sorted(candidates, key=lambda candidate: -candidate.importance)[:limit]
