"""What jobs and limits promise, each through the public door: the changes that no test noticed in November."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from memory_anchor.domain.model import Actor, Caller, Outcome, Scope, Status
from memory_anchor.settings import BudgetSettings, CollectionSettings, LifecycleSettings, Settings
from memory_anchor.testing import ManualClock, ephemeral_core
from memory_anchor.upkeep.job_kit import Limits

KEEPER = Actor(Caller.HUMAN, Scope(agent="claude-code", conversation="conversation-1"))


def test_a_job_that_revises_a_memory_keeps_the_answers_given_for_it(core, anchor, clock):
    """Attack M1: a request resent after a job archived what it wrote gets its first answer, no second event."""
    first = anchor.log_event("The crane was greased", ttl_days=1, request_id="r-1")
    clock.advance(days=2)
    assert core.scheduler.run("expire_events", clock.now()).changed == 1

    again = anchor.log_event("The crane was greased", ttl_days=1, request_id="r-1")

    assert again == first
    assert anchor.get(first.id).status is Status.ARCHIVED
    assert core.stats()["layers"]["event_log"] in (0, 1)
    assert len(anchor.search_events()) == 0


def test_what_is_in_mind_lives_for_an_hour(core, anchor, clock):
    """Attack M2: L1's default time to live is the strategy's hour."""
    expires = anchor.set_active("task", "grease the crane")

    assert expires == clock.now() + timedelta(hours=1)
    clock.advance(seconds=3_599)
    assert anchor.active("task")
    clock.advance(seconds=2)
    assert not anchor.active("task")


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.PENDING, Status.DISPUTED])
def test_an_event_that_waits_expires_like_any_other(core, anchor, clock, status):
    """Attack M3: a time to live ends whatever the event's state."""
    event = anchor.log_event("The crane was greased", ttl_days=1)
    (stored,) = core.services.store.get("event_log", [anchor.get(event.id).point_id], with_vectors=True)
    core.services.store.put("event_log", [replace(stored, memory=replace(stored.memory, status=status))])
    clock.advance(days=2)

    core.scheduler.run("expire_events", clock.now())

    assert anchor.get(event.id).status is Status.ARCHIVED


def test_the_users_default_time_to_live_holds_where_none_is_said(tmp_path):
    """Attack M4: `lifecycle.default_ttl_days`; what says its own keeps it; out of the box it is for ever."""
    clock = ManualClock()
    settings = Settings(lifecycle=LifecycleSettings(default_ttl_days=7))
    with closing(ephemeral_core(tmp_path / "x", settings=settings, clock=clock)) as core:
        anchor = core.anchor(KEEPER)
        said, unsaid = anchor.log_event("Said", ttl_days=2), anchor.log_event("Unsaid")
        assert anchor.get(said.id).expires_at == clock.now() + timedelta(days=2)
        assert anchor.get(unsaid.id).expires_at == clock.now() + timedelta(days=7)
    assert LifecycleSettings().default_ttl_days == 0


def test_budgets_are_the_strategys_numbers():
    """Attack M5: tokens of each part of a context."""
    chosen = BudgetSettings()

    assert (chosen.identity, chosen.events, chosen.facts) == (500, 500, 2000)
    assert (chosen.operations, chosen.question, chosen.reserve) == (500, 500, 500)


def test_a_claim_that_waits_replaces_nothing(core, anchor):
    """Attack M6: what a human has not let in yet leaves the fact it speaks against as it was."""
    old = anchor.save_memory("The staging database listens on port 5433")

    new = anchor.save_memory("The staging database now listens on port 6000", confidence=0.75)

    assert new.outcome is Outcome.PENDING
    assert anchor.get(new.id).status is Status.PENDING
    assert anchor.get(old.id).status is Status.ACTIVE and anchor.get(old.id).is_current
    assert [one.id for one in anchor.search("port of the staging database").snippets] == [old.id]


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("action", ["pin", "edit", "use"])
def test_what_a_human_does_between_choosing_and_writing_stands(core, clock, action, step):
    """Attack M7: a job looks again before it archives; pinned, edited or used at any of its steps, the memory stays."""
    keeper = core.anchor(KEEPER)
    event = keeper.log_event("The crane was greased")
    clock.advance(days=400)
    yielded: list[int] = []

    def meanwhile() -> None:
        """A request comes while the job yields; the last time is right before it takes the lock to write."""
        yielded.append(1)
        if len(yielded) == step + 1:
            if action == "pin":
                keeper.curation.pin(event.id)
            elif action == "use":  # counted in place: no new version tells of it
                core.services.usage.record_use(keeper.get(event.id))
                core.services.usage.flush()
            else:
                keeper.curation.edit(event.id, "The crane was greased and painted")

    core.scheduler._upkeep = replace(core.upkeep, yield_to_requests=meanwhile)
    core.scheduler.run("forget", clock.now(), Limits())

    assert len(yielded) > step
    assert keeper.get(event.id).status is Status.ACTIVE


def test_what_a_document_says_does_not_become_a_fact_by_promotion(tmp_path):
    """Attack M8: a document's event keeps its origin when an agent promotes it, so its cap holds: rejected."""
    both = CollectionSettings(usage="hybrid")
    settings = Settings(collections={"event_log": both, "verified_fact": both})
    with closing(ephemeral_core(tmp_path / "x", settings=settings)) as core:
        anchor = core.anchor(Actor(Caller.AGENT, KEEPER.scope, client="claude-code"))
        event = anchor.log_event("The manual says the crane lifts nine tons", source="document")

        told = anchor.promote(event.id, confidence=1.0)

        assert told.outcome is Outcome.REJECTED
        assert anchor.get(event.id).promoted_to is None
        assert not anchor.search("how much does the crane lift", layers=["verified_fact"]).snippets
