"""The use cases of exports and imports, and their rows of the table.

Export and import run in many small calls, so an engine answers others in between and no answer exceeds a connection's
limit. What is not in the store (audit, proposals) is read and written by the command itself. An agent's import gives
nothing that it could not have written: see `rights.import_refusal` and `ConfidenceGate.as_agent_claim`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache, partial

from memory_anchor.adapters.payload import to_payload
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, items
from memory_anchor.domain import rights
from memory_anchor.domain.errors import MemoryAnchorError, Refused
from memory_anchor.domain.model import Citation, Memory, Origin, Outcome, audiences
from memory_anchor.domain.ports import Entry, Trail
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.rights import Action
from memory_anchor.extensions.transfer import requests, transfer
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.language import safety
from memory_anchor.layers.commits import moved_records
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.writes import IMPORT, Line


class Moving:
    def __init__(self, anchor: MemoryAnchor) -> None:
        self._writes, self._process = anchor.writes, anchor.process
        self._services, self._actor = anchor.services, anchor.actor

    @use_case(requests.BeginExport)
    def begin_export(self, request: requests.BeginExport) -> dict[str, Json]:
        """Return the instant the export shows, and the caller's project."""
        if request.everything:
            rights.check(Action.EXPORT_ALL, self._actor.caller)
        instant = transfer.export_instant(self._services.store, self._services.clock.now())
        return {
            "instant": instant.isoformat(),
            "project": self._actor.scope.project,
        }

    @use_case(requests.ExportPage)
    def export_page(self, request: requests.ExportPage) -> dict[str, Json]:
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

    @use_case(requests.ImportProjects)
    def import_projects(self, request: requests.ImportProjects) -> dict[str, Json]:
        """Register the projects of an export (humans only); return those with another id here."""
        self._writes.check_writable()
        projects = self._process.projects
        learns = rights.may(Action.IMPORT_PROJECTS, self._actor.caller)
        return {"renamed": projects.adopt(request.projects) if learns else projects.renamed(request.projects)}

    @use_case(requests.ImportLines)
    def import_lines(self, request: requests.ImportLines) -> dict[str, Json]:
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
                    version = transfer.read_version(number, record, request.projects, now=self._services.clock.now())
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
            new_versions = [(number, version) for number, version in versions if version.version_id not in present]
            for number, version in new_versions:
                if why := rights.import_refusal(caller, version, None, reads=audiences(self._actor.scope)):
                    errors.append(transfer.LineError(number, f"line {number}: {why}"))
                else:
                    counts["added"] += 1
            counts["skipped"] += len(versions) - len(new_versions)
            return {**counts, "errors": [asdict(e) for e in errors], "reasons": [asdict(r) for r in reasons]}
        merged = transfer.merge(
            store,
            self._services.records.lock,
            versions,
            commit=partial(self._commit, audited=request.audited),
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

    def _commit(self, entries: Sequence[Entry], added: Sequence[Memory], *, audited: bool) -> None:
        """Write versions, and record those of them that are new, without those that an adopted trail names."""
        audit = self._services.audit
        if audited and rights.may(Action.IMPORT_PROJECTS, self._actor.caller):
            recorded = _versions_in_trail(audit, audit.size())
            added = [memory for memory in added if (memory.id, memory.version, memory.content_hash) not in recorded]
        by, at = self._writes.author, self._services.clock.now()
        self._process.upkeep.commits.put(entries, records=moved_records(added), kind=IMPORT, by=by, at=at)


def _counted(outcome: Outcome, dry: bool) -> str:
    """Return the count that a new write belongs to; a dry run counts conflicts apart."""
    if outcome in (Outcome.SKIPPED, Outcome.PENDING, Outcome.REJECTED):
        return outcome.value
    return "conflicts" if dry and outcome in (Outcome.SUPERSEDED, Outcome.NEEDS_REVIEW) else "written"


def _is_safe(record: dict[str, Json]) -> bool:
    """Return whether no text of a line holds a secret or a private part."""
    return all(safety.strip_private(text) == text and not safety.redact(text).kinds for text in _texts(record))


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


@lru_cache(maxsize=1)
def _versions_in_trail(audit: Trail, size: int) -> frozenset[tuple[object, object, object]]:
    """Return (id, version, content hash) of every written version that the audit trail records.

    size: the trail's; it only grows, so the calls of one import read it once.
    """
    del size
    details = (record["what"] for record in audit.records())
    versions = (
        entry for detail in details for entry in items(detail.get("memories", [detail])) if isinstance(entry, dict)
    )
    return frozenset((entry.get("id"), entry.get("version"), entry.get("content_hash")) for entry in versions)


ROWS: Sequence[Row] = (
    row("export_begin", requests.BeginExport, lambda anchor, asked: Moving(anchor).begin_export(asked), as_is),
    row("export_page", requests.ExportPage, lambda anchor, asked: Moving(anchor).export_page(asked), as_is),
    row("import_projects", requests.ImportProjects, lambda anchor, asked: Moving(anchor).import_projects(asked), as_is),
    row("import_lines", requests.ImportLines, lambda anchor, asked: Moving(anchor).import_lines(asked), as_is),
)
