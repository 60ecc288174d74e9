"""`doctor --salvage`: build a new store from everything that can still be read, then replace the damaged one by it.

Four sources, in this order: the database, row by row; the collections of the index, whose points are whole copies, read
in a process that damage may end; the known backups; and the audit trail, which has no text but says which versions
there were, so that the missing ones are named. Of a directory of the old layout its shards are read the same way. A
version counts as read when it is a memory, is stored under its own id, and its content has the stored hash. What the
trail says was purged is never brought back; where the trail itself is lost, what a backup gives waits for a human, who
may have purged or forgotten it since. The swap is a restore's: journalled, the damaged store is kept in
`replaced-N/`, and a crash leaves the old or the new. Rejected: repairing the files in place, which may destroy the last
readable copy.

The report has ids, layers, times and counts, never a memory's text.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.edge_damage import read_shard
from memory_anchor.adapters.old_store import read_record, written_points
from memory_anchor.adapters.payload import checksum_matches, from_payload
from memory_anchor.adapters.restoring import JOURNAL, STAGING, finish_restore
from memory_anchor.admin import backup
from memory_anchor.admin.backup_list import known_backups
from memory_anchor.admin.backup_manifest import Manifest
from memory_anchor.admin.left_behind import ACCOUNT_FILE, REPLACED
from memory_anchor.admin.purge import PURGE, PURGE_BEGUN
from memory_anchor.admin.upgrade import OLD_MIRROR, is_old
from memory_anchor.base.files import file_error, write_atomic
from memory_anchor.base.hashing import content_hash
from memory_anchor.base.json_values import Record, parsed, record, records, text, texts, whole
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Mending, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, Status, point_id
from memory_anchor.domain.ports import CollectionSpec, Entry
from memory_anchor.language.indexing import searched_words
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.store.audit_rows import LocalTrail, SqlAudit, move_in
from memory_anchor.store.database import DATABASE_FILE, end_of
from memory_anchor.store.record_rows import SqlRecords, there_as_files
from memory_anchor.store.salvaging import Readable, readable
from memory_anchor.store.sql_store import SqlStore

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix
    from memory_anchor.settings import Settings

SALVAGE = "salvage"
AUDIT = "audit"
BATCH = 500
AUDIT_IDS_MAX = 400
"""Versions named in the audit record, of the lost ones and of those from backups; the report has all of them."""
DOUBTED = (
    "the audit trail is not whole, so it is not known what was purged or forgotten since these backups: what they gave "
    "waits for `memory-anchor review`; `memory-anchor purge` erases for good what is to stay gone"
)


@dataclass(frozen=True, slots=True)
class Missing:
    """A version that could not be read from the damaged store. backup: where it was taken from, "" when it is lost."""

    id: str
    version: int
    layer: str
    recorded_at: str = ""
    backup: str = ""


@dataclass(slots=True)
class SalvageReport:
    """What a salvage did. kept: versions in the new store by collection. read: by source. lost: found in no source.

    reopened: ids whose latest version is lost, so that an older one takes its place, for review. changed: whether the
    store was replaced; replaced: where the damaged one is kept. unread_lines: lines of the audit trail that no source
    has; a lost version that only they name is in no list. lost_records: names of jobs' states, first answers and
    waiting batches that could not be read.
    """

    kept: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=lambda: {"store": 0, "index": 0, "backups": 0})
    lost: list[Missing] = field(default_factory=list)
    from_backups: list[Missing] = field(default_factory=list)
    reopened: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: bool = False
    replaced: str = ""
    unread_lines: int = 0
    lost_records: list[str] = field(default_factory=list)

    def to_json(self) -> Record:
        return asdict(self)


@dataclass(slots=True)
class _SalvagedCollection:
    """What could be read of one collection. open_ended: how many versions it had is not known."""

    name: str
    spec: CollectionSpec
    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    damaged: bool = False
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """A version that was written, according to the audit trail."""

    id: str
    version: int
    layer: str
    status: str
    at: str


@dataclass(frozen=True, slots=True)
class _Trail:
    """written: by point id. gone: point ids that were erased, or lost in an earlier salvage."""

    written: Mapping[str, _Written]
    gone: frozenset[str]


def salvage(settings: Settings, data_dir: Path, *, now: datetime) -> SalvageReport:
    """Replace a damaged store by a new one with everything that can be read; an intact store is left alone.

    A running engine is stopped first. Raises StoreDamaged: nothing can be read, or a newer program wrote it; nothing
    was changed. BadInput: the store is no embedded one. StoreBusy, DiskFull, Refused.
    """
    url = settings.database.url.get_secret_value()
    if url not in ("", "sqlite"):
        raise BadInput(
            "database.url is a server: --salvage mends a file in the data directory; restore a dump there, or run "
            "`memory-anchor backup restore FILE` into an empty one"
        )
    os.umask(0o077)
    engine.stop(data_dir)
    with DirectoryLock.acquire(data_dir, role="doctor") as lock:
        finish_restore(data_dir)
        staging = data_dir / f"{STAGING}{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            staging.mkdir(mode=0o700)
            return _salvaged(settings, data_dir, staging, lock, now)
        except OSError as error:
            raise file_error(error, data_dir) from error
        finally:
            if not (data_dir / JOURNAL).exists():  # else the next start finishes the swap
                shutil.rmtree(staging, ignore_errors=True)


def _salvaged(settings: Settings, data_dir: Path, staging: Path, lock: DirectoryLock, now: datetime) -> SalvageReport:
    report = SalvageReport()
    store, found = data_dir / "store", None
    if not is_old(data_dir):
        found = readable(data_dir / DATABASE_FILE, staging / "scratch")
        _, written_lines = end_of(Path(f"{data_dir / DATABASE_FILE}-end"))
        is_told = 0 < written_lines <= len(found.lines)
        found.lines = found.lines or _lines_of_backup(data_dir, staging)
        report.unread_lines = max(0, written_lines - len(found.lines))
        report.lost_records = sorted(found.lost_records)
        trail = _trail(raw for raw, _ in found.lines)
        collections = [_of_database(name, found, trail, report) for name in COLLECTIONS]
        for collection in collections:
            if collection.damaged and (shard := data_dir / "index" / collection.name).is_dir():
                _add_from_shard(shard, "index", staging, trail, collection, report)
    else:
        log = JsonlAudit(data_dir / AUDIT / "audit.jsonl")
        trail, is_told = _trail(raw for raw, _ in log.lines()), log.size() > 0 and log.verify() is None
        collections = [_read(store / name, staging, trail, report) for name in COLLECTIONS]
    _add_from_backups(data_dir, staging, collections, trail, report)
    doubted = {point_id(taken.id, taken.version) for taken in report.from_backups if not is_told}
    report.notes += [DOUBTED] if doubted else []
    for collection in collections:
        report.kept[collection.name] = len(collection.entries)
        if collection.damaged:
            report.reopened += _repair_histories(collection, trail, doubted)
    if not any(collection.damaged for collection in collections):
        return report
    if not any(report.kept.values()):
        raise StoreDamaged(
            f"nothing could be brought back from {store}: neither its files, nor its log, nor a known backup give a "
            f"memory ({len(report.lost)} versions are named by the audit trail); nothing was changed. "
            "If a backup lies elsewhere, run `memory-anchor backup restore FILE --force`."
        )
    from memory_anchor.process.app import open_store

    new = staging / "new"
    new.mkdir(mode=0o700)
    if found is None and (data_dir / AUDIT).is_dir():
        shutil.copytree(data_dir / AUDIT, staging / AUDIT)
    _fill(open_store(settings, new, lock, alone=True), collections, found, data_dir, staging / AUDIT, now)
    shutil.rmtree(staging / "scratch", ignore_errors=True)
    old = [name for name in ("store", "index", AUDIT, OLD_MIRROR) if (data_dir / name).exists()]
    old += there_as_files(data_dir)
    report.changed, report.replaced = True, backup.swap_in(data_dir, staging, old)
    write_atomic(Path(report.replaced) / ACCOUNT_FILE, json.dumps(report.to_json(), indent=1).encode())
    _record_in_audit(data_dir, report, now)
    return report


# --- sources ---------------------------------------------------------------------------------------------------------


def _read(home: Path, staging: Path, trail: _Trail, report: SalvageReport) -> _SalvagedCollection:
    """Return what can be read of one collection of the old layout. Raises StoreDamaged: another version wrote it."""
    collection = _SalvagedCollection(home.name, CollectionSpec({}))
    try:
        found = read_record(home)
    except StoreDamaged as error:
        if error.mending is not Mending.SALVAGE:
            raise
        collection.damaged = collection.open_ended = True
        found = None
    if found is not None:
        collection.spec = CollectionSpec(found.embedders)
    shards = [home / found.shard] if found is not None else sorted(home.glob("shard-*"), key=_number, reverse=True)
    for shard in shards:
        if shard.is_dir():
            _add_from_shard(shard, "store", staging, trail, collection, report)
        else:
            collection.damaged = collection.open_ended = True
    of_layer = any(written.layer == home.name for written in trail.written.values())
    collection.damaged |= not shards and of_layer and home.parent.exists()
    if collection.damaged:  # what the trail says was written and no file has
        written = {point for point, version in trail.written.items() if version.layer == collection.name}
        collection.unreadable |= written - collection.entries.keys() - trail.gone
    return collection


def _add_from_shard(
    shard: Path, source: str, staging: Path, trail: _Trail, collection: _SalvagedCollection, report: SalvageReport
) -> None:
    """Take from a shard what is missing yet."""
    content = read_shard(shard, staging, bare=False)
    sources = [content]
    expected = written_points(shard)
    if not content.is_whole or len(content.points) < expected:
        collection.damaged = True
        sources.append(bare := read_shard(shard, staging, bare=True))
        collection.open_ended |= not (content.is_complete or bare.is_complete)
        collection.open_ended |= len(content.points.keys() | bare.points.keys()) < expected
    unreadable = set[str]().union(*(each.unreadable | each.points.keys() for each in sources))
    for each in sources:
        for point, (payload, rows) in each.points.items():
            if point in collection.entries or point in trail.gone:
                continue
            memory = _memory(point, payload)
            if memory is not None and memory.layer.value == collection.name:
                collection.entries[point] = Entry(memory, _fitting(rows, collection.spec), searched_words(memory))
                report.read[source] += 1
    unreadable -= collection.entries.keys() | trail.gone
    collection.damaged |= bool(unreadable)
    collection.unreadable = (collection.unreadable | unreadable) - collection.entries.keys()


def _memory(point: str, payload: Record) -> Memory | None:
    """Return the memory of a payload, None when it is none, has another id, or its content was altered."""
    try:
        if not checksum_matches(payload):
            return None
        memory = replace(from_payload(payload), revision=None)
    except (MemoryAnchorError, KeyError, TypeError, ValueError, AttributeError):
        return None
    if point_id(memory.id, memory.version) != point:
        return None
    return None if memory.content_hash and content_hash(memory.content) != memory.content_hash else memory


def _fitting(rows: Mapping[str, Matrix], spec: CollectionSpec) -> dict[str, Matrix]:
    import numpy as np

    return {
        name: row
        for name, row in rows.items()
        if name in spec.embedders and row.shape == (spec.embedders[name].dimensions,) and np.isfinite(row).all()
    }


def _number(shard: Path) -> int:
    text = shard.name.removeprefix("shard-")
    return int(text) if text.isdigit() else 0


def _lines_of_backup(data_dir: Path, staging: Path) -> list[tuple[bytes, bool]]:
    """Return the trail of the newest backup that can be read, each line with whether it was imported."""
    for listed in reversed(known_backups(data_dir)):
        folder = staging / "backup"
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(MemoryAnchorError):
            backup.unpack(Path(listed["file"]), folder)
            return list(JsonlAudit(folder / "files" / AUDIT / "audit.jsonl").lines())
    return []


def _of_database(name: str, found: Readable, trail: _Trail, report: SalvageReport) -> _SalvagedCollection:
    """Return what could be read of one collection of a database."""
    collection = _SalvagedCollection(name, CollectionSpec(found.embedders.get(name, {})))
    collection.damaged = collection.open_ended = not found.is_whole
    for entry in found.entries.get(name, []):
        if entry.memory.point_id not in trail.gone:
            rows = _fitting(entry.vectors, collection.spec)
            memory = replace(entry.memory, revision=None)
            collection.entries[memory.point_id] = Entry(memory, rows, searched_words(memory))
    report.read["store"] += len(collection.entries)
    if collection.damaged:
        written = {point for point, version in trail.written.items() if version.layer == name}
        collection.unreadable = written - collection.entries.keys() - trail.gone
    return collection


def _trail(lines: Iterable[bytes]) -> _Trail:
    """Return what the readable lines of the audit trail say; `doctor --audit` names the others."""
    written: dict[str, _Written] = {}
    gone: set[str] = set()
    for line in lines:
        try:
            entry = record(parsed(line))
            kind, what = entry["kind"], record(entry["what"])
            if kind in (PURGE, PURGE_BEGUN, SALVAGE):
                gone |= {_point(version) for versions in _erased(what) for version in versions}
                continue
            for memory in records(what.get("memories", [what])):
                if {"id", "version", "layer", "content_hash"} <= memory.keys():
                    memory_id, version = text(memory["id"]), whole(memory["version"])
                    point = point_id(memory_id, version)
                    status = text(memory.get("status"), "")
                    written[point] = _Written(memory_id, version, text(memory["layer"]), status, text(entry["at"]))
                    gone.discard(point)  # imported again after it was erased
        except (ValueError, KeyError):
            continue
    return _Trail(written, frozenset(gone))


def _erased(what: Record) -> Iterable[list[str]]:
    for name in ("removed", "removing", "lost"):
        yield from map(texts, record(what.get(name)).values())


def _point(version_id: str) -> str:
    memory_id, _, version = version_id.rpartition("@")
    return point_id(memory_id, int(version))


def _add_from_backups(
    data_dir: Path, staging: Path, collections: list[_SalvagedCollection], trail: _Trail, report: SalvageReport
) -> None:
    """Take what is missing from the newest backup that has it, and note as lost what none has."""
    for listed in reversed(known_backups(data_dir)):
        if not any(collection.unreadable or collection.open_ended for collection in collections):
            break
        file = Path(listed["file"])
        folder = staging / "backup"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            manifest = backup.unpack(file, folder)
            _add_from_backup(
                file, folder, manifest, {collection.name: collection for collection in collections}, trail, report
            )
        except MemoryAnchorError as error:
            report.notes.append(str(error))
    shutil.rmtree(staging / "backup", ignore_errors=True)
    for collection in collections:
        for point in sorted(collection.unreadable):
            if version := trail.written.get(point):
                report.lost.append(Missing(version.id, version.version, collection.name, version.at))
            else:
                report.lost.append(Missing(point, 0, collection.name))


def _add_from_backup(
    file: Path,
    folder: Path,
    manifest: Manifest,
    collections: Mapping[str, _SalvagedCollection],
    trail: _Trail,
    report: SalvageReport,
) -> None:
    for collection in collections.values():
        stored = manifest["collections"].get(collection.name)
        if collection.open_ended and not collection.spec.embedders:
            collection.spec = CollectionSpec(stored["embedders"] if stored is not None else {})
    for name, entries in backup.chunks(folder, manifest):
        collection = collections[name]
        made_with = manifest["collections"][name]["embedders"]
        same = {embedder for embedder, who in made_with.items() if collection.spec.embedders.get(embedder) == who}
        for entry in entries:
            memory, point = entry.memory, entry.memory.point_id
            wanted = point in collection.unreadable or collection.open_ended
            if not wanted or point in collection.entries or point in trail.gone:
                continue
            rows = {embedder: row for embedder, row in entry.vectors.items() if embedder in same}
            collection.entries[point] = replace(entry, vectors=_fitting(rows, collection.spec))
            collection.unreadable.discard(point)
            report.read["backups"] += 1
            recorded_at = memory.recorded_at.isoformat()
            report.from_backups.append(Missing(memory.id, memory.version, name, recorded_at, str(file)))


def _repair_histories(collection: _SalvagedCollection, trail: _Trail, doubted: Set[str]) -> list[str]:
    """Close versions that have a later one, and reopen the last of a memory whose latest is lost; return its ids.

    A fact's older text may be out of date, so it waits for review, unless the trail says that it had been archived; so
    do the points that are doubted, but for passages, which follow their documents.
    """
    histories: dict[str, list[str]] = {}
    for point, entry in sorted(collection.entries.items(), key=lambda item: item[1].memory.version):
        histories.setdefault(entry.memory.id, []).append(point)
    reopened = []
    for memory_id, points in histories.items():
        for point, after in pairwise(points):
            entry = collection.entries[point]
            if entry.memory.is_current:
                closed = entry.memory.closed(collection.entries[after].memory.recorded_at)
                collection.entries[point] = replace(entry, memory=replace(closed, receipts=()))
        last = collection.entries[points[-1]]
        latest = _latest(memory_id, last.memory.version, trail)
        layer, is_doubted = last.memory.layer, points[-1] in doubted
        if latest is None and last.memory.is_current and not is_doubted:
            continue
        if latest is not None and point_id(memory_id, latest.version) in trail.gone and not is_doubted:
            continue  # the later one was erased on purpose
        status = Status(latest.status) if latest is not None else last.memory.status
        waits = layer is not Layer.OPERATIONAL_KNOWLEDGE if is_doubted else layer is Layer.VERIFIED_FACT
        if waits and status in (Status.ACTIVE, Status.DISPUTED):
            status = Status.PENDING
        open_again = replace(last.memory, is_current=True, recorded_to=None, status=status)
        collection.entries[points[-1]] = replace(last, memory=open_again)
        reopened += [] if is_doubted and latest is None else [memory_id]
    return reopened


def _latest(memory_id: str, version: int, trail: _Trail) -> _Written | None:
    """Return the last version of a memory in the trail, None when it is not later than `version`."""
    latest = None
    while (later := trail.written.get(point_id(memory_id, version + 1))) is not None:
        latest, version = later, version + 1
    return latest


# --- the new store ---------------------------------------------------------------------------------------------------


def _fill(
    store: SqlStore,
    collections: list[_SalvagedCollection],
    found: Readable | None,
    data_dir: Path,
    audit: Path,
    now: datetime,
) -> None:
    """found: in a database, with its trail and its records; audit: a copy of the folder of a trail in a file."""
    try:
        for collection in collections:
            store.open_collection(collection.name, collection.spec)
            entries = list(collection.entries.values())
            for start in range(0, len(entries), BATCH):
                store.put(collection.name, entries[start : start + BATCH])
        rows, small = SqlAudit(store.database), SqlRecords(store.database, lambda: now)
        if found is None:
            move_in(audit, rows, now)
            small.take_over(data_dir)
        else:
            rows.take_over(found.lines)
            for name, content in found.records.items():
                small.write(name, content, before=None)
        rows.close()
    finally:
        store.close()


def _record_in_audit(data_dir: Path, report: SalvageReport, now: datetime) -> None:
    lost: dict[str, list[str]] = {}
    for missing in report.lost[:AUDIT_IDS_MAX]:
        if missing.version:
            lost.setdefault(missing.layer, []).append(f"{missing.id}@{missing.version}")
    taken: dict[str, list[str]] = {}
    for missing in report.from_backups[:AUDIT_IDS_MAX]:
        taken.setdefault(missing.backup, []).append(f"{missing.id}@{missing.version}")
    counts: Record = {"kept": report.kept, "read": report.read, "lost_count": len(report.lost)}
    more: Record = {"from_backups_count": len(report.from_backups), "lost_records_count": len(report.lost_records)}
    named: Record = {"lost": lost, "lost_records": report.lost_records[:AUDIT_IDS_MAX], "from_backups": taken}
    try:
        LocalTrail(data_dir).append(SALVAGE, {**counts, **more, **named}, by="human:doctor", at=now)
    except MemoryAnchorError as error:  # the store is good; `doctor --audit` checks the trail
        report.notes.append(str(error))


def last_account(data_dir: Path) -> tuple[Path, int] | None:
    """Return the folder and the number of lost versions of the last salvage whose damaged store is still there."""
    files = sorted(data_dir.glob(f"{REPLACED}*/{ACCOUNT_FILE}"), key=lambda path: path.stat().st_mtime)
    for file in reversed(files):
        try:
            return file.parent, len(json.loads(file.read_text("utf-8"))["lost"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
