"""When a fact was told: its text's time, whatever was noted about it since."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory_anchor.domain.model import Actor
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.use_cases.memory import MemoryAnchor

FACT = "We chose PostgreSQL for the ledger"


@pytest.fixture
def anchor(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(agent)


def found(anchor: MemoryAnchor, query: str, **period: Any) -> list[str]:
    return [one.id for one in anchor.search(query, **period).snippets]


@pytest.mark.parametrize("note", ["pin", "a night"])
def test_what_is_noted_about_a_fact_does_not_make_it_news(
    core: Core, anchor: MemoryAnchor, clock: ManualClock, note: str
) -> None:
    """Rule search.time: since, until and "today" go by when the text was written."""
    fact = anchor.save_memory(FACT, type="decision").id
    clock.advance(days=400)
    before = clock.now() - timedelta(days=1)
    if note == "pin":
        anchor.curation.pin(fact)
    else:
        core.scheduler.run("mark_to_verify", clock.now())
    assert anchor.get(fact).version == 2

    assert found(anchor, "PostgreSQL ledger", until=before.isoformat()) == [fact]
    assert found(anchor, "PostgreSQL ledger", since=before.isoformat()) == []
    today = anchor.search("what did we decide today")
    assert "Nothing is recorded for 'today'; these are from other times." in today.notes
    shown = anchor.search("PostgreSQL ledger").snippets[0]
    assert shown.when is not None and shown.when < before


def test_a_text_that_was_changed_today_is_todays(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule search.time: an edit is news."""
    fact = anchor.save_memory(FACT, type="decision").id
    clock.advance(days=400)
    since = clock.now() - timedelta(days=1)
    anchor.curation.edit(fact, "We chose SQLite for the ledger")

    assert found(anchor, "which database has the ledger", since=since.isoformat()) == [fact]
    assert found(anchor, "which database has the ledger", until=since.isoformat()) == []


def test_an_empty_month_is_said_to_be_empty(anchor: MemoryAnchor) -> None:
    """Issue 15, a period that holds nothing: what comes from other times is never passed off as that month's."""
    anchor.log_event("The team went out for lunch")
    for query, named in (("what happened in March 2019?", "March 2019"), ("2019年3月发生了什么", "2019年3月")):
        answer = anchor.search(query)
        assert answer.snippets, query
        assert f"Nothing is recorded for {named!r}; these are from other times." in answer.notes
    assert not [note for note in anchor.search("what happened today?").notes if "other times" in note]


def test_a_note_says_of_other_times_only_what_the_answer_holds_of_them(
    anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule search.time: an empty answer speaks of nothing "from other times", one that has both says so of some."""
    assert anchor.search("why did the deploy fail yesterday?").notes == ("Nothing is recorded for 'yesterday'.",)
    day = clock.now() - timedelta(days=1)
    anchor.log_event("Lunch with the team", when=day.isoformat())
    anchor.log_event("The deploy failed: the disk was full", when=(day - timedelta(days=9)).isoformat())
    while anchor.services.searcher.index.embed_pending(8):
        pass
    both = anchor.search("why did the deploy fail yesterday?")
    assert {one.text for one in both.snippets} >= {"Lunch with the team", "The deploy failed: the disk was full"}
    assert "Some of these are from other times than 'yesterday'." in both.notes
    assert not [note for note in both.notes if note.startswith("Nothing is recorded")]
