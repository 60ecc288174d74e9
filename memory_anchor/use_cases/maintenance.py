"""The use cases that look after a memory: undo, purge, jobs, projects, reports, reindex, backup.

Each asks the one table of rights first. What they work on is the process's (`Core`): its jobs, projects and files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.projects import DEFAULT, PATH, REMOTE, ROOT
from memory_anchor.admin import backup
from memory_anchor.admin import purge as purging
from memory_anchor.admin.merges import MOVED, Merges
from memory_anchor.admin.rebuild import Reindex
from memory_anchor.admin.upgrade import KeptSides
from memory_anchor.base.files import remove_durably
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, optional_text, parsed, record
from memory_anchor.base.pausing import FLAG, Pause, parse_duration, pause_of, save_pause
from memory_anchor.context.context_reports import RecordedReport, owner_of
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import HISTORY, Caller, Citation, account_of
from memory_anchor.domain.requests import checks, requests
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.rights import Action
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.upkeep import history as undoing
from memory_anchor.upkeep.job_kit import JobReport, Limits
from memory_anchor.upkeep.jobs import Job, JobState
from memory_anchor.use_cases.costs import cost_report
from memory_anchor.use_cases.services import Services
from memory_anchor.use_cases.used_memories import USED_MEMORIES_FILE, UsedMemories
from memory_anchor.use_cases.writes import Writes

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core

DUMP = "pg_dump --format=custom --file FILE URL"
"""How what a server of PostgreSQL holds is written to a file; the address is not shown, it may hold a password."""
PREVIEW_MAX, PREVIEW_CHARS = 10_000, 4_000_000
AUDIENCES_MAX = 100_000
REINDEX_STEP_S = 2.0
"""How long one call works before it reports its progress."""


def merges_of(services: Services, *accounts: str) -> Merges:
    """Return the merges of projects. accounts: whose lorebooks go along, besides those that have memories here."""
    store = services.store

    def every_account() -> list[str]:
        # Edge has no index of accounts; the key of every audience names one.
        audiences = [store.facet(collection, "audience", Where(), limit=AUDIENCES_MAX) for collection in MOVED]
        return [*accounts, *sorted({account_of(key) for keys in audiences for key in keys})]

    along = {name: things for one in services.extensions.values() for name, things in one.moves(every_account).items()}
    return Merges(services.data_dir, store, services.records.lock, along)


class Maintenance:
    def __init__(self, writes: Writes, process: Core) -> None:
        self._writes = writes
        self._process = process
        self._services, self._actor = writes.services, writes.actor

    @use_case(requests.PauseAgents)
    def pause(self, request: requests.PauseAgents) -> dict[str, Json]:
        """Pause writes by agents, or resume them (humans only); `stats` shows which."""
        rights.check(Action.RESUME if request.off else Action.PAUSE, self._actor.caller)
        data, now = self._services.data_dir, self._services.clock.now()
        if request.off:
            remove_durably(data / FLAG)
            return {"paused": False}
        pause = Pause(now + parse_duration(request.lasting) if request.lasting else None, request.no_memory)
        current = pause_of(data, now)
        if current is not None and (current.outlasts(pause) or current.silent > pause.silent):
            rights.check(Action.RESUME, self._actor.caller)  # a shorter or weaker pause would end the one in force
        save_pause(data, pause)
        until = {"until": pause.until.isoformat()} if pause.until else {}
        return {"paused": True, **until, **({"silent": True} if pause.silent else {})}

    @use_case(requests.Undo)
    def undo(self, request: requests.Undo) -> dict[str, Json]:
        """Return the plan of an undo; `apply` carries it out."""
        up, reader = self._process.upkeep, self._actor.scope
        human = rights.may(Action.UNDO_HUMANS, self._actor.caller)
        if request.conversation:
            plan = undoing.plan_conversation(up, request.conversation, reader, human=human)
        elif request.agent:
            if request.since is None:
                raise BadInput("since is missing; allowed is an ISO 8601 time with --agent")
            plan = undoing.plan_agent(up, request.agent, request.since.start(self._actor.zone), reader, human=human)
        elif request.what == "last":
            plan = undoing.plan_last(up, reader, human=human)
        else:
            raise BadInput("undo names nothing; allowed are `last`, --conversation ID, or --agent NAME --since ISO")
        if request.only:
            plan = plan.of(request.only)
        if request.apply:
            self._writes.check_writable()
            now, author, answers = self._services.clock.now(), self._writes.author, self._services.answers
            repeat = (stable_hash("undo", repr(request)), reader.account, self._actor.nonce)
            plan = undoing.recorded_plan(up, answers.note_once(lambda: undoing.plan_record(plan), *repeat), plan)
            undoing.apply(up, plan, at=now, author=author, written_in=reader.conversation)
        return {
            "what": plan.what,
            "applied": request.apply,
            "steps": [asdict(step) for step in plan.preview()],
            "left": [asdict(left) for left in plan.left],
            "cut": plan.cut,
        }

    # --- purge -------------------------------------------------------------------------------------------------

    @use_case(requests.PreviewPurge)
    def preview_purge(self, request: requests.PreviewPurge) -> dict[str, Json]:
        """Return every version that a purge of these ids, or of this text, would erase; for a human alone.

        Raises BadInput: more than a human is shown at once.
        """
        rights.check(Action.PURGE, self._actor.caller)
        versions = purging.versions_to_erase(self._process.upkeep, ids=request.ids, text=request.text)
        found = list(chain.from_iterable(versions.values()))
        if len(found) > PREVIEW_MAX or sum(len(memory.content) for memory in found) > PREVIEW_CHARS:
            raise BadInput(
                f"{len(found)} versions would be erased, more than are shown at once ({PREVIEW_MAX} versions, "
                f"{PREVIEW_CHARS:,} characters); name a longer text, or memories by their ids"
            )
        return {"memories": purging.shown_versions(versions)}

    @use_case(requests.Purge)
    def purge(self, request: requests.Purge) -> dict[str, Json]:
        """Erase memories for good by id or by a text: a human's call alone."""
        rights.check(Action.PURGE, self._actor.caller)
        if bool(request.ids) == bool(request.text):
            raise BadInput("purge names nothing, or both ids and a text; allowed is one of them")
        data_dir, services = self._services.data_dir, self._services
        human_files, kept_sides = _human_files(services, self._process), KeptSides(data_dir)
        for memory_id in request.ids:
            services.records.read(memory_id, self._actor.scope)
        up = self._process.upkeep
        erase = (
            partial(purging.purge_ids, up, request.ids)
            if request.ids
            else partial(purging.purge_text, up, request.text)
        )
        purged = erase(
            caller=self._actor.caller,
            at=services.clock.now(),
            by=self._writes.author,
            seen=request.seen,
            holders=(human_files, kept_sides, *_holders(services, self._process)),
        )
        still_in = [*human_files.found, *kept_sides.left, *backup.out_of_reach(data_dir)]
        clean = purged.clean and not still_in
        report = {**asdict(purged), "versions": purged.versions, "still_in": still_in, "clean": clean}
        return dict(record(parsed(json.dumps(report, default=str))))

    # --- state -------------------------------------------------------------------------------------------------

    @use_case(requests.ReadStats)
    def stats(self, request: requests.ReadStats) -> dict[str, Json]:
        """Return counts of what this caller may read, how many memories shown were used, or what it all costs."""
        if request.cost:
            services = self._services
            kind = services.settings.llm.kind
            return {"cost": cost_report(services.costs, services.data_dir, model=kind, now=services.clock.now())}
        if request.heeded:
            return {"heeded": UsedMemories(self._services.data_dir / USED_MEMORIES_FILE).table()}
        return self._process.stats(self._actor.scope)

    @use_case(requests.CheckSaving)
    def saving(self, _: requests.CheckSaving) -> dict[str, Json]:
        """Return why the last write failed, "" when it did not."""
        return {"failure": self._services.save_health.failure}

    @use_case(requests.CreateBackup)
    def create_backup(self, request: requests.CreateBackup) -> dict[str, Json]:
        """Write a backup; one of a repeated request is the one that it began."""
        target, answers = Path(request.file), self._services.answers
        repeat = (stable_hash("backup", str(target)), self._actor.scope.account, self._actor.nonce)
        begun = optional_text(answers.read_note(*repeat))
        if begun is not None and os.path.lexists(begun):
            made = backup.describe_backup(Path(begun))
        else:
            target = backup.free_target(target, self._services.clock.now())
            answers.write_note(str(target), *repeat)
            made = backup.create(self._process, target)
        shown: dict[str, Json] = {"file": made["file"], "bytes": made["bytes"], "versions": made["versions"]}
        return {**shown, "dump": DUMP} if self._services.store.kind == "postgresql" else shown

    # --- jobs --------------------------------------------------------------------------------------------------

    @use_case(requests.RunJob)
    def run_job(self, request: requests.RunJob) -> JobReport:
        """Run one job now, or only say what it would do."""
        return self._process.scheduler.run(request.name, self._services.clock.now(), Limits(dry_run=request.dry_run))

    @use_case(requests.SwitchJobs)
    def switch_jobs(self, request: requests.SwitchJobs) -> dict[str, Json]:
        """Keep the engine from running jobs by itself, or let it again; remembered over restarts."""
        self._process.enable_jobs(request.on)
        return {"running": request.on}

    @use_case(requests.ListJobs)
    def jobs(self, _: requests.ListJobs) -> tuple[list[tuple[Job, JobState, bool]], bool]:
        """Return each job, its history, whether it is due, and last whether jobs run by themselves."""
        scheduler = self._process.scheduler
        states, due = scheduler.stats(), {job.name for job in scheduler.due(self._services.clock.now())}
        listed = [(job, states[name], name in due) for name, job in scheduler.jobs.items()]
        return listed, scheduler.started

    # --- reports of contexts -----------------------------------------------------------------------------------

    @use_case(requests.ReadReport)
    def report(self, request: requests.ReadReport) -> RecordedReport:
        """Return a report without what this reader may not see of it. Raises NotFound."""
        recorded = self._process.reports.load(request.id, owner_of(self._actor.scope))
        citations = tuple(citation for citation in recorded.report.citations if self._may_show(citation))
        return replace(recorded, report=replace(recorded.report, citations=citations))

    @use_case(requests.ListReports)
    def reports(self, _: requests.ListReports) -> dict[str, Json]:
        """Return the reports of this caller's contexts that are kept."""
        listed = self._process.reports.list(owner_of(self._actor.scope))
        return {"reports": [{"id": id, "recorded_at": at.isoformat()} for id, at in listed]}

    def costs(self, most: int) -> tuple[dict[str, Json], ...]:
        """Return what the last contexts of this caller cost."""
        return self._process.reports.costs(owner_of(self._actor.scope), most)

    def _may_show(self, cited: Citation) -> bool:
        """Return whether this reader may see what a report of this project cites.

        A memory: one that this reader may read now. A file or link: one that this agent cited itself, since a report
        does not record who may read the memory that cites it.
        """
        reader = self._actor.scope
        if cited.kind not in ("memory_entry", "event"):
            return cited.scope is None or cited.scope.agent == reader.agent
        try:
            self._services.records.read(cited.ref.partition("@")[0], reader)
        except NotFound:
            return False
        return True

    # --- the store ---------------------------------------------------------------------------------------------

    @use_case(requests.ReindexStore)
    def reindex(self, request: requests.ReindexStore) -> dict[str, Json]:
        """Continue a reindex of words, indexes and (on request) vectors for a few seconds; searches go on meanwhile."""
        self._writes.check_writable()
        services = self._services
        run = Reindex(
            services.store,
            services.embedder,
            lock=services.records.lock,
            state_dir=services.data_dir / "jobs",
            vectors=request.vectors,
            local=services.local,
        )
        until = self._services.monotonic() + REINDEX_STEP_S
        for progress in run.steps():
            if self._services.monotonic() > until:
                return {"finished": False, **asdict(progress)}
        services.invalidate_caches()
        if request.vectors:
            services.nearness.clear()
        return {"finished": True, "embedder": services.embedder.identity.model if services.embedder else ""}

    # --- projects ----------------------------------------------------------------------------------------------

    @use_case(requests.ListProjects)
    def projects(self, request: requests.ListProjects) -> dict[str, Json]:
        """Return every project: folders, remotes, first commits, count of memories, which other one it may be."""
        known_here = dict(self._process.projects.listed())
        counts: dict[str, int] = {}
        current = Where((), (OneOf("state", (HISTORY,)),))
        for name in MOVED:
            for project, number in self._services.store.facet(name, "project", current).items():
                counts[project] = counts.get(project, 0) + number
        return {
            "renamed": self._process.projects.renamed(request.aliases),
            "projects": [
                {
                    "id": name,
                    "here": name == self._actor.scope.project,
                    "memories": counts.get(name, 0),
                    "paths": project_here.of_kind(PATH) if project_here else [],
                    "remotes": project_here.of_kind(REMOTE) if project_here else [],
                    "first_commits": project_here.of_kind(ROOT) if project_here else [],
                    "may_be": project_here.maybe if project_here else "",
                    "why": project_here.why if project_here else "",
                }
                for name in sorted({*known_here, *counts})
                for project_here in [known_here.get(name)]
            ],
        }

    @use_case(requests.LinkProject)
    def link(self, request: requests.LinkProject) -> dict[str, Json]:
        """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""
        rights.check(Action.LINK, self._actor.caller)
        target = self._target(request.project)
        folder = os.path.realpath(request.folder or self._actor.project_dir)
        before = self._process.projects.link(folder, target, moved=request.moved)
        self._audit("project.linked", {"project": target, "folder": folder, "was": before, "moved": request.moved})
        left = self._count(before) if before != target else 0
        return {"project": target, "folder": folder, "was": before, "left_behind": left}

    @use_case(requests.MergeProjects)
    def merge(self, request: requests.MergeProjects) -> dict[str, Json]:
        """Move every memory of one project to another, or with `undo` those that a merge moved back."""
        rights.check(Action.MERGE_PROJECTS, self._actor.caller)
        self._writes.check_writable()
        projects, services = self._process.projects, self._services
        merges = merges_of(services, self._actor.scope.account)
        source = checks.project_id(request.source)
        if request.undo:
            merge = merges.undo(source)
            projects.unmerge(merge.source, merge.target, merge.aliases)
            merges.drop(source)
        else:
            target = self._target(request.target)
            if source == target:
                raise BadInput(f"{source} cannot be merged into itself; name two projects")
            projects.register(source, target)
            merge = merges.begin(source, target, projects.known(source).aliases)
            projects.merge(source, target)
            merges.carry_out(merge)
        services.invalidate_caches()
        kind = "project.unmerged" if request.undo else "project.merged"
        self._audit(kind, {"source": source, "target": merge.target, "versions": merge.versions})
        return {"source": source, "target": merge.target, "versions": merge.versions, "undone": request.undo}

    def _target(self, project: str) -> str:
        """Return the id of a project that is known, or that memories here name. Raises NotFound, BadInput."""
        name = checks.project_id(project)
        if name == DEFAULT or self._count(name):
            self._process.projects.register(name)
        self._process.projects.known(name)
        return name

    def _count(self, project: str) -> int:
        where = Where((OneOf("project", (project,)),), (OneOf("state", (HISTORY,)),))
        return sum(self._services.store.count(name, where) for name in MOVED)

    def _audit(self, kind: str, what: dict[str, Json]) -> None:
        self._services.audit.append(kind, what, by=self._writes.author, at=self._services.clock.now())


def _human_files(services: Services, process: Core) -> purging.HumanFiles:
    folders = (alias.removeprefix("path:") for alias in chain.from_iterable(process.projects.all().values()))
    return purging.HumanFiles(services.data_dir, [Path(folder) for folder in folders if folder.startswith("/")])


def _holders(services: Services, process: Core) -> tuple[purging.Holder, ...]:
    """Return everything outside the store that may hold a memory's text."""
    data_dir = services.data_dir
    return (
        purging.ActiveContextHolder(services.active),
        *purging.holders_in(data_dir, process.records),
        backup.KnownBackups(data_dir),
        purging.Cache("what searches remember", services.invalidate_caches),
        purging.Cache("rows of L0 and L4", services.nearness.clear),
        purging.Cache("which tags occur together", process.clear_tags),
        purging.Cache("what was said last", services.events.clear_cache),
        *(holder for one in services.extensions.values() for holder in one.holders()),
    )


def purged_elsewhere(services: Services, process: Core, ids: Sequence[str], by: str) -> None:
    """Erase what a human purged on another device, whose signature the caller has checked."""
    at = services.clock.now()
    files: tuple[purging.Holder, ...] = (_human_files(services, process), KeptSides(services.data_dir))
    holders = (*files, *_holders(services, process))
    purging.purge_ids(process.upkeep, ids, caller=Caller.HUMAN, at=at, by=by, holders=holders)
