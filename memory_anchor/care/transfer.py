"""Memories carried over: out as JSON lines and in again, or from one project into another.

Everything out as JSON lines, and in again without a loss: pages of versions, merged by `id` and `version`.

An export shows one instant: a version that replaced another after the export began is left out and its predecessor
told as current, so a memory appears once however busy its writers are. An import is a union: a version that is stored
is skipped, a new one is put where it belongs in its memory's history, and which one is current follows from that.
So importing twice, or again after a kill, comes to the same end. Two different memories under one id are told apart
by when they were first recorded, and the second is refused by its line. Nothing is held but one page; vectors are
derived and made behind. Payloads come in as functions, since how a memory is written down is the adapters' business.

One project's memories become another's: moved version by version, finished after a kill, undone by its record.

What is to move is written down before the first version moves (`merges/ID.json`), so that a run that was killed is
finished by the next start, a second run of the same merge does nothing, and undoing moves back those alone: what the
target already had stays. Content, history, vectors and use are not touched; only whose a version is. Sources of
knowledge and lorebooks go along. L0 is signed for one project and stays where it was approved.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from memory_anchor.errors import BadInput, NotFound, StoreDamaged, retry_on_conflict
from memory_anchor.files import make_private, write_atomic
from memory_anchor.hashing import content_hash
from memory_anchor.inputs import YEARS
from memory_anchor.json_values import Json, kind_of
from memory_anchor.language.indexing import searched_words
from memory_anchor.model import COLLECTIONS, HISTORY, Layer, Memory, Scope, audiences
from memory_anchor.ports import Entry, MemoryStore
from memory_anchor.where import AnyOf, Between, Condition, OneOf, Where

PAGE = 100
"""Versions a page: one page and its JSON stay under a megabyte or two, far from what one answer may hold."""
ID_MAX = 64
CONTENT_MAX = 100_000
"""Characters of one exported text: what redaction or a merge made longer than a write may be comes back too."""
VERSION_MAX = 1_000_000
_SCAN = 500
_TICK = timedelta(microseconds=1)
IMPORTED_LAYERS = (Layer.EVENT_LOG, Layer.VERIFIED_FACT, Layer.IDENTITY_SCHEMA)


@dataclass(frozen=True, slots=True)
class Codec:
    """How a memory becomes a JSON object and back; `load` raises BadInput."""

    dump: Callable[[Memory], dict[str, Json]]
    load: Callable[[Mapping[str, Json]], Memory]


# --- out -------------------------------------------------------------------------------------------------------


def export_instant(store: MemoryStore, now: datetime) -> datetime:
    """Return the instant an export shows: now, or the newest version's if the clock was once ahead."""
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
    """Return one page as it stood at `at`, and the cursor of the next (None at the end).

    versions: older versions too. project: only this project's, None for all. reader: only what this one may read, None
    for all.
    """
    conditions: list[Condition] = [OneOf("project", (project,))] if project is not None else []
    if reader is not None:
        conditions.append(OneOf("audience", tuple(sorted(audiences(reader)))))
    if not versions:
        was_current = Where((Between("recorded_to", at_least=at + _TICK),))
        conditions.append(AnyOf((was_current, Where((), (OneOf("state", (HISTORY,)),)))))
    entries, following = store.scan(collection, Where(tuple(conditions)), page=page, after=after)
    told = (as_it_stood(entry.memory, at) for entry in entries)
    if reader is not None:  # what went before an event may be for others; it is found by it, never shown
        told = (replace(memory, context="") if memory is not None else None for memory in told)
    return [memory for memory in told if memory is not None and (versions or memory.is_current)], following


def as_it_stood(memory: Memory, at: datetime) -> Memory | None:
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
    """What one batch came to. added: versions written; skipped: there already, by their version ids."""

    added: list[Memory] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    errors: list[LineError] = field(default_factory=list)


