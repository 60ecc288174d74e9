"""Sources for context tests: memories in lists, failures and delays on demand, a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.base.parallel_calls import call_circuit
from memory_anchor.context.context import ContextBuilder, ContextSources
from memory_anchor.domain.model import (
    Citation,
    Constitution,
    ConstitutionEntry,
    Layer,
    OperationPassage,
    RetrievedSnippet,
    SearchAnswer,
    Trust,
)
from memory_anchor.settings import BudgetSettings

NOON = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)
IDENTITY = ("项目目标：为 AI 提供跨会话持久化记忆系统", "Stack: Python + FastAPI + Qdrant + MCP")


def fact(id: str, text: str, *, score: float = 1.0, trust: Trust = Trust.AGENT) -> RetrievedSnippet:
    cited = (Citation("file", "src/app.py", trust=trust),)
    return RetrievedSnippet(id, text, score, Layer.VERIFIED_FACT, "fact", NOON, citations=cited)


def event(id: str, text: str, *, hours_ago: float = 1.0) -> RetrievedSnippet:
    when = NOON - timedelta(hours=hours_ago)
    return RetrievedSnippet(id, text, 0.5, Layer.EVENT_LOG, "event", when)


def passage(name: str, text: str) -> OperationPassage:
    return OperationPassage(name, f".ai/operations/{name}.md", name.title(), text, 1.0)


@dataclass
class World:
    """What there is to recall; `fails` and `blocks` name the sources that raise or wait."""

    identity: Sequence[str] = IDENTITY
    found: Sequence[RetrievedSnippet] = ()
    recent: Sequence[RetrievedSnippet] = ()
    passages: Sequence[OperationPassage] = ()
    active: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    fails: Mapping[str, Exception] = field(default_factory=dict)
    blocks: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    def _ask(self, name: str, what: Any) -> None:
        self.asked.append((name, what))
        if name in self.blocks:
            self.blocks[name]()
        if name in self.fails:
            raise self.fails[name]

    def search(self, query: str, layers: Sequence[Layer], limit: int) -> SearchAnswer:
        self._ask("search", query)
        return SearchAnswer(tuple(self.found[:limit]))

    def recent_events(self, limit: int) -> Sequence[RetrievedSnippet]:
        self._ask("recent_events", limit)
        return self.recent[:limit]

    def operations(self, task: str, limit: int) -> Sequence[OperationPassage]:
        self._ask("operations", task)
        return self.passages[:limit]

    def monotonic(self) -> float:
        return self.seconds

    def constitution(self) -> Constitution:
        entries = tuple(ConstitutionEntry(f"e{n}", text, n) for n, text in enumerate(self.identity))
        return Constitution(entries, "1", 0, self.warnings)

    def sources(self, record: Callable[[Any], str] | None = None) -> ContextSources:
        return ContextSources(
            constitution=self.constitution,
            search=self.search,
            recent_events=self.recent_events,
            operations=self.operations,
            active_context=lambda: self.active,
            now=lambda: NOON,
            cache=lambda: (0, 0),
            record=record,
        )

    def builder(
        self,
        budget: BudgetSettings | None = None,
        *,
        circuit: CircuitBreaker | None = None,
        deadline_s: float = 5.0,
        record: Callable[[Any], str] | None = None,
    ) -> ContextBuilder:
        return ContextBuilder(
            self.sources(record),
            budget or BudgetSettings(),
            circuit=circuit or call_circuit(self.monotonic),
            monotonic=self.monotonic,
            deadline_s=deadline_s,
        )


def actions(report: Any) -> list[str]:
    return [decision["action"] for decision in report.decisions]
