"""Export and import of memories as JSON lines.

Export and import lose nothing: pages of versions, merged by `id` and `version`. An export shows one instant: a version
that replaced another after the export began is left out and its predecessor exported as current, so a memory appears
once however busy its writers are. An import is a union: a stored version is skipped, a new one takes its place in its
memory's history, and which one is current follows from that; so importing twice, or again after a kill, has the same
result. Two different memories under one id are distinguished by when they were first recorded, and the second is
refused by its line. Only one page is in memory; vectors are made in the background. The codec is passed in, since how a
memory is serialised is the adapters' business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain, pairwise

from memory_anchor.adapters.payload import from_payload, to_payload
from memory_anchor.base.hashing import content_hash
from memory_anchor.base.json_values import Json, kind_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import COLLECTIONS, HISTORY, Layer, Memory, Scope, audiences
from memory_anchor.domain.ports import Entry, MemoryStore
from memory_anchor.domain.requests.checks import YEARS
from memory_anchor.domain.where import AnyOf, Between, Condition, OneOf, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.upkeep.job_kit import pages

PAGE = 100
"""Versions per page: its JSON stays under a megabyte or two, far below an answer's limit."""
ID_MAX = 64
CONTENT_MAX = 100_000
"""Characters of one exported text: redaction or a merge may have made it longer than a write may be."""
VERSION_MAX = 1_000_000
_SCAN = 500
_TICK = timedelta(microseconds=1)
IMPORTED_LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT, Layer.IDENTITY_SCHEMA)


# --- out -------------------------------------------------------------------------------------------------------


def export_instant(store: MemoryStore, now: datetime) -> datetime:
    """Return the instant that an export shows: now, or the newest version's if the clock was once ahead."""
    newest = [
        memory.recorded_at
        for name in COLLECTIONS
        for memory in store.find(name, Where(), limit=1, order_by="recorded_at", descending=True)
    ]
    return max([now, *newest])


def export_page(
    store: MemoryStore,
    collection: str,
    *,
    at: datetime,
    versions: bool,
    project: str | None = None,
    reader: Scope | None = None,
    after: str | None = None,
    page: int = PAGE,
) -> tuple[list[Memory], str | None]:
    """Return one page as of `at`, and the cursor of the next (None at the end).

    versions: older versions too. project: only this project's, None for all. reader: only what this scope may read,
    None for all.
    """
    conditions: list[Condition] = [OneOf("project", (project,))] if project is not None else []
    if reader is not None:
        conditions.append(OneOf("audience", tuple(sorted(audiences(reader)))))
    if not versions:
        was_current = Where((Between("recorded_to", at_least=at + _TICK),))
        conditions.append(AnyOf((was_current, Where((), (OneOf("state", (HISTORY,)),)))))
    entries, following = store.scan(collection, Where(tuple(conditions)), page=page, after=after)
    memories = [memory for entry in entries if (memory := _as_of(entry.memory, at)) is not None]
    if reader is not None:  # what went before an event may be for others; it is searched, never shown
        memories = [replace(memory, context="") for memory in memories]
    return [memory for memory in memories if versions or memory.is_current], following


def _as_of(memory: Memory, at: datetime) -> Memory | None:
    """Return a version as it was at `at`: still current if it was closed later, None if it replaced one later."""
    if memory.version > 1 and memory.recorded_at > at:
        return None
    if not memory.is_current and memory.recorded_to is not None and memory.recorded_to > at:
        return replace(memory, is_current=True, recorded_to=None)
    return memory


# --- in --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LineError:
    """Why one line was not taken; the others were."""

    line: int
    message: str


@dataclass(slots=True)
class Merged:
    """The result of one batch. added: versions written. skipped: ids of versions stored already."""

    added: list[Memory] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)


