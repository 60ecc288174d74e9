"""The use cases that look after a memory: undo, purge, jobs, projects, reports, reindex, backup.

Each asks the one table of rights first. What they work on is the process's (`Process`): its jobs, projects and files.

Export and import run in many small calls, so an engine answers others in between and no answer exceeds a connection's
limit. What is not in the store (audit, proposals) is read and written by the command itself. An agent's import gives
nothing that it could not have written: see `rights.import_refusal` and `ConfidenceGate.as_agent_claim`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.adapters.projects import DEFAULT, PATH, REMOTE, ROOT
from memory_anchor.admin import backup
from memory_anchor.admin import purge as purging
from memory_anchor.admin.rebuild import Reindex
from memory_anchor.base import json_values
from memory_anchor.base.files import remove_durably
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, items, parsed, record
from memory_anchor.base.pausing import FLAG, Pause, parse_duration, pause_of, save_pause
from memory_anchor.context.context_reports import RecordedReport, owner_of
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.domain.model import HISTORY, Caller, Citation, Memory, Origin, Outcome, account_of, audiences
from memory_anchor.domain.requests import checks, moving_requests, requests
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.rights import Action
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.extensions.transfer import transfer
from memory_anchor.extensions.transfer.transfer import MOVED, Merges
from memory_anchor.language import safety
from memory_anchor.layers.records import audit_record
from memory_anchor.upkeep import history as undoing
from memory_anchor.upkeep.job_kit import JobReport, Limits
from memory_anchor.use_cases.services import Process, Services
from memory_anchor.use_cases.writes import IMPORT, Line, Writes

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
    def __init__(self, writes: Writes, process: Process) -> None:
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
        human_files = _human_files(services, self._process)
        for memory_id in request.ids:
            services.records.read(memory_id, self._actor.scope)
        up = self._process.upkeep
        erase = (
            partial(purging.purge_ids, up, request.ids)
            if request.ids
            else partial(purging.purge_text, up, request.text)
        )
        with ExitStack() as held:
            for extension in services.extensions.values():
                held.enter_context(extension.purging())
            purged = erase(
                caller=self._actor.caller,
                at=services.clock.now(),
                by=self._writes.author,
                seen=request.seen,
                holders=(human_files, *_holders(services, self._process)),
            )
        still_in = [*human_files.found, *backup.out_of_reach(data_dir)]
        clean = purged.clean and not still_in
        report = {**asdict(purged), "versions": purged.versions, "still_in": still_in, "clean": clean}
        return dict(record(parsed(json.dumps(report, default=str))))

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

    # --- reports of contexts -----------------------------------------------------------------------------------

    @use_case(requests.ReadReport)
    def report(self, request: requests.ReadReport) -> RecordedReport:
        """Return a report without what this reader may not see of it. Raises NotFound."""
        recorded = self._process.reports.load(request.id, owner_of(self._actor.scope))
        citations = tuple(citation for citation in recorded.report.citations if self._may_show(citation))
        return replace(recorded, report=replace(recorded.report, citations=citations))

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

    @use_case(moving_requests.ListProjects)
    def projects(self, request: moving_requests.ListProjects) -> dict[str, Json]:
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

    @use_case(moving_requests.LinkProject)
    def link(self, request: moving_requests.LinkProject) -> dict[str, Json]:
        """Make the caller's folder, or `folder`, part of a project; with `moved` it is where that project is now."""
        rights.check(Action.LINK, self._actor.caller)
        target = self._target(request.project)
        folder = os.path.realpath(request.folder or self._actor.project_dir)
        before = self._process.projects.link(folder, target, moved=request.moved)
        self._audit("project.linked", {"project": target, "folder": folder, "was": before, "moved": request.moved})
        left = self._count(before) if before != target else 0
        return {"project": target, "folder": folder, "was": before, "left_behind": left}

    @use_case(moving_requests.MergeProjects)
    def merge(self, request: moving_requests.MergeProjects) -> dict[str, Json]:
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


def _human_files(services: Services, process: Process) -> purging.HumanFiles:
    folders = (alias.removeprefix("path:") for alias in chain.from_iterable(process.projects.all().values()))
    return purging.HumanFiles(services.data_dir, [Path(folder) for folder in folders if folder.startswith("/")])


def _holders(services: Services, process: Process) -> tuple[purging.Holder, ...]:
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


