"""One table of the use cases: a name, its request, the method of `MemoryAnchor`, and how its answer is shown.

MCP tools, calls over the engine's socket, commands and HTTP paths are all made from these rows; none of them knows an
argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Json, Record, parsed
from memory_anchor.domain.model import Memory, WriteMode, WriteOutcome
from memory_anchor.domain.requests import requests as asks
from memory_anchor.extensions import installed
from memory_anchor.front import views
from memory_anchor.front.rows import Row, ToolSpec, as_is, for_reader, row
from memory_anchor.language.perspective import worded_for
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.context.context_reports import RecordedReport
    from memory_anchor.ingest.conversation_learning import Extracted
    from memory_anchor.upkeep.history import Step
    from memory_anchor.upkeep.job_kit import JobReport
    from memory_anchor.upkeep.jobs import Job, JobState
    from memory_anchor.use_cases.curation import Inbox
    from memory_anchor.use_cases.due import DueMemory


def shaped_memory(memory: Memory, anchor: MemoryAnchor) -> dict[str, Json]:
    """Return a memory as this caller may see it now."""
    services = anchor.services
    return views.memory(memory, now=services.clock.now(), reader=anchor.actor.scope, activation=services.activation)


def _with_links(memory: Memory, shown: Record, anchor: MemoryAnchor) -> Record:
    links = [asdict(link) for link in anchor.links(memory)]
    return {**shown, **({"links": links} if links else {})}


def _one(memory: Memory, anchor: MemoryAnchor) -> Record:
    shown = _with_links(memory, shaped_memory(memory, anchor), anchor)
    return {**shown, "memory": shown}  # the second is the key of 0.1, for one release


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


def _extract(anchor: MemoryAnchor, request: asks.ExtractConversation) -> Record:
    if request.apply:
        return views.remembered(*anchor.remember_conversation(request))
    return _candidates(anchor.extract(request), anchor)


def _probe(anchor: MemoryAnchor, request: asks.ProbeStore) -> Record:
    """Return the checks of `doctor` that need the store; with `vectors_from`, one step of `--deep`."""
    from memory_anchor.front import doctor_store

    if request.vectors_from is not None:
        return doctor_store.compare_vectors(anchor.process, request.vectors_from)
    return {"checks": [asdict(check) for check in doctor_store.probe(anchor.process)]}


def _step(step: Step) -> Json:
    until = views.time_text(step.until) if step.until else None
    return parsed(json.dumps({**asdict(step), "at": views.time_text(step.at), "until": until}, default=str))


def _steps(history: tuple[list[Memory], tuple[Step, ...]], anchor: MemoryAnchor) -> Record:
    versions, steps = history
    has_earlier = versions and versions[0].version > 1
    return {
        **({"before": versions[0].version} if has_earlier else {}),
        "versions": [shaped_memory(memory, anchor) for memory in versions],
        "steps": [_step(step) for step in steps],
    }


def _inbox(inbox: Inbox, anchor: MemoryAnchor) -> Record:
    return {
        "items": [
            {
                "memory": shaped_memory(item.memory, anchor),
                "against": [shaped_memory(memory, anchor) for memory in item.against],
                "needs_human": item.needs_human,
            }
            for item in inbox.items
        ],
        "total": inbox.total,
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


def _jobs(answer: tuple[list[tuple[Job, JobState, bool]], bool], _: MemoryAnchor) -> Record:
    listed, running = answer
    jobs: list[Json] = [
        {
            "name": job.name,
            "about": job.about,
            "every_s": job.every.total_seconds(),
            "due": is_due,
            "last_at": views.time_text(state.last_at) if state.last_at else None,
            "runs": state.runs,
            "changed": state.changed,
            "failures": state.failures,
            "last_failure": state.last_failure,
        }
        for job, state, is_due in listed
    ]
    return {"jobs": jobs, "running": running}


def _why_not(anchor: MemoryAnchor, request: asks.WhyNot) -> Record:
    answer = anchor.why_not(request)
    return {"id": request.id, "query": request.query, "reasons": [answer["reason"]], **answer}


def _report(stored: RecordedReport, anchor: MemoryAnchor) -> Record:
    shown = views.report(stored.report, reader=anchor.actor.scope)
    return {"id": stored.id, "recorded_at": stored.recorded_at.isoformat(), "report": shown}


class Table(Mapping[str, Row]):
    """Rows by their name. An extension's are imported for a name that the core has not, or when all are asked for."""

    def __init__(self, own: Iterable[Row]) -> None:
        self._own = {one.name: one for one in own}

    @cached_property
    def _all(self) -> dict[str, Row]:
        return self._own | {one.name: one for extension in installed() for one in extension.rows()}

    def __getitem__(self, name: str) -> Row:
        return self._own[name] if name in self._own else self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)


