"""One closed piece of a device's chain: what travels in it, written and read strictly.

Inside are JSON lines: `about` (when it was written, by which version of this format, which projects), `version` (one
version as an export writes it, without what belongs to one machine: vectors, use, receipts, neighbouring text), `purge`
(a human's signed word). A version is named by the hash of what it says and of the number it was written with; the
reader counts the name itself. Project ids are those that the devices share. Only events and facts travel: L0 is what a
human of each machine sealed, and comes by Git with its approvals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from memory_anchor import json_values
from memory_anchor.adapters.payload import from_payload, time_text, to_payload
from memory_anchor.care.transfer import CONTENT_MAX, ID_MAX, VERSION_MAX, Codec, is_ours, read_version
from memory_anchor.devices.ordering import PARENTS_MAX
from memory_anchor.devices.sealing import Unfit
from memory_anchor.errors import BadInput
from memory_anchor.hashing import stable_hash
from memory_anchor.identity.keys import canonical
from memory_anchor.json_values import Json, Record, text, texts
from memory_anchor.model import FOREVER, Layer, Memory

FORMAT = 1
LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT)
LINES_MAX = 100_000
IDS_MAX = 10_000
OF_ONE_MACHINE = ("usage", "last_at", "receipts", "request_keys", "context", "state", "audience", "recorded_to")
COUNTED_HERE = ("version", "previous_version_id", "priority", "project")
"""Not part of what a version says: its number, what a repeat raises in place, and which id its project has here."""
_CODEC = Codec(to_payload, from_payload)


@dataclass(frozen=True, slots=True)
class TravellingVersion:
    name: str
    said: str
    hint: int
    parents: frozenset[str]
    memory: Memory
    """With the ids of shared projects."""


class SignedPurge(TypedDict):
    """A human's signed word that these memories are purged, as a line of a segment. human: the public key."""

    kind: str
    ids: list[str]
    at: str
    by: str
    human: str
    signature: str


@dataclass(slots=True)
class Segment:
    """What one file holds."""

    at: datetime
    projects: dict[str, list[str]] = field(default_factory=dict)
    versions: list[TravellingVersion] = field(default_factory=list)
    purges: list[SignedPurge] = field(default_factory=list)


def travelling(memory: Memory, projects: Mapping[str, str]) -> dict[str, Json]:
    """Return what of a version leaves this device, with shared project ids. KeyError: its project is not synced."""
    told = {name: value for name, value in to_payload(memory).items() if name not in OF_ONE_MACHINE}
    told["project"] = projects[memory.scope.project]
    if memory.version > 1:
        told.pop("previous_version_id", None)
    if cited := json_values.records(told.get("citations")):
        told["citations"] = [_shared(one, projects) if "scope" in one else one for one in cited]
    return told


def _shared(citation: Record, projects: Mapping[str, str]) -> Record:
    """Return a citation with the shared id of its project."""
    scope = json_values.record(citation["scope"])
    project = text(scope["project"])
    return {**citation, "scope": {**scope, "project": projects.get(project, project)}}


def said_in(told: dict[str, Json]) -> str:
    """Return the hash of what a travelling version says."""
    bare = {name: value for name, value in told.items() if name not in COUNTED_HERE}
    if "citations" in bare:
        bare["citations"] = [
            {**one, "scope": {**json_values.record(one.get("scope")), "project": ""}}
            for one in json_values.records(bare["citations"])
        ]
    return stable_hash("said", canonical(bare).decode())


def name_of(memory_id: str, said: str, hint: int) -> str:
    return stable_hash("version", memory_id, said, str(hint))


def line_of(told: dict[str, Json], hint: int, parents: Iterable[str]) -> str:
    return json.dumps(
        {"kind": "version", "hint": hint, "parents": sorted(parents), "memory": told}, separators=(",", ":")
    )


def about_line(at: datetime, projects: Mapping[str, Sequence[str]]) -> str:
    told = {
        "kind": "about",
        "format": FORMAT,
        "at": time_text(at),
        "projects": {k: list(v) for k, v in projects.items()},
    }
    return json.dumps(told, separators=(",", ":"))