def parse_line(line: int, text: str) -> dict[str, Json]:
    """Return the object of one line. Raises BadInput, naming the line and never quoting it."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"line {line} is not JSON; allowed is one JSON object a line") from None
    if not isinstance(record, dict):
        raise BadInput(f"line {line} holds {kind_of(record)}; allowed is one JSON object a line")
    return record


def is_exported_version(record: Mapping[str, Json]) -> bool:
    """Return whether a line is an exported version with an unchanged text: its hash fits."""
    text = record.get("content")
    return isinstance(text, str) and "version" in record and record.get("content_hash") == content_hash(text)


def read_version(
    line: int, record: Mapping[str, Json], projects: Mapping[str, str], *, now: datetime | None = None
) -> Memory:
    """Return the version in a line. projects: ids in the export -> ids here, where they differ.

    now: for a file that anybody may have written; None if devices vouch for what they send.
    Raises BadInput: a field is missing, unknown or of another kind, or the version cannot exist.
    """
    try:
        memory = from_payload(record)
    except BadInput as error:
        raise BadInput(f"line {line}: {error}") from None
    again = to_payload(memory)
    odd = sorted(name for name in {*again, *record} if again.get(name, _NOTHING) != record.get(name, _NOTHING))
    if odd:
        raise BadInput(f"line {line}: field {odd[0][:40]!r} is unknown or not as an export writes it")
    if memory.layer not in IMPORTED_LAYERS:
        raise BadInput(
            f"line {line}: layer is {memory.layer.value}; allowed are {', '.join(one.value for one in IMPORTED_LAYERS)}"
        )
    if not (memory.id and len(memory.id) <= ID_MAX and 1 <= memory.version <= VERSION_MAX):
        raise BadInput(
            f"line {line}: id or version is out of range; allowed are 1 to {ID_MAX} characters, version >= 1"
        )
    if not memory.content or len(memory.content) > CONTENT_MAX or "\x00" in memory.content:
        raise BadInput(f"line {line}: content is {len(memory.content)} characters; allowed are 1 to {CONTENT_MAX}")
    times = (memory.recorded_at, memory.recorded_to, memory.valid_from, memory.valid_to)
    for at in times:
        if at is not None and not YEARS[0] <= at.year <= YEARS[1]:
            raise BadInput(f"line {line}: a time is of the year {at.year}; allowed are {YEARS[0]} to {YEARS[1]}")
    if now is not None and memory.recorded_at > now + CLOCKS_DIFFER:
        when = memory.recorded_at.isoformat()
        raise BadInput(f"line {line}: recorded_at {when} is still to come; set this machine's clock, or mend the line")
    project = projects.get(memory.scope.project, memory.scope.project)
    return replace(memory, scope=replace(memory.scope, project=project))


_NOTHING = object()
CLOCKS_DIFFER = timedelta(days=1)
"""A version recorded further than this in the future is refused: it would be the newest forever."""


def merge(
    store: MemoryStore,
    lock: AbstractContextManager[bool | None],
    versions: Sequence[tuple[int, Memory]],
    *,
    commit: Callable[[Sequence[Entry], Sequence[Memory]], None],
    refused: Callable[[Memory, Memory | None], str],
) -> Merged:
    """Add versions (with their line numbers) to what is stored: one atomic batch per collection.

    commit: writes the entries, and records these versions. refused: why the caller may not import a version
    of a memory, given its newest version here; "" when it may.

    A stored version is skipped; one that contradicts what is stored becomes an error of its line.
    """
    result = Merged()
    with lock:
        stored = stored_versions(store, {memory.id for _, memory in versions})
        new: dict[str, Memory] = {}
        for line, memory in versions:
            versions_here = stored.setdefault(memory.id, {})
            problem = _clash(memory, versions_here)
            if not problem and memory.version in versions_here:
                result.skipped.append(memory.version_id)
                continue
            if problem := problem or refused(memory, versions_here[max(versions_here)] if versions_here else None):
                result.errors.append(LineError(line, f"line {line}: {problem}"))
            else:
                versions_here[memory.version] = memory
                new[memory.point_id] = memory
        entries = [entry for name in COLLECTIONS for entry in _entries(store, name, stored, new)]
        commit(entries, list(new.values()))
        result.added = [entry.memory for entry in entries if entry.memory.point_id in new]
    return result


def stored_already(store: MemoryStore, versions: Iterable[Memory]) -> list[str]:
    """Return the version ids of those that are stored, sorted."""
    points = list({memory.point_id for memory in versions})
    return sorted(entry.memory.version_id for name in COLLECTIONS for entry in store.get(name, points) if points)


def _entries(
    store: MemoryStore, collection: str, known: Mapping[str, Mapping[int, Memory]], new: Mapping[str, Memory]
) -> list[Entry]:
    """Return the new versions of one collection, and those that they follow, closed."""
    entries: list[Entry] = []
    closed: dict[str, Memory] = {}
    for memory_id in sorted({memory.id for memory in new.values() if memory.layer.value == collection}):
        for memory in in_sequence(known[memory_id].values()):
            if memory.point_id in new:
                entries.append(Entry(memory, {}, searched_words(memory)))
            elif memory != known[memory_id][memory.version]:
                closed[memory.point_id] = memory
    stored = store.get(collection, list(closed), with_vectors=True) if closed else []
    return entries + [replace(entry, memory=closed[entry.memory.point_id]) for entry in stored]


def in_sequence(versions: Iterable[Memory]) -> list[Memory]:
    """Return the versions of one memory, oldest first, each closed when the next was recorded."""
    ordered = sorted(versions, key=lambda memory: memory.version)
    closed = [
        replace(version.closed(following.recorded_at), receipts=()) if version.is_current else version
        for version, following in pairwise(ordered)
    ]
    return [*closed, *ordered[-1:]]


def _clash(memory: Memory, stored: Mapping[int, Memory]) -> str:
    """Return why this version contradicts those stored under its id, "" when it does not."""
    same = stored.get(memory.version)
    if same is not None and _fixed_fields(same) != _fixed_fields(memory):
        return f"{memory.version_id} is another memory here; ids are never reused, so nothing of it was taken"
    version = next(iter(stored.values()), None)
    if version is not None and (version.layer is not memory.layer or version.learned_at != memory.learned_at):
        return f"id {memory.id!r} is another memory here (first recorded at another time); nothing of it was taken"
    return ""


def _fixed_fields(memory: Memory) -> tuple[object, ...]:
    """Return what never changes in a stored version; use, end and receipts do."""
    return memory.content, memory.layer, memory.type, memory.recorded_at, memory.author, memory.scope


def stored_versions(store: MemoryStore, ids: Iterable[str]) -> dict[str, dict[int, Memory]]:
    """Return id -> number -> version of these memories, as stored."""
    versions: dict[str, dict[int, Memory]] = {}
    where = Where((OneOf("id", tuple(sorted(ids))),))
    for collection in COLLECTIONS:
        for entry in chain.from_iterable(pages(store, collection, where, size=_SCAN)):
            versions.setdefault(entry.memory.id, {})[entry.memory.version] = entry.memory
    return versions
