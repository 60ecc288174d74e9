"""How what was recalled stands now: sources that moved on, confidence that faded, ideas that were refuted. Pure.

The last step of a search, at the door: nothing is hidden, since that the code moved on, or that an idea was tried and
failed, is itself worth knowing; but what no longer stands comes after what does, and is marked. Marks are tags, so that
they can be listed and filtered like any other, and history shows who set them and why.
"""

from __future__ import annotations

from dataclasses import replace

from memory_anchor.freshness import FreshnessChecker, worst
from memory_anchor.model import Epistemic, Freshness, RetrievedSnippet, SearchAnswer, Tag

TO_VERIFY = "to-verify"
"""Set by a job on a fact whose confidence has faded."""
REFUTED, HYPOTHESIS = "refuted", "hypothesis"
TAG_OF_EPISTEMIC: dict[Epistemic, str] = {Epistemic.REFUTED: REFUTED, Epistemic.HYPOTHESIS: HYPOTHESIS}
"""Verified is what a memory is meant to be, and needs no mark."""
MARKS = frozenset({TO_VERIFY, *TAG_OF_EPISTEMIC.values()})
"""Tags that say how a memory stands, not what it is about."""
STALE_WEIGHT: dict[Freshness, float] = {"stale": 0.6, "gone": 0.6}
"""What the score of a snippet counts whose source does not say it any more."""
TAG_WEIGHT = {TO_VERIFY: 0.85}
NOTES_MAX = 5


def standing(answer: SearchAnswer, checker: FreshnessChecker | None) -> SearchAnswer:
    """Return the answer with citations checked and what stands less well ranked lower; the order else stays.

    checker: of the caller's project, None when there is none to look at.
    """
    snippets: list[RetrievedSnippet] = []
    warned: list[str] = []
    lowered = False
    for snippet in answer.snippets:
        citations = snippet.citations if checker is None else checker.checked(snippet.citations)
        names = {tag.name for tag in snippet.tags}
        weight = STALE_WEIGHT.get(worst(citations) or "fresh", 1.0)
        for name in names & set(TAG_WEIGHT):
            weight *= TAG_WEIGHT[name]
        if REFUTED in names:
            warned.append(f"{snippet.id} was refuted; it is kept as a warning")
        lowered |= weight < 1.0
        snippets.append(replace(snippet, citations=citations, score=round(snippet.score * weight, 4)))
    if lowered:
        snippets.sort(key=lambda snippet: -snippet.score)
    return replace(answer, snippets=tuple(snippets), notes=(*answer.notes, *warned[:NOTES_MAX]))


def marked(tags: tuple[Tag, ...], epistemic: Epistemic | None) -> tuple[Tag, ...]:
    """Return tags with the mark of this epistemic status and no other; verified also ends `to-verify`."""
    gone = {REFUTED, HYPOTHESIS} | ({TO_VERIFY} if epistemic is Epistemic.VERIFIED else set())
    kept = tuple(tag for tag in tags if tag.name not in gone)
    return (*kept, Tag(TAG_OF_EPISTEMIC[epistemic])) if epistemic in TAG_OF_EPISTEMIC else kept
