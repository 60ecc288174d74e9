"""A second look at the best memories by a reranker that reads query and text together; a late one changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.errors import Unavailable
from memory_anchor.retrieval.ranking import scaled

if TYPE_CHECKING:
    from memory_anchor.ports import Reranker
    from memory_anchor.retrieval.assembling import Ranked

RERANKED = 20
"""Memories read again; the rest keep their order behind them."""


def reranked(
    reranker: Reranker, query: str, ranked: Sequence[Ranked], *, weight: float, deadline_s: float
) -> tuple[list[Ranked], str]:
    """Return the list in its new order and a note, "" when the reranker was in time.

    weight: what the best of the reranker's scores, scaled to 0..1, adds to a fused score.
    """
    head, tail = list(ranked[:RERANKED]), list(ranked[RERANKED:])
    try:
        scores = reranker.scores(query, [one.memory.content for one in head], deadline_s=deadline_s)
    except Unavailable as error:
        return [*head, *tail], f"Not reranked: {error}"
    if scores is None:
        return [*head, *tail], f"Not reranked: {reranker.name} was not done in {deadline_s:g} s."
    gains = weight * scaled(np.asarray(scores, dtype=np.float32))
    again = [
        replace(
            one,
            score=one.score + float(gain),
            signals={**one.signals, "rerank": {"score": float(score), "added": round(float(gain), 4)}},
        )
        for one, score, gain in zip(head, scores, gains, strict=True)
    ]
    return [*sorted(again, key=lambda one: (-one.score, one.memory.id)), *tail], ""
