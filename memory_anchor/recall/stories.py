"""A story or the events that it tells, never both: which of them an answer holds, and what places they take.

A story stands in the place of the best of its events where none of those that the answer would hold tells more of the
query's words by far, and it costs a reader less than their lines; or where it alone is strong. It then takes as
many of the answer's places as the events that it stands for, or what is folded away would be filled up with whatever is
less about the question, and an answer would get longer by being told shorter. Beside a story of fewer numbers than its
events tell, strong ones stay whose numbers it leaves out. Else the events stand, and the best of them cites the story.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from memory_anchor.language.quantities import numbers
from memory_anchor.language.terms import terms
from memory_anchor.language.tokens import count_tokens
from memory_anchor.model import MemoryType, point_id
from memory_anchor.recall.assembling import Ranked
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import SearchRequest

TELLS = 0.6
"""A story that says this share of the query's words that the best of its events says tells as much: it has other words
for them, and an event that opened the matter often repeats the question and no answer."""
LINE_TOKENS = 15
"""What the id, age and author of a line cost beside its text."""


def told_by(story: Ranked) -> set[str]:
    """Return the ids of what a story tells; nothing for any other memory."""
    if story.memory.type is not MemoryType.SUMMARY:
        return set()
    return {cited.ref.partition("@")[0] for cited in story.memory.citations}


def places(ranked: Sequence[Ranked]) -> int:
    """Return how many of an answer's places these take."""
    return sum(max(1, len(one.stands_for)) for one in ranked)


def weak_places(ranked: Sequence[Ranked]) -> int:
    """Return how many of the places of weak snippets these take."""
    return sum(sum(part.relevance < STRONG for part in one.stands_for or (one,)) for one in ranked)


def told_once(ranked: Sequence[Ranked], request: SearchRequest, points: Container[str]) -> list[Ranked]:
    """Return the list with a story or the events that it tells, whichever answers better, never both.

    points: what this search can find. A weak story whose events it can find, and did not, is left out.
    """
    asked = set(terms(request.query))
    kept = list(ranked)
    for story in [one for one in ranked if told_by(one)]:
        told = told_by(story)
        events = [one for one in kept if one.memory.id in told]
        if story not in kept:
            continue
        if not events:
            if story.relevance < STRONG and any(_point(cited.ref) in points for cited in story.memory.citations):
                kept.remove(story)
            continue
        held = [one for one in _held([one for one in kept if one is not story], request) if one in events]
        alone = story.relevance >= STRONG > max(one.relevance for one in events)
        place = min(kept.index(story), kept.index(events[0]))
        beside = _left_out(story, held)
        if alone or (held and _tells(story, held, asked) and _cost([story, *beside]) < _cost(held)):
            best = max(story, *events, key=lambda one: (one.relevance >= STRONG, one.score))
            relevance = max(story.relevance, best.relevance)
            standing = replace(
                story, score=best.score, relevance=relevance, stands_for=tuple(one for one in held if one not in beside)
            )
            rest = [one for one in kept if one is not story and (one.memory.id not in told or one in beside)]
            kept = [*rest[:place], standing, *rest[place:]]
        else:
            best = replace(events[0], siblings=(*events[0].siblings, story.memory))
            kept = [best if one is events[0] else one for one in kept if one is not story]
    return kept


def _point(ref: str) -> str:
    name, _, version = ref.partition("@")
    return point_id(name, int(version) if version.isdecimal() else 1)


def _held(ranked: Sequence[Ranked], request: SearchRequest) -> list[Ranked]:
    """Return what an answer holds of a list: the strong ones, then a few weak ones."""
    strong = [one for one in ranked if one.relevance >= STRONG]
    doubted = [one for one in ranked if one.relevance < STRONG]
    return [*strong, *doubted[: request.weak]][: request.limit]


def _tells(story: Ranked, held: Sequence[Ranked], asked: set[str]) -> bool:
    most = max(len(asked & set(terms(one.memory.content))) for one in held)
    return len(asked & set(terms(story.memory.content))) >= TELLS * most


def _left_out(story: Ranked, held: Sequence[Ranked]) -> list[Ranked]:
    """Return the strong events with a number that a thin story leaves out: one of fewer numbers than theirs."""
    told = numbers(story.memory.content)
    said = [numbers(one.memory.content) for one in held]
    if len(told) >= len(frozenset().union(*said)):
        return []
    return [one for one, values in zip(held, said, strict=True) if one.relevance >= STRONG and not values <= told]


def _cost(ranked: Sequence[Ranked]) -> int:
    return sum(count_tokens(one.memory.content) + LINE_TOKENS for one in ranked)
