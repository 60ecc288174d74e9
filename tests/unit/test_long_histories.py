"""A memory may have any number of versions: history shows the newest, page by page; undo and what asks who pinned reach
every one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from figures import figure
from hypothesis import given, settings
from hypothesis import strategies as st
from timekit import a_memory, current, day, put, upkeep

from memory_anchor.domain.errors import NotFound, Refused
from memory_anchor.domain.model import Caller, MemoryType, Scope, Status
from memory_anchor.domain.versions import revise
from memory_anchor.front import mcp_answers
from memory_anchor.front.calls import run
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import START, ManualClock
from memory_anchor.upkeep import history

if TYPE_CHECKING:
    from memory_anchor.domain.model import Memory
    from memory_anchor.process.wiring import Core
    from memory_anchor.upkeep.job_kit import Upkeep
    from memory_anchor.use_cases.memory import MemoryAnchor

LONG = 1_203


def with_versions(core: Core, clock: ManualClock, memory_id: str, count: int, *, pinned: bool = False) -> None:
    """Give a stored memory so many versions, written straight to the store: only their number matters."""
    name = "verified_fact"
    (entry,) = core.services.store.get(name, [core.services.records.read(memory_id, None).point_id], with_vectors=True)
    memory, entries = entry.memory, []
    for number in range(memory.version, count):
        changed = replace(memory, content=f"The harbour is {number} m deep", pinned=pinned or memory.pinned)
        at = START + timedelta(seconds=number)
        step = revise(memory, changed, at=at, author="agent:claude-code", reason="edited")
        entries.append(replace(entry, memory=step.closed))
        memory = step.new
    core.services.store.put(name, [*entries, replace(entry, memory=memory)])
    core.services.invalidate_caches()
    clock.advance(days=1)


def test_history_shows_the_newest_versions_first_and_the_others_page_by_page(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule history.length: the newest page, each oldest first; `before` goes on; no version is left out or twice."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    with_versions(core, clock, fact, LONG)
    caller = Preamble(project_dir=anchor.actor.project_dir, cwd=anchor.actor.project_dir)
    seen: list[str] = []
    before = None
    while True:
        page = run(core, caller, "history", {"id": fact, "before": before, "limit": 500})
        assert all(step["diff"] for step in page["steps"] if step["version_id"] != f"{fact}@1")
        seen[:0] = [step["version_id"] for step in page["steps"]]
        assert [version["version"] for version in page["versions"]][-1] == (before or LONG + 1) - 1
        before = page.get("before")
        if before is None:
            break
    assert seen == [f"{fact}@{number}" for number in range(1, LONG + 1)]
    told = json.loads(json.dumps(mcp_answers.run(anchor, "get_memory", {"id": fact, "history": True}), default=str))
    assert str(LONG - 1) in json.dumps(told) and "the newest" in json.dumps(told)


def test_each_version_and_each_instant_of_a_long_history_is_found(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule history.length: `show ID@N` and `show --as-of`, wherever in the history; what never was is not found."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    with_versions(core, clock, fact, LONG)

    for number in (1, 2, 600, 1_000, 1_001, LONG):
        assert anchor.show(f"{fact}@{number}").version == number
    assert (
        anchor.show(fact, as_of=(START + timedelta(seconds=1_150.5)).isoformat()).content
        == "The harbour is 1150 m deep"
    )
    with pytest.raises(NotFound, match=f"no version {LONG + 1}"):
        anchor.show(f"{fact}@{LONG + 1}")


def test_a_long_history_is_undone_to_the_version_before(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule undo.length: the last change is the newest version's, however many came before it."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    with_versions(core, clock, fact, LONG)
    anchor.curation.edit(fact, "The harbour is closed")

    answer = anchor.maintenance.undo("last", apply=True)

    assert [step["action"] for step in answer["steps"]] == ["restore"]
    assert anchor.get(fact).content == f"The harbour is {LONG - 1} m deep"


def test_a_story_of_a_long_history_ends_with_its_newest_version(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule history.length: `--story` too."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    with_versions(core, clock, fact, LONG)

    _, steps = anchor.steps(fact, story=True)

    assert steps[-1].version_id == f"{fact}@{LONG}"


def test_a_humans_pin_stays_a_humans_however_long_ago(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule rights.unpin: an agent's thousand edits on top of a pin do not make it the agent's."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    human = core.anchor(replace(anchor.actor, caller=Caller.HUMAN))
    human.curation.pin(fact)
    with_versions(core, clock, fact, LONG, pinned=True)

    with pytest.raises(Refused):
        anchor.curation.unpin(fact)


def test_a_memory_forgotten_after_a_long_history_comes_back_as_it_was(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Rule restore: the status before it was archived, not that of its thousandth version."""
    fact = str(anchor.save_memory("The harbour is deep").id)
    with_versions(core, clock, fact, LONG)
    anchor.forget(fact)

    anchor.curation.restore(fact)

    assert (anchor.get(fact).status, anchor.get(fact).version) == (Status.ACTIVE, LONG + 2)


AUTHORS = ("agent:a", "agent:b")


def written(up: Upkeep, runs: list[tuple[int, int]]) -> list[Memory]:
    """Store one memory with runs of versions; return its versions. runs: (author, how many)."""
    memory = a_memory("m", "0", MemoryType.FACT)
    versions: list[Memory] = []
    for who, count in runs:
        for _ in range(count):
            changed = replace(memory, content=f"{len(versions) + 1}")
            step = revise(memory, changed, at=day(len(versions) + 1), author=AUTHORS[who], reason="edit")
            versions.append(step.closed)
            memory = step.new
    versions.append(memory)
    put(up, *versions, embed=False)
    return versions


@settings(max_examples=figure(4, 60))
@given(
    runs=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 600)), min_size=2, max_size=4).filter(
        lambda runs: sum(count for _, count in runs) > 1_000
    )
)
def test_undo_goes_back_to_the_last_version_of_somebody_else_at_any_length(runs: list[tuple[int, int]]) -> None:
    """Rule undo.length: what an agent wrote since a time is undone as if there were ten versions; undone, and undone
    again, it is as it was."""
    up = upkeep()
    versions = written(up, runs)
    author = versions[-1].author
    target = next((v for v in reversed(versions) if v.author != author), None)
    at = day(5_000)

    plan = history.plan_agent(up, author, day(0.5), Scope(), human=True)
    history.apply(up, plan, at=at, author="human:me")

    after = current(up)["m"]
    assert after.version == versions[-1].version + 1
    assert (after.content, after.status) == ((target.content, target.status) if target else ("0", Status.ACTIVE))
    history.apply(up, history.plan_last(up, Scope(), human=True), at=day(5_001), author="human:me")
    assert current(up)["m"].content == versions[-1].content
