"""Rights where two arguments meet: what is replaced and who reads it, what waits and what it contradicts, what was
archived and by whom. Each was a way around a rule that held by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.payload import to_payload
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import (
    Actor,
    Caller,
    Citation,
    Layer,
    Memory,
    MemoryType,
    Outcome,
    Scope,
    Status,
    Visibility,
    audiences,
)
from memory_anchor.domain.rights import have_same_readers, is_read_by_all_of, version_stamp
from memory_anchor.domain.versions import Draft
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.front import calls, mcp_answers
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

PORT, OTHER = "The API listens on port 8080", "The API listens on port 9090"
CHANGED = "The API now listens on port 9090, no longer on port 8080"
Import = Callable[..., dict[str, Any]]


@pytest.fixture
def human(core: Core, agent: Actor) -> MemoryAnchor:
    return core.anchor(replace(agent, caller=Caller.HUMAN))


@pytest.fixture
def codex(core: Core, agent: Actor) -> MemoryAnchor:
    """Another agent of the same project."""
    return core.anchor(replace(agent, client="codex", scope=replace(agent.scope, agent="codex", conversation="c-2")))


@pytest.fixture
def bring(core: Core, agent: Actor) -> Import:
    """Import lines as an agent's command does."""

    def brought(*memories: Memory, **claims: Any) -> dict[str, Any]:
        lines = [[number, json.dumps({**to_payload(m), **claims})] for number, m in enumerate(memories, 1)]
        caller = Preamble(client="claude-code", project_dir=agent.project_dir)
        return calls.run(core, caller, "import_lines", {"lines": lines})

    return brought


