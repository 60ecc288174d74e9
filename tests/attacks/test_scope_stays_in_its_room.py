"""What an agent keeps for itself, what has expired, what another conversation said: it stays in its room."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.errors import NotFound
from memory_anchor.domain.model import Actor, Outcome, Scope, Status
from memory_anchor.front import calls
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.settings import ScopeSettings, Settings
from memory_anchor.testing import ManualClock, ephemeral_core, memory_store
from memory_anchor.use_cases.memory import MemoryAnchor

OWN = "My notes say the deploy key lives in the blue vault"


@pytest.fixture
def elsewhere(core: Core, agent: Actor, tmp_path: Path) -> MemoryAnchor:
    """The same agent, user and account in another project."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return core.anchor(replace(agent, project_dir=str(folder)))


def told_at_start(anchor: MemoryAnchor) -> str:
    return Hooks().answer(anchor, "SessionStart", {"source": "startup"})


# --- agent visibility (promise 6) -------------------------------------------------------------------------------


def test_what_an_agent_keeps_for_itself_stays_in_its_project(anchor: MemoryAnchor, elsewhere: MemoryAnchor) -> None:
    """Promise 6: it was shown in another project by search, build_context and SessionStart as "this project's"."""
    kept = str(anchor.save_memory(OWN, visibility="agent").id)
    event = str(anchor.log_event("I moved the deploy key to the blue vault", visibility="agent").id)

    assert OWN in told_at_start(anchor)
    assert not elsewhere.search("where is the deploy key").snippets
    assert not elsewhere.search_events()
    assert "blue vault" not in elsewhere.build_context("where is the deploy key").text + told_at_start(elsewhere)
    for name in (kept, event):
        with pytest.raises(NotFound):
            elsewhere.get(name)


def test_the_user_may_let_an_agent_read_across_projects(tmp_path: Path, agent: Actor) -> None:
    """Promise 6: `scope.agent_across_projects`, by the user's word, and back again; another agent reads nothing."""
    store, clock = memory_store(), ManualClock()
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    for across in (False, True, False):
        settings = Settings(scope=ScopeSettings(agent_across_projects=across))
        core = ephemeral_core(tmp_path / "data", settings=settings, store=store, clock=clock)
        here, there = (core.anchor(replace(agent, project_dir=str(folder))) for folder in (first, second))
        here.save_memory(OWN, visibility="agent")
        assert [one.text for one in there.search("deploy key vault").snippets] == ([OWN] if across else [])
        stranger = core.anchor(replace(there.actor, scope=replace(agent.scope, agent="codex"), project_dir=str(second)))
        assert not stranger.search("deploy key vault").snippets
        stored = store.find("verified_fact", _all(), limit=100)
        assert [one.scope.across for one in stored] == [()]
        assert "across" not in json.dumps(list(core.audit.records()))


def _all() -> Any:
    from memory_anchor.domain.where import Where

    return Where()


def test_keys_of_an_older_store_are_written_anew_once(tmp_path: Path, agent: Actor) -> None:
    """Promise 6, upgrade: a version with the old key is unreadable elsewhere and found where it belongs."""
    store, clock, folder = memory_store(), ManualClock(), tmp_path / "upgraded"
    folder.mkdir()
    core = ephemeral_core(tmp_path / "data", store=store, clock=clock)
    kept = core.anchor(replace(agent, project_dir=str(folder))).save_memory(OWN, visibility="agent").id
    old = f"g|local|me|{agent.scope.agent}"
    from memory_anchor.admin.checks import MARKER, rewrite_audience_keys

    put: list[str] = []

    class OldStore:
        """A store that still tells of the old keys."""

        def facet(self, collection: str, field: str, where: Any, *, limit: int) -> dict[str, int]:
            return {old: 1} if collection == "verified_fact" else {}

        def scan(self, collection: str, where: Any, **more: Any) -> Any:
            assert old in where.all_of[0].values
            return store.scan(collection, _all(), **more)

        def get(self, collection: str, ids: list[str], *, with_vectors: bool) -> Any:
            return store.get(collection, ids, with_vectors=with_vectors)

        def put(self, collection: str, entries: Any) -> None:
            put.extend(entry.memory.id for entry in entries)

    (tmp_path / "data" / MARKER).unlink()
    assert rewrite_audience_keys(OldStore(), tmp_path / "data") == 1  # type: ignore[arg-type]
    assert put == [kept]
    assert rewrite_audience_keys(OldStore(), tmp_path / "data") == 0  # type: ignore[arg-type]
    core.close()


# --- expiry (promise 3) -----------------------------------------------------------------------------------------


