"""What stands behind every use case: the machinery of one process, and what one project adds to it.

Settings are turned into the options of each part here, so that no part below knows the settings.

`RecentPrompts` keeps a conversation's last prompts, because a follow-up question leaves out what they said. It is
in this process's memory alone and never stored: a prompt is the user's, and may say what no memory should.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cachetools import LRUCache

from memory_anchor.base.idempotency import FirstAnswers
from memory_anchor.base.pausing import SaveHealth
from memory_anchor.domain.activation import DECAY_RATES, ActivationSettings, rate_of_half_life, settings_named
from memory_anchor.domain.model import MemoryType, Scope
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.layers.gate import ConfidenceGate
from memory_anchor.recall.ranking import RankingWeights, SearchOptions
from memory_anchor.settings import AgentSettings, RetrievalSettings, Settings
from memory_anchor.use_cases.costs import ShownCosts

if TYPE_CHECKING:
    from memory_anchor.domain.freshness import FreshnessChecker
    from memory_anchor.domain.ports import Clock, Embedder, LanguageModel, MemoryStore, Trail
    from memory_anchor.extensions.extension import Running, ServedMemory
    from memory_anchor.ingest.conversation_learning import ConversationLearner
    from memory_anchor.ingest.reconcile import Policy
    from memory_anchor.ingest.writing import FactWriter
    from memory_anchor.layers.active_context import ActiveContext
    from memory_anchor.layers.event_log import EventLog
    from memory_anchor.layers.operational_knowledge import OperationalKnowledge
    from memory_anchor.layers.records import Records
    from memory_anchor.recall.cooccurrence import TagNeighbours
    from memory_anchor.recall.nearness import Nearness
    from memory_anchor.recall.search import Searcher
    from memory_anchor.upkeep.disagreements import RecalledTogether
    from memory_anchor.upkeep.statistics import UsageBuffer

CONVERSATIONS_KEPT = 500
PROMPTS_KEPT = 3
PROMPT_CHARS = 400


class RecentPrompts:
    """Thread-safe. A caller without a conversation has said nothing: many may share that name."""

    def __init__(self) -> None:
        self._prompts: LRUCache[tuple[str, str, str], deque[str]] = LRUCache(CONVERSATIONS_KEPT)
        self._lock = threading.Lock()

    def note(self, scope: Scope, prompt: str) -> None:
        """Remember a prompt of the conversation; its end is forgotten first where it is long."""
        if scope.conversation and prompt.strip():
            key = scope.account, scope.project, scope.conversation
            with self._lock:
                self._prompts.setdefault(key, deque(maxlen=PROMPTS_KEPT)).append(prompt.strip()[:PROMPT_CHARS])

    def last_before(self, scope: Scope, query: str) -> str:
        """Return the last prompt that is not this very query; "" where there is none."""
        with self._lock:
            prompts = tuple(self._prompts.get((scope.account, scope.project, scope.conversation), ()))
        return next((prompt for prompt in reversed(prompts) if prompt != query.strip()[:PROMPT_CHARS]), "")


class Extensions(Mapping[str, "Running"]):
    """What each extension does in this process, by its name; all begin for the first who asks. begun: what did."""

    def __init__(self, begin: Callable[[], Mapping[str, Running]]) -> None:
        self._begin: Callable[[], Mapping[str, Running]] | None = begin
        self._lock = threading.RLock()
        self.begun: Mapping[str, Running] = {}

    def _all(self) -> Mapping[str, Running]:
        with self._lock:
            if self._begin is not None:
                begin, self._begin = self._begin, None  # one that begins sees none
                try:
                    self.begun = begin()
                except BaseException:
                    self._begin = begin
                    raise
            return self.begun

    def __getitem__(self, name: str) -> Running:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


class ProjectNote(Protocol):
    def __call__(self, project_id: str, *, looks: bool = False) -> str: ...


@dataclass(frozen=True, slots=True)
class Services:
    """What every project of one process shares."""

    settings: Settings
    data_dir: Path
    store: MemoryStore
    embedder: Embedder | None
    local: Embedder | None
    """The bundled model beside an API's embedder: the second vector of each memory."""
    model: LanguageModel | None
    model_named: Callable[[str], LanguageModel | None]
    """A model by its name, "" for `model`: an agent may extract with another one."""
    clock: Clock
    audit: Trail
    records: Records
    events: EventLog
    facts: FactWriter
    learner: ConversationLearner
    active: ActiveContext
    searcher: Searcher
    usage: UsageBuffer
    nearness: Nearness
    project_note: ProjectNote
    """What is to be told, once, about which project this is; "" for nothing."""
    paused: Callable[[], bool]
    monotonic: Callable[[], float]
    activation: ActivationSettings
    tag_neighbours: TagNeighbours
    recalled_together: RecalledTogether
    answers: FirstAnswers
    save_health: SaveHealth = field(default_factory=SaveHealth)
    recent_prompts: RecentPrompts = field(default_factory=RecentPrompts)
    costs: ShownCosts = field(default_factory=ShownCosts)
    extensions: Extensions = field(default_factory=lambda: Extensions(dict))

    @property
    def remote(self) -> ServedMemory | None:
        """A served memory that is asked first; None for a memory that works alone."""
        return next((one.remote for one in self.extensions.values() if one.remote is not None), None)

    def invalidate_caches(self) -> None:
        """Drop what searches keep of the store: something was written past them."""
        self.searcher.index.invalidate()
        for extension in self.extensions.begun.values():
            extension.invalidate()


