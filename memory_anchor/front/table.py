"""One table of the use cases: a name, its request, the method of `MemoryAnchor`, and how its answer is shown.

MCP tools, calls over the engine's socket, commands and HTTP paths are all made from these rows; none of them knows an
argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from memory_anchor.base.json_values import Json, Record, parsed
from memory_anchor.domain.model import Memory, RetrievedSnippet, SearchAnswer, WriteMode, WriteOutcome
from memory_anchor.domain.requests import knowledge_requests as wanted
from memory_anchor.domain.requests import moving_requests as moved
from memory_anchor.domain.requests import requests as asks
from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.front import views
from memory_anchor.language.perspective import worded_for
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.context.context_reports import RecordedReport
    from memory_anchor.extensions.knowledge.catalogue import SourceState
    from memory_anchor.extensions.knowledge.sources import Source
    from memory_anchor.ingest.conversation_learning import Extracted
    from memory_anchor.upkeep.history import Step
    from memory_anchor.upkeep.job_kit import JobReport
    from memory_anchor.use_cases.curation import ReviewItem
    from memory_anchor.use_cases.due import DueMemory

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Row:
    """answer(anchor, request): the use case's answer to this request, as JSON."""

    name: str
    request: type[BaseRequest]
    use_case: Callable[..., object]
    answer: Callable[[MemoryAnchor, BaseRequest], Record]


def _as_is(answer: Record, _: MemoryAnchor) -> Record:
    return answer


def _row(
    name: str, request: type[BaseRequest], use_case: Callable[..., A], view: Callable[[A, MemoryAnchor], Record]
) -> Row:
    """Return a row. view: turns the use case's answer into what this caller is shown."""
    return Row(name, request, use_case, lambda anchor, request: view(use_case(anchor, request), anchor))


def _for_reader(view: Callable[..., Record]) -> Callable[[object, MemoryAnchor], Record]:
    """Return the view of an answer whose shape depends on who reads it."""
    return lambda answer, anchor: view(answer, reader=anchor.actor.scope)


def shaped_memory(memory: Memory, anchor: MemoryAnchor) -> dict[str, Json]:
    """Return a memory as this caller may see it now."""
    services = anchor.services
    return views.memory(memory, now=services.clock.now(), reader=anchor.actor.scope, activation=services.activation)


def _with_links(memory: Memory, shown: Record, anchor: MemoryAnchor) -> Record:
    links = [asdict(link) for link in anchor.links(memory)]
    return {**shown, **({"links": links} if links else {})}


def _one(memory: Memory, anchor: MemoryAnchor) -> Record:
    return {"memory": _with_links(memory, shaped_memory(memory, anchor), anchor)}


def _many(memories: list[Memory], anchor: MemoryAnchor) -> Record:
    return {"memories": [shaped_memory(memory, anchor) for memory in memories]}


def _due(due: list[DueMemory], anchor: MemoryAnchor) -> Record:
    now = anchor.services.clock.now()
    return {
        "due": [
            {
                "due_at": views.time_text(item.at) if item.at else None,
                "overdue": item.must and item.at is not None and item.at < now,
                "memory": shaped_memory(item.memory, anchor),
            }
            for item in due
        ]
    }


def _get(anchor: MemoryAnchor, request: asks.GetMemory) -> Record:
    memory, reader = anchor.get(request), anchor.actor.scope
    shown = shaped_memory(memory, anchor) | {"content": worded_for(memory, reader)}
    if not request.history:
        return _with_links(memory, shown, anchor)
    return views.with_history(
        shown,
        anchor.history(memory.id, most=asks.HISTORY_LIMIT),
        now=anchor.services.clock.now(),
        reader=reader,
        activation=anchor.services.activation,
    )


def _candidates(answer: tuple[Extracted, WriteMode, list[str]], _: MemoryAnchor) -> Record:
    extracted, mode, notes = answer
    candidates = [views.candidate(candidate) for candidate in extracted.candidates]
    return {"candidates": candidates, "episodes": len(extracted.episodes), "mode": mode.value, "notes": notes}


def _steps(history: tuple[list[Memory], tuple[Step, ...]], anchor: MemoryAnchor) -> Record:
    versions, steps = history
    has_earlier = versions and versions[0].version > 1
    return {
        **({"before": versions[0].version} if has_earlier else {}),
        "versions": [shaped_memory(memory, anchor) for memory in versions],
        "steps": [parsed(json.dumps(asdict(step), default=str)) for step in steps],
    }


def _inbox(items: list[ReviewItem], anchor: MemoryAnchor) -> Record:
    return {
        "items": [
            {
                "memory": shaped_memory(item.memory, anchor),
                "against": [shaped_memory(memory, anchor) for memory in item.against],
                "needs_human": item.needs_human,
            }
            for item in items
        ],
        "waiting": anchor.curation.waiting(0)[0],
        "passes_at": anchor.project.settings.gate.active,
    }


