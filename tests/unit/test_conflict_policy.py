"""How contradictions are settled by the user's settings, through a whole memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.model import Actor, Outcome, Status
from memory_anchor.settings import Settings, load_settings
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

OLD = "The default timeout of the client is 30 seconds"
NEW = "The default timeout of the client is 60 seconds"


def anchor_with(folder: Path, agent: Actor, **policy: str) -> MemoryAnchor:
    settings = Settings.model_validate({"conflicts": {"policy": policy}})
    return ephemeral_core(folder / "core", settings=settings).anchor(agent)


@pytest.mark.parametrize(
    ("how", "outcome", "old", "new"),
    [
        ("keep_new", Outcome.SUPERSEDED, Status.SUPERSEDED, Status.ACTIVE),
        ("keep_old", Outcome.SKIPPED, Status.ACTIVE, None),
        ("merge", Outcome.NEEDS_REVIEW, Status.DISPUTED, Status.DISPUTED),
        ("ask_user", Outcome.NEEDS_REVIEW, Status.DISPUTED, Status.DISPUTED),
    ],
)
def test_the_policy_of_a_type_settles_its_contradictions(
    tmp_path: Path, agent: Actor, how: str, outcome: Outcome, old: Status, new: Status | None
) -> None:
    """Rule conflicts.policy: by the type of the new memory; merge needs words that rules do not have, so it asks."""
    anchor = anchor_with(tmp_path, agent, fact=how)
    first = anchor.save_memory(OLD)

    done = anchor.save_memory(NEW)

    assert done.outcome is outcome
    assert done.target_id == first.id
    assert anchor.get(first.id).status is old
    if new is not None:
        assert anchor.get(done.id).status is new


def test_a_contradiction_that_was_turned_away_does_not_strengthen_what_stands(tmp_path: Path, agent: Actor) -> None:
    """Rule conflicts.policy keep_old: nothing is stored, and no use, version or confidence comes of it."""
    anchor = anchor_with(tmp_path, agent, fact="keep_old")
    first = anchor.save_memory(OLD, confidence=0.92)
    before = anchor.services.records.read(first.id, anchor.actor.scope)

    done = anchor.save_memory(NEW)

    assert anchor.services.records.read(first.id, anchor.actor.scope) == before
    assert "nothing stored" in done.reason
    assert len(anchor.curation.listing()) == 1


def test_a_type_without_a_policy_still_asks(tmp_path: Path, agent: Actor) -> None:
    """Rule conflicts.policy: a policy holds for its type alone."""
    anchor = anchor_with(tmp_path, agent, bugfix="keep_new")
    anchor.save_memory(OLD)

    assert anchor.save_memory(NEW).outcome is Outcome.NEEDS_REVIEW


def test_a_policy_is_set_like_every_setting() -> None:
    """Rule settings: from the environment too."""
    loaded = load_settings(env={"MEMORY_ANCHOR_CONFLICTS__POLICY__DECISION": "keep_new"}, user_file=None)

    assert loaded.settings.conflicts.policy == {"decision": "keep_new"}