@dataclass(frozen=True, slots=True)
class Project:
    """What one project adds: its own settings, constitution, operations, and the files that memories cite."""

    project_id: str
    root: str
    settings: Settings
    gate: ConfidenceGate
    identity: IdentitySchema
    operations: OperationalKnowledge
    sources: FreshnessChecker | None = None

    def agent_settings(self, name: str) -> AgentSettings:
        """Return what the settings say about this agent."""
        return self.settings.agents.get(name, AgentSettings())

    @property
    def asks_user(self) -> frozenset[MemoryType]:
        """Types whose contradictions the settings leave to the user."""
        return asks_user(self.settings)


def asks_user(settings: Settings) -> frozenset[MemoryType]:
    """Return the types whose contradictions wait for the user: all but those that `conflicts.policy` settles."""
    from memory_anchor.ingest.reconcile import Resolution

    settled = {kind for kind, chosen in policy(settings).by_type.items() if chosen is not Resolution.ASK_USER}
    return frozenset(MemoryType) - settled


def variants(settings: Settings) -> dict[str, SearchOptions]:
    """Return the other ways of recall that a served memory offers, by name."""
    return {name: search_options(variant.retrieval) for name, variant in settings.variants.items()}


def search_options(chosen: RetrievalSettings) -> SearchOptions:
    """Return how a search goes by these settings."""
    weights = RankingWeights.of({str(name): weight for name, weight in chosen.weights.items()})
    return SearchOptions(weights, chosen.conversation, chosen.fold_duplicates, chosen.priors, chosen.lens)


def activation(settings: Settings) -> ActivationSettings:
    """Return how strength is counted in this store."""
    chosen = settings.lifecycle
    rates = {MemoryType(kind): rate_of_half_life(days) for kind, days in chosen.half_life_days.items()}
    factors = {name: agent.lifecycle.decay_factor for name, agent in settings.agents.items()}
    return replace(
        settings_named(chosen.activation),
        confidence_half_life_days=chosen.confidence_half_life_days,
        rates=dict(DECAY_RATES) | rates,
        noise=chosen.noise,
        priority_factors={name: factor for name, factor in factors.items() if factor is not None},
    )


def gate(settings: Settings) -> ConfidenceGate:
    """Return the thresholds and caps of L3."""
    return ConfidenceGate(settings.gate.active, settings.gate.pending, settings.gate.caps.model_dump())


def policy(settings: Settings) -> Policy:
    """Return how contradictions are settled, by type."""
    from memory_anchor.ingest.reconcile import Policy, Resolution

    chosen = settings.conflicts.policy
    return Policy(by_type={MemoryType(kind): Resolution(resolution) for kind, resolution in chosen.items()})
