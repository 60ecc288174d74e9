"""The calls behind export, import, backup, reindex and doctor; they join the table of `calls`.

An export or import goes through many small calls, so that an engine answers others in between and no answer grows past
what a connection carries. What is not in the store (audit, proposals) is read and written by the command itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from memory_anchor import inputs, safety
from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.anchor import MemoryAnchor
from memory_anchor.core import Core
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.ingestion.writing import FactDraft
from memory_anchor.interfaces.calls import Json, call
from memory_anchor.layers.event_log import EventDraft
from memory_anchor.layers.records import audit_record, request_of
from memory_anchor.lifecycle import transfer
from memory_anchor.lifecycle.purge import all_text
from memory_anchor.lifecycle.reindex import Reindex
from memory_anchor.lifecycle.upkeep import scan
from memory_anchor.model import (
    COLLECTIONS,
    LAYER_OF_TYPE,
    Caller,
    Layer,
    Memory,
    Origin,
    Status,
    Visibility,
    WriteOutcome,
)
from memory_anchor.text.hashing import stable_hash
from memory_anchor.where import Where

CODEC = transfer.Codec(to_payload, from_payload)
IMPORT = "import"
LINES_MAX = 1_000
PATH_MAX = 4_096
PREVIEW_MAX, PREVIEW_CHARS = 200, 120
RECORDS_EACH = 40
"""Written versions an audit record names: some 20 kB, a third of what one may be."""
WAITS_FOR_A_HUMAN = (Status.PENDING, Status.DISPUTED)
REINDEX_STEP_S = 2.0
"""How long one call works before it says how far it came."""
FIELDS = frozenset(
    ("content", "type", "layer", "key", "tags", "importance", "confidence", "visibility", "when", "where", "who")
)
"""What counts of a line that is not an export of ours; the rest (ids, states, origins) is nobody's to claim."""


# --- export and import -----------------------------------------------------------------------------------------


