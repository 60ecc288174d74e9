"""The use cases that look after a memory: undo, purge, jobs, projects, reports, reindex, backup.

Each asks the one table of rights first. What they work on is the process's (`Process`): its jobs, projects and files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from memory_anchor import inputs, rights
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor.adapters.projects import DEFAULT, PATH, REMOTE, ROOT
from memory_anchor.care import backup
from memory_anchor.care import purge as purging
from memory_anchor.care.rebuild import Reindex
from memory_anchor.care.transfer import MOVED, Merges
from memory_anchor.context.context_reports import RecordedReport, owner_of
from memory_anchor.errors import BadInput, NotFound
from memory_anchor.files import remove_durably
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Json, Record, parsed, record
from memory_anchor.knowledge.care import ProjectSources
from memory_anchor.knowledge.care import holders as knowledge_holders
from memory_anchor.knowledge.lorebooks import ProjectBooks
from memory_anchor.model import HISTORY, Caller, Citation, Memory, account_of
from memory_anchor.pausing import FLAG, Pause, keep_pause, lasting, pause_of
from memory_anchor.rights import Deed
from memory_anchor.services import Process, Services
from memory_anchor.upkeep import history as undoing
from memory_anchor.upkeep.upkeep import JobReport, Limits
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import Writes

PREVIEW_MAX, PREVIEW_CHARS = 200, 120
AUDIENCES_MAX = 100_000
REINDEX_STEP_S = 2.0
"""How long one call works before it says how far it came."""


def merges_of(services: Services, *accounts: str) -> Merges:
    """Return the merges of projects. accounts: whose lorebooks go along, besides those that have memories here."""
    store = services.store

    def every_account() -> list[str]:
        # Edge has no index of accounts; the key of every audience names one.
        audiences = [store.facet(collection, "audience", Where(), limit=AUDIENCES_MAX) for collection in MOVED]
        return [*accounts, *sorted({account_of(key) for keys in audiences for key in keys})]

    books = ProjectBooks(services.lorebooks, services.data_dir, every_account)
    return Merges(
        services.data_dir,
        store,
        services.records.lock,
        {"sources": ProjectSources(services.knowledge), "lorebooks": books},
    )


class Maintenance:
    def __init__(self, writes: Writes, process: Process) -> None:
        self._writes = writes
        self._process = process
        self._services, self._actor = writes.services, writes.actor

    def pause(self, asked: asks.PauseAgents) -> dict[str, Json]:
        """Stop agents from writing, or let them go on, which only a human does; what is on shows in `stats`."""
        rights.check(Deed.RESUME if asked.off else Deed.PAUSE, self._actor.caller)
        data, now = self._services.data_dir, self._services.clock.now()
        if asked.off:
            remove_durably(data / FLAG)
            return {"paused": False}
        pause = Pause(now + lasting(asked.lasting) if asked.lasting else None, asked.no_memory)
        held = pause_of(data, now)
        if held is not None and (held.outlasts(pause) or held.silent > pause.silent):
            rights.check(Deed.RESUME, self._actor.caller)  # a shorter or lesser one would end what holds
        keep_pause(data, pause)
        until = {"until": pause.until.isoformat()} if pause.until else {}
        return {"paused": True, **until, **({"silent": True} if pause.silent else {})}

    def undo(self, asked: asks.Undo) -> dict[str, Json]:
        """Return the plan of what is given back, carried out with `apply`."""
        up, reader = self._process.upkeep, self._actor.scope
        human = rights.may(Deed.UNDO_HUMANS, self._actor.caller)
        if asked.conversation:
            plan = undoing.plan_conversation(up, asked.conversation, reader, human=human)
        elif asked.agent:
            if asked.since is None:
                raise BadInput("since is missing; allowed is an ISO 8601 time with --agent")
            plan = undoing.plan_agent(up, asked.agent, asked.since.begins(self._actor.zone), reader, human=human)
        elif asked.what == "last":
            plan = undoing.plan_last(up, reader, human=human)
        else:
            raise BadInput("undo names nothing; allowed are `last`, --conversation ID, or --agent NAME --since ISO")
        if asked.apply:
            self._writes.check_writable()
            now, author, answers = self._services.clock.now(), self._writes.author, self._services.answers
            request = (stable_hash("undo", repr(asked)), reader.account, self._actor.nonce)
            plan = undoing.as_noted(up, answers.first(lambda: undoing.noted(plan), *request), plan)
            undoing.apply(up, plan, at=now, author=author, written_in=reader.conversation)
        return {
            "what": plan.what,
            "applied": asked.apply,
            "steps": [asdict(step) for step in plan.preview()],
            "left": [asdict(left) for left in plan.left],
            "cut": plan.cut,
        }

    # --- purge -------------------------------------------------------------------------------------------------

    def preview_purge(self, asked: asks.PreviewPurge) -> dict[str, Json]:
        """Return the memories that a purge of these ids, or of this text, would erase; for a human alone."""
        rights.check(Deed.PURGE, self._actor.caller)
        named = purging.doomed(self._process.upkeep, ids=asked.ids, text=asked.text)
        found: dict[str, list[Memory]] = {}
        for memory in (one for members in named.values() for one in members):
            found.setdefault(memory.id, []).append(memory)
        shown: list[Record] = [
            {"id": name, "versions": len(held), "content": " ".join(held[-1].content.split())[:PREVIEW_CHARS]}
            for name, held in sorted(found.items())
        ]
        return {"memories": shown[:PREVIEW_MAX], "count": len(shown), "seen": purging.digest(named)}

    def purge(self, asked: asks.Purge) -> dict[str, Json]:
        """Erase memories for good by id or by a text: a human's call alone."""
        rights.check(Deed.PURGE, self._actor.caller)
        if bool(asked.ids) == bool(asked.text):
            raise BadInput("purge names nothing, or both ids and a text; allowed is one of them")
        data_dir, services = self._services.data_dir, self._services
        left = _left_to_humans(services, self._process)
        for memory_id in asked.ids:
            services.records.read(memory_id, self._actor.scope)
        up = self._process.upkeep
        erase = partial(purging.purge_ids, up, asked.ids) if asked.ids else partial(purging.purge_text, up, asked.text)
        with services.lorebooks.changing():
            done = erase(
                caller=self._actor.caller,
                at=services.clock.now(),
                by=self._writes.author,
                seen=asked.seen,
                holders=(left, *_holders(services, self._process)),
            )
        told = {**asdict(done), "versions": done.versions, "still_in": [*left.found, *backup.out_of_reach(data_dir)]}
        return dict(record(parsed(json.dumps(told, default=str))))

    # --- jobs --------------------------------------------------------------------------------------------------

    def run_job(self, asked: asks.RunJob) -> JobReport:
        """Run one job now, or only say what it would do."""
        return self._process.scheduler.run(asked.name, self._services.clock.now(), Limits(dry_run=asked.dry_run))

    def switch_jobs(self, asked: asks.SwitchJobs) -> dict[str, Json]:
        """Keep the engine from running jobs by itself, or let it again; remembered over restarts."""
        self._process.let_jobs_run(asked.on)
        return {"running": asked.on}

    # --- reports of contexts -----------------------------------------------------------------------------------

    def report(self, asked: asks.ReadReport) -> RecordedReport:
        """Return a report without what this reader may not see of it. Raises NotFound."""
        kept = self._process.reports.load(asked.id, owner_of(self._actor.scope))
        shown = tuple(one for one in kept.report.citations if self._may_show(one))
        return replace(kept, report=replace(kept.report, citations=shown))

    def _may_show(self, cited: Citation) -> bool:
        """Return whether a report of this project may tell this reader what it cites.

        Memories are those that this reader reads now. For whom the memory was that a file or link stands in, a report
        does not hold: it tells of what that reader wrote itself.
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

    def reindex(self, asked: asks.ReindexStore) -> dict[str, Json]:
        """Go on with making words, indexes and (asked for) vectors anew, for a moment; searches go on meanwhile."""
        self._writes.check_writable()
        services = self._services
        run = Reindex(
            services.store,
            services.embedder,
            lock=services.records.lock,
            state_dir=services.data_dir / "jobs",
            vectors=asked.vectors,
            local=services.local,
        )
        until = self._services.monotonic() + REINDEX_STEP_S
        for progress in run.steps():
            if self._services.monotonic() > until:
                return {"finished": False, **asdict(progress)}
        services.read_anew()
        return {"finished": True, "embedder": services.embedder.identity.model if services.embedder else ""}

    # --- projects ----------------------------------------------------------------------------------------------

    def projects(self, asked: moved.ListProjects) -> dict[str, Json]:
        """Return every project: where it lies, how it is known, how many memories it has, and which one it may be."""
        known_here = dict(self._process.projects.listed())
        counts: dict[str, int] = {}
        current = Where((), (OneOf("state", (HISTORY,)),))
        for name in MOVED:
            for project, many in self._services.store.facet(name, "project", current).items():
                counts[project] = counts.get(project, 0) + many
        return {
            "renamed": self._process.projects.renamed(asked.aliases),
            "projects": [
                {
                    "id": name,
                    "here": name == self._actor.scope.project,
                    "memories": counts.get(name, 0),
                    "paths": known.of_kind(PATH) if known else [],
                    "remotes": known.of_kind(REMOTE) if known else [],
                    "first_commits": known.of_kind(ROOT) if known else [],
                    "may_be": known.likely if known else "",
                    "why": known.why if known else "",
                }
                for name in sorted({*known_here, *counts})
                for known in [known_here.get(name)]
            ],
        }

    def link(self, asked: moved.LinkProject) -> dict[str, Json]:
        """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""
        rights.check(Deed.LINK, self._actor.caller)
        target = self._target(asked.project)
        folder = os.path.realpath(asked.folder or self._actor.project_dir)
        before = self._process.projects.link(folder, target, moved=asked.moved)
        self._recorded("project.linked", {"project": target, "folder": folder, "was": before, "moved": asked.moved})
        left = self._count(before) if before != target else 0
        return {"project": target, "folder": folder, "was": before, "left_behind": left}

    def merge(self, asked: moved.MergeProjects) -> dict[str, Json]:
        """Move every memory of one project to another, or with `undo` those that a merge moved back."""
        rights.check(Deed.MERGE_PROJECTS, self._actor.caller)
        self._writes.check_writable()
        projects, services = self._process.projects, self._services
        merges = merges_of(services, self._actor.scope.account)
        source = inputs.project_id(asked.source)
        if asked.undo:
            merge = merges.undo(source)
            projects.unmerge(merge.source, merge.target, merge.aliases)
            merges.forget(source)
        else:
            target = self._target(asked.target)
            if source == target:
                raise BadInput(f"{source} cannot be merged into itself; name two projects")
            projects.register(source, target)
            merge = merges.begin(source, target, projects.known(source).aliases)
            projects.merge(source, target)
            merges.carry_out(merge)
        services.read_anew()
        kind = "project.unmerged" if asked.undo else "project.merged"
        self._recorded(kind, {"source": source, "target": merge.target, "versions": merge.versions})
        return {"source": source, "target": merge.target, "versions": merge.versions, "undone": asked.undo}

    def _target(self, project: str) -> str:
        """Return the id of a project that is known, or that memories here name. Raises NotFound, BadInput."""
        name = inputs.project_id(project)
        if name == DEFAULT or self._count(name):
            self._process.projects.register(name)
        self._process.projects.known(name)
        return name

    def _count(self, project: str) -> int:
        where = Where((OneOf("project", (project,)),), (OneOf("state", (HISTORY,)),))
        return sum(self._services.store.count(name, where) for name in MOVED)

    def _recorded(self, kind: str, what: dict[str, Json]) -> None:
        self._services.audit.append(kind, what, by=self._writes.author, at=self._services.clock.now())


def _left_to_humans(services: Services, process: Process) -> purging.LeftToHumans:
    folders = (alias.removeprefix("path:") for one in process.projects.all().values() for alias in one)
    return purging.LeftToHumans(services.data_dir, [Path(folder) for folder in folders if folder.startswith("/")])


def _holders(services: Services, process: Process) -> tuple[purging.Holder, ...]:
    """Return what else beside the store may hold a memory's text."""
    data_dir = services.data_dir
    return (
        purging.InMind(services.active),
        *purging.beside_store(data_dir, process.records),
        *knowledge_holders(services.knowledge, data_dir),
        backup.KnownBackups(data_dir),
        purging.Cache("what searches remember", services.read_anew),
        purging.Cache("which tags occur together", process.forget_tags),
        purging.Cache("what was said last", services.events.forget),
        purging.Cache("what lorebooks say", services.lorebooks.forget),
    )


def purged_elsewhere(services: Services, process: Process, ids: Sequence[str], by: str) -> None:
    """Erase what a human purged on another device, whose signature the caller has checked."""
    at = services.clock.now()
    beside = (_left_to_humans(services, process), *_holders(services, process))
    purging.purge_ids(process.upkeep, ids, caller=Caller.HUMAN, at=at, by=by, holders=beside)