def _outcome(outcome: WriteOutcome, _: MemoryAnchor) -> Record:
    return views.outcome(outcome)


def _job(report: JobReport, _: MemoryAnchor) -> Record:
    return {
        "job": report.job,
        "at": views.time_text(report.at),
        "changed": report.changed,
        "left": report.left,
        "dry_run": report.dry_run,
        "notes": list(report.notes),
        "counts": dict(report.counts),
        "planned": [asdict(step) for step in report.planned],
    }


def _why_not(anchor: MemoryAnchor, request: asks.WhyNot) -> Record:
    answer = anchor.why_not(request)
    return {"id": request.id, "query": request.query, "reasons": [answer["reason"]], **answer}


def _constitution(anchor: MemoryAnchor, _: asks.GetConstitution) -> Record:
    return views.constitution(anchor.constitution())


def _sources(states: list[SourceState], anchor: MemoryAnchor) -> Record:
    library = anchor.services.knowledge
    shown = views.knowledge_sources(states, unembedded=library.unembedded(), now=library.clock.now())
    books = anchor.lore.books()["books"]
    return shown | ({"lorebooks": books} if books else {})


def _remove(anchor: MemoryAnchor, request: wanted.KnowledgeRemove) -> Record:
    if anchor.lore.has(request.source):
        return anchor.lore.remove(request.source)
    return anchor.knowledge.remove(request)


def _report(stored: RecordedReport, anchor: MemoryAnchor) -> Record:
    shown = views.report(stored.report, reader=anchor.actor.scope)
    return {"id": stored.id, "recorded_at": stored.recorded_at.isoformat(), "report": shown}


def _passages(snippets: list[RetrievedSnippet], anchor: MemoryAnchor) -> Record:
    return views.search_answer(SearchAnswer(tuple(snippets)), reader=anchor.actor.scope)


