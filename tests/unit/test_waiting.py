"""What was captured and waits for a human is told where people and agents look."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.model import Actor, Scope, Status
from memory_anchor.front.doctor import probe
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor


@pytest.fixture
def core(tmp_path: Path) -> Core:
    return ephemeral_core(tmp_path)


def anchor(core: Core, conversation: str = "c1") -> MemoryAnchor:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


WAITING = (
    ("The release train leaves on the first Tuesday of a month", "fact"),
    ("Maybe the staging database moves to Frankfurt", "fact"),
    ("Perhaps we never rebase shared branches", "instruction"),
    ("The badge printer may need a new drum", "fact"),
)


def with_waiting(core: Core) -> MemoryAnchor:
    here = anchor(core)
    for text, kind in WAITING:
        saved = here.save_memory(text, type=kind, confidence=0.8)
        assert saved.status is Status.PENDING
    return here


def test_a_session_starts_with_what_waits_and_the_three_that_matter_most(core: Core) -> None:
    """Rule: what waits is counted at the start, with the three that matter most, fenced and marked."""
    text = Hooks().answer(with_waiting(core), "SessionStart", {"source": "startup"})
    assert "4 memories wait" in text
    assert "`memory-anchor review`" in text
    assert text.count("waits for review") == 3
    assert "never rebase shared branches" in text
    assert text.index("<recalled-memory") < text.index("never rebase")


def test_a_status_line_the_counts_and_doctor_say_how_many_wait(core: Core) -> None:
    here = anchor(core)
    assert "wait" not in Hooks().answer(here, "Statusline", {})
    assert core.stats(here.actor.scope)["waiting"] == 0
    here = with_waiting(core)
    assert "4 wait for review" in Hooks().answer(here, "Statusline", {})
    assert core.stats(here.actor.scope)["waiting"] == 4
    (review,) = [check for check in probe(core) if check.name == "review"]
    assert "4 memories wait" in review.finding
    assert "memory-anchor review" in review.finding


def test_what_waits_for_somebody_else_is_not_counted(core: Core) -> None:
    """Invariant: a count tells nothing about what the caller may not read."""
    with_waiting(core)
    other = core.anchor(Actor(scope=Scope(account="elsewhere", conversation="c2", agent="tester")))
    assert core.stats(other.actor.scope)["waiting"] == 0
    assert "wait" not in Hooks().answer(other, "Statusline", {})
    assert not any("review" in note for note in other.search("release train").notes)


def test_a_search_that_finds_only_what_waits_says_so(core: Core) -> None:
    here = with_waiting(core)
    answer = here.search("When does the release train leave?")
    assert not [snippet for snippet in answer.snippets if not snippet.weak]
    assert any("waits for review" in note and "memory-anchor review" in note for note in answer.notes)
    here.save_memory("The release train leaves on the first Wednesday of a month, confirmed by ops")
    assert not any("waits for review" in note for note in here.search("When does the release train leave?").notes)
    assert not any("waits for review" in note for note in here.search("Who feeds the office cat?").notes)
