"""What joins an answer or replaces several of its hits: links of the best ones, summaries of events.

**A summary or the events that it sums up, never both.** A summary takes the place of the best of its events where none
of those that the answer would show says far more of the query's words, and it costs a reader less than their lines; or
where it alone is strong. It then takes as many of the answer's places as the events it covers, or these would be filled
up with whatever is less about the question. Next to a summary of fewer numbers than its events have, strong ones stay
whose numbers it leaves out. Else the events stay, and the best of them cites the summary.

**What is linked with the best hits** joins an answer, marked with why it is there: the cause of a decision, the fix of
an error, what else was agreed in that conversation: often without a word of the question, so neither meaning nor words
bring it. Two kinds of link are strong enough: what a hit cites as its source, and what was recorded in the same
conversation within half an hour, where the question asks beyond the hit (why, what else) or the types tell what the
other one is (a fix for an event, a discovery or a refuted idea for what was decided). What a fact replaced is shown
with it anyway, and both sides of a dispute are.

Bounded: the first strong hit, for why and what else the first `BRINGERS`, brings at most `JOINING`, in the places of
what is less likely right. Rejected: links of every kind for every question (a session's other memories, mostly off
topic), and a place before the weak ones that are as likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.domain.model import Epistemic, Layer, Memory, MemoryType, audiences, point_id
from memory_anchor.domain.where import OneOf
from memory_anchor.language.quantities import numbers
from memory_anchor.language.questions import Beyond, asks_beyond
from memory_anchor.language.terms import terms
from memory_anchor.language.tokens import count_tokens
from memory_anchor.layers.links import EPISODE
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import where_of
from memory_anchor.recall.snippets import RankedMemory

if TYPE_CHECKING:
    from memory_anchor.domain.ports import MemoryStore
    from memory_anchor.recall.index import Index
    from memory_anchor.recall.order import Ordering
    from memory_anchor.recall.search_context import SearchContext

SAYS_ENOUGH = 0.6
"""A summary that has this share of the query's words that the best of its events has says as much: it has other words
for them, and an event that opened the matter often repeats the question and no answer."""
LINE_TOKENS = 15
"""What the id, age and author of a line cost besides its text."""
JOINING, BRINGERS = 2, 2
LOOKED_AT = 2
"""Memories of an episode that are read: 0.05 ms each."""
LIKELY = 0.2
"""The relevance of what is linked: it comes before what is less likely right, and is as weak."""
CAUSE, EPISODE_MATE = "cause of", "said with"
_DECIDED = frozenset({MemoryType.DECISION, MemoryType.WORKFLOW, MemoryType.INSTRUCTION, MemoryType.REFACTOR})
_SOURCES = ("event", "memory_entry")


def summarized_ids(hit: RankedMemory) -> set[str]:
    """Return the ids of what a summary sums up; nothing for any other memory."""
    if hit.memory.type is not MemoryType.SUMMARY:
        return set()
    return {cited.ref.partition("@")[0] for cited in hit.memory.citations}


def answer_places(ranked: Iterable[RankedMemory]) -> list[RankedMemory]:
    """Return what the places of an answer are taken for: each of these, or the events that a summary covers."""
    return [part for hit in ranked for part in hit.covers or (hit,)]


def summaries_or_events(ranked: list[RankedMemory], seen: Ordering) -> list[RankedMemory]:
    """Return the list with a summary or the events that it sums up, whichever answers better, never both.

    A weak summary whose events this search can find, and did not, is left out.
    """
    hits, request, points = list(ranked), seen.request, seen.findable
    for summary in [hit for hit in ranked if summarized_ids(hit)]:
        ids = summarized_ids(summary)
        events = [hit for hit in hits if hit.memory.id in ids]
        if summary not in hits:
            continue
        if not events:
            if summary.relevance < STRONG and any(_point(cited.ref) in points for cited in summary.memory.citations):
                hits.remove(summary)
            continue
        others = [hit for hit in hits if hit is not summary]
        strong = [hit for hit in others if hit.relevance >= STRONG]
        weak = [hit for hit in others if hit.relevance < STRONG][: request.weak]
        shown = [hit for hit in [*strong, *weak][: request.limit] if hit in events]
        is_alone = summary.relevance >= STRONG > max(event.relevance for event in events)
        staying = _with_other_numbers(summary, shown)
        is_better = shown and _says_enough(summary, shown, request.query) and _cost([summary, *staying]) < _cost(shown)
        if is_alone or is_better:
            best = max(summary, *events, key=lambda hit: (hit.relevance >= STRONG, hit.score))
            place = min(hits.index(summary), hits.index(events[0]))
            covering = replace(
                summary,
                score=best.score,
                relevance=max(summary.relevance, best.relevance),
                covers=tuple(event for event in shown if event not in staying),
            )
            rest = [hit for hit in hits if hit is not summary and (hit.memory.id not in ids or hit in staying)]
            hits = [*rest[:place], covering, *rest[place:]]
        else:
            citing = replace(events[0], siblings=(*events[0].siblings, summary.memory))
            hits = [citing if hit is events[0] else hit for hit in hits if hit is not summary]
    return hits


def _point(ref: str) -> str:
    name, _, version = ref.partition("@")
    return point_id(name, int(version) if version.isdecimal() else 1)


def _says_enough(summary: RankedMemory, events: Sequence[RankedMemory], query: str) -> bool:
    wanted = set(terms(query))
    most = max(len(wanted.intersection(terms(event.memory.content))) for event in events)
    return len(wanted.intersection(terms(summary.memory.content))) >= SAYS_ENOUGH * most


def _with_other_numbers(summary: RankedMemory, events: Sequence[RankedMemory]) -> list[RankedMemory]:
    """Return the strong events with a number that a thin summary leaves out: one of fewer numbers than theirs."""
    own = numbers(summary.memory.content)
    theirs = [numbers(event.memory.content) for event in events]
    if len(own) >= len(frozenset().union(*theirs)):
        return []
    return [
        event for event, values in zip(events, theirs, strict=True) if event.relevance >= STRONG and not values <= own
    ]


def _cost(ranked: Sequence[RankedMemory]) -> int:
    return sum(count_tokens(hit.memory.content) + LINE_TOKENS for hit in ranked)


def with_linked(
    hits: Sequence[RankedMemory], context: SearchContext, index: Index, store: MemoryStore
) -> list[RankedMemory]:
    """Return an answer with what its first strong hits are linked with, no longer than it was or else within the limit.

    Where the question is about a conversation ("what else") and nothing is strong, the best hits bring all the same.
    """
    beyond = asks_beyond(context.request.query)
    strong = [hit for hit in hits if hit.relevance >= STRONG]
    bringers = (strong or (hits if beyond is Beyond.ELSE else ()))[: BRINGERS if beyond else 1]
    likely = [hit for hit in hits if hit.relevance >= LIKELY]
    room = min(JOINING, context.request.limit - len(answer_places(likely)))
    known = {hit.memory.id for hit in likely}.union(*map(summarized_ids, hits))
    linked: list[RankedMemory] = []
    for bringer in bringers:
        if len(linked) >= room:
            break
        for why, memory in _links(bringer.memory, beyond, context, index, store):
            reason = f"{why} {bringer.memory.id}"
            joining = replace(bringer, memory=memory, relevance=LIKELY, siblings=(), signals={}, linked=reason)
            same = {memory.id, *summarized_ids(joining)}
            if known.isdisjoint(same) and len(linked) < room:
                known |= same
                linked.append(joining)
    if not linked:
        return list(hits)
    before = {hit.memory.id for hit in (*likely, *linked)}
    rest = [hit for hit in hits if hit.memory.id not in before]
    score = max((hit.score for hit in rest), default=0.0)
    linked = [replace(hit, score=min(hit.score, score)) for hit in linked]
    return [*likely, *linked, *rest][: max(len(hits), len(likely) + len(linked))]


def _links(
    hit: Memory, beyond: Beyond | None, context: SearchContext, index: Index, store: MemoryStore
) -> Iterator[tuple[str, Memory]]:
    """Yield (why, memory) of what may follow a hit, sources first."""
    sources = tuple(cited.ref.partition("@")[0] for cited in hit.citations if cited.kind in _SOURCES)[:LOOKED_AT]
    if sources:
        found: list[Memory] = []
        for layer in context.request.searched():
            where = where_of(context.actor, context.request, layer).and_(OneOf("id", sources))
            found += store.find(layer.value, where, limit=len(sources))
        yield from ((CAUSE, memory) for memory in found if context.admits(memory))
    if beyond is not None or hit.type in _DECIDED or hit.layer is Layer.EVENT_LOG:
        layers: tuple[Layer, ...] = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)  # what happened is rather a reason
        if beyond is Beyond.ELSE:
            layers = layers[::-1]
        elif beyond is None and hit.layer is Layer.EVENT_LOG:
            layers = (Layer.VERIFIED_FACT,)
        readers = audiences(context.actor.scope)
        mates = index.same_conversation(hit, readers, EPISODE, layers=layers, limit=LOOKED_AT)
        yield from (
            (EPISODE_MATE, memory) for memory in mates if context.admits(memory) and _adds_to(hit, memory, beyond)
        )


def _adds_to(hit: Memory, other: Memory, beyond: Beyond | None) -> bool:
    if beyond is not None:
        return True
    if hit.layer is Layer.EVENT_LOG:
        return other.type is MemoryType.BUGFIX
    return hit.type in _DECIDED and (other.type is MemoryType.DISCOVERY or other.epistemic is Epistemic.REFUTED)
