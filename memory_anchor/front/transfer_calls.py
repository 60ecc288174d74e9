"""The calls behind export, import, backup, reindex and doctor; they join the table of `calls`.

An export or import goes through many small calls, so that an engine answers others in between and no answer grows past
what a connection carries. What is not in the store (audit, proposals) is read and written by the command itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path

from memory_anchor import inputs, rights
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.care import purge as purging
from memory_anchor.care import transfer
from memory_anchor.care.reindex import Reindex
from memory_anchor.core import Core
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.front.calls import Json, call
from memory_anchor.hashing import stable_hash
from memory_anchor.ingest.writing import FactDraft
from memory_anchor.language import safety
from memory_anchor.layers.event_log import EventDraft
from memory_anchor.layers.records import audit_record, request_of
from memory_anchor.memory import MemoryAnchor
from memory_anchor.model import (
    COLLECTIONS,
    LAYER_OF_TYPE,
    Layer,
    Memory,
    Origin,
    Status,
    Visibility,
    WriteOutcome,
    audiences,
)
from memory_anchor.rights import Deed

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
    if given.get("everything"):
        rights.check(Deed.EXPORT_ALL, anchor.actor.caller)
    return {
        "instant": transfer.export_instant(store, core.clock.now()).isoformat(),
        "project": anchor.actor.scope.project,
        "collections": list(COLLECTIONS),
    }


@call
def export_page(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    everything = bool(given.get("everything"))
    if everything:
        rights.check(Deed.EXPORT_ALL, anchor.actor.caller)
    memories, after = transfer.export_page(
        core.services.store,
        inputs.text("collection", given.get("collection"), most=inputs.NAME_MAX),
        at=datetime.fromisoformat(str(given.get("instant"))),
        versions=bool(given.get("versions")),
        project=given.get("project"),
        reader=None if everything else anchor.actor.scope,
        after=given.get("after"),
    )
    return {"lines": [to_payload(memory) for memory in memories], "after": after}


@call
def import_projects(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Learn the projects of an export, where a human brings it; return which of them go by another id here."""
    anchor.writes.check_writable()
    projects = {str(name): [str(a) for a in held] for name, held in (given.get("projects") or {}).items()}
    learns = rights.may(Deed.IMPORT_PROJECTS, anchor.actor.caller)
    return {"renamed": core.projects.adopt(projects) if learns else core.projects.renamed(projects)}


