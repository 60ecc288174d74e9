"""A context for one task: collect, retrieve, assemble, record, within a budget and with an account of every step.

The builder has no store of its own: it is handed plain calls bound to one caller (`ContextSources`), so that who may
read what is decided elsewhere, and the same code serves a tool, a hook and a whole prompt. L0 and L1 are read on the
caller's thread; the store and files are read in parallel under one deadline, because a context that is late is as bad
as none: without the store, L0 and L1 are still there and the report says what is missing.

Budget: the strategy's section 5.2 as caps (L0 500, L2 500, L3 2000, plus L4 out of the window). L1, the rule and the
headings live in its reserve; the question's share stays with the caller, and bounds what is searched for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Protocol

from memory_anchor.base.circuit import CircuitBreaker
from memory_anchor.base.json_values import Json
from memory_anchor.base.parallel_calls import Returned, call_in_parallel
from memory_anchor.context.sections import (
    LORE,
    RETRIEVED,
    SECTION_LAYER,
    Body,
    ContextCostReport,
    Fitted,
    Recalled,
    Section,
    fit,
    section_tokens,
    shortened_sections,
    with_rules_within,
)
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.domain.model import (
    Citation,
    Constitution,
    Layer,
    OperationPassage,
    RetrievedSnippet,
    SearchAnswer,
    Status,
    Trust,
)
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.requests import TASK_MAX
from memory_anchor.language.fences import neutralise
from memory_anchor.language.tokens import count_tokens, cut_to_tokens
from memory_anchor.settings import BudgetSettings

DEADLINE_S = 2.0
"""For search, recent events and operations together; a cold engine answers in about as long."""
SEARCH_LIMIT = 40
RECENT_LIMIT = 20
OPERATIONS_LIMIT = 5
KNOWLEDGE_LIMIT = 5
TITLE_MAX = 60
FIT_STEPS = 6
"""Halvings between a text that fits an answer's budget and one that does not."""
BEFORE_CHARS = 240
"""Of what a fact replaced."""
QUESTION_LEAST = 32
"""A question's share of 0 keeps none for the caller's text; it is still searched for by its first words."""
_LEAST_FIRST = (Trust.UNTRUSTED, Trust.AGENT, Trust.SEMI_TRUSTED, Trust.TRUSTED)

Decision = dict[str, Json]


class Search(Protocol):
    def __call__(self, query: str, layers: Sequence[Layer], limit: int) -> SearchAnswer: ...


@dataclass(frozen=True, slots=True)
class LorebookHits:
    """What lorebooks say to some messages, in their own budget, and the decisions about it."""

    snippets: tuple[RetrievedSnippet, ...] = ()
    decisions: tuple[Decision, ...] = ()


_Result = SearchAnswer | LorebookHits | tuple[Recalled, ...]
"""What a source returned."""


class Lorebooks(Protocol):
    def __call__(self, messages: Sequence[Mapping[str, Json]]) -> LorebookHits: ...


@dataclass(frozen=True, slots=True)
class ContextSources:
    """Where a context comes from, bound to one caller.

    search, recent_events, operations run on other threads and may raise our errors. active_context: key -> JSON value.
    now: in the caller's zone. cache: hits and misses so far, of whatever answers searches. record: stores a report and
    returns its id. lore: what lorebooks say to messages.
    """

    constitution: Callable[[], Constitution]
    search: Search
    recent_events: Callable[[int], Sequence[RetrievedSnippet]]
    operations: Callable[[str, int], Sequence[OperationPassage]]
    active_context: Callable[[], Mapping[str, Json]]
    now: Callable[[], datetime]
    cache: Callable[[], tuple[int, int]]
    record: Callable[[ContextCostReport], str] | None = None
    lore: Lorebooks | None = None
    knowledge: Callable[[str, int], Sequence[RetrievedSnippet]] | None = None


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """report_id: "" when nothing recorded it. notes: warnings of the constitution and of the search."""

    text: str
    report: ContextCostReport
    citations: tuple[Citation, ...]
    report_id: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Gathered:
    """Everything that could go into a context, before any budget, and what went wrong."""

    body: Body
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stage_ms: dict[str, float] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)

    def drop(self, reason: str, layer: str, **details: Json) -> None:
        """Note what of a layer is left out, and why."""
        self.decisions.append({"action": "drop_memory_results", "reason": reason, "layer": layer, **details})


