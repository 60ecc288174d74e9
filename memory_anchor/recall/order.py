"""The rules that order an answer; `search.Searcher._rank` applies them and `with_freshness` does so once more.

What was measured comes in as numbers: the fused score with its priors and recency (`scoring`), how likely each memory
is right (`relevance`), a reranker's scores. `final_order` makes the list: strong before weak, by score, both sides of a
dispute together, no more than asked for. `with_freshness` lowers snippets whose cited sources changed. Nothing is
hidden, since that the code moved on, or that an idea was tried and failed, is itself worth knowing.

A reranker's scores are scaled over the memories it saw and blended with the fused ones: a cross-encoder alone threw
away what it cannot see (time, conversation, people), and one published attempt lost 6.9 points that way. What it did
not see keeps its place after the rest. Late, missing or failing: the order stays, and the note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.freshness import FreshnessChecker, worst_freshness
from memory_anchor.domain.model import Freshness, RetrievedSnippet, SearchAnswer, Status
from memory_anchor.recall.linked import answer_places
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.snippets import REFUTED, TO_VERIFY, RankedMemory

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Reranker

STALE_WEIGHT: dict[Freshness, float] = {"stale": 0.6, "gone": 0.6}
"""What the score of a snippet counts whose source does not say it any more."""
TAG_WEIGHT = {TO_VERIFY: 0.85}
NOTES_MAX = 5
DEPTH = 30
"""Memories that are reranked; the ranking after them is good enough to be cut there."""
DEADLINE_S = 1.5
SHARE = 0.5
"""What the reranker's score counts against the fused one."""
LATE = "The reranker was too late; this is the order without it."


def rank_key(hit: RankedMemory) -> tuple[bool, float, str]:
    """Return what sorts memories: strong ones first, then by score."""
    return hit.relevance < STRONG, -hit.score, hit.memory.id


def final_order(
    ranked: Sequence[RankedMemory],
    *,
    limit: int,
    weak: int,
    other_sides: Callable[[RankedMemory, Mapping[str, RankedMemory], Collection[str]], Sequence[RankedMemory]],
) -> tuple[list[RankedMemory], list[str]]:
    """Return the answer's memories in their order, and the ids of disputed ones whose other side has no room.

    Strong ones come first and at most `weak` others after them, `limit` in all. other_sides: what disputes a memory,
    given the ranking by id and the ids already shown; both sides stand together, the newest first. What comes after a
    pair makes room for it, what comes before never.
    """
    candidates = [hit for hit in ranked if hit.relevance >= STRONG]
    left = weak - sum(part.relevance < STRONG for part in answer_places(candidates))
    for hit in ranked:
        if hit.relevance >= STRONG:
            continue
        left -= sum(part.relevance < STRONG for part in answer_places([hit]))
        if left < 0:
            break
        candidates.append(hit)
    known = {hit.memory.id: hit for hit in candidates}
    answer: list[RankedMemory] = []
    one_sided: list[str] = []
    shown: set[str] = set()
    for hit in candidates:
        if len(answer) >= limit or (hit.relevance < STRONG and len(answer_places(answer)) >= limit):
            break
        if hit.memory.id in shown:
            continue
        shown.add(hit.memory.id)
        sides = [hit, *(other_sides(hit, known, shown) if hit.memory.status is Status.DISPUTED else ())]
        sides.sort(key=lambda side: side.memory.stated_at, reverse=True)
        shown.update(side.memory.id for side in sides)
        if len(answer) + len(sides) > limit:
            one_sided.append(hit.memory.id)
        answer += sides
    return answer[:limit], one_sided


def with_freshness(answer: SearchAnswer, checker: FreshnessChecker | None) -> SearchAnswer:
    """Return the answer with its citations checked and stale or unverified snippets lowered.

    checker: of the caller's project, None when there is none to look at.
    """
    snippets: list[RetrievedSnippet] = []
    refuted: list[str] = []
    lowered = False
    for snippet in answer.snippets:
        citations = snippet.citations if checker is None else checker.with_freshness(snippet.citations)
        names = {tag.name for tag in snippet.tags}
        weight = STALE_WEIGHT.get(worst_freshness(citations) or "fresh", 1.0)
        for name in names & set(TAG_WEIGHT):
            weight *= TAG_WEIGHT[name]
        if REFUTED in names:
            refuted.append(f"{snippet.id} was refuted; it is kept as a warning")
        lowered |= weight < 1.0
        snippets.append(replace(snippet, citations=citations, score=round(snippet.score * weight, 4)))
    if lowered:
        snippets.sort(key=lambda snippet: (snippet.weak, -snippet.score))
    return replace(answer, snippets=tuple(snippets), notes=(*answer.notes, *refuted[:NOTES_MAX]))


def reranked(
    reranker: Reranker,
    query: str,
    ranked: Sequence[RankedMemory],
    *,
    deadline_s: float = DEADLINE_S,
    share: float = SHARE,
) -> tuple[list[RankedMemory], str]:
    """Return the list in its new order and a note, "" when all went well.

    share: 0 (no change) to 1 (the reranker's order alone). The reranked part keeps its range of scores, so that what
    follows it still does.
    """
    head, rest = list(ranked[:DEPTH]), list(ranked[DEPTH:])
    if len(head) < 2:
        return [*head, *rest], ""
    try:
        scores = reranker.scores(query, [hit.memory.content for hit in head], deadline_s=deadline_s)
    except MemoryAnchorError as error:
        return [*head, *rest], f"Not reranked: {error}"
    if scores is None:
        return [*head, *rest], LATE
    opinions, fused = _scaled(scores), _scaled([hit.score for hit in head])
    low, high = min(hit.score for hit in head), max(hit.score for hit in head)
    share = min(max(share, 0.0), 1.0)
    blended = [share * opinion + (1 - share) * own for opinion, own in zip(opinions, fused, strict=True)]
    moved = [
        replace(
            hit,
            score=low + total * (high - low),
            signals={**hit.signals, "reranker": round(opinion, 4)} if hit.signals else hit.signals,
        )
        for hit, opinion, total in zip(head, opinions, blended, strict=True)
    ]
    order = sorted(range(len(head)), key=lambda place: (-blended[place], place))
    return [*(moved[place] for place in order), *rest], ""


def _scaled(scores: Sequence[float]) -> list[float]:
    """Return the scores mapped to 0..1; all 0 where they do not differ."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]