def test_an_expired_event_is_told_nowhere_before_the_job_comes(
    core: Core, anchor: MemoryAnchor, clock: ManualClock
) -> None:
    """Promise 3: search_events, build_context and SessionStart told it until the hourly job; now no list does."""
    gone = str(anchor.log_event("CI flaked on test_edge", ttl_days=1).id)
    kept = str(anchor.log_event("CI is green again").id)
    assert {one.id for one in anchor.search_events()} == {gone, kept}
    clock.advance(days=1)  # the very instant at which it ends

    assert [one.id for one in anchor.search_events()] == [kept]
    assert [one.id for one in anchor.search_events(query="CI flaked")] == [kept]
    assert [one.id for one in anchor.curation.listing()] == [kept]
    assert "flaked" not in anchor.build_context("CI").text + told_at_start(anchor)
    assert calls.answer("stats", anchor, {})["by_layer"]["event_log"] == 1
    assert anchor.get(gone).status is Status.ACTIVE  # its id still reads


# --- mutation rows on scope -------------------------------------------------------------------------------------


def test_an_agents_own_change_leaves_the_projects_fact_alone(anchor: MemoryAnchor) -> None:
    """Mutation row: neighbours of other audiences displaced."""
    shared = anchor.save_memory("The API listens on port 8080")

    own = anchor.save_memory("The API now listens on port 9090", visibility="agent")

    assert own.outcome is Outcome.ADDED and own.target_id is None and not own.similar
    assert anchor.get(str(shared.id)).status is Status.ACTIVE


def test_the_same_words_for_other_readers_are_another_memory(core: Core, anchor: MemoryAnchor, agent: Actor) -> None:
    """Mutation row: same content ignores the audience; the other's id would be told."""
    private = core.anchor(replace(agent, scope=replace(agent.scope, agent="codex")))
    first = private.save_memory(OWN, visibility="agent")
    second = anchor.save_memory(OWN)

    assert (first.outcome, second.outcome) == (Outcome.ADDED, Outcome.ADDED)
    assert first.id != second.id and str(first.id) not in json.dumps(str(second))


def test_one_conversation_id_in_two_projects_is_two_conversations(
    core: Core, anchor: MemoryAnchor, elsewhere: MemoryAnchor
) -> None:
    """Mutation row: conversation key without the project, in events, in mind and in what a hook has told."""
    first = str(anchor.log_event("The blue vault was opened").id)
    second = str(elsewhere.log_event("Lunch was late").id)
    anchor.set_active("plan", "the blue vault")

    found = {one.id: one for one in core.services.store.find("event_log", _all(), limit=100)}
    assert (found[first].conversation_seq, found[second].conversation_seq) == (1, 1)
    assert found[second].context == ""
    assert elsewhere.active() == {}
    core.services.events.clear_cache()
    third = str(elsewhere.log_event("Dinner was early").id)
    assert {one.id: one for one in core.services.store.find("event_log", _all(), limit=100)}[
        third
    ].conversation_seq == 2


def test_what_went_before_is_no_context_for_other_readers(core: Core, anchor: MemoryAnchor) -> None:
    """Attack: an agent's own event is searched, and exported, as the context of the project's next event."""
    anchor.log_event("The deploy key lies in the blue vault", visibility="agent")
    shared = str(anchor.log_event("Lunch was late").id)
    core.services.events.clear_cache()
    anchor.log_event("The red vault is empty", visibility="agent")
    after = str(anchor.log_event("Dinner was early").id)

    found = {one.id: one.context for one in core.services.store.find("event_log", _all(), limit=100)}
    assert (found[shared], found[after]) == ("", "")


# --- reports ----------------------------------------------------------------------------------------------------


def test_a_report_is_for_its_project_and_names_no_private_memory(
    core: Core, anchor: MemoryAnchor, elsewhere: MemoryAnchor, agent: Actor
) -> None:
    """Attack A20: a context report was readable from another account and project."""
    anchor.save_memory(OWN, visibility="agent", files=["vaults/blue.py"])
    made = anchor.build_context("where is the deploy key").report_id
    other = core.anchor(replace(agent, scope=Scope(account="acme")))

    for reader in (elsewhere, other):
        assert calls.answer("context_reports", reader, {})["reports"] == []
        with pytest.raises(NotFound, match="no context report"):
            calls.answer("context_report", reader, {"id": made})
    neighbour = core.anchor(replace(agent, scope=replace(agent.scope, agent="codex")))
    mine, theirs = (json.dumps(calls.answer("context_report", who, {"id": made})) for who in (anchor, neighbour))
    assert "blue.py" in mine and "blue.py" not in theirs