def parsed(line: int, text: str) -> dict[str, Json]:
    """Return the object of one line. Raises BadInput, naming the line and never quoting it."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(f"line {line} is not JSON; allowed is one JSON object a line") from None
    if not isinstance(record, dict):
        raise BadInput(f"line {line} holds {kind_of(record)}; allowed is one JSON object a line")
    return record


def is_ours(record: Mapping[str, Json]) -> bool:
    """Return whether a line is an exported version whose text is what was exported: its own hash fits."""
    text = record.get("content")
    return isinstance(text, str) and "version" in record and record.get("content_hash") == content_hash(text)


def read_version(
    line: int, record: Mapping[str, Json], codec: Codec, projects: Mapping[str, str], *, now: datetime | None = None
) -> Memory:
    """Return the version a line carries. projects: ids of the export -> ids here, where a project has another one.

    now: for a file that anybody may have written; None where devices vouch for what they send.
    Raises BadInput: a field is missing, unknown or of another kind, or the version cannot exist.
    """
    try:
        memory = codec.load(record)
    except BadInput as error:
        raise BadInput(f"line {line}: {error}") from None
    again = codec.dump(memory)
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
    odd_time = next((at for at in times if at is not None and not YEARS[0] <= at.year <= YEARS[1]), None)
    if odd_time is not None:
        raise BadInput(f"line {line}: a time is of the year {odd_time.year}; allowed are {YEARS[0]} to {YEARS[1]}")
    if now is not None and memory.recorded_at > now + CLOCKS_DIFFER:
        at = memory.recorded_at.isoformat()
        raise BadInput(f"line {line}: recorded_at {at} is still to come; set this machine's clock, or mend the line")
    home = projects.get(memory.scope.project)
    return memory if home is None else replace(memory, scope=replace(memory.scope, project=home))


_NOTHING = object()
CLOCKS_DIFFER = timedelta(days=1)
"""What was recorded later than this after now is refused: it would be the newest for ever."""


def merge(
    store: MemoryStore,
    lock: AbstractContextManager[bool | None],
    versions: Sequence[tuple[int, Memory]],
    *,
    recording: Callable[[Sequence[Memory]], AbstractContextManager[None]],
    on_write: Callable[[Sequence[Entry]], None],
    refused: Callable[[Memory, Memory | None], str],
) -> Merged:
    """Add versions (with their line numbers) to what is stored: one atomic batch a collection.

    recording: around the writing of these versions, see `AuditLog`. refused: why the caller may not bring in a version
    of a memory whose newest version here is `current`, "" when it may.

    A version that is stored is skipped; one that contradicts what is stored becomes an error of its line.
    """
    done = Merged()
    with lock:
        known = stored_versions(store, {memory.id for _, memory in versions})
        fresh: dict[str, Memory] = {}
        for line, memory in versions:
            of_same_id = known.setdefault(memory.id, {})
            wrong = _clash(memory, of_same_id)
            if wrong:
                done.errors.append(LineError(line, f"line {line}: {wrong}"))
            elif memory.version in of_same_id:
                done.skipped.append(memory.version_id)
            elif wrong := refused(memory, of_same_id[max(of_same_id)] if of_same_id else None):
                done.errors.append(LineError(line, f"line {line}: {wrong}"))
            else:
                of_same_id[memory.version] = memory
                fresh[memory.point_id] = memory
        with recording(list(fresh.values())):
            written = [_entry for name in COLLECTIONS for _entry in _write(store, name, known, fresh)]
        done.added = [entry.memory for entry in written if entry.memory.point_id in fresh]
    on_write(written)
    return done


def stored_already(store: MemoryStore, versions: Iterable[Memory]) -> list[str]:
    """Return the version ids of those that are stored, sorted."""
    wanted = {memory.point_id: memory for memory in versions}
    found = [e.memory.version_id for name in COLLECTIONS for e in store.get(name, list(wanted)) if wanted]
    return sorted(found)


def _write(
    store: MemoryStore, collection: str, known: Mapping[str, Mapping[int, Memory]], fresh: Mapping[str, Memory]
) -> list[Entry]:
    """Put the new versions of one collection, and the ends of those that they followed."""
    touched = {memory.id for memory in fresh.values() if memory.layer.value == collection}
    entries: list[Entry] = []
    ended: dict[str, Memory] = {}
    for memory_id in sorted(touched):
        for memory in in_sequence(known[memory_id].values()):
            if memory.point_id in fresh:
                entries.append(Entry(memory, {}, searched_words(memory)))
            elif memory != known[memory_id][memory.version]:
                ended[memory.point_id] = memory
    kept = store.get(collection, list(ended), with_vectors=True) if ended else []
    entries += [replace(entry, memory=ended[entry.memory.point_id]) for entry in kept]
    store.put(collection, entries)
    return entries


def in_sequence(versions: Iterable[Memory]) -> list[Memory]:
    """Return the versions of one memory, oldest first, each that was followed closed when the next was recorded."""
    ordered = sorted(versions, key=lambda memory: memory.version)
    closed = [
        replace(one.closed(following.recorded_at), receipts=()) if one.is_current else one
        for one, following in pairwise(ordered)
    ]
    return [*closed, *ordered[-1:]]


def _clash(memory: Memory, others: Mapping[int, Memory]) -> str:
    """Return why this version cannot stand beside those stored under its id, "" when it can."""
    same = others.get(memory.version)
    if same is not None and _said(same) != _said(memory):
        return f"{memory.version_id} is another memory here; ids are never reused, so nothing of it was taken"
    other = next(iter(others.values()), None)
    if other is not None and (other.layer is not memory.layer or other.learned_at != memory.learned_at):
        return f"id {memory.id!r} is another memory here (first recorded at another time); nothing of it was taken"
    return ""


def _said(memory: Memory) -> tuple[object, ...]:
    """Return what never changes in a stored version; use, ends and receipts do."""
    return memory.content, memory.layer, memory.type, memory.recorded_at, memory.author, memory.scope


def stored_versions(store: MemoryStore, ids: Iterable[str]) -> dict[str, dict[int, Memory]]:
    """Return id -> number -> version of these memories, as stored."""
    found: dict[str, dict[int, Memory]] = {}
    where = Where((OneOf("id", tuple(sorted(ids))),))
    for collection in COLLECTIONS:
        after: str | None = None
        while True:
            entries, after = store.scan(collection, where, page=_SCAN, after=after)
            for entry in entries:
                found.setdefault(entry.memory.id, {})[entry.memory.version] = entry.memory
            if after is None:
                break
    return found


FOLDER = "merges"
MOVED = (Layer.EVENT_LOG.value, Layer.VERIFIED_FACT.value)
MERGED_AT_ONCE = 500


class Belonging(Protocol):
    """What a project has beside the store."""

    def of_project(self, project: str, target: str) -> list[str]:
        """Return the name of each thing that a merge of this project into the target takes along."""
        ...

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        """Move these from one project to the other, or back; what was moved already stays."""
        ...


@dataclass(frozen=True, slots=True)
class Merge:
    """One merge. points: collection -> point ids that move. is_done: all of them did. aliases: of the source before.
    beside: what kind of thing -> the names of those that go along."""

    source: str
    target: str
    points: dict[str, list[str]]
    aliases: list[str]
    is_done: bool = False
    beside: dict[str, list[str]] = field(default_factory=dict)

    @property
    def versions(self) -> int:
        return sum(map(len, self.points.values()))


class Merges:
    """The merges of one data directory."""

    def __init__(
        self,
        data_dir: Path,
        store: MemoryStore,
        lock: AbstractContextManager[bool | None],
        beside: Mapping[str, Belonging] | None = None,
    ) -> None:
        self._folder = data_dir / FOLDER
        self._beside = beside or {}
        self._store = store
        self._lock = lock

    def begin(self, source: str, target: str, aliases: Sequence[str]) -> Merge:
        """Write down what is to move and return it; the record of an earlier merge of the same two goes on."""
        earlier = self.of(source)
        if earlier is not None and not earlier.is_done:
            if earlier.target != target:
                raise BadInput(f"{source} is being merged into {earlier.target}; run that merge again, or --undo it")
            return earlier
        points = {name: [entry.memory.point_id for entry in self._entries(name, source)] for name in MOVED}
        before = earlier if earlier is not None and earlier.target == target else Merge(source, target, {}, [])
        points = {name: sorted({*before.points.get(name, ()), *ids}) for name, ids in points.items()}
        along = {
            kind: [*before.beside.get(kind, ()), *things.of_project(source, target)]
            for kind, things in self._beside.items()
        }
        merge = Merge(source, target, points, list(dict.fromkeys([*before.aliases, *aliases])), beside=along)
        self._note(merge)
        return merge

    def carry_out(self, merge: Merge) -> int:
        """Move what has not moved yet; return how many versions did."""
        moved = self._move(merge, merge.source, merge.target)
        self._note(replace(merge, is_done=True))
        return moved

    def undo(self, source: str) -> Merge:
        """Move back what a merge moved. Raises NotFound: there was none."""
        merge = self.of(source)
        if merge is None:
            raise NotFound(f"{source[:80]!r} was not merged into another project here; nothing to undo")
        self._move(merge, merge.target, merge.source)
        return merge

    def forget(self, source: str) -> None:
        """Drop the record of a merge that was undone."""
        self._path(source).unlink(missing_ok=True)

    def unfinished(self) -> list[Merge]:
        """Return the merges that a kill cut off."""
        names = sorted(self._folder.glob("*.json")) if self._folder.is_dir() else []
        return [merge for path in names if (merge := self.of(path.stem)) is not None and not merge.is_done]

    def of(self, source: str) -> Merge | None:
        """Return the merge of a source. Raises StoreDamaged: its record cannot be read."""
        path = self._path(source)
        if not path.is_file():
            return None
        try:
            return Merge(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise StoreDamaged(f"{path} is not readable; move it away to go on without undoing that merge") from None

    def _move(self, merge: Merge, old: str, new: str) -> int:
        for kind, names in merge.beside.items():
            if kind in self._beside:
                self._beside[kind].move(names, old, new, back=old == merge.target)
        moved = 0
        for name, ids in merge.points.items():
            for start in range(0, len(ids), MERGED_AT_ONCE):
                page = ids[start : start + MERGED_AT_ONCE]
                with self._lock:  # nobody may close a version between reading and writing it
                    moved += retry_on_conflict(partial(self._move_page, name, page, old, new))
        return moved

    def _move_page(self, name: str, ids: list[str], old: str, new: str) -> int:
        page = self._store.get(name, ids, with_vectors=True)
        there = [entry for entry in page if entry.memory.scope.project == old]
        if there:
            self._store.put(name, [_of_project(entry, new) for entry in there])
        return len(there)

    def _entries(self, collection: str, project: str) -> Iterator[Entry]:
        after: str | None = None
        where = Where((OneOf("project", (project,)),))
        while True:
            page, after = self._store.scan(collection, where, page=MERGED_AT_ONCE, after=after)
            yield from page
            if after is None:
                return

    def _note(self, merge: Merge) -> None:
        make_private(self._folder)
        write_atomic(self._path(merge.source), json.dumps(asdict(merge)).encode())

    def _path(self, source: str) -> Path:
        return self._folder / f"{source}.json"


def _of_project(entry: Entry, project: str) -> Entry:
    memory = entry.memory
    return replace(entry, memory=replace(memory, scope=replace(memory.scope, project=project)))