def purged_elsewhere(services: Services, process: Process, ids: Sequence[str], by: str) -> None:
    """Erase what a human purged on another device, whose signature the caller has checked."""
    at = services.clock.now()
    holders = (_human_files(services, process), *_holders(services, process))
    purging.purge_ids(process.upkeep, ids, caller=Caller.HUMAN, at=at, by=by, holders=holders)


CODEC = transfer.Codec(to_payload, from_payload)
RECORDS_EACH = 40
"""Versions that one audit record names: some 20 kB, a third of its maximum."""


class Moving:
    def __init__(self, writes: Writes, process: Process) -> None:
        self._writes = writes
        self._process = process
        self._services, self._actor = writes.services, writes.actor

    @use_case(moving_requests.BeginExport)
    def begin_export(self, request: moving_requests.BeginExport) -> dict[str, Json]:
        """Return the instant the export shows, and the caller's project."""
        if request.everything:
            rights.check(Action.EXPORT_ALL, self._actor.caller)
        instant = transfer.export_instant(self._services.store, self._services.clock.now())
        return {
            "instant": instant.isoformat(),
            "project": self._actor.scope.project,
        }

    @use_case(moving_requests.ExportPage)
    def export_page(self, request: moving_requests.ExportPage) -> dict[str, Json]:
        """Return the next versions that this caller may read, as their payload."""
        if request.everything:
            rights.check(Action.EXPORT_ALL, self._actor.caller)
        memories, after = transfer.export_page(
            self._services.store,
            request.collection,
            at=request.instant,
            versions=request.versions,
            project=self._actor.scope.project if request.own_project else None,
            reader=None if request.everything else self._actor.scope,
            after=request.after,
        )
        return {"lines": [to_payload(memory) for memory in memories], "after": after}

    @use_case(moving_requests.ImportProjects)
    def import_projects(self, request: moving_requests.ImportProjects) -> dict[str, Json]:
        """Register the projects of an export (humans only); return those with another id here."""
        self._writes.check_writable()
        projects = self._process.projects
        learns = rights.may(Action.IMPORT_PROJECTS, self._actor.caller)
        return {"renamed": projects.adopt(request.projects) if learns else projects.renamed(request.projects)}

    @use_case(moving_requests.ImportLines)
    def import_lines(self, request: moving_requests.ImportLines) -> dict[str, Json]:
        """Import lines of an export, [[number, text], ...]; failures are reported by line.

        Versions that the file's adopted audit trail names are not recorded again, unless an agent imports them.
        """
        self._writes.check_writable()
        caller = self._actor.caller
        rights.check(Action.IMPORT, caller)
        versions: list[tuple[int, Memory]] = []
        fresh: list[tuple[int, requests.ImportedLine, Line]] = []
        errors: list[transfer.LineError] = []
        reasons: list[transfer.LineError] = []
        counts = {"added": 0, "skipped": 0, "written": 0, "pending": 0, "rejected": 0, "conflicts": 0}

        @contextmanager
        def of_line(number: int) -> Iterator[None]:
            try:
                yield
            except MemoryAnchorError as error:
                message = str(error)
                if not message.startswith("line "):
                    message = f"line {number}: {message}"
                errors.append(transfer.LineError(number, message))

        for number, text in request.lines:
            with of_line(number):
                record = transfer.parse_line(number, text)
                if transfer.is_exported_version(record) and _is_safe(record):
                    version = transfer.read_version(
                        number, record, CODEC, request.projects, now=self._services.clock.now()
                    )
                    if not rights.is_human(caller):
                        version = self._as_agents_word(number, version)
                    versions.append((number, version))
                else:
                    fresh.append((number, *self._as_new(number, record, dry=request.dry)))
        store, name = self._services.store, stable_hash(IMPORT, json.dumps(request.lines))

        def stored() -> list[str]:
            lines = [f"line {number}" for number, new, line in fresh if self._writes.was_imported(new.content, line)]
            return [*transfer.stored_already(store, [version for _, version in versions]), *lines]

        # What this request stored before a crash was not there when it first came.
        repeat = (name, self._actor.scope.account, self._actor.nonce)
        present = set(stored() if request.dry else self._services.answers.note_once(stored, *repeat))
        for number, new, line in fresh:
            with of_line(number):
                if f"line {number}" in present:
                    counts["skipped"] += 1
                else:
                    written = self._writes.save_memory(new, line=line)
                    counts[_counted(written.outcome, request.dry)] += 1
                    if written.outcome is Outcome.REJECTED:
                        reasons.append(transfer.LineError(number, f"line {number}: {written.reason}"))
        if request.dry:
            repeats = sum(version.version_id in present for _, version in versions)
            counts["skipped"] += repeats
            counts["added"] = len(versions) - repeats
            return {**counts, "errors": [asdict(e) for e in errors], "reasons": [asdict(r) for r in reasons]}
        merged = transfer.merge(
            store,
            self._services.records.lock,
            versions,
            recording=partial(self._recording, audited=request.audited),
            on_write=self._process.upkeep.on_write,
            refused=partial(rights.import_refusal, caller, reads=audiences(self._actor.scope)),
        )
        skipped = [version_id for version_id in merged.skipped if version_id in present]
        counts["added"] = len(merged.added) + len(merged.skipped) - len(skipped)
        counts["skipped"] += len(skipped)
        failed = sorted([*errors, *merged.errors], key=lambda error: error.line)
        return {**counts, "errors": [asdict(e) for e in failed], "reasons": [asdict(r) for r in reasons]}

    def _as_agents_word(self, number: int, memory: Memory) -> Memory:
        """Return what an agent's import makes of a version. Raises Refused: the gate keeps it out.

        What claims more than trust and confidence is refused by its line, see `rights.import_refusal`.
        """
        caller = self._actor.caller
        if rights.import_refusal(caller, memory, None, reads=audiences(self._actor.scope)):
            return memory  # refused where what is stored under its id is known too
        lowered = self._writes.project.gate.as_agent_claim(memory, caller)
        if lowered is None:
            raise Refused(f"line {number}: {memory.version_id} is below the gate; a human brings it in with --human")
        return lowered

    def _as_new(self, number: int, record: dict[str, Json], *, dry: bool) -> tuple[requests.ImportedLine, Line]:
        """Return a foreign line as a new write: a human's word, or a document's, which passes no gate alone.

        One that cites where it comes from was extracted from there: it waits for review.
        """
        line = requests.ImportedLine.read(record, f"line {number}")
        checks.with_words(f"line {number}: content", line.content)
        claimed = Origin.EXTRACTED if line.cites else Origin.DOCUMENT
        origin = Origin.HUMAN if rights.is_human(self._actor.caller) else claimed
        now = self._services.clock.now()
        since = line.when.start(self._actor.zone) if line.when is not None else None
        cites = tuple(
            Citation(
                "url" if cite.startswith(("https://", "http://")) else "memory_entry", cite, observed_at=since or now
            )
            for cite in line.cites
        )
        name = stable_hash(repr(sorted(record.items())))
        return line, Line(name, origin, cites, since, dry)

    def _recording(self, added: Sequence[Memory], *, audited: bool) -> AbstractContextManager[None]:
        """Return what records these versions around their writing, without those that an adopted trail names."""
        audit = self._services.audit
        if audited and rights.may(Action.IMPORT_PROJECTS, self._actor.caller):
            path = self._services.data_dir / "audit" / "audit.jsonl"
            recorded = _versions_in_trail(path, path.stat().st_size if path.exists() else 0)
            added = [memory for memory in added if (memory.id, memory.version, memory.content_hash) not in recorded]
        if not added:
            return nullcontext()
        parts = [added[start : start + RECORDS_EACH] for start in range(0, len(added), RECORDS_EACH)]
        records = [{"memories": [audit_record(memory) for memory in part]} for part in parts]
        return audit.recording(IMPORT, records, by=self._writes.author, at=self._services.clock.now())


def _counted(outcome: Outcome, dry: bool) -> str:
    """Return the count that a new write belongs to; a dry run counts conflicts apart."""
    if outcome in (Outcome.SKIPPED, Outcome.PENDING, Outcome.REJECTED):
        return outcome.value
    return "conflicts" if dry and outcome in (Outcome.SUPERSEDED, Outcome.NEEDS_REVIEW) else "written"


def _is_safe(record: dict[str, Json]) -> bool:
    """Return whether no text of a line holds a secret or a private part."""
    return all(safety.strip_private(text) == text and not safety.redact(text).kinds for text in _texts(record))


def _texts(value: json_values.Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


@lru_cache(maxsize=1)
def _versions_in_trail(path: Path, size: int) -> frozenset[tuple[object, object, object]]:
    """Return (id, version, content hash) of every written version that the audit trail records.

    size: the file's; it only grows, so the calls of one import read it once.
    """
    del size
    details = (record["what"] for record in JsonlAudit(path).records())
    versions = (
        entry for detail in details for entry in items(detail.get("memories", [detail])) if isinstance(entry, dict)
    )
    return frozenset((entry.get("id"), entry.get("version"), entry.get("content_hash")) for entry in versions)