class ContextBuilder:
    """Builds contexts for one caller; cheap to make. `circuit` is shared by every builder over one store."""

    def __init__(
        self,
        sources: ContextSources,
        budget: BudgetSettings,
        *,
        circuit: CircuitBreaker,
        monotonic: Callable[[], float],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._sources = sources
        self._circuit = circuit
        self._deadline_s = deadline_s
        self.budget = budget
        self.monotonic = monotonic

    @property
    def default_tokens(self) -> int:
        """The size of a context when none is asked for."""
        budget = self.budget
        return budget.identity + budget.events + budget.facts + budget.operations + budget.reserve

    def build(
        self, task: str, budget_tokens: int | None = None, answer_tokens: Callable[[BuiltContext], int] | None = None
    ) -> BuiltContext:
        """Return a context for `task`, of at most `budget_tokens` tokens, or what `budget.identity` lets L0 take.

        budget_tokens: 1 to `BUDGET_MAX`; all layers' shares shrink or grow with it. Omitted: the settings' sum.
        answer_tokens: what a front end makes of a context; that then keeps the budget, not the text alone.
        Raises BadInput: a task that is empty, too long or not text.
        """
        task = checks.text("task", task, most=TASK_MAX)
        found = self.gather(task)
        total = self.tokens_for(found) if budget_tokens is None else budget_tokens
        made = self._made(found, total, total)
        if answer_tokens is not None and (over := answer_tokens(made) - total) > 0:
            fits, too_large, room = 1, total, max(1, total - over)
            made = self._made(found, fits, total)
            for _ in range(FIT_STEPS):
                tried = self._made(found, room, total)
                if answer_tokens(tried) <= total:
                    fits, made = room, tried
                else:
                    too_large = room
                room = (fits + too_large) // 2
        notes = list(made.notes)
        return replace(made, report_id=self.record(made.report, notes), notes=tuple(notes))

    def _made(self, found: Gathered, room: int, total: int) -> BuiltContext:
        """Return what fits into `room` tokens of a budget of `total`; not recorded yet."""
        started, own = self.monotonic(), replace(found, decisions=list(found.decisions))
        fitted = self.fit(own, room)
        text = fitted.body.text()
        sections = fitted.body.sections()
        report = ContextCostReport(
            context_window_tokens=total,
            reserved_output_tokens=0,
            estimated_tokens=token_estimates(sections),
            sections=sections,
            decisions=tuple(own.decisions),
            citations=fitted.body.citations(),
            stage_ms={**found.stage_ms, "assemble": self.elapsed_ms(started)},
            cache=found.cache,
        )
        return BuiltContext(text, report, report.citations, notes=tuple(found.notes))

    def tokens_for(self, found: Gathered) -> int:
        """Return the size of a context when none is asked for: lorebooks come on top of it, in their own budget."""
        return (
            self.default_tokens + sum(section_tokens(found.body, name) for name in LORE) + self._knowledge(found.body)
        )

    def _knowledge(self, body: Body) -> int:
        """Return what knowledge may take: a small share of its own, on top of memory's, and only where there is any."""
        return min(section_tokens(body, "knowledge"), self.budget.knowledge) if body.texts.get("knowledge") else 0

    def gather(self, task: str, prompt: Sequence[Mapping[str, Json]] | None = None) -> Gathered:
        """Return what there is for `task` ("" asks for no search), L0 and L1 whatever fails.

        prompt: the conversation's messages; without them lorebooks are asked about the task alone.
        """
        started = self.monotonic()
        constitution = self._sources.constitution()
        texts = {"active_context": _active(self._sources.active_context())}
        found = Gathered(Body((), {}))
        found.notes.extend(constitution.warnings)
        found.stage_ms["collect"] = self.elapsed_ms(started)
        started = self.monotonic()
        hits, misses = self._sources.cache()
        texts.update(self._retrieve(_question(task, self.budget.question), found, self._lore(task, prompt)))
        hits_now, misses_now = self._sources.cache()
        found.cache = {"hits": hits_now - hits, "misses": misses_now - misses}
        found.stage_ms["retrieve"] = self.elapsed_ms(started)
        found.body = Body(
            tuple(entry.content for entry in constitution.entries),
            texts,
            time=f"Now: {self._sources.now().isoformat(timespec='minutes')}",
        )
        return found

    def fit(self, found: Gathered, total: int) -> Fitted:
        """Return what of `found` fits into `total` tokens; what does not is added to its decisions."""
        budget = self.budget
        caps = {
            "operations": budget.operations,
            "facts": budget.facts,
            "events": budget.events,
            "active_context": budget.reserve,
            **{name: section_tokens(found.body, name) for name in LORE},
            "knowledge": self._knowledge(found.body),
        }
        body = found.body
        if count_tokens("\n".join(body.identity)) > budget.identity:  # approved under a larger budget
            body = with_rules_within(body, max(total, budget.identity))
        if body.left_out:
            reason = (
                f"the constitution takes more than budget.identity ({budget.identity} tokens): "
                f"{body.left_out} of its entries are left to get_constitution"
            )
            found.drop(reason, Layer.IDENTITY_SCHEMA.value, dropped=body.left_out, kept=len(body.identity))
        fitted = fit(body, total=total, caps=caps, stretch=total > self.tokens_for(found))
        for name, (dropped, kept) in shortened_sections(found.body, fitted.body).items():
            limit = f"the budget of {total}" if total != self.tokens_for(found) else f"its share of {caps[name]}"
            layer = SECTION_LAYER[name].value if name in SECTION_LAYER else name
            found.drop(f"{limit} tokens leaves room for {kept} of {dropped + kept}", layer, dropped=dropped, kept=kept)
        if fitted.over_by:
            reason = f"the constitution alone takes more than the budget of {total} tokens and is never cut"
            found.drop(reason, Layer.IDENTITY_SCHEMA.value, over_by_tokens=fitted.over_by)
        return fitted

    def record(self, report_: ContextCostReport, notes: list[str]) -> str:
        """Return the id under which the report was stored, "" when it was not: a full disk costs no context."""
        if self._sources.record is None:
            return ""
        try:
            return self._sources.record(report_)
        except MemoryAnchorError as error:
            notes.append(f"the cost report was not recorded ({report(error).code})")
            return ""

    def elapsed_ms(self, started: float) -> float:
        return round((self.monotonic() - started) * 1000, 3)

    def _lore(self, task: str, prompt: Sequence[Mapping[str, Json]] | None) -> Callable[[], LorebookHits] | None:
        """Return what asks the lorebooks about the whole conversation, or about the task alone; None without any."""
        ask = self._sources.lore
        if ask is None:
            return None
        messages = prompt if prompt is not None else [{"role": "user", "content": task}]
        return lambda: ask(messages)

    def _retrieve(
        self, task: str, found: Gathered, ask_lore: Callable[[], LorebookHits] | None
    ) -> dict[str, tuple[Recalled, ...]]:
        sources = self._sources
        layers = (Layer.VERIFIED_FACT, Layer.EVENT_LOG)
        calls: dict[str, Callable[[], _Result]] = {
            "recent_events": lambda: SearchAnswer(tuple(sources.recent_events(RECENT_LIMIT)))
        }
        if task:
            calls["search"] = lambda: sources.search(task, layers, SEARCH_LIMIT)
            calls["operations"] = lambda: tuple(map(_passage, sources.operations(task, OPERATIONS_LIMIT)))
            if (knowledge := sources.knowledge) is not None:
                calls["knowledge"] = lambda: tuple(map(_knowledge, knowledge(task, KNOWLEDGE_LIMIT)))
        if ask_lore is not None:
            calls["lorebook"] = ask_lore
        waits = {name: self._circuit.retry_in_s(name) for name in calls}
        calls = {name: call for name, call in calls.items() if waits[name] == 0}
        results = call_in_parallel(calls, deadline_s=self._deadline_s, monotonic=self.monotonic)
        for name, result in results.items():
            self._circuit.note(name, ok=result.ok)
        found.decisions.extend(_skipped(name, wait_s) for name, wait_s in waits.items() if wait_s)
        found.decisions.extend(self._failures(results))
        values = {name: result.value for name, result in results.items() if result.ok}
        answer, recent = (
            value if isinstance(value := values.get(name), SearchAnswer) else SearchAnswer(())
            for name in ("search", "recent_events")
        )
        lore = value if isinstance(value := values.get("lorebook"), LorebookHits) else LorebookHits()
        operations, passages = (
            value if isinstance(value := values.get(name), tuple) else () for name in ("operations", "knowledge")
        )
        found.decisions.extend(lore.decisions)
        found.notes.extend(answer.notes)
        found.decisions.extend(map(dict, answer.decisions))
        best = next((snippet for snippet in answer.snippets if snippet.layer in layers), None)
        events = [snippet for snippet in answer.snippets if snippet.layer is Layer.EVENT_LOG]
        facts = [snippet for snippet in answer.snippets if snippet.layer is not Layer.EVENT_LOG]
        prefix = [entry for entry in lore.snippets if belongs_in_prefix(entry)]
        return {
            "lorebook_constants": _lorebook(prefix),
            "lorebook": _lorebook([entry for entry in lore.snippets if entry not in prefix]),
            "facts": _marked(best, _snippets(facts)),
            "events": _marked(best, _snippets(_alternating(events, recent.snippets))),
            "operations": operations,
            "knowledge": passages,
        }

    def _failures(self, results: Mapping[str, Returned[_Result]]) -> list[Decision]:
        failures: list[Decision] = []
        for name, result in results.items():
            if result.late:
                reason = f"no answer within {self._deadline_s:g} s"
                failures.append({"action": "km_timeout", "reason": reason, "what": name})
            elif result.error is not None:
                failures.append({"action": "store_unavailable", "reason": report(result.error).code, "what": name})
        return failures


def _skipped(name: str, wait_s: float) -> Decision:
    reason = f"failed several times in a row; asked again in {wait_s:.0f} s"
    return {"action": "circuit_open", "reason": reason, "what": name, "retry_in_s": round(wait_s, 1)}


def _question(task: str, budget: int) -> str:
    """Return what is searched for: the start of the task, without the NUL that a conversation may hold."""
    return cut_to_tokens(task.replace("\x00", " ").strip()[: checks.QUERY_MAX], max(budget, QUESTION_LEAST)).strip()


def token_estimates(sections: Sequence[Section], **outside: int) -> dict[str, Json]:
    """Return `estimated_tokens`: the parts add up to `total`.

    outside: tokens that are not of the context's own text (system, history, tools_schema, tool_results).
    """
    by_layer = {layer.value: 0 for layer in SECTION_LAYER.values()}
    retrieved = everything = 0
    for section in sections:
        everything += section.tokens
        if layer := SECTION_LAYER.get(section.name):
            by_layer[layer.value] += section.tokens
        if section.name in RETRIEVED:
            retrieved += section.tokens
    parts = {name: outside.get(name, 0) for name in ("system", "history", "tools_schema", "tool_results")}
    parts["injections"] = everything - retrieved
    parts["memory_knowledge"] = retrieved
    return {"total": sum(parts.values()), **parts, "by_layer": by_layer}


def trust_of(snippet: RetrievedSnippet) -> Trust:
    """Return the least trust among what the snippet cites; an agent's where it cites nothing."""
    cited = {citation.trust for citation in snippet.citations}
    return next((trust for trust in _LEAST_FIRST if trust in cited), Trust.AGENT)


def _snippets(snippets: Iterable[RetrievedSnippet]) -> tuple[Recalled, ...]:
    """Return each memory once, by id and by text, in the order given."""
    seen: set[str] = set()
    texts: list[Recalled] = []
    for snippet in snippets:
        if snippet.id not in seen and snippet.text not in seen:
            seen.update((snippet.id, snippet.text))
            texts.append(_snippet(snippet))
    return tuple(texts)


def _marked(best: RetrievedSnippet | None, texts: tuple[Recalled, ...]) -> tuple[Recalled, ...]:
    """Return the texts with the best answer marked."""
    return tuple(replace(text, best=best is not None and text.id == best.id) for text in texts)


def _snippet(snippet: RetrievedSnippet) -> Recalled:
    is_event = snippet.layer is Layer.EVENT_LOG
    trust = trust_of(snippet)
    own = Citation("event" if is_event else "memory_entry", snippet.id, observed_at=snippet.when, trust=trust)
    label = [snippet.id]
    if snippet.when is not None:
        # The day is enough for a fact; the whole instant costs five to eight tokens more in every fence.
        label.append(f"{snippet.when.astimezone(UTC):{'%Y-%m-%dT%H:%MZ' if is_event else '%Y-%m-%d'}}")
    if snippet.status is not Status.ACTIVE:
        label.append(snippet.status.value)
    if snippet.linked:
        label.append(f"linked: {snippet.linked}")
    label.extend(_place(cited) for cited in snippet.citations if cited.kind in ("file", "url"))
    before = f"\n(before: {snippet.before[:BEFORE_CHARS]})" if snippet.before else ""
    return Recalled.of(
        f"{snippet.text}{before}",
        id=snippet.id,
        source="; ".join(label),
        trust=trust,
        more=f"get_memory {snippet.id} has it whole",
        citations=(own, *(cited for cited in snippet.citations if cited.ref != snippet.id)),
        when=snippet.when,
    )


def belongs_in_prefix(entry: RetrievedSnippet) -> bool:
    """Return whether a lorebook's entry may stand in the stable prefix: meant for it, always there, not untrusted."""
    meant = {"constant", "prefix"} <= {tag.name for tag in entry.tags}
    return meant and trust_of(entry) in (Trust.TRUSTED, Trust.SEMI_TRUSTED)


def _lorebook(snippets: Sequence[RetrievedSnippet]) -> tuple[Recalled, ...]:
    """Return entries as one text a book: a fence around each would cost as much as what stands in it."""
    books: dict[str, list[RetrievedSnippet]] = {}
    for entry in snippets:
        books.setdefault(entry.id.partition("/")[0], []).append(entry)
    return tuple(
        Recalled.of(
            "\n\n".join(entry.text for entry in entries),
            id=f"lorebook:{book}",
            source=f"lorebook {book}: {', '.join(entry.id.partition('/')[2] for entry in entries)}",
            trust=trust_of(entries[0]),
            more="`memory-anchor lorebook scan` has it whole",
            citations=tuple(cited for entry in entries for cited in entry.citations),
        )
        for book, entries in books.items()
    )


def _place(cited: Citation) -> str:
    start, end = cited.locator.line_start, cited.locator.line_end
    lines = f":{start}-{end}" if start and end and end != start else f":{start}" if start else ""
    stale = f" ({cited.freshness})" if cited.freshness not in (None, "fresh") else ""
    return f"{cited.ref}{lines}{stale}"


def _passage(passage: OperationPassage) -> Recalled:
    """Return a passage of the repository's own files, trusted as those who may commit there."""
    title = passage.title[:TITLE_MAX]
    cited = Citation("file", passage.path, title=title, locator=passage.locator, trust=Trust.SEMI_TRUSTED)
    return Recalled.of(
        passage.text,
        id=passage.name,
        source=f"{passage.path}; {title}",
        trust=Trust.SEMI_TRUSTED,
        more=f"read {passage.path} for the rest",
        citations=(cited,),
    )


def _knowledge(snippet: RetrievedSnippet) -> Recalled:
    """Return a passage of somebody else's text, trusted as its source."""
    cited = snippet.citations[0]
    return Recalled.of(
        snippet.text,
        id=snippet.id,
        source=f"{snippet.type} {_place(cited)}"[: 2 * TITLE_MAX],
        trust=cited.trust,
        more=f"knowledge_get {snippet.id} has it whole",
        citations=snippet.citations,
    )


def _active(values: Mapping[str, Json]) -> tuple[Recalled, ...]:
    """Return L1 as one text, a line a value; written by agents, so trusted as they are."""
    if not values:
        return ()
    lines = "\n".join(f"{key}: {_line(value)}" for key, value in values.items())
    more = "get_active_context has it whole"
    return (Recalled.of(lines, id="active_context", source="active context", trust=Trust.AGENT, more=more),)


def _line(value: Json) -> str:
    """Return a JSON value in one line. Its texts are made harmless before they are escaped: an escaped line end is a
    letter, after which a look-alike mark would pass for code."""
    return json.dumps(_harmless(value), ensure_ascii=False, default=str)


def _harmless(value: Json) -> Json:
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, Mapping):
        return {neutralise(str(key)): _harmless(inner) for key, inner in value.items()}
    return [_harmless(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _alternating(first: Sequence[RetrievedSnippet], second: Sequence[RetrievedSnippet]) -> list[RetrievedSnippet]:
    """Return both in turn: an event that answers and one that just happened are worth alike (strategy 5.2)."""
    return [snippet for pair in zip_longest(first, second) for snippet in pair if snippet is not None]
