"""The use cases that carry memories in and out: export and import, in many small calls.

So an engine answers others in between, and no answer grows past what a connection carries. What is not in the store
(audit, proposals) is read and written by the command itself. An agent's import gives nothing that it could not have
written: see `rights.import_refusal` and `Gate.lowered`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path

from memory_anchor import json_values, rights
from memory_anchor import moving_requests as moved
from memory_anchor import requests as asks
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.care import transfer
from memory_anchor.errors import MemoryAnchorError, Refused
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Json, items
from memory_anchor.knowledge.index import COLLECTION as KNOWLEDGE
from memory_anchor.language import safety
from memory_anchor.layers.records import audit_record
from memory_anchor.model import COLLECTIONS, Citation, Memory, Origin, Outcome, audiences
from memory_anchor.rights import Deed
from memory_anchor.services import Process
from memory_anchor.writes import IMPORT, Line, Writes

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
        there = set(stored() if asked.dry else self._services.answers.first(stored, *said))
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
        lowered = self._writes.room.gate.lowered(memory, caller)
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
