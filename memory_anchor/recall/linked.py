"""What is linked with the best hits joins an answer, marked with why it is there.

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

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.language.questions import Beyond, asks_beyond
from memory_anchor.layers.links import EPISODE
from memory_anchor.model import Epistemic, Layer, Memory, MemoryType, audiences
from memory_anchor.recall.assembling import Ranked
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import admits, where_of
from memory_anchor.recall.stories import places, told_by
from memory_anchor.where import OneOf

if TYPE_CHECKING:
    from memory_anchor.ports import MemoryStore
    from memory_anchor.recall.index import Index
    from memory_anchor.recall.inquiry import Inquiry

JOINING, BRINGERS = 2, 2
LOOKED_AT = 2
"""Memories of an episode that are read: 0.05 ms each."""
LIKELY = 0.2
"""The relevance of what is linked: it comes before what is less likely right, and is as weak."""
CAUSE, EPISODE_MATE = "cause of", "said with"
_DECIDED = frozenset({MemoryType.DECISION, MemoryType.WORKFLOW, MemoryType.INSTRUCTION, MemoryType.REFACTOR})
_SOURCES = ("event", "memory_entry")


def joined(found: Sequence[Ranked], asked: Inquiry, index: Index, store: MemoryStore) -> list[Ranked]:
    """Return an answer with what its first strong hits are linked with, no longer than it was or else within the limit.

    Where the question names a talk ("what else") and nothing is strong, the best hits bring all the same.
    """
    beyond = asks_beyond(asked.request.query)
    strong = [one for one in found if one.relevance >= STRONG]
    bringers = (strong or (found if beyond is Beyond.ELSE else ()))[: BRINGERS if beyond else 1]
    likely = [one for one in found if one.relevance >= LIKELY]
    room = min(JOINING, asked.request.limit - places(likely))
    known = {one.memory.id for one in likely}.union(*(told_by(one) for one in found))
    linked: list[Ranked] = []
    for bringer in bringers:
        if len(linked) >= room:
            break
        for why, memory in _links(bringer.memory, beyond, asked, index, store):
            told = f"{why} {bringer.memory.id}"
            one = replace(bringer, memory=memory, relevance=LIKELY, siblings=(), signals={}, linked=told)
            alike = {memory.id, *told_by(one)}  # a story and what it tells are one
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
    hit: Memory, beyond: Beyond | None, asked: Inquiry, index: Index, store: MemoryStore
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
        said = index.said_with(hit, audiences(asked.actor.scope), EPISODE, layers=layers, limit=LOOKED_AT)
        yield from ((EPISODE_MATE, one) for one in _admitted(said, asked) if _tells_more(hit, one, beyond))


def _cited(ids: Sequence[str], asked: Inquiry, store: MemoryStore) -> list[Memory]:
    found: list[Memory] = []
    for layer in asked.request.searched():
        where = where_of(asked.actor, asked.request, layer).and_(OneOf("id", tuple(ids)))
        found += store.find(layer.value, where, limit=len(ids))
    return _admitted(found, asked)


def _admitted(memories: Sequence[Memory], asked: Inquiry) -> list[Memory]:
    return [one for one in memories if admits(asked.actor, asked.request, one, now=asked.now)]


def _tells_more(hit: Memory, other: Memory, beyond: Beyond | None) -> bool:
    if beyond is not None:
        return True
    if hit.layer is Layer.EVENT_LOG:
        return other.type is MemoryType.BUGFIX
    return hit.type in _DECIDED and (other.type is MemoryType.DISCOVERY or other.epistemic is Epistemic.REFUTED)
