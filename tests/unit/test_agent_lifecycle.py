"""Lifecycle settings of one agent: they change what jobs do with its memories and nobody else's (write-back RFC)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from timekit import a_memory, archived, current, day, put, upkeep, used_at

from memory_anchor.domain.activation import ActivationSettings
from memory_anchor.domain.model import MemoryType, Origin, Scope, Status
from memory_anchor.settings import AgentLifecycle, Settings
from memory_anchor.testing import ephemeral_core
from memory_anchor.upkeep.forgetting import forget
from memory_anchor.upkeep.registry import merge_duplicates

CODEX, CLAUDE = Scope(agent="codex"), Scope(agent="claude")


def test_an_agent_that_is_not_managed_keeps_what_faded():
    """Rule agents.lifecycle.enabled: jobs forget the others' memories."""
    up = upkeep(max_archived_share=1.0, agents={"codex": AgentLifecycle(enabled=False)})
    put(up, a_memory("kept", scope=CODEX), a_memory("gone", scope=CLAUDE))

    forget(up, day(60))

    assert archived(up) == {"gone"}


def test_an_agents_threshold_and_decay_decide_what_of_it_fades():
    """Rule agents.lifecycle: a threshold of its own, and a priority that falls with every unused day."""
    rules = {"strict": AgentLifecycle(forget_threshold=90.0), "mild": AgentLifecycle(forget_threshold=0.0)}
    fades = ActivationSettings(noise=0, priority_factors={"fading": 0.8})
    up = replace(upkeep(max_archived_share=1.0, agents=rules), activation=fades)
    half_life = {"half_life_days": 9.0, "priority": 50.0}
    for agent in ("strict", "mild", "fading", "plain"):
        put(up, a_memory(agent, scope=Scope(agent=agent), **half_life))

    forget(up, day(14))

    assert archived(up) == {"strict", "fading"}


def test_an_agents_merge_threshold_and_switch_hold_for_its_facts():
    """Rule agents.lifecycle.merge_threshold: facts merge from there on, never where jobs stay away."""
    same = ("The deploy script runs on Friday nights", "The deploy script runs on Friday nights alone")
    for rules, merges in (
        (AgentLifecycle(), 0),
        (AgentLifecycle(merge_threshold=0.6), 1),
        (AgentLifecycle(enabled=False, merge_threshold=0.6), 0),
    ):
        up = upkeep(max_archived_share=1.0, agents={"codex": rules})
        facts = [
            a_memory(name, text, MemoryType.FACT, origin=Origin.EXTRACTED, scope=CODEX)
            for name, text in zip("ab", same, strict=True)
        ]
        put(up, *facts)

        assert merge_duplicates(up, day(1)).counts["merged"] == merges
        assert [m.status for m in current(up).values()].count(Status.SUPERSEDED) == merges


@pytest.mark.parametrize("policy", ["hybrid", "lru", "priority_decay"])
def test_an_agents_own_limit_archives_the_least_used_of_its_own(policy: str):
    """Rule agents.lifecycle.max_entries: what exceeds it goes, weakest or longest unused first; nobody else's."""
    limit = {"codex": AgentLifecycle(max_entries=3)}
    plain = upkeep(max_archived_share=1.0, policy=policy, forget_below=0.0, agents=limit)
    up = replace(plain, activation=ActivationSettings(noise=0))
    put(up, *(a_memory(f"codex-{n}", scope=CODEX, usage=used_at(n)) for n in range(5)))
    put(up, *(a_memory(f"claude-{n}", scope=CLAUDE, usage=used_at(n)) for n in range(5)))

    report = forget(up, day(40))

    assert archived(up) == {"codex-0", "codex-1"}
    assert {current(up)[name].reason.split(";")[0] for name in archived(up)} == {"more than 3 memories"}
    assert not report.left and forget(up, day(42)).changed == 0


def test_the_settings_of_an_agent_reach_the_jobs(tmp_path: Path):
    """Rule settings.real: what is set is what the jobs go by."""
    own = {"enabled": False, "decay_factor": 0.9, "merge_threshold": 0.97, "forget_threshold": 5, "max_entries": 50}
    core = ephemeral_core(tmp_path, settings=Settings.model_validate({"agents": {"codex": {"lifecycle": own}}}))

    assert core.upkeep.agent("codex") == AgentLifecycle.model_validate(own)
    assert core.upkeep.agent("claude") == AgentLifecycle()
    assert core.upkeep.activation.priority_factors == {"codex": 0.9}
