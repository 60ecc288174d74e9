"""Settings turned into the options of each part, so that no part below knows the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.activation import DECAY_RATES, ActivationSettings, named, rate_of_half_life
from memory_anchor.ingest.reconcile import Policy, Resolution
from memory_anchor.layers.gate import Gate
from memory_anchor.model import MemoryType
from memory_anchor.recall.ranking import RankingWeights
from memory_anchor.recall.search import Ways
from memory_anchor.services import asks_user
from memory_anchor.settings import AgentLifecycle, RetrievalSettings, Settings
from memory_anchor.upkeep.upkeep import AgentRules, LifecycleRules

if TYPE_CHECKING:
    from memory_anchor.remote.memory import RemoteMemory


def variants(settings: Settings) -> dict[str, Ways]:
    """Return the other ways of recall that a served memory offers, by name."""
    return {name: ways(one.retrieval) for name, one in settings.variants.items()}


def ways(chosen: RetrievalSettings) -> Ways:
    """Return how a search goes by these settings."""
    weights = RankingWeights.of({str(name): weight for name, weight in chosen.weights.items()})
    return Ways(weights, chosen.conversation, chosen.fold_duplicates, chosen.priors, chosen.lens)


def activation(settings: Settings) -> ActivationSettings:
    """Return how strength is counted in this store."""
    chosen = settings.lifecycle
    own = {MemoryType(kind): rate_of_half_life(days) for kind, days in chosen.half_life_days.items()}
    factors = {name: agent.lifecycle.decay_factor for name, agent in settings.agents.items()}
    return replace(
        named(chosen.activation),
        confidence_half_life_days=chosen.confidence_half_life_days,
        rates=dict(DECAY_RATES) | own,
        noise=chosen.noise,
        priority_factors={name: factor for name, factor in factors.items() if factor is not None},
    )


def rules(settings: Settings) -> LifecycleRules:
    """Return what jobs go by, each agent's own rules among them."""
    chosen = settings.lifecycle
    return LifecycleRules(
        max_entries=chosen.max_entries,
        max_archived_share=chosen.max_archived_share,
        forget_below=chosen.forget_below,
        policy=chosen.policy,
        forget_facts=frozenset(MemoryType(name) for name in chosen.forget_facts),
        asks_user=asks_user(settings),
        recent_days=chosen.recent_days,
        idle_conversation_s=chosen.idle_conversation_s,
        agents={name: _agent_rules(agent.lifecycle) for name, agent in settings.agents.items()},
    )


def _agent_rules(chosen: AgentLifecycle) -> AgentRules:
    return AgentRules(chosen.enabled, chosen.forget_threshold, chosen.merge_threshold)


def gate(settings: Settings) -> Gate:
    """Return the thresholds and caps of L3."""
    return Gate(settings.gate.active, settings.gate.pending, settings.gate.caps.model_dump())


def policy(settings: Settings) -> Policy:
    """Return how contradictions are settled, by type."""
    chosen = settings.conflicts.policy
    return Policy(by_type={MemoryType(kind): Resolution(how) for kind, how in chosen.items()})


def remote(
    settings: Settings, data_dir: Path, new_token: Callable[[], str], monotonic: Callable[[], float]
) -> RemoteMemory | None:
    """Return the served memory that is asked first, None where the settings name none. Raises BadInput."""
    told = settings.remote
    if not told.url:
        return None
    from memory_anchor.remote.memory import linked

    return linked(
        *(told.url, told.key.get_secret_value(), data_dir),
        connect_s=told.connect_s,
        search_s=told.search_s,
        write_s=told.write_s,
        project=told.project,
        new_token=new_token,
        monotonic=monotonic,
    )