def purge_said(folder: str, ids: Sequence[str], at: str) -> dict[str, Json]:
    """Return what a human signs so that other devices purge these memories too."""
    return {"what": "memory-anchor/sync/purge/1", "folder": folder, "ids": sorted(ids), "at": at}


def read_segment(content: bytes) -> Segment:
    """Return what a segment holds. Raises Unfit: a line is not what one writes; nothing of it is to be taken then."""
    found: Segment | None = None
    for number, record in _records(content):
        match record.get("kind"):
            case "about" if found is None:
                if record.get("format") != FORMAT:
                    raise Unfit(
                        f"it has format {record.get('format')!r} and this version knows {FORMAT} (update Memory Anchor)"
                    )
                found = Segment(_instant(record.get("at")), _projects(record.get("projects")))
            case "version" if found is not None:
                found.versions.append(_version(number, record))
            case "purge" if found is not None:
                found.purges.append(_purge(record))
            case _:
                raise Unfit(f"line {number} of it is of no known kind")
    if found is None:
        raise Unfit("it is empty")
    return found


def _records(content: bytes) -> Iterator[tuple[int, dict[str, Json]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise Unfit(f"line {number} of it is not JSON") from None
        if not isinstance(record, dict) or number > LINES_MAX:
            raise Unfit(f"line {number} of it is no record")
        yield number, record


def _version(number: int, record: dict[str, Json]) -> TravellingVersion:
    told, hint, parents = record.get("memory"), record.get("hint"), record.get("parents")
    if not isinstance(told, dict) or type(hint) is not int or not isinstance(parents, list):
        raise Unfit(f"line {number} of it is no version")
    if not 1 <= hint <= VERSION_MAX or len(parents) > PARENTS_MAX or any(name in told for name in OF_ONE_MACHINE):
        raise Unfit(f"line {number} of it is no version that a device writes")
    try:
        memory = read_version(number, _whole(told, hint), _CODEC, {})
    except (BadInput, KeyError, TypeError, ValueError) as error:
        raise Unfit(f"{error}" if isinstance(error, BadInput) else f"line {number} of it is no version") from None
    if memory.layer not in LAYERS or not is_ours(told | {"version": hint}):
        raise Unfit(f"line {number} of it is of a layer that does not travel, or its text was changed")
    if len(memory.id) > ID_MAX or len(memory.content) > CONTENT_MAX:
        raise Unfit(f"line {number} of it is too long")
    said = said_in(told)
    return TravellingVersion(name_of(memory.id, said, hint), said, hint, frozenset(map(str, parents)), memory)


def _whole(told: dict[str, Json], hint: int) -> dict[str, Json]:
    """Return a travelling version as an export writes it: as if it were current."""
    ends = {"version": hint, "state": told["status"], "recorded_to": FOREVER.isoformat()}
    known = to_payload(from_payload({**told, **ends}))
    return {**told, **{name: known[name] for name in ("version", "state", "recorded_to", "audience")}}


def _purge(record: dict[str, Json]) -> SignedPurge:
    try:
        kind, at, by, human, signature = (text(record[name]) for name in ("kind", "at", "by", "human", "signature"))
        ids = texts(record["ids"])
        if len(ids) > IDS_MAX:
            raise ValueError
    except (KeyError, ValueError):
        raise Unfit("a purge in it is not readable") from None
    _instant(at)
    return {"kind": kind, "ids": ids, "at": at, "by": by, "human": human, "signature": signature}


def _projects(value: Json) -> dict[str, list[str]]:
    if not isinstance(value, dict) or len(value) > IDS_MAX:
        raise Unfit("its projects are not readable")
    return {str(name): [str(one) for one in aliases] for name, aliases in value.items() if isinstance(aliases, list)}


def _instant(value: Json) -> datetime:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        raise Unfit("a time in it is not readable") from None
    if at.tzinfo is None:
        raise Unfit("a time in it has no zone")
    return at
