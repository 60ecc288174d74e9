"""The rules that order an answer: `ORDER`, which `search.Searcher` applies; `with_freshness` does so once more.

What was measured comes in as numbers: the fused score with its priors and recency (`scoring`), how likely each memory
is right (`relevance`), a reranker's scores. `within_limits` makes the list: strong before weak, both sides of a dispute
together, no more than asked for. `with_freshness` lowers snippets whose cited sources changed. Nothing is
hidden, since that the code moved on, or that an idea was tried and failed, is itself worth knowing.

A reranker's scores are scaled over the memories it saw and blended with the fused ones: a cross-encoder alone threw
away what it cannot see (time, conversation, people), and one published attempt lost 6.9 points that way. What it did
not see keeps its place after the rest. Late, missing or failing: the order stays, and the note says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.freshness import FreshnessChecker, worst_freshness
from memory_anchor.domain.model import Freshness, Memory, Relation, RetrievedSnippet, SearchAnswer, Status
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import normal, terms
from memory_anchor.recall.linked import answer_places, summaries_or_events
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.request import SearchRequest
from memory_anchor.recall.snippets import REFUTED, TO_VERIFY, RankedMemory

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Reranker
    from memory_anchor.recall.point_table import PointTable

FOLD_COSINE = 0.95
"""Centred cosine from which two memories may be one snippet; one text said twice has 1."""
FOLD_OVERLAP = 0.95
"""Share of common terms they must have as well: a changed number or a negation is another memory."""
SAME_THING = 0.6
"""Centred cosine from which two memories say nearly the same."""
_WORD = late(r"\w+|[?%$€£¥°<>=+\-*/#]+")
_ARTICLES = frozenset({"a", "an", "the", "its"})
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


@dataclass(frozen=True, slots=True)
class Ordering:
    """What the steps of an order look at.

    notes: grows. margin: how much lower the score of the newer of two may be; 0 for a query that names an end.
    findable: points that the search could find, empty where it could not find all. similar: (place, place) -> cosine of
    those that say nearly the same. share: 0 (no change) to 1 (the reranker's order alone). other_sides: what disputes a
    memory, given the ranking by id and the ids already shown.
    """

    request: SearchRequest
    notes: MutableMapping[str, bool]
    margin: float
    findable: Container[str] | PointTable
    reranker: Reranker | None
    other_sides: Callable[[RankedMemory, Mapping[str, RankedMemory], Collection[str]], Sequence[RankedMemory]]
    share: float = SHARE
    deadline_s: float = DEADLINE_S
    similar: Mapping[tuple[int, int], float] = field(default_factory=dict)


def rank_key(hit: RankedMemory) -> tuple[bool, float, str]:
    """Return what sorts memories: strong ones first, then by score."""
    return hit.relevance < STRONG, -hit.score, hit.memory.id


def within_limits(ranked: list[RankedMemory], seen: Ordering) -> list[RankedMemory]:
    """Return the answer's memories: strong ones first and at most `weak` others after them, `limit` in all.

    Both sides of a dispute stand together, the newest first. What comes after a pair makes room for it, what comes
    before never; a note names a disputed memory whose other side has no room.
    """
    limit, weak = seen.request.limit, seen.request.weak
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
    shown: set[str] = set()
    for hit in candidates:
        if len(answer) >= limit or (hit.relevance < STRONG and len(answer_places(answer)) >= limit):
            break
        if hit.memory.id in shown:
            continue
        shown.add(hit.memory.id)
        sides = [hit, *(seen.other_sides(hit, known, shown) if hit.memory.status is Status.DISPUTED else ())]
        sides.sort(key=lambda side: side.memory.stated_at, reverse=True)
        shown.update(side.memory.id for side in sides)
        if len(answer) + len(sides) > limit:
            seen.notes[f"{hit.memory.id} is disputed; a higher limit shows the other side too."] = False
        answer += sides
    return answer[:limit]


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


def reranked(ranked: list[RankedMemory], seen: Ordering) -> list[RankedMemory]:
    """Return the list in the reranker's order; a note where it could not say. The reranked part keeps its range of
    scores, so that what follows it still does.
    """
    if seen.reranker is None:
        return ranked
    head, rest = list(ranked[:DEPTH]), list(ranked[DEPTH:])
    if len(head) < 2:
        return ranked
    try:
        texts = [hit.memory.content for hit in head]
        scores = seen.reranker.scores(seen.request.query, texts, deadline_s=seen.deadline_s)
    except MemoryAnchorError as error:
        seen.notes[f"Not reranked: {error}"] = True
        return ranked
    if scores is None:
        seen.notes[LATE] = True
        return ranked
    opinions, fused = _scaled(scores), _scaled([hit.score for hit in head])
    low, high = min(hit.score for hit in head), max(hit.score for hit in head)
    share = min(max(seen.share, 0.0), 1.0)
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
    return [*(moved[place] for place in order), *rest]


def _scaled(scores: Sequence[float]) -> list[float]:
    """Return the scores mapped to 0..1; all 0 where they do not differ."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]


def newer_first(ranked: list[RankedMemory], seen: Ordering) -> list[RankedMemory]:
    """Return the list with the newer of two neighbours that say nearly the same first, where it is about as good.

    None passes a stronger one, nor an event one of its own conversation: its vector holds the event before it, so that
    there what follows is near whatever it says.
    """
    similar, margin = seen.similar, seen.margin
    if not similar or not margin:
        return ranked
    order = list(ranked)
    for place in range(len(order) - 1, 0, -1):
        above, below = order[place - 1], order[place]
        nearness = max(similar.get((above.place, below.place), 0.0), similar.get((below.place, above.place), 0.0))
        follows = below.memory.context and below.memory.scope.conversation == above.memory.scope.conversation
        is_newer = not follows and below.memory.happened_at > above.memory.happened_at
        is_weaker = (above.relevance >= STRONG) != (below.relevance >= STRONG)
        is_as_good = above.score - below.score < margin and not is_weaker
        if is_newer and is_as_good and nearness >= SAME_THING:
            order[place - 1], order[place] = below, above
    return order


def contradicting_first(ranked: list[RankedMemory], _: Ordering) -> list[RankedMemory]:
    """Return the list with what may contradict an older memory right before it, wherever it stood behind.

    So it stays until a human has looked, and takes the link away or ends one of the two.
    """
    order = list(ranked)
    for hit in ranked:
        older = set(hit.memory.related(Relation.MAY_CONTRADICT))
        place = next((at for at, other in enumerate(order) if other.memory.id in older), None)
        if place is not None and place < (at := order.index(hit)):
            above = order[place]
            moved = replace(hit, score=max(hit.score, above.score), relevance=max(hit.relevance, above.relevance))
            order[place : at + 1] = [moved, *order[place:at]]
    return order


def folded(ranked: list[RankedMemory], seen: Ordering) -> list[RankedMemory]:
    """Return the list without near-duplicates; the first of each group keeps the others as siblings.

    A repeat in other words is folded with its twin by the link that was written with it;
    the fuller text stays. Disputed memories are never folded.
    """
    distinct: list[RankedMemory] = []
    texts: list[list[str]] = []
    said: list[set[str]] = []  # ids of what each says again
    for candidate in ranked:
        # Without articles and marks. Vectors of one text may differ: an event's holds the event before it.
        text = [word for word in _WORD.findall(normal(candidate.memory.content)) if word not in _ARTICLES]
        again = set(candidate.memory.related(*_SAYS_AGAIN))
        is_disputed = candidate.memory.status is Status.DISPUTED
        for number, other in enumerate(distinct):
            if is_disputed or other.memory.status is Status.DISPUTED:
                continue
            is_near = seen.similar.get((other.place, candidate.place), 0.0) >= FOLD_COSINE
            if texts[number] == text or (is_near and _same_words(other.memory, candidate.memory)):
                distinct[number] = replace(other, siblings=(*other.siblings, candidate.memory))
                break
            if other.memory.id in again or candidate.memory.id in said[number]:
                first, second = sorted((other, candidate), key=lambda hit: -len(hit.memory.content))
                distinct[number] = replace(
                    first,
                    score=other.score,
                    relevance=other.relevance,
                    siblings=(*other.siblings, second.memory),
                )
                said[number] = said[number] if first is other else again
                break
        else:
            distinct.append(candidate)
            texts.append(text)
            said.append(again)
    return distinct


_SAYS_AGAIN = (Relation.REPEATS, Relation.CONTAINS, Relation.CONTAINED)


def _same_words(memory: Memory, other: Memory) -> bool:
    first, second = set(terms(memory.content)), set(terms(other.content))
    return bool(first) and len(first & second) >= FOLD_OVERLAP * len(first | second)


FOLDING = (newer_first, folded, contradicting_first, summaries_or_events)
"""While memories are read: it leaves fewer, so that more are read."""
ORDER = (*FOLDING, reranked, within_limits)
"""The steps from memories by score, strong before weak, to an answer."""