@call
def export_begin(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Return the instant the export shows, the caller's project, and how many versions there are at most."""
    store = core.services.store
    return {
        "instant": transfer.export_instant(store, core.clock.now()).isoformat(),
        "project": anchor.actor.scope.project,
        "collections": list(COLLECTIONS),
    }


@call
def export_page(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    memories, after = transfer.export_page(
        core.services.store,
        inputs.text("collection", given.get("collection"), most=inputs.NAME_MAX),
        at=datetime.fromisoformat(str(given.get("instant"))),
        versions=bool(given.get("versions")),
        project=given.get("project"),
        after=given.get("after"),
    )
    return {"lines": [to_payload(memory) for memory in memories], "after": after}


@call
def import_projects(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Learn the projects of an export; return which of them go by another id here."""
    anchor.check_writable()
    projects = given.get("projects") or {}
    return {"renamed": core.projects.adopt({str(name): [str(a) for a in held] for name, held in projects.items()})}


@call
def import_lines(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Take in lines of an export, [[number, text], ...]; what cannot be taken is told by its line.

    projects: ids in the file -> ids here. audited: the file brings the audit trail of what it holds, so none is made.
    """
    anchor.check_writable()
    lines = list(given.get("lines") or ())
    if len(lines) > LINES_MAX:
        raise BadInput(f"{len(lines)} lines came at once; allowed are {LINES_MAX}")
    versions: list[tuple[int, Memory]] = []
    errors: list[transfer.LineError] = []
    told = {"added": 0, "skipped": 0, "written": 0, "pending": 0, "rejected": 0}
    for number, text in lines:
        try:
            record = transfer.parsed(number, text)
            if transfer.is_ours(record) and _is_safe(record):
                versions.append((number, _checked(number, record, anchor, given.get("projects") or {})))
            else:
                _count(told, _as_new(core, anchor, number, record))
        except MemoryAnchorError as error:
            said = str(error)
            errors.append(transfer.LineError(number, said if said.startswith("line ") else f"line {number}: {said}"))
    done = transfer.merge(
        core.services.store,
        core.services.records.lock,
        versions,
        recording=(lambda _: nullcontext()) if given.get("audited") else partial(_recording, core, anchor),
        on_write=core.upkeep.on_write,
        refused=partial(_beyond_agents, anchor),
    )
    told["added"], told["skipped"] = len(done.added), told["skipped"] + done.skipped
    failed = sorted([*errors, *done.errors], key=lambda error: error.line)
    return {**told, "errors": [{"line": error.line, "message": error.message} for error in failed]}


def _checked(number: int, record: Json, anchor: MemoryAnchor, projects: Json) -> Memory:
    memory = transfer.read_version(number, record, CODEC, projects)
    if memory.layer is Layer.IDENTITY_SCHEMA and anchor.actor.caller is not Caller.HUMAN:
        raise Refused(
            f"line {number}: {memory.id} belongs to the constitution, which only a human brings in; "
            "run the import on a terminal with --human"
        )
    return memory


def _beyond_agents(anchor: MemoryAnchor, memory: Memory, current: Memory | None) -> str:
    """Return why only a human brings in this version, "" for whoever may.

    Where nobody approves yet an import is how a memory moves to another machine, and is taken as it stands. From then
    on a line may not claim what its caller could not do: speak or pin as a human, reach the whole account, decide what
    waits for a human, or follow what a human said.
    """
    if anchor.actor.caller is Caller.HUMAN or anchor.room.identity.approver() is None:
        return ""
    claims = (
        (memory.origin is Origin.HUMAN or memory.author.startswith(Caller.HUMAN.value), "speaks for a human"),
        (memory.pinned, "is pinned"),
        (memory.visibility is Visibility.ACCOUNT, "is for the whole account"),
        (current is not None and current.status in WAITS_FOR_A_HUMAN, "decides what waits for a human"),
        (current is not None and (current.origin is Origin.HUMAN or current.pinned), "follows what a human said"),
    )
    claim = next((what for holds, what in claims if holds), "")
    return (
        f"{memory.version_id} {claim}; a human brings it in: run the import on a terminal with --human" if claim else ""
    )


def _is_safe(record: Json) -> bool:
    """Return whether no text of a line holds a secret or a private part, as nothing that was stored does."""
    return all(safety.strip_private(text) == text and not safety.redact(text).kinds for text in _texts(record))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _as_new(core: Core, anchor: MemoryAnchor, number: int, record: Json) -> WriteOutcome:
    """Store a foreign line as a new write: a human's word, or else a document's, which passes no gate alone."""
    given = {name: value for name, value in record.items() if name in FIELDS and value is not None}
    given |= {name: safety.cleaned_value(value) for name, value in given.items() if name != "content"}
    text, kinds = anchor.made_safe(inputs.content(given.get("content")), f"line {number}: content")
    now, zone = core.clock.now(), anchor.actor.zone
    human = anchor.actor.caller is Caller.HUMAN
    kind = inputs.memory_type(given.get("type", "fact"))
    layer = inputs.layer(given["layer"]) if "layer" in given else LAYER_OF_TYPE[kind]
    shared: Json = {
        "type": kind,
        "key": inputs.text("key", given.get("key"), most=inputs.KEY_MAX, required=False),
        "tags": inputs.tags(given.get("tags")),
        "importance": inputs.number("importance", given.get("importance", 0.5), least=0, most=1),
        "origin": Origin.HUMAN if human else Origin.DOCUMENT,
        "redactions": kinds,
    }
    if "visibility" in given:
        shared["visibility"] = inputs.choice("visibility", given["visibility"], Visibility)
    request = request_of(anchor.actor, f"import-{stable_hash(repr(sorted(record.items())))}", IMPORT, {"text": text})
    if layer is Layer.EVENT_LOG:
        when = inputs.instant("when", given["when"], zone=zone, now=now) if "when" in given else now
        where = inputs.text("where", given.get("where"), most=inputs.NAME_MAX, required=False) or None
        who = inputs.strings("who", given.get("who"), most=inputs.PEOPLE_MAX, each=inputs.NAME_MAX)
        return core.services.events.log(anchor.actor, EventDraft(text, when, where=where, who=who, **shared), request)
    if layer is not Layer.VERIFIED_FACT:
        raise BadInput(f"line {number}: layer is {layer.value}; allowed are event_log and verified_fact")
    claim = inputs.number("confidence", given.get("confidence", 0.9), least=0, most=1)
    draft = FactDraft(text, confidence=claim, **shared)
    return core.services.facts.save(anchor.actor, draft, request, gate=anchor.room.gate)


def _count(told: dict[str, int], outcome: WriteOutcome) -> None:
    name = outcome.outcome.value
    told[name if name in ("skipped", "pending", "rejected") else "written"] += 1


def _recording(core: Core, anchor: MemoryAnchor, added: Sequence[Memory]) -> AbstractContextManager[None]:
    parts = [added[start : start + RECORDS_EACH] for start in range(0, len(added), RECORDS_EACH)]
    records = [{"memories": [audit_record(memory) for memory in part]} for part in parts]
    return core.audit.recording(IMPORT, records, by=anchor.author, at=core.clock.now())


# --- reindex ---------------------------------------------------------------------------------------------------


@call
def reindex(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Go on with making words, indexes and (asked for) vectors anew, for a moment; searches go on meanwhile."""
    anchor.check_writable()
    run = Reindex(
        core.services.store,
        core.services.embedder,
        lock=core.services.records.lock,
        state_dir=core.data_dir / "jobs",
        vectors=bool(given.get("vectors")),
        local=core.services.local,
    )
    until = time.monotonic() + REINDEX_STEP_S
    for progress in run.steps():
        if time.monotonic() > until:
            return {"finished": False, **asdict(progress)}
    core.services.searcher.invalidate()
    embedder = core.services.embedder
    return {"finished": True, "embedder": embedder.identity.model if embedder is not None else ""}


# --- purge -----------------------------------------------------------------------------------------------------


@call
def purge_preview(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Return the memories that a purge of these ids, or of this text, would erase; for a human alone."""
    if anchor.actor.caller is not Caller.HUMAN:
        raise Refused("purge erases for good and is for humans: run `memory-anchor purge` on a terminal")
    ids, text = frozenset(given.get("ids") or ()), str(given.get("text") or "")
    found: dict[str, list[Memory]] = {}
    for collection in COLLECTIONS:
        for memory in scan(core.upkeep, collection, Where()):
            if memory.id in ids or (text and text in all_text(replace(memory, context=""))):
                found.setdefault(memory.id, []).append(memory)
    shown = [
        {"id": name, "versions": len(held), "content": " ".join(held[-1].content.split())[:PREVIEW_CHARS]}
        for name, held in sorted(found.items())
    ]
    return {"memories": shown[:PREVIEW_MAX], "count": len(shown)}


# --- backup ----------------------------------------------------------------------------------------------------


@call
def backup_create(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Write a backup to the absolute path `file`, a file or a folder; writers wait while memories are read."""
    from memory_anchor.runtime import backup

    return backup.create(core, Path(inputs.text("file", given.get("file"), most=PATH_MAX)))


@call
def doctor_probe(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Return what `doctor` finds out in the process that has the store."""
    from memory_anchor.runtime import doctor

    return {"checks": [asdict(check) for check in doctor.probe(core)]}
