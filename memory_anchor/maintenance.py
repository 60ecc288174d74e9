"""The use cases that look after a memory: undo, purge, jobs, projects, reports, reindex, backup.

Each asks the one table of rights first. What they work on is the process's (`Process`): its jobs, projects and files.

The use cases that carry memories in and out: export and import, in many small calls.

So an engine answers others in between, and no answer grows past what a connection carries. What is not in the store
(audit, proposals) is read and written by the command itself. An agent's import gives nothing that it could not have
written: see `rights.import_refusal` and `Gate.lowered`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import lru_cache, partial
from pathlib import Path

from memory_anchor import inputs, json_values, rights
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.adapters.projects import DEFAULT, PATH, REMOTE, ROOT
from memory_anchor.care import backup, transfer
from memory_anchor.care import purge as purging
from memory_anchor.care.rebuild import Reindex
from memory_anchor.care.transfer import MOVED, Merges
from memory_anchor.context.context_reports import RecordedReport, owner_of
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused
from memory_anchor.files import remove_durably
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Json, Record, items, parsed, record
from memory_anchor.knowledge.desk import ProjectSources
from memory_anchor.knowledge.desk import holders as knowledge_holders
from memory_anchor.knowledge.index import COLLECTION as KNOWLEDGE
from memory_anchor.knowledge.lorebooks import ProjectBooks
from memory_anchor.language import safety
from memory_anchor.layers.records import audit_record
from memory_anchor.model import COLLECTIONS, HISTORY, Caller, Citation, Memory, Origin, Outcome, account_of, audiences
from memory_anchor.pausing import FLAG, Pause, parse_duration, pause_of, save_pause
from memory_anchor.rights import Deed
from memory_anchor.services import Process, Services
from memory_anchor.upkeep import history as undoing
from memory_anchor.upkeep.upkeep import JobReport, Limits
from memory_anchor.where import OneOf, Where
from memory_anchor.writes import IMPORT, Line, Writes

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
        pause = Pause(now + parse_duration(asked.lasting) if asked.lasting else None, asked.no_memory)
        held = pause_of(data, now)
        if held is not None and (held.outlasts(pause) or held.silent > pause.silent):
            rights.check(Deed.RESUME, self._actor.caller)  # a shorter or lesser one would end what holds
        save_pause(data, pause)
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
            plan = undoing.as_noted(up, answers.note_once(lambda: undoing.noted(plan), *request), plan)
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
                    "may_be": known.maybe if known else "",
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
        purging.Cache("what was said last", services.events.clear_cache),
        purging.Cache("what lorebooks say", services.lorebooks.forget),
    )


def purged_elsewhere(services: Services, process: Process, ids: Sequence[str], by: str) -> None:
    """Erase what a human purged on another device, whose signature the caller has checked."""
    at = services.clock.now()
    beside = (_left_to_humans(services, process), *_holders(services, process))
    purging.purge_ids(process.upkeep, ids, caller=Caller.HUMAN, at=at, by=by, holders=beside)


CODEC = transfer.Codec(to_payload, from_payload)
RECORDS_EACH = 40
"""Written versions an audit record names: some 20 kB, a third of what one may be."""


class Moving:
    def __init__(self, writes: Writes, process: Process) -> None:
        self._writes = writes
        self._process = process
        self._services, self._actor = writes.services, writes.actor

    def begin_export(self, asked: moved.BeginExport) -> dict[str, Json]:
        """Return the instant the export shows, the caller's project, and the collections there are."""
        if asked.everything:
            rights.check(Deed.EXPORT_ALL, self._actor.caller)
        instant = transfer.export_instant(self._services.store, self._services.clock.now())
        return {
            "instant": instant.isoformat(),
            "project": self._actor.scope.project,
            "collections": [name for name in COLLECTIONS if name != KNOWLEDGE],  # derived: read again from its sources
        }

    def export_page(self, asked: moved.ExportPage) -> dict[str, Json]:
        """Return the next versions that this caller may read, as their payload."""
        if asked.everything:
            rights.check(Deed.EXPORT_ALL, self._actor.caller)
        memories, after = transfer.export_page(
            self._services.store,
            asked.collection,
            at=asked.instant,
            versions=asked.versions,
            project=asked.project,
            reader=None if asked.everything else self._actor.scope,
            after=asked.after,
        )
        return {"lines": [to_payload(memory) for memory in memories], "after": after}

    def import_projects(self, asked: moved.ImportProjects) -> dict[str, Json]:
        """Learn the projects of an export, where a human brings it; return which of them go by another id here."""
        self._writes.check_writable()
        projects = self._process.projects
        learns = rights.may(Deed.IMPORT_PROJECTS, self._actor.caller)
        return {"renamed": projects.adopt(asked.projects) if learns else projects.renamed(asked.projects)}

    def import_lines(self, asked: moved.ImportLines) -> dict[str, Json]:
        """Take in lines of an export, [[number, text], ...]; what cannot be taken is told by its line.

        What the file's adopted trail names is not recorded anew; what an agent brings in is, whatever the file holds.
        """
        self._writes.check_writable()
        caller = self._actor.caller
        rights.check(Deed.IMPORT, caller)
        versions: list[tuple[int, Memory]] = []
        fresh: list[tuple[int, asks.ImportedLine, Line]] = []
        errors: list[transfer.LineError] = []
        told = {"added": 0, "skipped": 0, "written": 0, "pending": 0, "rejected": 0, "conflicts": 0}

        @contextmanager
        def of_line(number: int) -> Iterator[None]:
            try:
                yield
            except MemoryAnchorError as error:
                said = str(error)
                errors.append(
                    transfer.LineError(number, said if said.startswith("line ") else f"line {number}: {said}")
                )

        for number, text in asked.lines:
            with of_line(number):
                record = transfer.parsed(number, text)
                if transfer.is_ours(record) and _is_safe(record):
                    version = transfer.read_version(
                        number, record, CODEC, asked.projects, now=self._services.clock.now()
                    )
                    if not rights.is_human(caller):
                        version = self._as_agents_word(number, version)
                    versions.append((number, version))
                else:
                    fresh.append((number, *self._as_new(number, record, dry=asked.dry)))
        store, name = self._services.store, stable_hash(IMPORT, json.dumps(asked.lines))

        def stored() -> list[str]:
            lines = [f"line {number}" for number, one, line in fresh if self._writes.took(one.content, line)]
            return [*transfer.stored_already(store, [one for _, one in versions]), *lines]

        # What this very request stored before a kill was not there when it came first.
        said = (name, self._actor.scope.account, self._actor.nonce)
        there = set(stored() if asked.dry else self._services.answers.note_once(stored, *said))
        for number, one, line in fresh:
            with of_line(number):
                if f"line {number}" in there:
                    told["skipped"] += 1
                else:
                    told[_counted(self._writes.save_memory(one, line=line).outcome, asked.dry)] += 1
        if asked.dry:
            known = sum(one.version_id in there for _, one in versions)
            told["skipped"] += known
            told["added"] = len(versions) - known
            return {**told, "errors": [asdict(error) for error in errors]}
        done = transfer.merge(
            store,
            self._services.records.lock,
            versions,
            recording=partial(self._recording, audited=asked.audited),
            on_write=self._process.upkeep.on_write,
            refused=partial(rights.import_refusal, caller, reads=audiences(self._actor.scope)),
        )
        skipped = [one for one in done.skipped if one in there]
        told["added"] = len(done.added) + len(done.skipped) - len(skipped)
        told["skipped"] += len(skipped)
        failed = sorted([*errors, *done.errors], key=lambda error: error.line)
        return {**told, "errors": [asdict(error) for error in failed]}

    def _as_agents_word(self, number: int, memory: Memory) -> Memory:
        """Return what an agent's import makes of a version. Raises Refused: the gate keeps it out.

        What claims more than trust and confidence is refused by its line, see `rights.import_refusal`.
        """
        caller = self._actor.caller
        if rights.import_refusal(caller, memory, None, reads=audiences(self._actor.scope)):
            return memory  # refused where what is stored under its id is known too
        lowered = self._writes.room.gate.as_agent_claim(memory, caller)
        if lowered is None:
            raise Refused(f"line {number}: {memory.version_id} is below the gate; a human brings it in with --human")
        return lowered

    def _as_new(self, number: int, record: dict[str, Json], *, dry: bool) -> tuple[asks.ImportedLine, Line]:
        """Return a foreign line as a new write: a human's word, or a document's, which passes no gate alone.

        What says where it comes from was taken out of there: it waits for review.
        """
        line = asks.ImportedLine.read(record, f"line {number}")
        self._writes.made_safe(line.content, f"line {number}: content")
        taken = Origin.EXTRACTED if line.cites else Origin.DOCUMENT
        origin = Origin.HUMAN if rights.is_human(self._actor.caller) else taken
        now = self._services.clock.now()
        since = line.when.begins(self._actor.zone) if line.when is not None else None
        cites = tuple(
            Citation(
                "url" if one.startswith(("https://", "http://")) else "memory_entry", one, observed_at=since or now
            )
            for one in line.cites
        )
        name = stable_hash(repr(sorted(record.items())))
        return line, Line(name, origin, cites, since, dry)

    def _recording(self, added: Sequence[Memory], *, audited: bool) -> AbstractContextManager[None]:
        """Return what records these versions around their writing; those an adopted trail names are not told twice."""
        audit = self._services.audit
        if audited and rights.may(Deed.IMPORT_PROJECTS, self._actor.caller):
            path = self._services.data_dir / "audit" / "audit.jsonl"
            named = _named_in_trail(path, path.stat().st_size if path.exists() else 0)
            added = [memory for memory in added if (memory.id, memory.version, memory.content_hash) not in named]
        if not added:
            return nullcontext()
        parts = [added[start : start + RECORDS_EACH] for start in range(0, len(added), RECORDS_EACH)]
        records = [{"memories": [audit_record(memory) for memory in part]} for part in parts]
        return audit.recording(IMPORT, records, by=self._writes.author, at=self._services.clock.now())


def _counted(outcome: Outcome, dry: bool) -> str:
    """Return what a new write counts as; where nothing is written, what speaks against something is told apart."""
    if outcome in (Outcome.SKIPPED, Outcome.PENDING, Outcome.REJECTED):
        return outcome.value
    return "conflicts" if dry and outcome in (Outcome.SUPERSEDED, Outcome.NEEDS_REVIEW) else "written"


def _is_safe(record: dict[str, Json]) -> bool:
    """Return whether no text of a line holds a secret or a private part, as nothing that was stored does."""
    return all(safety.strip_private(text) == text and not safety.redact(text).kinds for text in _texts(record))


def _texts(value: json_values.Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


@lru_cache(maxsize=1)
def _named_in_trail(path: Path, size: int) -> frozenset[tuple[object, object, object]]:
    """Return (id, version, content hash) of every written version that the audit trail tells of.

    size: of the file, which only grows: an import in many calls reads it once.
    """
    del size
    whats = (record["what"] for record in JsonlAudit(path).records())
    told = (one for what in whats for one in items(what.get("memories", [what])) if isinstance(one, dict))
    return frozenset((one.get("id"), one.get("version"), one.get("content_hash")) for one in told)