def tool(anchor: MemoryAnchor, name: str, **given: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(mcp_answers.run(anchor, name, given))
    return answer


def seen(*memories: Memory) -> list[str]:
    return [version_stamp(one.id, one.version, one.content) for one in memories]


def a_night(core: Core, clock: ManualClock) -> None:
    clock.advance(hours=24)
    for job in ("finish_supersedes", "reconsolidate", "mark_to_verify"):
        core.scheduler.run(job, clock.now())


def accepted(human: MemoryAnchor, name: str) -> None:
    """Accept what waits, as the review shows it."""
    human.curation.accept(name, seen=seen(*human.curation.sides(name)))


# --- who reads it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", list(Visibility))
@pytest.mark.parametrize("narrow", list(Visibility))
def test_readers_are_compared_by_one_function(anchor: MemoryAnchor, wide: Visibility, narrow: Visibility) -> None:
    """Rule scope: it says yes where every holder of the one key holds the other."""
    saved = anchor.get(anchor.save_memory(PORT).id)
    scopes = [
        Scope(account, project, user, agent, conversation)
        for account in ("a", "b")
        for project in ("p", "q")
        for user in ("u", "v")
        for agent in ("x", "y")
        for conversation in ("c", "d")
    ]
    mine = replace(saved, scope=scopes[0], visibility=wide)
    for scope in scopes:
        other = replace(saved, scope=scope, visibility=narrow)
        readers = [reader for reader in scopes if other.audience in audiences(reader)]
        reach = all(mine.audience in audiences(reader) for reader in readers)
        assert is_read_by_all_of(mine, other) is reach, (wide, narrow, scope)
        assert have_same_readers(mine, other) is (mine.audience == other.audience)


@pytest.mark.parametrize("visibility", ["agent", "conversation", "user"])
@pytest.mark.parametrize("whose", ["an agent's", "accepted for the account"])
def test_a_private_memory_takes_no_shared_one_from_its_readers(
    anchor: MemoryAnchor, human: MemoryAnchor, codex: MemoryAnchor, visibility: str, whose: str
) -> None:
    """Attack: `save_memory(replaces=ID, visibility="agent")` ends a fact for everybody but its writer."""
    shared = anchor.save_memory(PORT, visibility="project" if whose == "an agent's" else "account").id
    if whose != "an agent's":
        accepted(human, shared)

    with pytest.raises(Refused, match="save it with visibility"):
        tool(anchor, "save_memory", content=CHANGED, replaces=shared, visibility=visibility)

    assert codex.get(shared).status is Status.ACTIVE
    assert [one.id for one in codex.search("Which port does the API listen on").snippets] == [shared]
    assert not [one for one in anchor.search("port of the API").snippets if one.text == CHANGED]


def test_what_names_no_visibility_is_for_the_readers_of_what_it_replaces(
    anchor: MemoryAnchor, core: Core, agent: Actor
) -> None:
    """Rule scope: an update of a note of this agent stays one; it does not become the project's."""
    mine = anchor.save_memory(PORT, visibility="agent").id

    done = anchor.save_memory(CHANGED, replaces=mine)

    assert (done.outcome, anchor.get(done.id).visibility) == (Outcome.SUPERSEDED, Visibility.AGENT)


def test_a_wider_memory_ends_a_narrower_one_and_shows_nobody_its_text(
    anchor: MemoryAnchor, codex: MemoryAnchor
) -> None:
    """Rule scope: every reader of the old one reads the new; the old text is shown to none of the others."""
    mine = anchor.save_memory(PORT, visibility="agent").id

    done = anchor.save_memory(CHANGED, replaces=mine, visibility="project")

    assert (done.outcome, anchor.get(mine).status) == (Outcome.SUPERSEDED, Status.SUPERSEDED)
    (shown,) = codex.search("Which port does the API listen on").snippets
    assert (shown.id, shown.before) == (done.id, "")


def test_a_private_echo_disputes_no_shared_memory(core: Core, anchor: MemoryAnchor, agent: Actor) -> None:
    """Attack: a private text was replaced by a shared one; said again in private, it marked the shared one disputed."""
    mine = anchor.save_memory(PORT, visibility="agent").id
    shared = anchor.save_memory(CHANGED, replaces=mine, visibility="project").id
    later = core.anchor(replace(agent, scope=replace(agent.scope, conversation="another")))

    later.save_memory(PORT, visibility="agent")

    assert anchor.get(shared).status is Status.ACTIVE


def test_the_story_of_a_wider_memory_begins_where_its_reader_reads_it(
    anchor: MemoryAnchor, codex: MemoryAnchor
) -> None:
    """Attack: the private text that a shared memory replaced stands in the shared one's story, or among its links."""
    mine = anchor.save_memory(PORT, visibility="agent").id
    shared = anchor.save_memory(CHANGED, replaces=mine, visibility="project").id

    assert [one.content for one in anchor.steps(shared, story=True)[1]][-1] == CHANGED
    assert [step.content for step in codex.steps(shared, story=True)[1]] == [CHANGED]
    assert PORT in str(anchor.steps(shared, story=True)) and PORT in str(anchor.links(anchor.get(shared)))
    assert codex.links(codex.get(shared)) == ()


def test_what_is_let_in_for_the_account_takes_over_no_projects_dispute(
    anchor: MemoryAnchor, human: MemoryAnchor, clock: ManualClock
) -> None:
    """Attack: a correction for the account, accepted, names what only its project reads as what it contradicts."""
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory("The API listens on port 5050", replaces=old, visibility="account").id
    clock.advance(hours=1)
    against = anchor.save_memory(OTHER).id
    assert anchor.get(against).disputes == (old,)

    accepted(human, waiting)

    assert (human.get(waiting).status, human.get(waiting).disputes) == (Status.ACTIVE, ())
    assert human.get(against).disputes == (old,)


def test_no_job_ends_a_shared_memory_for_a_private_one(core: Core, anchor: MemoryAnchor, bring: Import) -> None:
    """Attack: an imported line for one agent names a shared memory as its predecessor."""
    shared = anchor.get(anchor.save_memory(PORT).id)
    mine = anchor.get(anchor.save_memory("Bees sleep at night", visibility="agent").id)
    line = replace(mine, id="0FORGED000001", previous_version_id=shared.version_id)

    assert bring(line)["added"] == 1
    core.scheduler.run("finish_supersedes", core.clock.now())

    assert anchor.get(shared.id).status is Status.ACTIVE


# --- what a human let in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["accepted", "kept in a dispute", "said again"])
def test_what_a_human_let_in_is_a_humans(
    core: Core, anchor: MemoryAnchor, human: MemoryAnchor, clock: ManualClock, how: str
) -> None:
    """Attack: an agent writes a text, a human lets it in, the agent edits it."""
    if how == "accepted":
        kept = anchor.save_memory(PORT, confidence=0.8).id
        accepted(human, kept)
    elif how == "said again":
        kept = anchor.save_memory(PORT).id
        human.save_memory(PORT)
    else:
        anchor.save_memory(PORT)
        kept = anchor.save_memory(OTHER).id
        human.curation.settle(kept, "keep_new", seen=seen(*human.curation.sides(kept)))
    a_night(core, clock)
    before = anchor.get(kept)

    for tried in (
        lambda: anchor.curation.edit(kept, "The API asks nobody"),
        lambda: anchor.curation.judge(kept, "hypothesis"),
        lambda: anchor.forget(kept),
        lambda: anchor.curation.pin(kept),
    ):
        with pytest.raises(Refused, match="only a human"):
            tried()
    assert anchor.save_memory("The API asks nobody for a port", replaces=kept).outcome is Outcome.NEEDS_REVIEW
    assert anchor.get(kept).content == before.content and anchor.get(kept).status is Status.DISPUTED


def test_what_an_earlier_version_of_the_program_accepted_is_a_humans_too(
    core: Core, anchor: MemoryAnchor, human: MemoryAnchor
) -> None:
    """Rule rights: such a version kept the origin of who had said it."""
    known = anchor.save_memory(PORT, confidence=0.8).id
    accepted(human, known)
    stored = core.services.records.read(known, None)
    older = replace(stored, origin=anchor.show(f"{known}@1").origin)
    core.services.store.put(older.layer.value, [core.services.searcher.index.entry_of(older, embed=True)])

    with pytest.raises(Refused, match="only a human"):
        anchor.curation.edit(known, "The API asks nobody")


@pytest.mark.parametrize("change", ["edit", "judge", "pin", "restore"])
def test_what_a_human_archived_stays_as_the_human_left_it(
    anchor: MemoryAnchor, human: MemoryAnchor, change: str
) -> None:
    """Attack: a version that an agent writes over it hides who archived it; then it is restored."""
    known = anchor.save_memory(PORT).id
    human.forget(known)

    with pytest.raises(Refused, match="archived by a human"):
        {
            "edit": lambda: anchor.curation.edit(known, OTHER),
            "judge": lambda: anchor.curation.judge(known, "hypothesis"),
            "pin": lambda: anchor.curation.pin(known),
            "restore": lambda: anchor.curation.restore(known),
        }[change]()
    assert anchor.get(known).version == 2


def test_an_agent_promotes_no_event_that_a_human_archived(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: its text comes back as a fact."""
    event = anchor.log_event("Deployed without asking anybody").id
    human.forget(event)

    with pytest.raises(Refused, match="archived by a human"):
        tool(anchor, "promote_to_fact", event_id=event)
    assert human.promote(event).outcome is Outcome.ADDED


# --- what waits and what it contradicts -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["accept", "said again by a human"])
@pytest.mark.parametrize("named", [True, False], ids=["replaces", "a contradiction"])
def test_accepting_never_leaves_two_active_facts_that_contradict(
    anchor: MemoryAnchor, human: MemoryAnchor, named: bool, how: str
) -> None:
    """Rule conflicts: what it was to replace is superseded; another contradiction is disputed, and in the inbox."""
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory(OTHER, confidence=0.8, replaces=old if named else None)
    assert (waiting.outcome, waiting.target_id) == (Outcome.PENDING, old)
    (item,) = human.curation.inbox().items
    assert [one.id for one in (item.memory, *item.against)] == [waiting.id, old]

    done = (
        human.curation.accept(waiting.id, seen=seen(*human.curation.sides(waiting.id)))
        if how == "accept"
        else human.save_memory(OTHER)
    )

    status = {name: human.get(name).status for name in (old, waiting.id)}
    if named:
        assert status == {old: Status.SUPERSEDED, waiting.id: Status.ACTIVE}
        assert human.steps(waiting.id, story=True)[1][0].version_id == f"{old}@1"
    else:
        assert set(status.values()) == {Status.DISPUTED} and done.status is Status.DISPUTED
        assert {human.get(waiting.id).disputes, human.get(old).disputes} == {(old,), (waiting.id,)}
        assert [(one.memory.id, one.against[0].id) for one in human.curation.inbox().items] == [(waiting.id, old)]


def test_what_was_saved_meanwhile_counts_too(anchor: MemoryAnchor, human: MemoryAnchor, clock: ManualClock) -> None:
    """Rule conflicts: a fact that came after the one that waits is compared when it is let in."""
    waiting = anchor.save_memory(OTHER, confidence=0.8).id
    clock.advance(hours=1)
    later = anchor.save_memory(PORT)
    assert later.outcome is Outcome.ADDED and human.get(waiting).status is Status.PENDING

    accepted(human, waiting)

    assert {human.get(name).status for name in (waiting, later.id)} == {Status.DISPUTED}


def test_an_accepted_text_ends_no_later_one(anchor: MemoryAnchor, human: MemoryAnchor, clock: ManualClock) -> None:
    """Rule conflicts: "now" in a text that waited a day is not now; both stand, and a human decides."""
    waiting = anchor.save_memory(CHANGED, confidence=0.8).id
    clock.advance(hours=24)
    later = anchor.save_memory(PORT).id

    accepted(human, waiting)

    assert {human.get(name).status for name in (waiting, later)} == {Status.DISPUTED}


def test_accepting_goes_back_whole(core: Core, anchor: MemoryAnchor, human: MemoryAnchor, clock: ManualClock) -> None:
    """Rule undo: a human takes the acceptance back, and the old fact is in force again."""
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory(OTHER, confidence=0.8, replaces=old).id
    clock.advance(minutes=1)
    accepted(human, waiting)
    clock.advance(minutes=1)

    human.maintenance.undo(what="last", apply=True)

    assert (human.get(old).status, human.get(waiting).status) == (Status.ACTIVE, Status.PENDING)


def test_a_contradiction_lets_nothing_in_that_waits(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Attack: a doubtful fact becomes disputed by a second one, and active once that is forgotten."""
    doubtful = anchor.save_memory(PORT, confidence=0.75).id
    sure = anchor.save_memory(OTHER).id
    anchor.forget(sure)
    a_night(core, clock)

    assert anchor.get(doubtful).status is Status.PENDING


def test_a_decision_names_what_was_shown_beside_it(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: the fact that a waiting one would replace is edited between showing and accepting."""
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory(OTHER, confidence=0.8, replaces=old).id
    shown = seen(*human.curation.sides(waiting))
    anchor.curation.edit(old, "The API listens on a socket")

    with pytest.raises(Refused, match="changed since it was shown"):
        human.curation.accept(waiting, seen=shown)


def test_what_waits_hides_no_contradiction_of_what_is_in_force(anchor: MemoryAnchor) -> None:
    """Attack: a doubtful fact that says the same is nearer, and the active one is not looked at."""
    first = anchor.save_memory(PORT).id
    anchor.save_memory(OTHER.replace("9090", "7070"), confidence=0.75)

    third = anchor.save_memory(OTHER)

    assert {anchor.get(name).status for name in (first, third.id)} == {Status.DISPUTED}


def test_what_waits_hides_no_contradiction_however_near_it_is(anchor: MemoryAnchor) -> None:
    """Attack: doubtful facts are nearer than the active one that is contradicted."""
    first = anchor.save_memory(f"{PORT}, all day").id
    for port in (7070, 7071):
        anchor.save_memory(f"The API listens on port {port}", confidence=0.75)

    third = anchor.save_memory(OTHER)

    assert {anchor.get(name).status for name in (first, third.id)} == {Status.DISPUTED}


def test_what_it_was_known_to_contradict_stands_against_it_in_other_words(
    anchor: MemoryAnchor, human: MemoryAnchor
) -> None:
    """Rule conflicts: an edit of the other side meanwhile, in words that no rule compares, settles nothing."""
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory(OTHER, confidence=0.8).id
    anchor.curation.edit(old, "8080 it is, says the lighthouse")

    accepted(human, waiting)

    assert {human.get(name).status for name in (old, waiting)} == {Status.DISPUTED}


@pytest.mark.parametrize("resolution", ["keep_new", "keep_both", "merge"])
def test_settling_lets_nothing_in_that_waits(tmp_path: Path, agent: Actor, resolution: str) -> None:
    """Attack: settings leave contradictions of facts to agents; one settles its own doubtful fact into force."""
    settings = Settings.model_validate({"conflicts": {"policy": {"fact": "keep_new"}}})
    core = ephemeral_core(tmp_path / "own", settings=settings)
    anchor = core.anchor(agent)
    old = anchor.save_memory(PORT).id
    waiting = anchor.save_memory(OTHER, confidence=0.75).id
    assert anchor.get(waiting).disputes == (old,)

    for name in (waiting, old):
        with pytest.raises(BadInput, match="allowed is a memory of an open contradiction"):
            anchor.curation.settle(name, resolution)

    assert (anchor.get(old).status, anchor.get(waiting).status) == (Status.ACTIVE, Status.PENDING)
    core.close()


def test_a_change_ends_no_humans_fact_beside_an_agents(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: of two facts that a rule says have changed, one is a human's; it stood on, contradicted in silence."""
    mine = anchor.save_memory("Function names start with 'do_'.").id
    theirs = human.save_memory("Function names start with 'fn_'.").id

    done = anchor.save_memory("From now on function names start with 'go_'.")

    assert done.outcome is Outcome.NEEDS_REVIEW
    assert anchor.get(theirs).status is Status.DISPUTED
    assert anchor.get(mine).status is not Status.ACTIVE


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_restored_side_of_a_dispute_is_disputed_again(
    core: Core, anchor: MemoryAnchor, clock: ManualClock, forgotten: int
) -> None:
    """Rule conflicts: forget one side, a night, restore it: both wait in the inbox again."""
    sides = [str(anchor.save_memory(text).id) for text in (PORT, OTHER)]
    anchor.forget(sides[forgotten])
    a_night(core, clock)
    assert anchor.get(sides[1 - forgotten]).status is Status.ACTIVE

    anchor.curation.restore(sides[forgotten])
    a_night(core, clock)

    assert {anchor.get(name).status for name in sides} == {Status.DISPUTED}
    (item,) = anchor.curation.inbox().items
    assert {item.memory.id, item.against[0].id} == set(sides)


def test_a_restored_fact_meets_what_was_said_since(anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule conflicts: the same where they never met before."""
    old = anchor.save_memory(PORT).id
    anchor.forget(old)
    clock.advance(hours=1)
    new = anchor.save_memory(OTHER)
    assert new.outcome is Outcome.ADDED

    assert anchor.curation.restore(old).outcome is Outcome.NEEDS_REVIEW
    assert {anchor.get(name).status for name in (old, new.id)} == {Status.DISPUTED}


@pytest.mark.parametrize("resolution", ["keep_new", "keep_old", "merge"])
@pytest.mark.parametrize("kind", ["fact", "bugfix", "workflow"])
def test_no_agent_settles_what_waits_for_review(
    core: Core, anchor: MemoryAnchor, codex: MemoryAnchor, clock: ManualClock, kind: str, resolution: str
) -> None:
    """Contract: the agent that was told "both stand until review" settles it no more than any other, nor a night."""
    anchor.save_memory(PORT, type=kind)
    new = anchor.save_memory(OTHER, type=kind)
    assert new.outcome is Outcome.NEEDS_REVIEW and "review" in new.reason

    for caller in (anchor, codex):
        with pytest.raises(Refused, match="waits for the user"):
            tool(caller, "resolve_conflict", id=new.id, resolution=resolution)
    a_night(core, clock)
    assert anchor.curation.inbox().items[0].needs_human and anchor.get(new.id).status is Status.DISPUTED


# --- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.2, 0.8, 0.95])
@pytest.mark.parametrize("origin", ["agent", "document", "extracted"])
@pytest.mark.parametrize("status", ["archived", "disputed", "pending"])
def test_no_line_of_an_agents_import_comes_into_force_by_restore_or_a_night(
    core: Core, anchor: MemoryAnchor, clock: ManualClock, bring: Import, status: str, origin: str, confidence: float
) -> None:
    """Attack: the gate is asked for active lines alone; another status is changed later."""
    known = anchor.get(anchor.save_memory(PORT).id)
    claims = {"status": status, "state": status, "origin": origin, "confidence": confidence}
    if status == "disputed":
        claims["disputes"] = ["0NOBODY000001"]

    bring(replace(known, id="0FORGED000001", content=OTHER, content_hash=""), **claims, content_hash=hash_of(OTHER))
    stored = [one for one in known_to(core) if one.id == "0FORGED000001"]
    a_night(core, clock)
    for memory in stored:
        if memory.status is Status.ARCHIVED:
            anchor.curation.restore(memory.id)
    a_night(core, clock)

    assert not [one for one in known_to(core) if one.id == "0FORGED000001" and one.status is Status.ACTIVE]
    assert anchor.get(known.id).status is Status.ACTIVE


def hash_of(text: str) -> str:
    from memory_anchor.base.hashing import content_hash

    return content_hash(text)


def known_to(core: Core) -> list[Memory]:
    from memory_anchor.domain.where import Where

    entries = core.services.store.scan("verified_fact", Where(), page=500)[0]
    return [entry.memory for entry in entries if entry.memory.is_current]


def test_no_line_revives_what_was_superseded(anchor: MemoryAnchor, bring: Import) -> None:
    """Attack: a next version of a superseded fact, active, beside the one that superseded it."""
    old = anchor.save_memory(PORT).id
    anchor.save_memory(CHANGED, replaces=old)
    ended = anchor.get(old)
    following = replace(
        ended,
        version=ended.version + 1,
        previous_version_id=ended.version_id,
        status=Status.ACTIVE,
        recorded_at=ended.recorded_at + timedelta(minutes=1),
        valid_to=None,
    )

    done = bring(following)

    assert done["added"] == 0 and "superseded" in done["errors"][0]["message"]
    assert anchor.get(old).status is Status.SUPERSEDED


# --- promotion --------------------------------------------------------------------------------------------------------


def test_a_fact_that_cites_an_event_is_not_promoted_from_it(
    core: Core, anchor: MemoryAnchor, codex: MemoryAnchor, clock: ManualClock
) -> None:
    """Attack: the hourly job marks a cited event as promoted, and its own promotion is refused for ever."""
    event = codex.log_event("The release took two hours").id
    citing = core.services.facts.save(
        anchor.actor, replace_draft("Releases are slow", citations=(Citation("event", event),))
    )

    a_night(core, clock)

    assert codex.get(event).promoted_to is None
    done = codex.promote(event)
    assert done.outcome is Outcome.ADDED and codex.get(event).promoted_to == done.id != citing.id


def replace_draft(content: str, **more: Any) -> Any:
    return Draft(content, Layer.VERIFIED_FACT, MemoryType.FACT, **more)


@pytest.mark.parametrize("kept", [True, False], ids=["a crash lost the mark", "plain"])
def test_a_lost_mark_is_made_by_the_job(core: Core, anchor: MemoryAnchor, clock: ManualClock, kept: bool) -> None:
    """Rule promotion: what a crash left half-done is finished for the fact that was made from the event."""
    event = anchor.log_event("The release took two hours").id
    done = anchor.promote(event)
    if kept:
        newest = core.services.records.read(event, None)
        unmarked = replace(newest, promoted_to=None)
        core.services.store.put("event_log", [core.services.searcher.index.entry_of(unmarked, embed=False)])
    a_night(core, clock)

    assert anchor.get(event).promoted_to == done.id


@pytest.mark.parametrize("what", ["active", "pending", "archived", "disputed", "superseded", "edited"])
def test_promote_again_answers_what_is_true(anchor: MemoryAnchor, human: MemoryAnchor, what: str) -> None:
    """Rule promotion: the second answer is the fact as it is now."""
    event = anchor.log_event(PORT).id
    fact = anchor.promote(event, confidence=0.8 if what == "pending" else 0.95).id
    if what == "archived":
        anchor.forget(fact)
    elif what == "disputed":
        anchor.save_memory(OTHER)
    elif what == "superseded":
        anchor.save_memory(CHANGED, replaces=fact)
    elif what == "edited":
        anchor.curation.edit(fact, OTHER)

    again = tool(anchor, "promote_to_fact", event_id=event, content="Ports are said in the README")

    wanted = "active" if what == "edited" else what
    assert (again["outcome"], again["id"], again["status"]) == ("skipped", fact, wanted)
    assert wanted == "active" or wanted in again["reason"]


# --- knowledge --------------------------------------------------------------------------------------------------------


def test_an_agent_erases_no_knowledge_that_a_human_pushed(anchor: MemoryAnchor, human: MemoryAnchor) -> None:
    """Attack: pushed documents are untrusted, so their source was anybody's to remove, or to overwrite by name."""
    theirs = knowledge_of(human).push("rules.md", "# Rules\n\nDeploys need two reviews.")
    mine = knowledge_of(anchor).push("rules.md", "# Rules\n\nDeploys need nobody.")
    for caller in (anchor, human):
        knowledge_of(caller).sync()

    with pytest.raises(Refused, match="for humans"):
        knowledge_of(anchor).remove(theirs.id)
    assert theirs.id != mine.id
    assert "two reviews" in knowledge_of(anchor).search("How many reviews do deploys need")[0].text
    assert knowledge_of(anchor).remove(mine.id)["clean"]
    assert knowledge_of(human).remove(theirs.id)["clean"]


@pytest.mark.parametrize("trust", ["trusted", "untrusted"])
def test_an_agent_removes_no_source_that_a_human_added(
    anchor: MemoryAnchor, human: MemoryAnchor, project: Any, trust: str
) -> None:
    """Attack: an agent adds it once more, as untrusted, and removes it then."""
    (project / "docs").mkdir()
    (project / "docs" / "rules.md").write_text("# Rules\n\nDeploys need two reviews.")
    theirs = knowledge_of(human).add("docs", kind="files", trust=trust)
    again = knowledge_of(anchor).add("docs", kind="files", trust="untrusted")
    assert (again.id, again.trust) == (theirs.id, theirs.trust)

    with pytest.raises(Refused, match="for humans"):
        knowledge_of(anchor).remove(theirs.id)
