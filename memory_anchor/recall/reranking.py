"""The first memories of a ranking put in a reranker's order, within a deadline, never worse off for its absence.

The reranker's scores are scaled over the memories it saw and blended with the fused ones: a cross-encoder alone threw
away what it cannot see (time, conversation, people), and one published attempt lost 6.9 points that way. What it did
not see keeps its place behind. Late, missing or failing: the order stays, and the note says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_anchor.errors import MemoryAnchorError
from memory_anchor.recall.assembling import Ranked

if TYPE_CHECKING:
    from memory_anchor.ports import Reranker

DEPTH = 30
"""Memories that are reranked; the ranking behind is already good enough to be cut there."""
DEADLINE_S = 1.5
SHARE = 0.5
"""What the reranker's score counts against the fused one."""
LATE = "The reranker was too late; this is the order without it."


def reranked(
    reranker: Reranker, query: str, ranked: Sequence[Ranked], *, deadline_s: float = DEADLINE_S, share: float = SHARE
) -> tuple[list[Ranked], str]:
    """Return the list in its new order and a note, "" when all went well.

    share: 0 (no change) to 1 (the reranker's order alone). Scores stay comparable within the list: those of the
    reranked part keep their range, so that what stands behind stays behind.
    """
    head, rest = list(ranked[:DEPTH]), list(ranked[DEPTH:])
    if len(head) < 2:
        return [*head, *rest], ""
    try:
        scores = reranker.scores(query, [one.memory.content for one in head], deadline_s=deadline_s)
    except MemoryAnchorError as error:
        return [*head, *rest], f"Not reranked: {error}"
    if scores is None:
        return [*head, *rest], LATE
    judged, fused = _scaled(scores), _scaled([one.score for one in head])
    low, high = min(one.score for one in head), max(one.score for one in head)
    share = min(max(share, 0.0), 1.0)
    blended = [share * seen + (1 - share) * own for seen, own in zip(judged, fused, strict=True)]
    moved = [
        replace(
            one,
            score=low + total * (high - low),
            signals={**one.signals, "reranker": round(seen, 4)} if one.signals else one.signals,
        )
        for one, seen, total in zip(head, judged, blended, strict=True)
    ]
    order = sorted(range(len(head)), key=lambda place: (-blended[place], place))
    return [*(moved[place] for place in order), *rest], ""


def _scaled(scores: Sequence[float]) -> list[float]:
    """Return the scores mapped to 0..1; all 0 where they do not differ."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) if high > low else 0.0 for score in scores]
