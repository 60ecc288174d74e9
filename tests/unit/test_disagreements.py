"""Contradictions that show only when two memories are recalled together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import (
    Actor,
    Caller,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Outcome,
    RetrievedSnippet,
    Scope,
    Status,
    Visibility,
)
from memory_anchor.domain.ports import DENSE, Entry
from memory_anchor.domain.rights import version_stamp
from memory_anchor.ingest.reconcile import Decision, decide
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.language.tokens import estimate_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.recall.embedding import AWAITED_TOKENS, awaited_text
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ScriptedLanguageModel, ephemeral_core
from memory_anchor.upkeep.disagreements import ANSWERS_WAITING, RecalledTogether
from memory_anchor.upkeep.job_kit import Limits
from memory_anchor.use_cases.memory import MemoryAnchor

QUERY = "which port does the staging server run on"
OLD, NEW = "The staging server runs on port 8080.", "The staging server runs on port 9090."
CHANGED = "The staging server now runs on port 9090."

ALONE: dict[str, Any] = {"ask_model": None, "near": lambda _: (), "on_news": lambda: None}
"""What a process gives besides."""


def stored(core: Core, agent: Actor, clock: ManualClock, *contents: str, **fields: Any) -> list[Memory]:
    """Put facts into the store as an import does: nothing compares them."""
    scope = core.anchor(agent).actor.scope
    made = []
    for content in contents:
        clock.advance(minutes=1)
        memory = Memory(
            f"m{content_hash(content)[:8]}",
            content,
            Layer.VERIFIED_FACT,
            MemoryType.FACT,
            scope,
            recorded_at=clock.now(),
            valid_from=clock.now(),
            content_hash=content_hash(content),
        )
        memory = replace(memory, **fields)
        row = core.services.embedder.documents([embedded_text(memory)])[0]
        entry = Entry(memory, {DENSE: row}, searched_words(memory))
        core.services.store.put(memory.layer.value, [entry])
        core.services.searcher.index.note_written(entry)
        made.append(memory)
    return made


def recalled(core: Core, agent: Actor, clock: ManualClock, *contents: str) -> tuple[MemoryAnchor, list[Memory]]:
    """Store facts and recall them together."""
    memories = stored(core, agent, clock, *contents)
    anchor = core.anchor(agent)
    anchor.search(QUERY)
    return anchor, memories


def reconsolidated(core: Core, **limits: Any) -> Any:
    return core.scheduler.run("reconsolidate", core.clock.now(), Limits(**limits))


def test_two_recalled_facts_that_contradict_become_disputed(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: detected when two recalled memories disagree; shown together, and waiting for review."""
    old, new = stored(core, agent, clock, OLD, NEW)
    anchor = core.anchor(agent)
    assert anchor.search(QUERY).conflicts == ()

    report = reconsolidated(core)

    assert report.counts["found"] == 1
    assert anchor.search(QUERY).conflicts == ((min(old.id, new.id), max(old.id, new.id)),)
    assert {anchor.get(one.id).status for one in (old, new)} == {Status.DISPUTED}
    (item,) = anchor.curation.inbox().items
    assert (item.memory.id, [one.id for one in item.against]) == (new.id, [old.id])