@call
def import_lines(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Take in lines of an export, [[number, text], ...]; what cannot be taken is told by its line.

    projects: ids in the file -> ids here. audited: the trail of the file was adopted; what it names is not recorded
    anew. What an agent brings in is recorded whatever else the file holds.
    """
    anchor.writes.check_writable()
    caller = anchor.actor.caller
    rights.check(Deed.IMPORT, caller)
    lines = given.get("lines") or []
    if not isinstance(lines, list | tuple) or not all(
        isinstance(one, list | tuple) and [type(part) for part in one] == [int, str] for one in lines
    ):
        raise BadInput("lines are no list of pairs; allowed are [number, text]")
    if len(lines) > LINES_MAX:
        raise BadInput(f"{len(lines)} lines came at once; allowed are {LINES_MAX}")
    versions: list[tuple[int, Memory]] = []
    errors: list[transfer.LineError] = []
    told = {"added": 0, "skipped": 0, "written": 0, "pending": 0, "rejected": 0}
    for number, text in lines:
        try:
            record = transfer.parsed(number, text)
            if transfer.is_ours(record) and _is_safe(record):
                version = transfer.read_version(number, record, CODEC, given.get("projects") or {})
                if not rights.is_human(caller):
                    version = _as_agents_word(anchor, number, version)
                versions.append((number, version))
            else:
                _count(told, _as_new(core, anchor, number, record))
        except MemoryAnchorError as error:
            said = str(error)
            errors.append(transfer.LineError(number, said if said.startswith("line ") else f"line {number}: {said}"))
    store, asked = core.services.store, stable_hash(IMPORT, json.dumps(lines))
    there = core.services.answers.first(
        lambda: transfer.stored_already(store, [one for _, one in versions]),
        *(asked, anchor.actor.scope.account, anchor.actor.nonce),
    )
    done = transfer.merge(
        store,
        core.services.records.lock,
        versions,
        recording=partial(_recording, core, anchor, audited=bool(given.get("audited"))),
        on_write=core.upkeep.on_write,
        refused=partial(rights.import_refusal, caller, reads=audiences(anchor.actor.scope)),
    )
    skipped = [one for one in done.skipped if one in there]  # what this very request stored before a kill was added
    told["added"] = len(done.added) + len(done.skipped) - len(skipped)
    told["skipped"] += len(skipped)
    failed = sorted([*errors, *done.errors], key=lambda error: error.line)
    return {**told, "errors": [{"line": error.line, "message": error.message} for error in failed]}


def _as_agents_word(anchor: MemoryAnchor, number: int, memory: Memory) -> Memory:
    """Return what an agent's import makes of a version. Raises Refused: the gate keeps it out.

    What claims more than trust and confidence is refused by its line, see `rights.import_refusal`.
    """
    if rights.import_refusal(anchor.actor.caller, memory, None, reads=audiences(anchor.actor.scope)):
        return memory  # refused where what is stored under its id is known too
    lowered = anchor.room.gate.lowered(memory, anchor.actor.caller)
    if lowered is None:
        raise Refused(f"line {number}: {memory.version_id} is below the gate; a human brings it in with --human")
    return lowered


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
    text, kinds = anchor.writes.made_safe(inputs.content(given.get("content")), f"line {number}: content")
    now, zone = core.clock.now(), anchor.actor.zone
    human = rights.is_human(anchor.actor.caller)
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
    claim, doubt = anchor.room.gate.assessed(text)
    if "confidence" in given:
        claim, doubt = inputs.number("confidence", given["confidence"], least=0, most=1), ""
    draft = FactDraft(text, confidence=claim, doubt=doubt, **shared)
    return core.services.facts.save(anchor.actor, draft, request, gate=anchor.room.gate)


def _count(told: dict[str, int], outcome: WriteOutcome) -> None:
    name = outcome.outcome.value
    told[name if name in ("skipped", "pending", "rejected") else "written"] += 1


def _recording(
    core: Core, anchor: MemoryAnchor, added: Sequence[Memory], *, audited: bool
) -> AbstractContextManager[None]:
    """Return what records these versions around their writing; those that an adopted trail names are not told twice."""
    if audited and rights.may(Deed.IMPORT_PROJECTS, anchor.actor.caller):
        path = core.audit.path
        named = _named_in_trail(path, path.stat().st_size if path.exists() else 0)
        added = [memory for memory in added if (memory.id, memory.version, memory.content_hash) not in named]
    if not added:
        return nullcontext()
    parts = [added[start : start + RECORDS_EACH] for start in range(0, len(added), RECORDS_EACH)]
    records = [{"memories": [audit_record(memory) for memory in part]} for part in parts]
    return core.audit.recording(IMPORT, records, by=anchor.writes.author, at=core.clock.now())


@lru_cache(maxsize=1)
def _named_in_trail(path: Path, size: int) -> frozenset[tuple[object, object, object]]:
    """Return (id, version, content hash) of every written version that the audit trail tells of.

    size: of the file, which only grows: an import in many calls reads it once.
    """
    del size
    whats = (record["what"] for record in JsonlAudit(path).records())
    told = (one for what in whats for one in what.get("memories", [what]) if isinstance(one, dict))
    return frozenset((one.get("id"), one.get("version"), one.get("content_hash")) for one in told)


# --- reindex ---------------------------------------------------------------------------------------------------


@call
def reindex(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Go on with making words, indexes and (asked for) vectors anew, for a moment; searches go on meanwhile."""
    anchor.writes.check_writable()
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
    rights.check(Deed.PURGE, anchor.actor.caller)
    ids = inputs.strings("ids", given.get("ids"), most=100, each=inputs.NAME_MAX)
    named = purging.doomed(core.upkeep, ids=ids, text=str(given.get("text") or ""))
    found: dict[str, list[Memory]] = {}
    for memory in (one for members in named.values() for one in members):
        found.setdefault(memory.id, []).append(memory)
    shown = [
        {"id": name, "versions": len(held), "content": " ".join(held[-1].content.split())[:PREVIEW_CHARS]}
        for name, held in sorted(found.items())
    ]
    return {"memories": shown[:PREVIEW_MAX], "count": len(shown), "seen": purging.digest(named)}


# --- backup ----------------------------------------------------------------------------------------------------


@call
def backup_create(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Write a backup to the absolute path `file`, a file or a folder; writers wait while memories are read."""
    from memory_anchor.care import backup

    target = Path(inputs.text("file", given.get("file"), most=PATH_MAX))
    request = (stable_hash("backup", str(target)), anchor.actor.scope.account, anchor.actor.nonce)
    if (begun := core.services.answers.noted(*request)) is not None and os.path.lexists(begun):
        return backup.made(Path(begun))
    target = backup.free_place(target, core.clock.now())
    core.services.answers.note(str(target), *request)
    return backup.create(core, target)


@call
def doctor_probe(core: Core, anchor: MemoryAnchor, given: Json) -> Json:
    """Return what `doctor` finds out in the process that has the store; with `vectors_from` a step of `--deep`."""
    from memory_anchor.front import doctor

    if (start := given.get("vectors_from")) is not None:
        return doctor.vectors_looked_at(core, start)
    return {"checks": [asdict(check) for check in doctor.probe(core)]}
