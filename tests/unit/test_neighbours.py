"""Conversation evidence is of what is found now: older and archived versions stand between no neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memory_anchor.domain.model import Actor, point_id
from memory_anchor.process.wiring import Core
from memory_anchor.recall.ranking import RankingWeights
from memory_anchor.use_cases.memory import MemoryAnchor

TURNS = ("The red tram was late.", "Anna bought nine pears.", "The lamp in the hall is broken.")


def evidence(anchor: MemoryAnchor, query: str) -> dict[str, set[str]]:
    """Return which signals of its talk each memory got."""
    snippets = anchor.search(query, limit=10, detail=True).snippets
    return {snippet.text: {"neighbours", "talk"} & set(snippet.signals or {}) for snippet in snippets}


def test_an_event_that_was_archived_and_restored_has_its_neighbours_again(anchor: MemoryAnchor) -> None:
    """N12: each version got a place in its talk, so a dead one stood between two that were found."""
    ids = [anchor.log_event(turn).id for turn in TURNS]
    before = evidence(anchor, "pears of Anna")

    anchor.forget(ids[1])
    anchor.curation.restore(ids[1])
    after = evidence(anchor, "pears of Anna")

    assert after == before
    assert "neighbours" in before[TURNS[0]] | before[TURNS[1]]


def test_a_talk_closes_around_an_archived_event(anchor: MemoryAnchor) -> None:
    """N12: as it does in a process that reads the store anew."""
    ids = [anchor.log_event(turn).id for turn in TURNS]
    anchor.forget(ids[1])
    mirror = anchor.services.searcher.index.mirror  # the one place where neighbours can be told apart
    first, last = mirror.rows([point_id(ids[0], 1), point_id(ids[2], 1)])

    (neighbours,) = mirror.neighbours(np.array([first]))

    assert neighbours[0] == last


def test_what_the_best_of_a_talk_says_counts_for_the_others_as_measured(core: Core, agent: Actor) -> None:
    """Mutation row: `talk` = 0. Of two that say the same, the one goes first whose talk has the better event."""
    filler = [f"Nothing of note on day {number}" for number in range(4)]
    conversations = {
        "one": ["The crane's invoice went to the harbour office", *filler, "It was painted yellow: the crane"],
        "two": [
            "The harbour office was closed",
            *filler,
            "An invoice came",
            *filler,
            "It was painted green: the crane",
        ],
    }
    for name, turns in conversations.items():
        anchor = core.anchor(replace(agent, scope=replace(agent.scope, conversation=name)))
        for turn in turns:
            anchor.log_event(turn)

    snippets = anchor.search("invoice of the crane for the harbour office", limit=20, detail=True).snippets

    order = [snippet.text for snippet in snippets]
    assert order.index(conversations["one"][-1]) < order.index(conversations["two"][-1])
    added = {one.text: (one.signals or {}).get("talk", {}).get("added", 0.0) for one in snippets}
    assert added[conversations["one"][-1]] > added[conversations["two"][-1]] > 0
    assert RankingWeights().talk == 0.12