def test_what_was_found_while_recalling_is_settled_like_any_other(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: the newest side is the one that was learned last, whatever version it is."""
    anchor, (old, new) = recalled(core, agent, clock, OLD, NEW)
    reconsolidated(core)

    with pytest.raises(Refused, match="waits for the user"):
        anchor.curation.settle(old.id, "keep_new")
    human = core.anchor(replace(agent, caller=Caller.HUMAN))
    sides = human.curation.sides(old.id)
    human.curation.settle(old.id, "keep_new", seen=[version_stamp(one.id, one.version, one.content) for one in sides])

    assert (anchor.get(old.id).status, anchor.get(new.id).status) == (Status.SUPERSEDED, Status.ACTIVE)
    assert anchor.search(QUERY).conflicts == ()


def test_a_stated_change_supersedes_at_once(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: the newer fact says itself that something changed; the older stays readable."""
    anchor, (old, new) = recalled(core, agent, clock, OLD, CHANGED)

    reconsolidated(core)

    assert (anchor.get(old.id).status, anchor.get(new.id).status) == (Status.SUPERSEDED, Status.ACTIVE)
    assert new.id in anchor.get(old.id).reason


@pytest.mark.parametrize("guarded", [{"origin": Origin.HUMAN}, {"pinned": True}])
def test_a_human_or_pinned_memory_is_only_disputed(
    core: Core, agent: Actor, clock: ManualClock, guarded: dict[str, Any]
) -> None:
    """Rule conflicts: no job displaces what a human wrote or pinned."""
    (old,) = stored(core, agent, clock, OLD, **guarded)
    stored(core, agent, clock, CHANGED)
    anchor = core.anchor(agent)
    anchor.search(QUERY)

    reconsolidated(core)

    assert anchor.get(old.id).status is Status.DISPUTED


def test_memories_of_different_readers_are_never_compared(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule visibility: a private memory cannot make a shared one look disputed to others."""
    stored(core, agent, clock, OLD)
    stored(core, agent, clock, NEW, visibility=Visibility.AGENT)
    core.anchor(agent).search(QUERY)

    assert reconsolidated(core).counts["found"] == 0


def test_facts_that_agree_or_have_nothing_to_do_with_each_other_stay_as_they_are(
    core: Core, agent: Actor, clock: ManualClock
) -> None:
    """Rule conflicts: no related pair is disputed."""
    facts = stored(core, agent, clock, OLD, "The mail server runs on port 25.", "Backups are taken nightly.")
    anchor = core.anchor(agent)
    anchor.search("staging mail server backups port", limit=10)

    assert reconsolidated(core).counts["found"] == 0
    assert {anchor.get(one.id).version for one in facts} == {1}


def test_three_versions_of_one_fact_are_all_disputed(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: what waits for another decision is looked at again."""
    anchor, facts = recalled(core, agent, clock, OLD, NEW, "The staging server runs on port 7070.")

    for _ in range(3):
        reconsolidated(core)

    assert {anchor.get(one.id).status for one in facts} == {Status.DISPUTED}


def test_a_dry_run_shows_what_it_would_do_and_leaves_the_queue(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule jobs: a dry run changes nothing."""
    _, (old, new) = recalled(core, agent, clock, OLD, NEW)

    planned = reconsolidated(core, dry_run=True).planned

    assert {step.id for step in planned} == {old.id, new.id}
    assert reconsolidated(core).counts["found"] == 1


def test_a_pair_is_compared_once_a_version(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule bounded: the same answer again costs nothing until something was written."""
    stored(core, agent, clock, OLD, "The staging server runs on Debian.")
    anchor = core.anchor(agent)
    compared: list[str] = []

    def none(new: Memory, near: Sequence[tuple[Memory, float]]) -> Decision:
        compared.extend(f"{old.id} {new.id}" for old, _ in near)
        return Decision(Outcome.ADDED)

    together = RecalledTogether(
        core.services.store, core.services.searcher.alike, none, ask_model=None, near=lambda _: (), on_news=lambda: None
    )
    answer = anchor.search("staging server", limit=10).snippets

    for _ in range(3):
        together.note(answer)
        together.find()
        together.changed()

    assert len(compared) == 1


def test_a_full_queue_drops_and_never_grows(core: Core) -> None:
    """Rule bounded: a queue that nobody empties holds so many answers and no more."""
    requests: list[None] = []
    services = core.services
    together = RecalledTogether(
        services.store,
        services.searcher.alike,
        decide,
        ask_model=None,
        near=lambda _: (),
        on_news=lambda: requests.append(None),
    )

    for number in range(ANSWERS_WAITING * 3):
        together.note([_shown(f"a{number}"), _shown(f"b{number}")])

    assert len(requests) == ANSWERS_WAITING


def test_a_search_queues_the_job(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: a reconsolidation is queued by the answer, and runs beside what is due."""
    anchor, (old, _) = recalled(core, agent, clock, OLD, NEW)

    (report,) = core.scheduler.run_queued(core.clock.now())

    assert (report.job, report.counts["found"]) == ("reconsolidate", 1)
    assert anchor.get(old.id).status is Status.DISPUTED
    assert core.scheduler.run_queued(core.clock.now()) == []


def test_a_policy_holds_for_recalled_facts_too(tmp_path: Path, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts.policy: keep_old ends the newer one."""
    settings = Settings.model_validate({"conflicts": {"policy": {"fact": "keep_old"}}})
    core = ephemeral_core(tmp_path / "own", clock=clock, settings=settings)
    anchor, (old, new) = recalled(core, agent, clock, OLD, NEW)

    reconsolidated(core)

    assert (anchor.get(old.id).status, anchor.get(new.id).status) == (Status.ACTIVE, Status.SUPERSEDED)


@pytest.fixture
def thinking(tmp_path: Path, clock: ManualClock) -> Iterator[Core]:
    from memory_anchor.process.app import build_core
    from memory_anchor.testing import HashEmbedder, memory_store

    model = ScriptedLanguageModel({"operation": "ADD", "reason": "two servers"})
    made = build_core(
        Settings(), data_dir=tmp_path / "own", clock=clock, store=memory_store(), embedder=HashEmbedder(), model=model
    )
    yield made
    made.close()


def test_a_model_may_say_that_it_is_no_contradiction(thinking: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: rules find, a model may only clear."""
    recalled(thinking, agent, clock, OLD, NEW)

    assert reconsolidated(thinking).counts["found"] == 0


def test_an_anchor_of_another_caller_sees_the_same_contradiction(core: Core, agent: Actor, clock: ManualClock) -> None:
    """Rule conflicts: both versions are shown as disputed until a human has looked."""
    recalled(core, agent, clock, OLD, NEW)
    reconsolidated(core)
    other: MemoryAnchor = core.anchor(
        Actor(Caller.AGENT, Scope(agent="codex"), client="codex", project_dir=agent.project_dir)
    )

    answer = other.search(QUERY)

    assert len(answer.conflicts) == 1
    assert {snippet.status for snippet in answer.snippets} == {Status.DISPUTED}


LONG = (
    "The nightly import reads the customer files of the three subsidiaries from the shared folder, checks each of them "
    "against the schema of the accounting team, converts the amounts, writes what it could not read to a report for "
    "the controllers, and then it keeps the raw files for {} days before another job moves them to Dublin, "
    "where nobody but the auditors may read them."
)


def test_a_long_fact_waits_for_its_first_tokens_and_is_reconciled_later(core: Core, agent: Actor) -> None:
    """Rule save: beyond the first 64 tokens nothing is waited for; the whole row comes behind, then a second look."""
    waited: list[str] = []
    meaning = core.services.searcher.index.query_embedder
    written = meaning.embed_document
    meaning.embed_document = lambda text: waited.append(text) or written(text)
    anchor = core.anchor(agent)

    old, new = anchor.save_memory(LONG.format(30)), anchor.save_memory(LONG.format(90))
    core.services.searcher.index.embed_pending(10)
    reports = core.scheduler.run_queued(core.clock.now())

    assert waited
    assert all(estimate_tokens(text) <= AWAITED_TOKENS for text in waited)
    assert sum(report.counts["found"] for report in reports) == 1
    assert {anchor.get(one.id).status for one in (old, new)} == {Status.DISPUTED}


@pytest.mark.parametrize("text", ["short", LONG, "这是一段很长的说明，" * 60, "x" * 5_000, "", "a b " * 2_000])
def test_the_awaited_text_is_a_bounded_prefix(text: str) -> None:
    """Rule save: a prefix within the bound; the whole where that is short."""
    awaited = awaited_text(text)

    assert text.startswith(awaited)
    assert estimate_tokens(awaited) <= AWAITED_TOKENS
    assert (awaited == text) is (estimate_tokens(text) <= AWAITED_TOKENS)


def _shown(memory_id: str) -> RetrievedSnippet:
    return RetrievedSnippet(memory_id, "text", 1.0, Layer.VERIFIED_FACT, "fact", None)
