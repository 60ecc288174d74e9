"""One table of what can be asked: a name, its request, the use case, and how the answer is shown.

The tools of MCP, the calls of an engine's socket and the commands all come from here; none of them knows an argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

from memory_anchor import knowledge_requests as wanted
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor import shapes
from memory_anchor.fields import BaseRequest
from memory_anchor.json_values import Json, Record, parsed
from memory_anchor.language.perspective import worded_for
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Memory, RetrievedSnippet, SearchAnswer, WriteMode, WriteOutcome

if TYPE_CHECKING:
    from memory_anchor.context.context import BuiltContext
    from memory_anchor.context.context_reports import RecordedReport
    from memory_anchor.curation import ReviewItem
    from memory_anchor.due import DueMemory
    from memory_anchor.ingest.remembering import Extracted
    from memory_anchor.knowledge.catalogue import SourceState
    from memory_anchor.knowledge.search import OpenedCitation
    from memory_anchor.knowledge.sources import Source
    from memory_anchor.upkeep.history import Step
    from memory_anchor.upkeep.upkeep import JobReport

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Row:
    """answer(anchor, request): returns what the use case says to this request, as it is shown."""

    name: str
    request: type[BaseRequest]
    use_case: Callable[..., object]
    answer: Callable[[MemoryAnchor, BaseRequest], Record]


def _row(
    name: str, request: type[BaseRequest], use_case: Callable[..., A], view: Callable[[A, MemoryAnchor], Record]
) -> Row:
    """Return a row. view: what of the answer this caller is shown."""
    return Row(name, request, use_case, lambda anchor, asked: view(use_case(anchor, asked), anchor))


def shaped_memory(memory: Memory, anchor: MemoryAnchor) -> dict[str, Json]:
    """Return a memory as this caller may see it now."""
    services = anchor.services
    return shapes.memory(memory, now=services.clock.now(), reader=anchor.actor.scope, activation=services.activation)


def _one(memory: Memory, anchor: MemoryAnchor) -> Record:
    return {"memory": shaped_memory(memory, anchor) | _linked(memory, anchor)}


def _linked(memory: Memory, anchor: MemoryAnchor) -> dict[str, Json]:
    links = anchor.links(memory)
    return {"links": [asdict(link) for link in links]} if links else {}


def _many(memories: list[Memory], anchor: MemoryAnchor) -> Record:
    return {"memories": [shaped_memory(memory, anchor) for memory in memories]}


def _due(waiting: list[DueMemory], anchor: MemoryAnchor) -> Record:
    return {
        "due": [
            {"due_at": shapes.time_text(one.at) if one.at else None, "memory": shaped_memory(one.memory, anchor)}
            for one in waiting
        ]
    }


def _told(memory: Memory, anchor: MemoryAnchor) -> dict[str, Json]:
    return shaped_memory(memory, anchor) | {"content": worded_for(memory, anchor.actor.scope)}


def _get(anchor: MemoryAnchor, asked: asks.GetMemory) -> Record:
    memory = anchor.get(asked)
    shown = _told(memory, anchor)
    if not asked.history:
        return shown | _linked(memory, anchor)
    return shapes.with_history(
        shown,
        anchor.history(memory.id),
        now=anchor.services.clock.now(),
        reader=anchor.actor.scope,
        activation=anchor.services.activation,
    )


def _found(found: tuple[Extracted, WriteMode, list[str]], _: MemoryAnchor) -> Record:
    extracted, mode, notes = found
    candidates = [shapes.candidate(one) for one in extracted.candidates]
    return {"candidates": candidates, "episodes": len(extracted.episodes), "mode": mode.value, "notes": notes}


def _steps(history: tuple[list[Memory], tuple[Step, ...]], anchor: MemoryAnchor) -> Record:
    versions, steps = history
    return {
        "versions": [shaped_memory(memory, anchor) for memory in versions],
        "steps": [parsed(json.dumps(asdict(step), default=str)) for step in steps],
    }


def _waiting(items: list[ReviewItem], anchor: MemoryAnchor) -> Record:
    return {
        "items": [
            {
                "memory": shaped_memory(item.memory, anchor),
                "against": [shaped_memory(memory, anchor) for memory in item.against],
                "needs_human": item.needs_human,
            }
            for item in items
        ],
        "passes_at": anchor.room.settings.gate.active,
    }


def _outcome(done: WriteOutcome, _: MemoryAnchor) -> Record:
    return shapes.outcome(done)


def _as_is(answer: Record, _: MemoryAnchor) -> Record:
    return answer


def _search(answer: SearchAnswer, anchor: MemoryAnchor) -> Record:
    return shapes.search_answer(answer, reader=anchor.actor.scope)


def _events(events: list[Memory], anchor: MemoryAnchor) -> Record:
    return shapes.events(events, reader=anchor.actor.scope)


def _context(built: BuiltContext, anchor: MemoryAnchor) -> Record:
    return shapes.built_context(built, reader=anchor.actor.scope)


def _job(done: JobReport, _: MemoryAnchor) -> Record:
    return {
        "job": done.job,
        "at": shapes.time_text(done.at),
        "changed": done.changed,
        "left": done.left,
        "dry_run": done.dry_run,
        "notes": list(done.notes),
        "counts": dict(done.counts),
        "planned": [asdict(step) for step in done.planned],
    }


def _report(kept: RecordedReport, anchor: MemoryAnchor) -> Record:
    return {
        "id": kept.id,
        "recorded_at": kept.recorded_at.isoformat(),
        "report": shapes.report(kept.report, reader=anchor.actor.scope),
    }


def _why_not(anchor: MemoryAnchor, asked: asks.WhyNot) -> Record:
    found = anchor.why_not(asked)
    return {"id": asked.id, "query": asked.query, "reasons": [found["reason"]], **found}


def _constitution(anchor: MemoryAnchor, _: asks.GetConstitution) -> Record:
    return shapes.constitution(anchor.constitution())


def _passages(found: list[RetrievedSnippet], anchor: MemoryAnchor) -> Record:
    return shapes.search_answer(SearchAnswer(tuple(found)), reader=anchor.actor.scope)


def _opened(opened: OpenedCitation, anchor: MemoryAnchor) -> Record:
    return shapes.knowledge_opened(opened, reader=anchor.actor.scope)


def _source(source: Source, _: MemoryAnchor) -> Record:
    return {"source": shapes.knowledge_source(source)}


def _sources(states: list[SourceState], anchor: MemoryAnchor) -> Record:
    library = anchor.services.knowledge
    told = shapes.knowledge_sources(states, unembedded=library.unembedded(), now=library.clock.now())
    books = anchor.lorebooks()["books"]
    return told | ({"lorebooks": books} if books else {})


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        _row("constitution", asks.GetConstitution, _constitution, _as_is),
        _row("search", asks.SearchMemory, MemoryAnchor.search, _search),
        _row("why_not", asks.WhyNot, _why_not, _as_is),
        _row("add", asks.SaveMemory, MemoryAnchor.save_memory, _outcome),
        _row("log", asks.LogEvent, MemoryAnchor.log_event, _outcome),
        _row("promote", asks.PromoteToFact, MemoryAnchor.promote, _outcome),
        _row("propose", asks.ProposeChange, MemoryAnchor.propose, lambda one, _: shapes.proposal(one)),
        _row("events", asks.SearchEvents, MemoryAnchor.search_events, _events),
        _row("get", asks.GetMemory, _get, _as_is),
        _row("list", asks.ListMemories, MemoryAnchor.listing, _many),
        _row("due", asks.ListDue, MemoryAnchor.due, _due),
        _row("show", asks.ShowMemory, MemoryAnchor.show, _one),
        _row("profile", asks.ReadProfile, MemoryAnchor.profile, lambda lines, _: shapes.profile(lines)),
        _row("history", asks.ShowHistory, MemoryAnchor.steps, _steps),
        _row(
            "active",
            asks.GetActiveContext,
            MemoryAnchor.active,
            lambda values, anchor: shapes.active(values, now=anchor.services.clock.now()),
        ),
        _row(
            "set_active",
            asks.SetActiveContext,
            MemoryAnchor.set_active,
            lambda until, _: {"ok": True, "expires_at": shapes.time_text(until)},
        ),
        _row("end_session", asks.EndSession, MemoryAnchor.end_session, lambda done, _: shapes.outcomes(done)),
        _row("operations", asks.FindOperations, MemoryAnchor.find_operations, lambda one, _: shapes.operations(one)),
        _row("context", asks.BuildContext, MemoryAnchor.build_context, _context),
        _row(
            "remember",
            asks.RememberConversation,
            MemoryAnchor.remember_conversation,
            lambda done, _: shapes.remembered(*done),
        ),
        _row("found_in", asks.RememberConversation, MemoryAnchor.found_in, _found),
        _row("forget", asks.ForgetMemory, MemoryAnchor.forget, _outcome),
        _row("edit", asks.EditMemory, MemoryAnchor.edit, _outcome),
        _row("judge", asks.JudgeMemory, MemoryAnchor.judge, _outcome),
        _row("pin", asks.PinMemory, MemoryAnchor.pin, _outcome),
        _row("unpin", asks.UnpinMemory, MemoryAnchor.unpin, _outcome),
        _row("restore", asks.RestoreMemory, MemoryAnchor.restore, _outcome),
        _row("inbox", asks.ReviewInbox, MemoryAnchor.inbox, _waiting),
        _row("sides", asks.ReviewSides, MemoryAnchor.sides, _many),
        _row("accept", asks.AcceptPending, MemoryAnchor.accept, _outcome),
        _row("reject", asks.RejectPending, MemoryAnchor.reject, _outcome),
        _row("settle", asks.ResolveConflict, MemoryAnchor.settle, _outcome),
        _row("pause", asks.PauseAgents, MemoryAnchor.pause, _as_is),
        _row("undo", asks.Undo, MemoryAnchor.undo, _as_is),
        _row("purge_preview", asks.PreviewPurge, MemoryAnchor.preview_purge, _as_is),
        _row("purge", asks.Purge, MemoryAnchor.purge, _as_is),
        _row("jobs_run", asks.RunJob, MemoryAnchor.run_job, _job),
        _row("jobs_switch", asks.SwitchJobs, MemoryAnchor.switch_jobs, _as_is),
        _row("context_report", asks.ReadReport, MemoryAnchor.report, _report),
        _row("reindex", asks.ReindexStore, MemoryAnchor.reindex, _as_is),
        _row("projects_list", moved.ListProjects, MemoryAnchor.projects, _as_is),
        _row("projects_link", moved.LinkProject, MemoryAnchor.link_project, _as_is),
        _row("projects_merge", moved.MergeProjects, MemoryAnchor.merge_projects, _as_is),
        _row("lorebook_add", asks.AddLorebook, MemoryAnchor.add_lorebook, _as_is),
        _row("lorebook_list", asks.ListLorebooks, MemoryAnchor.lorebooks, _as_is),
        _row("lorebook_show", asks.ShowLorebook, MemoryAnchor.show_lorebook, _as_is),
        _row("lorebook_remove", asks.RemoveLorebook, MemoryAnchor.remove_lorebook, _as_is),
        _row("lorebook_export", asks.ExportLorebook, MemoryAnchor.export_lorebook, _as_is),
        _row(
            "lorebook_scan",
            asks.ScanLorebook,
            MemoryAnchor.scan_lorebook,
            lambda scanned, anchor: shapes.scanned_lore(scanned, reader=anchor.actor.scope),
        ),
        _row("lorebook_report", asks.LorebookReport, MemoryAnchor.lorebook_report, _as_is),
        _row("export_begin", moved.BeginExport, MemoryAnchor.begin_export, _as_is),
        _row("export_page", moved.ExportPage, MemoryAnchor.export_page, _as_is),
        _row("import_projects", moved.ImportProjects, MemoryAnchor.import_projects, _as_is),
        _row("import_lines", moved.ImportLines, MemoryAnchor.import_lines, _as_is),
        _row("knowledge_search", wanted.KnowledgeSearch, MemoryAnchor.knowledge_search, _passages),
        _row("knowledge_get", wanted.KnowledgeGet, MemoryAnchor.knowledge_get, _opened),
        _row("knowledge_add", wanted.KnowledgeAdd, MemoryAnchor.knowledge_add, _source),
        _row("knowledge_push", wanted.KnowledgePush, MemoryAnchor.knowledge_push, _source),
        _row("knowledge_sources", wanted.KnowledgeSources, MemoryAnchor.knowledge_sources, _sources),
        _row("knowledge_sync", wanted.KnowledgeSync, MemoryAnchor.knowledge_sync, _as_is),
        _row("knowledge_remove", wanted.KnowledgeRemove, MemoryAnchor.knowledge_remove, _as_is),
    )
}
