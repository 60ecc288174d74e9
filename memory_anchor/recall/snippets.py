"""Ranked memories to the snippets of an answer: bounded priors, near-duplicates folded, disputed pairs together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Json
from memory_anchor.domain.activation import (
    GREATEST,
    ActivationSettings,
    relative_importance,
    strength_of,
    strength_word,
)
from memory_anchor.domain.model import (
    TRUST_OF_ORIGIN,
    Citation,
    Epistemic,
    Layer,
    Memory,
    Origin,
    Relation,
    RetrievedSnippet,
    Scope,
    Status,
    Tag,
    point_id,
)
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.language.indexing import phrase_text
from memory_anchor.language.perspective import worded_for
from memory_anchor.language.terms import holds, normal, terms
from memory_anchor.recall.relevance import STRONG

if TYPE_CHECKING:
    from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.rights import is_read_by_all_of

_IMPORTANCE, _USE, _PINNED, _CHECKED = 0.4, 0.25, 0.2, 0.15
"""Shares of the prior; together 1. Use is logarithmic and full at `_FULL_USE` uses."""
_FADED = 0.25
"""What a memory faded to nothing loses of the prior, where age counts: as much as use can give."""
_FULL_USE = 20
TO_VERIFY = "to-verify"
"""Set by a job on a fact whose confidence has faded."""
REFUTED, HYPOTHESIS = "refuted", "hypothesis"
TAG_OF_EPISTEMIC: dict[Epistemic, str] = {Epistemic.REFUTED: REFUTED, Epistemic.HYPOTHESIS: HYPOTHESIS}
"""Verified is what a memory is meant to be, and needs no mark."""
MARKS = frozenset({TO_VERIFY, *TAG_OF_EPISTEMIC.values()})
"""Tags that say how far a memory holds, not what it is about."""
ASKS_ABOUT_PHRASE = 2
"""Terms besides a quoted phrase from which a query asks about it rather than for it."""
JOINING = 2
"""Memories that join an answer by another reading of its query."""
LIVE = (Status.ACTIVE.value, Status.DISPUTED.value)
WEAK_MOST = 0.49
"""The relevance of what joins: below `STRONG`."""


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """One memory in the order of an answer. score: fused, higher is better. place: position among the candidates.

    relevance: how likely it is right, 0 to 1. linked: why it joined after another, "" for what was found itself.
    covers: of a summary, the events whose places it takes.
    """

    memory: Memory
    score: float
    place: int
    signals: Mapping[str, Json] = field(default_factory=dict)
    siblings: tuple[Memory, ...] = ()
    relevance: float = 1.0
    linked: str = ""
    covers: tuple[RankedMemory, ...] = ()


def behind_the_best(hits: Sequence[RankedMemory], joining: Sequence[RankedMemory]) -> list[RankedMemory]:
    """Return an answer without a strong snippet, its best followed by what another reading of the query found.

    "And why was that?" leaves out what it is about; a question of its own that nothing answers looks the same. So its
    best stays first, few join, and what joins is weak.
    """
    best = {hit.memory.id for hit in hits[:1]}
    few = [hit for hit in joining if hit.memory.id not in best][:JOINING]
    shown = {hit.memory.id for hit in few}
    return [*hits[:1], *as_weak(few), *(hit for hit in hits[1:] if hit.memory.id not in shown | best)]


def as_weak(hits: Sequence[RankedMemory]) -> list[RankedMemory]:
    """Return the same memories, none of them strong."""
    return [replace(hit, relevance=min(hit.relevance, WEAK_MOST)) for hit in hits]


def replaced_texts(hits: Sequence[RankedMemory], store: MemoryStore) -> dict[str, str]:
    """Return for each fact the text of the one that it superseded or may contradict, by its own id."""
    texts: dict[str, str] = {}
    for memory in (hit.memory for hit in hits):
        if others := memory.related(Relation.MAY_CONTRADICT):
            where = Where((OneOf("id", others), OneOf("state", LIVE)))
            for other in store.find(memory.layer.value, where, limit=1):
                if other.audience == memory.audience and other.learned_at <= memory.learned_at:
                    texts[memory.id] = other.content
        former, _, version = (memory.previous_version_id or "").rpartition("@")
        if former and former != memory.id and version.isdigit():
            for entry in store.get(memory.layer.value, [point_id(former, int(version))]):
                if is_read_by_all_of(entry.memory, memory):
                    texts[memory.id] = entry.memory.content
    return texts


def prior(memory: Memory, *, counts_use: bool = True, strength: float = GREATEST) -> float:
    """Return what weight, use, pinning, verification and fading add; 0 for a plain new memory.

    strength: 0 to 100, where age counts. Between -1.25 and 1.
    """
    used = min(math.log1p(memory.usage.count) / math.log1p(_FULL_USE), 1.0) if counts_use else 0.0
    checked = {Epistemic.VERIFIED: 1.0, Epistemic.REFUTED: -1.0}.get(memory.epistemic, 0.0) if memory.epistemic else 0.0
    if memory.origin is Origin.DOCUMENT:
        checked -= 0.5
    weighed = _IMPORTANCE * relative_importance(memory) + _USE * used + _PINNED * float(memory.pinned)
    return weighed + _CHECKED * checked - _FADED * (1 - strength / GREATEST)


def snippet(
    ranked: RankedMemory,
    *,
    reader: Scope,
    now: datetime,
    detail: bool,
    activation: ActivationSettings,
    before: str = "",
) -> RetrievedSnippet:
    """Return the memory as an answer shows it to this reader; folded siblings are cited after its own citations.

    activation: how strength is counted in this store (`lifecycle.activation`).
    """
    memory = ranked.memory
    cited = (_own_citation(memory), *memory.citations)
    return RetrievedSnippet(
        id=memory.id,
        text=worded_for(memory, reader),
        score=round(ranked.score, 4),
        layer=memory.layer,
        type=memory.type.value,
        when=memory.happened_at,
        tags=marked(memory.tags, memory.epistemic),
        status=memory.status,
        strength=strength_word(strength_of(memory, now, activation)),
        citations=(*cited, *(_own_citation(sibling) for sibling in ranked.siblings)),
        signals=dict(ranked.signals) if detail else None,
        relevance=round(ranked.relevance, 2),
        weak=ranked.relevance < STRONG,
        origin=memory.origin,
        before=before,
        linked=ranked.linked,
    )


def marked(tags: tuple[Tag, ...], epistemic: Epistemic | None) -> tuple[Tag, ...]:
    """Return tags with the mark of this epistemic status and no other; verified also ends `to-verify`."""
    dropped = {REFUTED, HYPOTHESIS} | ({TO_VERIFY} if epistemic is Epistemic.VERIFIED else set())
    others = tuple(tag for tag in tags if tag.name not in dropped)
    return (*others, Tag(TAG_OF_EPISTEMIC[epistemic])) if epistemic in TAG_OF_EPISTEMIC else others


def _own_citation(memory: Memory) -> Citation:
    return Citation(
        kind="event" if memory.layer is Layer.EVENT_LOG else "memory_entry",
        ref=memory.id,
        observed_at=memory.happened_at,
        trust=TRUST_OF_ORIGIN[memory.origin],
    )


def holding_phrases(ranked: list[RankedMemory], query: str, wanted: Sequence[str]) -> list[RankedMemory]:
    """Return the memories that hold every quoted phrase.

    When the query asks something about the phrase ("what did Anna learn from "Dune"?"), those whose context holds it
    follow: the answer seldom repeats the title it is about.
    """
    quoting = [
        replace(hit, relevance=max(hit.relevance, STRONG))
        for hit in ranked
        if all(holds(phrase_text(hit.memory), phrase) for phrase in wanted)
    ]
    if not asks_about(query, wanted):
        return quoting
    shown = {hit.memory.id for hit in quoting}
    around = (hit for hit in ranked if all(holds(normal(hit.memory.context), phrase) for phrase in wanted))
    return quoting + [hit for hit in around if hit.memory.id not in shown]


def asks_about(query: str, wanted: Sequence[str]) -> bool:
    """Return whether a query says enough besides its quoted phrases to be about them rather than for them."""
    return len(set(terms(query)) - set(terms(" ".join(wanted)))) >= ASKS_ABOUT_PHRASE