def _source(source: Source, _: MemoryAnchor) -> Record:
    return {"source": views.knowledge_source(source)}


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        _row("constitution", asks.GetConstitution, _constitution, _as_is),
        _row("search", asks.SearchMemory, MemoryAnchor.search, _for_reader(views.search_answer)),
        _row("why_not", asks.WhyNot, _why_not, _as_is),
        _row("add", asks.SaveMemory, MemoryAnchor.save_memory, _outcome),
        _row("log", asks.LogEvent, MemoryAnchor.log_event, _outcome),
        _row("promote", asks.PromoteToFact, MemoryAnchor.promote, _outcome),
        _row("propose", asks.ProposeChange, MemoryAnchor.propose, lambda proposal, _: views.proposal(proposal)),
        _row("events", asks.SearchEvents, MemoryAnchor.search_events, _for_reader(views.events)),
        _row("get", asks.GetMemory, _get, _as_is),
        _row("list", asks.ListMemories, lambda anchor, asked: anchor.curation.listing(asked), _many),
        _row("due", asks.ListDue, MemoryAnchor.due, _due),
        _row("show", asks.ShowMemory, MemoryAnchor.show, _one),
        _row("profile", asks.ReadProfile, MemoryAnchor.profile, lambda lines, _: views.profile(lines)),
        _row("history", asks.ShowHistory, MemoryAnchor.steps, _steps),
        _row(
            "active",
            asks.GetActiveContext,
            MemoryAnchor.active,
            lambda values, anchor: views.active(values, now=anchor.services.clock.now()),
        ),
        _row(
            "set_active",
            asks.SetActiveContext,
            MemoryAnchor.set_active,
            lambda until, _: {"ok": True, "expires_at": views.time_text(until)},
        ),
        _row("end_session", asks.EndSession, MemoryAnchor.end_session, lambda outcomes, _: views.outcomes(outcomes)),
        _row(
            "operations",
            asks.FindOperations,
            MemoryAnchor.find_operations,
            lambda passages, _: views.operations(passages),
        ),
        _row("context", asks.BuildContext, MemoryAnchor.build_context, _for_reader(views.built_context)),
        _row(
            "remember",
            asks.RememberConversation,
            MemoryAnchor.remember_conversation,
            lambda answer, _: views.remembered(*answer),
        ),
        _row("found_in", asks.RememberConversation, MemoryAnchor.extract, _candidates),
        _row("forget", asks.ForgetMemory, MemoryAnchor.forget, _outcome),
        _row("edit", asks.EditMemory, lambda anchor, asked: anchor.curation.edit(asked), _outcome),
        _row("judge", asks.JudgeMemory, lambda anchor, asked: anchor.curation.judge(asked), _outcome),
        _row("pin", asks.PinMemory, lambda anchor, asked: anchor.curation.pin(asked), _outcome),
        _row("unpin", asks.UnpinMemory, lambda anchor, asked: anchor.curation.unpin(asked), _outcome),
        _row("restore", asks.RestoreMemory, lambda anchor, asked: anchor.curation.restore(asked), _outcome),
        _row("inbox", asks.ReviewInbox, lambda anchor, asked: anchor.curation.inbox(asked), _inbox),
        _row("sides", asks.ReviewSides, lambda anchor, asked: anchor.curation.sides(asked), _many),
        _row("accept", asks.AcceptPending, lambda anchor, asked: anchor.curation.accept(asked), _outcome),
        _row("reject", asks.RejectPending, lambda anchor, asked: anchor.curation.reject(asked), _outcome),
        _row("settle", asks.ResolveConflict, lambda anchor, asked: anchor.curation.settle(asked), _outcome),
        _row("pause", asks.PauseAgents, lambda anchor, asked: anchor.maintenance.pause(asked), _as_is),
        _row("undo", asks.Undo, lambda anchor, asked: anchor.maintenance.undo(asked), _as_is),
        _row("purge_preview", asks.PreviewPurge, lambda anchor, asked: anchor.maintenance.preview_purge(asked), _as_is),
        _row("purge", asks.Purge, lambda anchor, asked: anchor.maintenance.purge(asked), _as_is),
        _row("jobs_run", asks.RunJob, lambda anchor, asked: anchor.maintenance.run_job(asked), _job),
        _row("jobs_switch", asks.SwitchJobs, lambda anchor, asked: anchor.maintenance.switch_jobs(asked), _as_is),
        _row("context_report", asks.ReadReport, lambda anchor, asked: anchor.maintenance.report(asked), _report),
        _row("reindex", asks.ReindexStore, lambda anchor, asked: anchor.maintenance.reindex(asked), _as_is),
        _row("projects_list", moved.ListProjects, lambda anchor, asked: anchor.maintenance.projects(asked), _as_is),
        _row("projects_link", moved.LinkProject, lambda anchor, asked: anchor.maintenance.link(asked), _as_is),
        _row("projects_merge", moved.MergeProjects, lambda anchor, asked: anchor.maintenance.merge(asked), _as_is),
        _row("lorebook_add", asks.AddLorebook, lambda anchor, asked: anchor.lore.add(asked), _as_is),
        _row("lorebook_list", asks.ListLorebooks, lambda anchor, asked: anchor.lore.books(asked), _as_is),
        _row("lorebook_show", asks.ShowLorebook, lambda anchor, asked: anchor.lore.show(asked), _as_is),
        _row("lorebook_remove", asks.RemoveLorebook, lambda anchor, asked: anchor.lore.remove(asked), _as_is),
        _row("lorebook_export", asks.ExportLorebook, lambda anchor, asked: anchor.lore.export(asked), _as_is),
        _row(
            "lorebook_scan",
            asks.ScanLorebook,
            lambda anchor, asked: anchor.lore.scan(asked),
            _for_reader(views.scanned_lore),
        ),
        _row("export_begin", moved.BeginExport, lambda anchor, asked: anchor.moving.begin_export(asked), _as_is),
        _row("export_page", moved.ExportPage, lambda anchor, asked: anchor.moving.export_page(asked), _as_is),
        _row(
            "import_projects", moved.ImportProjects, lambda anchor, asked: anchor.moving.import_projects(asked), _as_is
        ),
        _row("import_lines", moved.ImportLines, lambda anchor, asked: anchor.moving.import_lines(asked), _as_is),
        _row(
            "knowledge_search", wanted.KnowledgeSearch, lambda anchor, asked: anchor.knowledge.search(asked), _passages
        ),
        _row(
            "knowledge_get",
            wanted.KnowledgeGet,
            lambda anchor, asked: anchor.knowledge.open(asked),
            _for_reader(views.knowledge_opened),
        ),
        _row("knowledge_add", wanted.KnowledgeAdd, lambda anchor, asked: anchor.knowledge.add(asked), _source),
        _row("knowledge_push", wanted.KnowledgePush, lambda anchor, asked: anchor.knowledge.push(asked), _source),
        _row(
            "knowledge_sources",
            wanted.KnowledgeSources,
            lambda anchor, asked: anchor.knowledge.sources(asked),
            _sources,
        ),
        _row("knowledge_sync", wanted.KnowledgeSync, lambda anchor, asked: anchor.knowledge.sync(asked), _as_is),
        _row("knowledge_remove", wanted.KnowledgeRemove, _remove, _as_is),
    )
}
