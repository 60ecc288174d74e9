"""One segment of a device's chain: its format, written and read strictly.

It has JSON lines: `about` (when it was written, format, projects), `version` (one version as an export writes it,
without fields of one machine: vectors, use, receipts, neighbouring text), `purge` (a statement that a human signed). A
version is named by the hash of its content and of the number it was written with; the reader computes the name itself.
Project ids are those that the devices share. Only events and facts are synced: L0 is approved by a human on each
machine, and comes by Git with its approvals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from memory_anchor.adapters.payload import from_payload, time_text, to_payload
from memory_anchor.base import json_values
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, text, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import FOREVER, Layer, Memory
from memory_anchor.extensions.devices.ordering import PARENTS_MAX
from memory_anchor.extensions.devices.sealing import InvalidFile
from memory_anchor.extensions.transfer.transfer import (
    CONTENT_MAX,
    ID_MAX,
    VERSION_MAX,
    is_exported_version,
    read_version,
)
from memory_anchor.identity.keys import canonical
from memory_anchor.identity.statements import Purged

FORMAT = 1
LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)
LINES_MAX = 100_000
IDS_MAX = 10_000
LOCAL_FIELDS = ("usage", "last_at", "receipts", "request_keys", "context", "state", "audience", "recorded_to")
UNHASHED_FIELDS = ("version", "previous_version_id", "priority", "project")
"""Fields outside of a version's hash: its number, the priority that repeats raise, and the local id of its project."""


@dataclass(frozen=True, slots=True)
class SegmentVersion:
    """A version in a segment. name, digest: see `version_name`, `content_digest`. hint: the number it was written with.

    memory: with the shared id of its project.
    """

    name: str
    digest: str
    hint: int
    parents: frozenset[str]
    memory: Memory


class SignedPurge(TypedDict):
    """A line of a segment: the signed statement that these memories are purged. human: the public key that signed."""

    kind: str
    ids: list[str]
    at: str
    by: str
    human: str
    signature: str


@dataclass(slots=True)
class Segment:
    at: datetime
    projects: dict[str, list[str]] = field(default_factory=dict)
    versions: list[SegmentVersion] = field(default_factory=list)
    purges: list[SignedPurge] = field(default_factory=list)


def shared_fields(memory: Memory, projects: Mapping[str, str]) -> dict[str, Json]:
    """Return the fields of a version for other devices, with shared project ids. KeyError: it is of no synced one."""
    fields = {name: value for name, value in to_payload(memory).items() if name not in LOCAL_FIELDS}
    fields["project"] = projects[memory.scope.project]
    if memory.version > 1:
        fields.pop("previous_version_id", None)
    if citations := json_values.records(fields.get("citations")):
        fields["citations"] = [_shared(c, projects) if "scope" in c else c for c in citations]
    return fields


def _shared(citation: Record, projects: Mapping[str, str]) -> Record:
    """Return a citation with the shared id of its project."""
    scope = json_values.record(citation["scope"])
    project = text(scope["project"])
    return {**citation, "scope": {**scope, "project": projects.get(project, project)}}


def content_digest(fields: dict[str, Json]) -> str:
    """Return the hash of a version's content. fields: see `shared_fields`."""
    hashed = {name: value for name, value in fields.items() if name not in UNHASHED_FIELDS}
    if "citations" in hashed:
        hashed["citations"] = [
            {**citation, "scope": {**json_values.record(citation.get("scope")), "project": ""}}
            for citation in json_values.records(hashed["citations"])
        ]
    return stable_hash("said", canonical(hashed).decode())


def version_name(memory_id: str, digest: str, hint: int) -> str:
    return stable_hash("version", memory_id, digest, str(hint))


def version_line(fields: dict[str, Json], hint: int, parents: Iterable[str]) -> str:
    version = {"kind": "version", "hint": hint, "parents": sorted(parents), "memory": fields}
    return json.dumps(version, separators=(",", ":"))


def about_line(at: datetime, projects: Mapping[str, Sequence[str]]) -> str:
    aliases = {project: list(names) for project, names in projects.items()}
    about = {"kind": "about", "format": FORMAT, "at": time_text(at), "projects": aliases}
    return json.dumps(about, separators=(",", ":"))


