"""One table of what can be asked: a name, its request, the use case, and how the answer is shown.

The tools of MCP, the calls of an engine's socket and the commands all come from here; none of them knows an argument.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from memory_anchor import knowledge_requests as wanted
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor import shapes
from memory_anchor.fields import BaseRequest
from memory_anchor.language.persons import worded
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import Memory, SearchAnswer
from memory_anchor.shapes import Shown

View = Callable[[Any, MemoryAnchor], Shown]
"""What of an answer this caller is shown."""


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    request: type[BaseRequest]
    use_case: Callable[..., Any]
    view: View

    def answer(self, anchor: MemoryAnchor, request: BaseRequest) -> Shown:
        """Return what the use case says to this request, as it is shown."""
        return self.view(self.use_case(anchor, request), anchor)


def shaped_memory(memory: Memory, anchor: MemoryAnchor) -> Shown:
    """Return a memory as this caller may see it now."""
    services = anchor.services
    return shapes.memory(memory, now=services.clock.now(), reader=anchor.actor.scope, activation=services.activation)


def _one(memory: Memory, anchor: MemoryAnchor) -> Shown:
    return {"memory": shaped_memory(memory, anchor) | _linked(memory, anchor)}


def _linked(memory: Memory, anchor: MemoryAnchor) -> Shown:
    links = anchor.links(memory)
    return {"links": [asdict(link) for link in links]} if links else {}


def _many(memories: list[Memory], anchor: MemoryAnchor) -> Shown:
    return {"memories": [shaped_memory(memory, anchor) for memory in memories]}


def _due(waiting: list[Any], anchor: MemoryAnchor) -> Shown:
    return {
        "due": [
            {"due_at": shapes.time_text(one.at) if one.at else None, "memory": shaped_memory(one.memory, anchor)}
            for one in waiting
        ]
    }


def _told(memory: Memory, anchor: MemoryAnchor) -> Shown:
    return shaped_memory(memory, anchor) | {"content": worded(memory, anchor.actor.scope)}


def _get(anchor: MemoryAnchor, asked: asks.GetMemory) -> Shown:
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


def _found(found: tuple[Any, Any, list[str]], _: MemoryAnchor) -> Shown:
    extracted, mode, notes = found
    candidates = [shapes.candidate(one) for one in extracted.candidates]
    return {"candidates": candidates, "episodes": len(extracted.episodes), "mode": mode.value, "notes": notes}


def _steps(history: tuple[list[Memory], Any], anchor: MemoryAnchor) -> Shown:
    versions, steps = history
    return {
        "versions": [shaped_memory(memory, anchor) for memory in versions],
        "steps": [json.loads(json.dumps(asdict(step), default=str)) for step in steps],
    }


def _waiting(items: list[Any], anchor: MemoryAnchor) -> Shown:
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


def _outcome(done: Any, _: MemoryAnchor) -> Shown:
    return shapes.outcome(done)


def _as_is(answer: Shown, _: MemoryAnchor) -> Shown:
    return answer


def _search(answer: Any, anchor: MemoryAnchor) -> Shown:
    return shapes.search_answer(answer, reader=anchor.actor.scope)


def _events(events: list[Memory], anchor: MemoryAnchor) -> Shown:
    return shapes.events(events, reader=anchor.actor.scope)


def _context(built: Any, anchor: MemoryAnchor) -> Shown:
    return shapes.built_context(built, reader=anchor.actor.scope)


def _job(done: Any, _: MemoryAnchor) -> Shown:
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


def _report(kept: Any, anchor: MemoryAnchor) -> Shown:
    return {
        "id": kept.id,
        "recorded_at": kept.recorded_at.isoformat(),
        "report": shapes.report(kept.report, reader=anchor.actor.scope),
    }


def _why_not(anchor: MemoryAnchor, asked: asks.WhyNot) -> Shown:
    found = anchor.why_not(asked)
    return {"id": asked.id, "query": asked.query, "reasons": [found["reason"]], **found}


def _constitution(anchor: MemoryAnchor, _: asks.GetConstitution) -> Shown:
    return shapes.constitution(anchor.constitution())


def _passages(found: list[Any], anchor: MemoryAnchor) -> Shown:
    return shapes.search_answer(SearchAnswer(tuple(found)), reader=anchor.actor.scope)


def _opened(opened: Any, anchor: MemoryAnchor) -> Shown:
    return shapes.knowledge_opened(opened, reader=anchor.actor.scope)


def _source(source: Any, _: MemoryAnchor) -> Shown:
    return {"source": shapes.knowledge_source(source)}


def _sources(states: list[Any], anchor: MemoryAnchor) -> Shown:
    told = shapes.knowledge_sources(states, unembedded=anchor.services.knowledge.unembedded())
    books = anchor.lorebooks()["books"]
    return told | ({"lorebooks": books} if books else {})


ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        Row("constitution", asks.GetConstitution, _constitution, _as_is),
        Row("search", asks.SearchMemory, MemoryAnchor.search, _search),
        Row("why_not", asks.WhyNot, _why_not, _as_is),
        Row("add", asks.SaveMemory, MemoryAnchor.save_memory, _outcome),
        Row("log", asks.LogEvent, MemoryAnchor.log_event, _outcome),
        Row("promote", asks.PromoteToFact, MemoryAnchor.promote, _outcome),
        Row("propose", asks.ProposeChange, MemoryAnchor.propose, lambda one, _: shapes.proposal(one)),
        Row("events", asks.SearchEvents, MemoryAnchor.search_events, _events),
        Row("get", asks.GetMemory, _get, _as_is),
        Row("list", asks.ListMemories, MemoryAnchor.listing, _many),
        Row("due", asks.ListDue, MemoryAnchor.due, _due),
        Row("show", asks.ShowMemory, MemoryAnchor.show, _one),
        Row("profile", asks.ReadProfile, MemoryAnchor.profile, lambda lines, _: shapes.profile(lines)),
        Row("history", asks.ShowHistory, MemoryAnchor.steps, _steps),
        Row(
            "active",
            asks.GetActiveContext,
            MemoryAnchor.active,
            lambda values, anchor: shapes.active(values, now=anchor.services.clock.now()),
        ),
        Row(
            "set_active",
            asks.SetActiveContext,
            MemoryAnchor.set_active,
            lambda until, _: {"ok": True, "expires_at": shapes.time_text(until)},
        ),
        Row("end_session", asks.EndSession, MemoryAnchor.end_session, lambda done, _: shapes.outcomes(done)),
        Row("operations", asks.FindOperations, MemoryAnchor.find_operations, lambda one, _: shapes.operations(one)),
        Row("context", asks.BuildContext, MemoryAnchor.build_context, _context),
        Row(
            "remember",
            asks.RememberConversation,
            MemoryAnchor.remember_conversation,
            lambda done, _: shapes.remembered(*done),
        ),
        Row("found_in", asks.RememberConversation, MemoryAnchor.found_in, _found),
        Row("forget", asks.ForgetMemory, MemoryAnchor.forget, _outcome),
        Row("edit", asks.EditMemory, MemoryAnchor.edit, _outcome),
        Row("judge", asks.JudgeMemory, MemoryAnchor.judge, _outcome),
        Row("pin", asks.PinMemory, MemoryAnchor.pin, _outcome),
        Row("unpin", asks.UnpinMemory, MemoryAnchor.unpin, _outcome),
        Row("restore", asks.RestoreMemory, MemoryAnchor.restore, _outcome),
        Row("inbox", asks.ReviewInbox, MemoryAnchor.inbox, _waiting),
        Row("sides", asks.ReviewSides, MemoryAnchor.sides, _many),
        Row("accept", asks.AcceptPending, MemoryAnchor.accept, _outcome),
        Row("reject", asks.RejectPending, MemoryAnchor.reject, _outcome),
        Row("settle", asks.ResolveConflict, MemoryAnchor.settle, _outcome),
        Row("pause", asks.PauseAgents, MemoryAnchor.pause, _as_is),
        Row("undo", asks.Undo, MemoryAnchor.undo, _as_is),
        Row("purge_preview", asks.PreviewPurge, MemoryAnchor.preview_purge, _as_is),
        Row("purge", asks.Purge, MemoryAnchor.purge, _as_is),
        Row("jobs_run", asks.RunJob, MemoryAnchor.run_job, _job),
        Row("jobs_switch", asks.SwitchJobs, MemoryAnchor.switch_jobs, _as_is),
        Row("context_report", asks.ReadReport, MemoryAnchor.report, _report),
        Row("reindex", asks.ReindexStore, MemoryAnchor.reindex, _as_is),
        Row("projects_list", moved.ListProjects, MemoryAnchor.projects, _as_is),
        Row("projects_link", moved.LinkProject, MemoryAnchor.link_project, _as_is),
        Row("projects_merge", moved.MergeProjects, MemoryAnchor.merge_projects, _as_is),
        Row("lorebook_add", asks.AddLorebook, MemoryAnchor.add_lorebook, _as_is),
        Row("lorebook_list", asks.ListLorebooks, MemoryAnchor.lorebooks, _as_is),
        Row("lorebook_show", asks.ShowLorebook, MemoryAnchor.show_lorebook, _as_is),
        Row("lorebook_remove", asks.RemoveLorebook, MemoryAnchor.remove_lorebook, _as_is),
        Row("lorebook_export", asks.ExportLorebook, MemoryAnchor.export_lorebook, _as_is),
        Row(
            "lorebook_scan",
            asks.ScanLorebook,
            MemoryAnchor.scan_lorebook,
            lambda value, anchor: shapes.scanned_lore(value, reader=anchor.actor.scope),
        ),
        Row("lorebook_report", asks.LorebookReport, MemoryAnchor.lorebook_report, _as_is),
        Row("export_begin", moved.BeginExport, MemoryAnchor.begin_export, _as_is),
        Row("export_page", moved.ExportPage, MemoryAnchor.export_page, _as_is),
        Row("import_projects", moved.ImportProjects, MemoryAnchor.import_projects, _as_is),
        Row("import_lines", moved.ImportLines, MemoryAnchor.import_lines, _as_is),
        Row("knowledge_search", wanted.KnowledgeSearch, MemoryAnchor.knowledge_search, _passages),
        Row("knowledge_get", wanted.KnowledgeGet, MemoryAnchor.knowledge_get, _opened),
        Row("knowledge_add", wanted.KnowledgeAdd, MemoryAnchor.knowledge_add, _source),
        Row("knowledge_push", wanted.KnowledgePush, MemoryAnchor.knowledge_push, _source),
        Row("knowledge_sources", wanted.KnowledgeSources, MemoryAnchor.knowledge_sources, _sources),
        Row("knowledge_sync", wanted.KnowledgeSync, MemoryAnchor.knowledge_sync, _as_is),
        Row("knowledge_remove", wanted.KnowledgeRemove, MemoryAnchor.knowledge_remove, _as_is),
    )
}
