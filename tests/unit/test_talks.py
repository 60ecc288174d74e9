"""Conversation evidence is of what is found now: older and archived versions stand between no neighbours."""

from __future__ import annotations

from memory_anchor.anchor import MemoryAnchor
from memory_anchor.curation import Curation

TURNS = ("The red tram was late.", "Anna bought nine pears.", "The lamp in the hall is broken.")


def evidence(anchor: MemoryAnchor, query: str) -> dict[str, set[str]]:
    """Return which signals of its talk each memory got."""
    found = anchor.search(query, limit=10, detail=True).snippets
    return {one.text: {"neighbours", "talk"} & set(one.signals or {}) for one in found}


def test_an_event_that_was_archived_and_restored_has_its_neighbours_again(anchor: MemoryAnchor) -> None:
    """N12: each version got a place in its talk, so a dead one stood between two that were found."""
    ids = [anchor.log_event(turn).id for turn in TURNS]
    before = evidence(anchor, "pears of Anna")

    anchor.forget(ids[1])
    Curation(anchor).restore(ids[1])
    after = evidence(anchor, "pears of Anna")

    assert after == before
    assert "neighbours" in before[TURNS[0]] | before[TURNS[1]]


def test_a_talk_closes_around_an_archived_event(anchor: MemoryAnchor) -> None:
    """N12: as it does in a process that reads the store anew."""
    ids = [anchor.log_event(turn).id for turn in TURNS]
    anchor.forget(ids[1])
    mirror = anchor.services.searcher._mirror  # the one place where neighbours can be told apart
    rows = {mirror.ids[row]: row for row in range(len(mirror)) if mirror._live[row]}

    (beside,) = mirror.beside(mirror.rows([mirror.points[rows[ids[0]]]]))

    assert beside[0] == rows[ids[2]]