def purge_statement(folder: str, ids: Sequence[str], at: str) -> dict[str, Json]:
    """Return the statement that a human signs so that other devices purge these memories too."""
    return Purged(folder, tuple(ids), at).record()


def read_segment(content: bytes) -> Segment:
    """Return a segment. Raises InvalidFile: a line is not valid, so nothing of the segment may be taken."""
    segment: Segment | None = None
    for number, record in _records(content):
        match record.get("kind"):
            case "about" if segment is None:
                if record.get("format") != FORMAT:
                    raise InvalidFile(
                        f"it has format {record.get('format')!r} and this version knows {FORMAT} (update Memory Anchor)"
                    )
                segment = Segment(_instant(record.get("at")), _projects(record.get("projects")))
            case "version" if segment is not None:
                segment.versions.append(_version(number, record))
            case "purge" if segment is not None:
                segment.purges.append(_purge(record))
            case _:
                raise InvalidFile(f"line {number} of it is of no known kind")
    if segment is None:
        raise InvalidFile("it is empty")
    return segment


def _records(content: bytes) -> Iterator[tuple[int, dict[str, Json]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidFile(f"line {number} of it is not JSON") from None
        if not isinstance(record, dict) or number > LINES_MAX:
            raise InvalidFile(f"line {number} of it is no record")
        yield number, record


def _version(number: int, record: dict[str, Json]) -> SegmentVersion:
    fields, hint, parents = record.get("memory"), record.get("hint"), record.get("parents")
    if not isinstance(fields, dict) or type(hint) is not int or not isinstance(parents, list):
        raise InvalidFile(f"line {number} of it is no version")
    if not 1 <= hint <= VERSION_MAX or len(parents) > PARENTS_MAX or any(name in fields for name in LOCAL_FIELDS):
        raise InvalidFile(f"line {number} of it is no version that a device writes")
    try:
        memory = read_version(number, _as_exported(fields, hint), {})
    except (BadInput, KeyError, TypeError, ValueError) as error:
        raise InvalidFile(str(error) if isinstance(error, BadInput) else f"line {number} of it is no version") from None
    if memory.layer not in LAYERS or not is_exported_version(fields | {"version": hint}):
        raise InvalidFile(f"line {number} of it is of a layer that does not travel, or its text was changed")
    if len(memory.id) > ID_MAX or len(memory.content) > CONTENT_MAX:
        raise InvalidFile(f"line {number} of it is too long")
    digest = content_digest(fields)
    return SegmentVersion(version_name(memory.id, digest, hint), digest, hint, frozenset(map(str, parents)), memory)


def _as_exported(fields: dict[str, Json], hint: int) -> dict[str, Json]:
    """Return the fields of a version as an export writes them, as if it were current."""
    current = {"version": hint, "state": fields["status"], "recorded_to": FOREVER.isoformat()}
    payload = to_payload(from_payload({**fields, **current}))
    return {**fields, **{name: payload[name] for name in ("version", "state", "recorded_to", "audience")}}


def _purge(record: dict[str, Json]) -> SignedPurge:
    try:
        kind, at, by, human, signature = (text(record[name]) for name in ("kind", "at", "by", "human", "signature"))
        ids = texts(record["ids"])
        if len(ids) > IDS_MAX:
            raise ValueError
    except (KeyError, ValueError):
        raise InvalidFile("a purge in it is not readable") from None
    _instant(at)
    return {"kind": kind, "ids": ids, "at": at, "by": by, "human": human, "signature": signature}


def _projects(value: Json) -> dict[str, list[str]]:
    if not isinstance(value, dict) or len(value) > IDS_MAX:
        raise InvalidFile("its projects are not readable")
    return {str(name): list(map(str, aliases)) for name, aliases in value.items() if isinstance(aliases, list)}


def _instant(value: Json) -> datetime:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidFile("a time in it is not readable") from None
    if at.tzinfo is None:
        raise InvalidFile("a time in it has no zone")
    return at