ROWS: Mapping[str, Row] = Table(
    (
        row(
            "constitution",
            asks.GetConstitution,
            lambda anchor, _: views.constitution(anchor.constitution()),
            as_is,
            ToolSpec("get_constitution", "The project's rules (L0). Follow them.", "minimal"),
        ),
        row(
            "search",
            asks.SearchMemory,
            MemoryAnchor.search,
            for_reader(views.search_answer),
            ToolSpec(
                "search_memory",
                "Search long-term memory before you decide, fix or ask. weak: may be beside the point.",
                "minimal",
            ),
        ),
        row("why_not", asks.WhyNot, _why_not, as_is),
        row(
            "add",
            asks.SaveMemory,
            MemoryAnchor.save_memory,
            _outcome,
            ToolSpec(
                "save_memory",
                "Save what later sessions must know: a decision, fix, preference or rule, and "
                "why. One whole statement, no secrets. key: title. replaces: id it corrects.",
                "minimal",
                "adds",
            ),
        ),
        row(
            "log",
            asks.LogEvent,
            MemoryAnchor.log_event,
            _outcome,
            ToolSpec("log_event", "Log what happened: work done, failures, findings.", "minimal", "adds"),
        ),
        row(
            "promote",
            asks.PromoteToFact,
            MemoryAnchor.promote,
            _outcome,
            ToolSpec(
                "promote_to_fact",
                "Turn a confirmed event into a fact that cites it; content: the rule.",
                "minimal",
                "sets",
            ),
        ),
        row(
            "propose",
            asks.ProposeChange,
            MemoryAnchor.propose,
            lambda proposal, _: views.proposal(proposal),
            ToolSpec("propose_constitution_change", "Propose a rule change; only humans approve.", effect="sets"),
        ),
        row(
            "events",
            asks.SearchEvents,
            MemoryAnchor.search_events,
            for_reader(views.events),
            ToolSpec("search_events", "Events of a time range, newest first."),
        ),
        row("get", asks.GetMemory, _get, as_is, ToolSpec("get_memory", "One memory whole.")),
        row("list", asks.ListMemories, lambda anchor, asked: anchor.curation.listing(asked), _many),
        row("due", asks.ListDue, MemoryAnchor.due, _due),
        row("show", asks.ShowMemory, MemoryAnchor.show, _one),
        row("profile", asks.ReadProfile, MemoryAnchor.profile, lambda lines, _: views.profile(lines)),
        row("history", asks.ShowHistory, MemoryAnchor.steps, _steps),
        row(
            "forget",
            asks.ForgetMemory,
            MemoryAnchor.forget,
            _outcome,
            ToolSpec("forget_memory", "Archive a wrong or unwanted memory; restorable.", effect="removes"),
        ),
        row(
            "active",
            asks.GetActiveContext,
            MemoryAnchor.active,
            lambda values, anchor: views.active(values, now=anchor.services.clock.now()),
            ToolSpec("get_active_context", "What this conversation has noted."),
        ),
        row(
            "set_active",
            asks.SetActiveContext,
            MemoryAnchor.set_active,
            lambda until, _: {"ok": True, "expires_at": views.time_text(until)},
            ToolSpec("set_active_context", "Note a passing value for this conversation.", effect="sets"),
        ),
        row(
            "end_session",
            asks.EndSession,
            MemoryAnchor.end_session,
            lambda outcomes, _: views.outcomes(outcomes),
            ToolSpec(
                "end_session", "Call when work ends: notes and summary (done, open) become one event.", effect="adds"
            ),
        ),
        row(
            "operations",
            asks.FindOperations,
            MemoryAnchor.find_operations,
            lambda passages, _: views.operations(passages),
            ToolSpec("find_operations", "How this project does a task (.ai/operations/)."),
        ),
        row(
            "context",
            asks.BuildContext,
            MemoryAnchor.build_context,
            for_reader(views.built_context),
            ToolSpec("build_context", "All layers for a task in one text within a budget."),
        ),
        row(
            "remember",
            asks.RememberConversation,
            MemoryAnchor.remember_conversation,
            lambda answer, _: views.remembered(*answer),
            ToolSpec(
                "remember_conversation", "Extract and store what is worth keeping of a conversation.", "full", "adds"
            ),
        ),
        row("found_in", asks.RememberConversation, MemoryAnchor.extract, _candidates),
        row("extract", asks.ExtractConversation, _extract, as_is),
        row("edit", asks.EditMemory, lambda anchor, asked: anchor.curation.edit(asked), _outcome),
        row("judge", asks.JudgeMemory, lambda anchor, asked: anchor.curation.judge(asked), _outcome),
        row("pin", asks.PinMemory, lambda anchor, asked: anchor.curation.pin(asked), _outcome),
        row("unpin", asks.UnpinMemory, lambda anchor, asked: anchor.curation.unpin(asked), _outcome),
        row("restore", asks.RestoreMemory, lambda anchor, asked: anchor.curation.restore(asked), _outcome),
        row("inbox", asks.ReviewInbox, lambda anchor, asked: anchor.curation.inbox(asked), _inbox),
        row("sides", asks.ReviewSides, lambda anchor, asked: anchor.curation.sides(asked), _many),
        row("accept", asks.AcceptPending, lambda anchor, asked: anchor.curation.accept(asked), _outcome),
        row("reject", asks.RejectPending, lambda anchor, asked: anchor.curation.reject(asked), _outcome),
        row(
            "settle",
            asks.ResolveConflict,
            lambda anchor, asked: anchor.curation.settle(asked),
            _outcome,
            ToolSpec(
                "resolve_conflict",
                "Settle two memories that contradict each other; some wait for the user.",
                "full",
                "removes",
            ),
        ),
        row("pause", asks.PauseAgents, lambda anchor, asked: anchor.maintenance.pause(asked), as_is),
        row("undo", asks.Undo, lambda anchor, asked: anchor.maintenance.undo(asked), as_is),
        row("purge_preview", asks.PreviewPurge, lambda anchor, asked: anchor.maintenance.preview_purge(asked), as_is),
        row("purge", asks.Purge, lambda anchor, asked: anchor.maintenance.purge(asked), as_is),
        row("stats", asks.ReadStats, lambda anchor, asked: anchor.maintenance.stats(asked), as_is),
        row("saving", asks.CheckSaving, lambda anchor, asked: anchor.maintenance.saving(asked), as_is),
        row("doctor_probe", asks.ProbeStore, _probe, as_is),
        row("backup_create", asks.CreateBackup, lambda anchor, asked: anchor.maintenance.create_backup(asked), as_is),
        row("jobs_list", asks.ListJobs, lambda anchor, asked: anchor.maintenance.jobs(asked), _jobs),
        row("jobs_run", asks.RunJob, lambda anchor, asked: anchor.maintenance.run_job(asked), _job),
        row("jobs_switch", asks.SwitchJobs, lambda anchor, asked: anchor.maintenance.switch_jobs(asked), as_is),
        row("context_reports", asks.ListReports, lambda anchor, asked: anchor.maintenance.reports(asked), as_is),
        row("context_report", asks.ReadReport, lambda anchor, asked: anchor.maintenance.report(asked), _report),
        row("reindex", asks.ReindexStore, lambda anchor, asked: anchor.maintenance.reindex(asked), as_is),
        row("projects_list", asks.ListProjects, lambda anchor, asked: anchor.maintenance.projects(asked), as_is),
        row("projects_link", asks.LinkProject, lambda anchor, asked: anchor.maintenance.link(asked), as_is),
        row("projects_merge", asks.MergeProjects, lambda anchor, asked: anchor.maintenance.merge(asked), as_is),
    )
)
