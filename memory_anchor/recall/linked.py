"""What joins an answer or stands for several of its hits: links of the best ones, stories of events.

A story or the events that it tells, never both: which of them an answer holds, and what places they take.

A story stands in the place of the best of its events where none of those that the answer would hold tells more of the
query's words by far, and it costs a reader less than their lines; or where it alone is strong. It then takes as
many of the answer's places as the events that it stands for, or what is folded away would be filled up with whatever is
less about the question, and an answer would get longer by being told shorter. Beside a story of fewer numbers than its
events tell, strong ones stay whose numbers it leaves out. Else the events stand, and the best of them cites the story.

What is linked with the best hits joins an answer, marked with why it is there.

The cause of a decision, the fix of an error, what else was agreed in that talk: often without a word of the question,
so neither meaning nor words bring it. Two kinds of link are strong enough: what a hit cites as its source, and what was
said with it within half an hour, where the question asks beyond the hit (why, what else) or the types tell what the
other one is (a fix beside an event, a discovery or a refuted idea beside what was decided). What a fact replaced is
shown with it anyway, and both sides of a dispute are.

Bounded: the first strong hit, for why and what else the first `BRINGERS`, brings at most `JOINING`, in the places of
what is less likely right. Rejected: links of every kind for every question (a session's other memories, mostly beside
the point), and a place before the weak ones that are as likely.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.language.quantities import numbers
from memory_anchor.language.questions import Beyond, asks_beyond
from memory_anchor.language.terms import terms
from memory_anchor.language.tokens import count_tokens
from memory_anchor.layers.links import EPISODE
from memory_anchor.model import Epistemic, Layer, Memory, MemoryType, audiences, point_id
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import SearchRequest, admits, where_of
from memory_anchor.recall.snippets import RankedMemory
from memory_anchor.where import OneOf

if TYPE_CHECKING:
    from memory_anchor.ports import MemoryStore
    from memory_anchor.recall.index import Index
    from memory_anchor.recall.search_context import SearchContext

TELLS = 0.6
"""A story that says this share of the query's words that the best of its events says tells as much: it has other words
for them, and an event that opened the matter often repeats the question and no answer."""
LINE_TOKENS = 15
"""What the id, age and author of a line cost beside its text."""


def summarized_ids(story: RankedMemory) -> set[str]:
    """Return the ids of what a story tells; nothing for any other memory."""
    if story.memory.type is not MemoryType.SUMMARY:
        return set()
    return {cited.ref.partition("@")[0] for cited in story.memory.citations}


def places(ranked: Sequence[RankedMemory]) -> list[RankedMemory]:
    """Return what the places of an answer are taken for: each of these, or the events that a story stands for."""
    return [part for one in ranked for part in one.covers or (one,)]


def summaries_or_events(
    ranked: Sequence[RankedMemory], request: SearchRequest, points: Container[str]
) -> list[RankedMemory]:
    """Return the list with a story or the events that it tells, whichever answers better, never both.

    points: what this search can find. A weak story whose events it can find, and did not, is left out.
    """
    kept, stories = list(ranked), [one for one in ranked if summarized_ids(one)]
    asked = set(terms(request.query)) if stories else set()
    for story in stories:
        told = summarized_ids(story)
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
                story, score=best.score, relevance=relevance, covers=tuple(one for one in held if one not in beside)
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


def _held(ranked: Sequence[RankedMemory], request: SearchRequest) -> list[RankedMemory]:
    """Return what an answer holds of a list: the strong ones, then a few weak ones."""
    strong = [one for one in ranked if one.relevance >= STRONG]
    doubted = [one for one in ranked if one.relevance < STRONG]
    return [*strong, *doubted[: request.weak]][: request.limit]


def _tells(story: RankedMemory, held: Sequence[RankedMemory], asked: set[str]) -> bool:
    most = max(len(asked & set(terms(one.memory.content))) for one in held)
    return len(asked & set(terms(story.memory.content))) >= TELLS * most


def _left_out(story: RankedMemory, held: Sequence[RankedMemory]) -> list[RankedMemory]:
    """Return the strong events with a number that a thin story leaves out: one of fewer numbers than theirs."""
    told = numbers(story.memory.content)
    said = [numbers(one.memory.content) for one in held]
    if len(told) >= len(frozenset().union(*said)):
        return []
    return [one for one, values in zip(held, said, strict=True) if one.relevance >= STRONG and not values <= told]


def _cost(ranked: Sequence[RankedMemory]) -> int:
    return sum(count_tokens(one.memory.content) + LINE_TOKENS for one in ranked)


JOINING, BRINGERS = 2, 2
LOOKED_AT = 2
"""Memories of an episode that are read: 0.05 ms each."""
LIKELY = 0.2
"""The relevance of what is linked: it comes before what is less likely right, and is as weak."""
CAUSE, EPISODE_MATE = "cause of", "said with"
_DECIDED = frozenset({MemoryType.DECISION, MemoryType.WORKFLOW, MemoryType.INSTRUCTION, MemoryType.REFACTOR})
_SOURCES = ("event", "memory_entry")


def joined(found: Sequence[RankedMemory], asked: SearchContext, index: Index, store: MemoryStore) -> list[RankedMemory]:
    """Return an answer with what its first strong hits are linked with, no longer than it was or else within the limit.

    Where the question names a talk ("what else") and nothing is strong, the best hits bring all the same.
    """
    beyond = asks_beyond(asked.request.query)
    strong = [one for one in found if one.relevance >= STRONG]
    bringers = (strong or (found if beyond is Beyond.ELSE else ()))[: BRINGERS if beyond else 1]
    likely = [one for one in found if one.relevance >= LIKELY]
    room = min(JOINING, asked.request.limit - len(places(likely)))
    known = {one.memory.id for one in likely}.union(*(summarized_ids(one) for one in found))
    linked: list[RankedMemory] = []
    for bringer in bringers:
        if len(linked) >= room:
            break
        for why, memory in _links(bringer.memory, beyond, asked, index, store):
            told = f"{why} {bringer.memory.id}"
            one = replace(bringer, memory=memory, relevance=LIKELY, siblings=(), signals={}, linked=told)
            alike = {memory.id, *summarized_ids(one)}  # a story and what it tells are one
            if known.isdisjoint(alike) and len(linked) < room:
                known |= alike
                linked.append(one)
    if not linked:
        return list(found)
    joining = {one.memory.id for one in (*likely, *linked)}
    behind = [one for one in found if one.memory.id not in joining]
    score = max((one.score for one in behind), default=0.0)
    linked = [replace(one, score=min(one.score, score)) for one in linked]
    return [*likely, *linked, *behind][: max(len(found), len(likely) + len(linked))]


def _links(
    hit: Memory, beyond: Beyond | None, asked: SearchContext, index: Index, store: MemoryStore
) -> Iterator[tuple[str, Memory]]:
    """Yield (why, memory) of what may join behind a hit, the firm ones first."""
    sources = [one.ref.partition("@")[0] for one in hit.citations if one.kind in _SOURCES]
    if sources:
        yield from ((CAUSE, one) for one in _cited(sources[:LOOKED_AT], asked, store))
    if beyond is not None or hit.type in _DECIDED or hit.layer is Layer.EVENT_LOG:
        layers: tuple[Layer, ...] = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)  # what happened is rather a reason
        if beyond is Beyond.ELSE:
            layers = layers[::-1]
        elif beyond is None and hit.layer is Layer.EVENT_LOG:
            layers = (Layer.VERIFIED_FACT,)
        said = index.same_conversation(hit, audiences(asked.actor.scope), EPISODE, layers=layers, limit=LOOKED_AT)
        yield from ((EPISODE_MATE, one) for one in _admitted(said, asked) if _tells_more(hit, one, beyond))


def _cited(ids: Sequence[str], asked: SearchContext, store: MemoryStore) -> list[Memory]:
    found: list[Memory] = []
    for layer in asked.request.searched():
        where = where_of(asked.actor, asked.request, layer).and_(OneOf("id", tuple(ids)))
        found += store.find(layer.value, where, limit=len(ids))
    return _admitted(found, asked)


def _admitted(memories: Sequence[Memory], asked: SearchContext) -> list[Memory]:
    return [one for one in memories if admits(asked.actor, asked.request, one, now=asked.now)]


def _tells_more(hit: Memory, other: Memory, beyond: Beyond | None) -> bool:
    if beyond is not None:
        return True
    if hit.layer is Layer.EVENT_LOG:
        return other.type is MemoryType.BUGFIX
    return hit.type in _DECIDED and (other.type is MemoryType.DISCOVERY or other.epistemic is Epistemic.REFUTED)
