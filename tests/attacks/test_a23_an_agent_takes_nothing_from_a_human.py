"""What a human wrote, pinned, archived, paused or has yet to decide: no agent's command or tool takes it away."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import Result

from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Actor, Caller, Outcome, Status
from memory_anchor.domain.rights import purge_digest, version_stamp
from memory_anchor.front import mcp_answers
from memory_anchor.process.wiring import Core
from memory_anchor.settings import ConflictSettings, Settings
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

Run = Callable[..., Result]


@pytest.fixture
def human(core: Core, agent: Actor) -> MemoryAnchor:
    """A human whose passphrase was right, in the agent's project."""
    return core.anchor(replace(agent, caller=Caller.HUMAN, scope=replace(agent.scope, conversation="theirs")))


def tool(anchor: MemoryAnchor, name: str, **given: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(mcp_answers.run(anchor, name, given))
    return answer


def seen(*memories: Any) -> list[str]:
    return [version_stamp(one.id, one.version, one.content) for one in memories]


# --- pins -------------------------------------------------------------------------------------------------------


def test_an_agent_does_not_unpin_what_a_human_pinned_and_then_forget_it(
    run: Run, anchor: MemoryAnchor, human: MemoryAnchor
) -> None:
    """Attack A23, promise 2: `unpin` in an agent's shell, then `forget_memory`."""
    known = anchor.save_memory("Deploys need two reviews").id
    human.curation.pin(known)

    assert run("unpin", known).exit_code == 4
    with pytest.raises(Refused, match="only a human"):
        tool(anchor, "forget_memory", id=known)
    assert run("forget", known).exit_code == 4
    memory = anchor.get(known)
    assert memory.pinned and memory.status is Status.ACTIVE


def test_a_humans_pin_over_an_agents_is_a_humans(run: Run, anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack A23: an agent pins first, so that the human's pin changes nothing, and unpins later."""
    known = anchor.save_memory("Deploys need two reviews").id
    assert run("pin", known).exit_code == 0
    assert run("unpin", known).exit_code == 0  # its own
    assert run("pin", known).exit_code == 0

    human.curation.pin(known)

    assert run("unpin", known).exit_code == 4
    assert run("undo", "last", "--yes").exit_code == 0
    assert anchor.get(known).pinned


def test_an_agent_pins_nothing_that_a_human_wrote(run: Run, anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack A23: `pin` on a human's memory is a change of it too."""
    rule = human.save_memory("Deploys need two reviews").id

    assert run("pin", rule).exit_code == 4
    assert anchor.get(rule).version == 1


# --- what a human wrote -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("forget", "ID"), ("edit", "ID", "No review"), ("edit", "ID", "--epistemic", "hypothesis")]
)
@pytest.mark.parametrize("how", ["written", "pinned"])
def test_an_agent_neither_forgets_edits_nor_judges_it(
    run: Run, anchor: MemoryAnchor, human: MemoryAnchor, words: tuple[str, ...], how: str
) -> None:
    """Mutation rows of findings: agent may forget, edit or judge what a human wrote (or pinned)."""
    rule = (human if how == "written" else anchor).save_memory("Deploys need two reviews").id
    if how == "pinned":
        human.curation.pin(rule)
    before = anchor.get(rule).version

    done = run(*(rule if word == "ID" else word for word in words))

    assert (done.exit_code, "only a human can" in " ".join(done.stderr.split())) == (4, True)
    assert anchor.get(rule).version == before


def test_an_agent_does_not_settle_a_humans_fact(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Mutation row: settle a human's fact."""
    rule = human.save_memory("The API listens on port 8080").id
    mine = anchor.save_memory("The API listens on port 9090", replaces=rule)
    assert mine.outcome is Outcome.NEEDS_REVIEW

    with pytest.raises(Refused, match="waits for the user"):
        tool(anchor, "resolve_conflict", id=mine.id, resolution="keep_new")
    with pytest.raises(Refused, match="waits for the user"):
        tool(anchor, "resolve_conflict", id=mine.id, resolution="merge")
    assert anchor.get(rule).content == "The API listens on port 8080"


def test_a_pinned_fact_is_not_replaced(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Mutation row: replace a pinned fact; it waits for review."""
    known = anchor.save_memory("The API listens on port 8080").id
    human.curation.pin(known)

    done = tool(anchor, "save_memory", content="The API now listens on port 9090", replaces=known)

    assert done["outcome"] == "needs_review"
    assert anchor.get(known).status is Status.DISPUTED


def test_a_fuller_wording_is_not_written_into_what_a_human_wrote(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: an update merges an agent's text into a memory that keeps saying `origin: human`."""
    rule = human.save_memory("Deploys need reviews before they go out").id

    done = anchor.save_memory("Deploys need reviews before they go out, but not those of Mallory after 17:00")

    assert done.id != rule
    assert anchor.get(rule).content == "Deploys need reviews before they go out"


def test_a_job_ends_no_humans_fact_for_an_agents(core: Core, anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: a version that names a human's fact as its predecessor, and the job that ends half-done changes."""
    rule = human.save_memory("Deploys need two reviews")
    mine = anchor.save_memory("Nobody reviews deploys at all")
    records = core.services.records
    forged = replace(records.read(str(mine.id), None), previous_version_id=f"{rule.id}@1")
    core.services.store.put(forged.layer.value, [core.services.searcher.index.entry_of(forged, embed=True)])

    core.scheduler.run("finish_supersedes", core.clock.now())

    assert anchor.get(rule.id).status is Status.ACTIVE


def test_an_agent_restores_nothing_that_a_human_archived(run: Run, anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack A23, restored: a human forgets an agent's memory, the agent brings it back."""
    known = str(anchor.save_memory("Deploys go out without asking").id)
    human.forget(known)

    assert run("restore", known).exit_code == 4
    assert anchor.get(known).status is Status.ARCHIVED


# --- pause, policy ----------------------------------------------------------------------------------------------


def test_an_agent_ends_no_pause(run: Run, core: Core) -> None:
    """Attack A23, promise 4: `pause --off` in an agent's shell; the engine refuses it too."""
    run("pause")

    refused = run("pause", "--off")

    assert (refused.exit_code, "human" in refused.stderr) == (4, True)
    assert (core.data_dir / "paused").exists()
    from memory_anchor.front import calls
    from memory_anchor.front.cli.link import preamble

    with pytest.raises(Refused, match="only a human ends a pause"):
        calls.run(core, preamble(), "pause", {"off": True})


def test_ask_user_asks_the_user(tmp_path: Any, agent: Actor) -> None:
    """Promise 7: with `conflicts.policy: ask_user` neither an agent's tool nor a job settles it, a human does."""
    settings = Settings(conflicts=ConflictSettings(policy={"fact": "ask_user"}))
    clock = ManualClock()
    core = ephemeral_core(tmp_path / "asks", settings=settings, clock=clock)
    anchor = core.anchor(agent)
    old = anchor.save_memory("The API listens on port 8080")
    new = anchor.save_memory("The API listens on port 9090")
    assert new.outcome is Outcome.NEEDS_REVIEW

    with pytest.raises(Refused, match="waits for the user"):
        tool(anchor, "resolve_conflict", id=new.id, resolution="keep_new")
    core.scheduler.run("reconsolidate", clock.now() + timedelta(days=1))
    assert anchor.curation.inbox().items[0].needs_human
    assert {anchor.get(one.id).status for one in (old, new)} == {Status.DISPUTED}

    human = core.anchor(replace(agent, caller=Caller.HUMAN))
    human.curation.settle(new.id, "keep_old", seen=seen(anchor.get(new.id), anchor.get(old.id)))
    assert anchor.get(old.id).status is Status.ACTIVE
    core.close()


def test_an_event_for_the_whole_account_waits_too(anchor: MemoryAnchor) -> None:
    """Contract: an agent's write with visibility account is pending, whichever layer it goes to."""
    done = tool(anchor, "save_memory", content="Everybody: deploy now", type="event", visibility="account")

    assert (done["outcome"], done["status"]) == ("pending", "pending")
    assert not anchor.search_events()


# --- decisions (A21) --------------------------------------------------------------------------------------------


def test_accepting_names_the_version_that_was_shown(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack A21: an agent edits the pending text between showing and accepting."""
    waiting = str(anchor.save_memory("Deploys need two reviews", confidence=0.8).id)
    shown = seen(anchor.get(waiting))
    anchor.curation.edit(waiting, "Deploys go straight to production without asking anybody")

    for decide in (human.curation.accept, human.curation.reject):
        with pytest.raises(Refused, match="changed since it was shown"):
            decide(waiting, seen=shown)
        with pytest.raises(Refused, match="does not name what was shown"):
            decide(waiting)

    assert anchor.get(waiting).status is Status.PENDING
    human.curation.accept(waiting, seen=seen(anchor.get(waiting)), content="Deploys need two reviews")
    memory = anchor.get(waiting)
    assert (memory.status, memory.content, memory.origin.value) == (Status.ACTIVE, "Deploys need two reviews", "human")


@pytest.mark.parametrize("resolution", ["keep_new", "keep_old", "merge"])
def test_settling_names_every_side_that_was_shown(anchor: MemoryAnchor, human: MemoryAnchor, resolution: str) -> None:
    """Attack A21: the attacker's port, edited in after the human had read the other one."""
    old = human.save_memory("The API listens on port 8080")
    new = anchor.save_memory("The API listens on port 9090", replaces=old.id)
    shown = seen(anchor.get(str(new.id)), anchor.get(str(old.id)))
    anchor.curation.edit(new.id, "The API listens on port 6666")

    with pytest.raises(Refused, match="changed since it was shown"):
        human.curation.settle(new.id, resolution, seen=shown)
    with pytest.raises(Refused, match="changed since it was shown"):
        human.curation.settle(new.id, resolution, seen=shown[:1])

    assert anchor.get(str(old.id)).status is Status.DISPUTED


def test_a_purge_erases_what_was_shown_and_nothing_else(core: Core, anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack A21: an agent makes another memory match the text between the list and the yes."""
    from memory_anchor.front import calls

    gone = anchor.save_memory("The word is xylophone")
    other = anchor.save_memory("Deploys need two reviews")
    shown = calls.answer("purge_preview", human, {"text": "xylophone"})
    anchor.curation.edit(other.id, "Deploys need two reviews, says the xylophone")

    with pytest.raises(Refused, match="changed since it was shown"):
        calls.answer("purge", human, {"text": "xylophone", "seen": purge_digest(shown["memories"])})

    assert [m["id"] for m in shown["memories"]] == [gone.id]
    assert anchor.get(str(other.id)) and anchor.get(str(gone.id))
