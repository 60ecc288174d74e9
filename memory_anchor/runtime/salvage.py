"""`doctor --salvage`: a fresh store of everything that can still be read, beside the damaged one, then in its place.

Four sources, in this order: the engine, point by point, in a process that damage may end; its write-ahead log, read
without it; the backups that are known; and the audit trail, which holds no text and says what there was, so that what
is missing is named. A version counts as read when it is a memory, is stored under its own id, and its content has the
hash that was kept beside it. What the trail says was purged is never brought back. The swap is a restore's: journalled,
the damaged store is kept in `replaced-N/`, and a crash leaves the old or the new. Rejected: mending the engine's files
in place, which may take the last readable copy away.

Ids, layers, times and counts are told and kept; a memory's text never is.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from memory_anchor.adapters.edge_damage import ShardContent, read_log, read_shard
from memory_anchor.adapters.edge_shards import MIGRATIONS, RECORD_FILE, PointCount, too_old
from memory_anchor.adapters.payload import checksum_matches, from_payload
from memory_anchor.adapters.restoring import JOURNAL, finish_restore
from memory_anchor.adapters.snapshot_file import SNAPSHOT_FILE
from memory_anchor.care import backup
from memory_anchor.care.backup_manifest import Manifest
from memory_anchor.care.purge import PURGE, PURGE_BEGUN
from memory_anchor.errors import BadInput, MemoryAnchorError, StoreDamaged
from memory_anchor.files import ours, write_atomic
from memory_anchor.hashing import content_hash
from memory_anchor.json_values import Json, Record, parsed, record, records, text, texts, whole
from memory_anchor.language.indexing import is_same_vector, searched_words
from memory_anchor.model import COLLECTIONS, Layer, Memory, Status, point_id
from memory_anchor.ports import CollectionSpec, EmbedderIdentity, Entry
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix, MemoryStore
    from memory_anchor.settings import Settings

ACCOUNT_FILE = "salvage.json"
SALVAGE = "salvage"
BATCH = 500
AUDIT_IDS_MAX = 400
"""Lost versions named in the one audit record; all of them are in the account beside the damaged store."""
_RECORD_FORMAT = 1
_Points: TypeAlias = "Iterable[tuple[str, tuple[Record, Mapping[str, Matrix]]]]"
"""Point id -> its payload and vectors."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A version that the damaged store could not give. backup: where it was taken from, "" when it is lost."""

    id: str
    version: int
    layer: str
    recorded_at: str = ""
    backup: str = ""


@dataclass(slots=True)
class Account:
    """What a salvage did. kept: versions of the new store by collection. read: by source. lost: in no source.

    reopened: ids whose latest version is lost, so that an older one stands in its place, for review. changed: the
    store was replaced; replaced: where the damaged one lies then.
    """

    kept: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=lambda: {"store": 0, "log": 0, "backups": 0})
    lost: list[Missing] = field(default_factory=list)
    from_backups: list[Missing] = field(default_factory=list)
    reopened: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    changed: bool = False
    replaced: str = ""

    def to_json(self) -> Record:
        return asdict(self)


@dataclass(slots=True)
class _Readable:
    """One collection as its sources give it. open_ended: nobody knows how many versions it had."""

    name: str
    spec: CollectionSpec
    entries: dict[str, Entry] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    damaged: bool = False
    open_ended: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """A version as the audit trail says that it was written."""

    id: str
    version: int
    layer: str
    status: str
    at: str


@dataclass(frozen=True, slots=True)
class _Trail:
    """What the audit trail says: versions written by point id, versions erased, versions already given up."""

    written: Mapping[str, _Written]
    gone: frozenset[str]


def salvage(settings: Settings, data_dir: Path, *, now: datetime) -> Account:
    """Make a fresh store of what can be read and put it in place of the damaged one; a whole store is left alone.

    A running engine is stopped first. Raises StoreDamaged: there is nothing to bring back, or a newer program wrote
    it; nothing was changed. BadInput: the store is no embedded one. StoreBusy, DiskFull, Refused.
    """
    if settings.store.kind != "edge":
        raise BadInput(
            f"store.kind is {settings.store.kind!r}, whose files are its server's; restore a snapshot there, or run "
            "`memory-anchor backup restore FILE` into an empty collection. --salvage mends the embedded store"
        )
    os.umask(0o077)
    engine.stop(data_dir)
    with DirectoryLock.acquire(data_dir, role="doctor") as lock:
        finish_restore(data_dir)
        staging = data_dir / f"{backup.STAGING}{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            staging.mkdir(mode=0o700)
            return _salvaged(settings, data_dir, staging, lock, now)
        except OSError as error:
            raise ours(error, data_dir) from error
        finally:
            if not (data_dir / JOURNAL).exists():  # from here on it is the next opening's
                shutil.rmtree(staging, ignore_errors=True)


def _salvaged(settings: Settings, data_dir: Path, staging: Path, lock: DirectoryLock, now: datetime) -> Account:
    account = Account()
    trail = _trail(data_dir / "audit" / "audit.jsonl")
    store = data_dir / "store"
    found = [_read(store / name, staging, trail, account) for name in COLLECTIONS]
    _from_backups(data_dir, staging, found, trail, account)
    for one in found:
        account.kept[one.name] = len(one.entries)
        if one.damaged:
            account.reopened += _mend_chains(one, trail)
    if not any(one.damaged for one in found):
        return account
    if not any(account.kept.values()):
        raise StoreDamaged(
            f"nothing could be brought back from {store}: neither its files, nor its log, nor a known backup give a "
            f"memory ({len(account.lost)} versions are named by the audit trail); nothing was changed. "
            "If a backup lies elsewhere, run `memory-anchor backup restore FILE --force`."
        )
    from memory_anchor.app import open_store

    new = staging / "new"
    new.mkdir(mode=0o700)
    _fill(open_store(settings, new, lock), found)
    _swap(data_dir, staging, account)
    _note(data_dir, account, now)
    return account


# --- sources ---------------------------------------------------------------------------------------------------------


def _read(home: Path, staging: Path, trail: _Trail, account: Account) -> _Readable:
    """Return what the files of one collection give."""
    found = _Readable(home.name, CollectionSpec({}))
    if not home.exists():
        found.damaged = home.parent.exists() and any(one.layer == home.name for one in trail.written.values())
        _expect(found, trail)
        return found
    record, schema_version = _record(home, found)
    shards = [home / str(record["shard"])] if record else sorted(home.glob("shard-*"), key=_number, reverse=True)
    for shard in shards:
        if not shard.is_dir():
            found.damaged = found.open_ended = True
            continue
        _read_shard(shard, staging, schema_version, trail, found, account)
    _expect(found, trail)
    return found


def _record(home: Path, found: _Readable) -> tuple[Record | None, int]:
    """Return what `collection.json` says and its schema; None when it cannot be read. Raises StoreDamaged: newer."""
    current = found.spec.schema_version
    try:
        told = record(parsed((home / RECORD_FILE).read_text("utf-8")))
        schema, form = whole(told["schema_version"]), whole(told["format"])
        embedders = _embedders(told["embedders"])
        str(told["shard"])
    except (OSError, ValueError, KeyError):
        found.damaged = found.open_ended = True
        return None, current
    if schema > current or form > _RECORD_FORMAT:
        raise StoreDamaged(
            f"{home} was written by a newer memory-anchor (schema {schema}); upgrade memory-anchor, nothing "
            "was changed."
        )
    if form < _RECORD_FORMAT or any(step not in MIGRATIONS for step in range(schema, current)):
        raise too_old(home, f"schema {schema}, format {form}")
    found.spec = CollectionSpec(embedders)
    return told, schema


def _embedders(stored: Json) -> dict[str, EmbedderIdentity]:
    """Return the embedders of a stored record. Raises ValueError, KeyError: it says no such thing."""
    return {
        name: EmbedderIdentity(text(who["model"]), whole(who["dimensions"]), text(who["roles"]))
        for name, who in ((name, record(one)) for name, one in record(stored).items())
    }


def _read_shard(
    shard: Path, staging: Path, schema_version: int, trail: _Trail, found: _Readable, account: Account
) -> None:
    log = read_log(shard / "wal")
    if not _marked(shard) and log.is_whole and not log.points:
        return  # nothing was ever written to it
    whole = read_shard(shard, staging, bare=False)
    sources: list[tuple[str, _Points]] = [("store", whole.points.items())]
    listed = set(whole.points) | whole.unreadable
    is_whole = whole.is_whole and _has_its_words(whole, schema_version)
    if not is_whole or len(listed) < _marked(shard) or _invalid(whole.points.items(), schema_version):
        found.damaged = True
        bare = read_shard(shard, staging, bare=True)
        sources.append(("log", ((point, (one.payload, one.vectors)) for point, one in log.points.items())))
        sources.append(("store", bare.points.items()))
        listed |= set(log.points) | set(bare.points) | bare.unreadable
        if not (whole.is_complete or bare.is_complete) or len(listed) < _marked(shard):
            found.open_ended = True
    for source, points in sources:
        for point, (payload, rows) in points:
            if point in found.entries or point in trail.gone:
                continue
            memory = _memory(point, payload, schema_version)
            if memory is not None and memory.layer.value == found.name:
                found.entries[point] = Entry(memory, _fitting(rows, found.spec), searched_words(memory))
                account.read[source] += 1
    found.unreadable |= listed - found.entries.keys() - trail.gone


def _has_its_words(content: ShardContent, schema_version: int) -> bool:
    """Return whether every memory is indexed under its own words."""
    for point, (payload, _) in content.points.items():
        memory = _memory(point, payload, schema_version)
        if memory is not None and not is_same_vector(searched_words(memory), content.words.get(point, ())):
            return False
    return True


def _invalid(points: _Points, schema_version: int) -> bool:
    return any(_memory(point, payload, schema_version) is None for point, (payload, _) in points)


def _memory(point: str, payload: Record, schema_version: int) -> Memory | None:
    """Return the memory of a payload, None when it is none, another's, or its content is not what was written."""
    try:
        if not checksum_matches(payload):
            return None
        held = dict(payload)
        for step in range(schema_version, CollectionSpec({}).schema_version):
            held = MIGRATIONS[step](held)
        memory = from_payload(held)
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


def _marked(shard: Path) -> int:
    mark = PointCount(shard)
    try:
        return mark.value()
    finally:
        mark.close()


def _number(shard: Path) -> int:
    text = shard.name.removeprefix("shard-")
    return int(text) if text.isdigit() else 0


def _expect(found: _Readable, trail: _Trail) -> None:
    """Count as unreadable what the audit trail says was written to a damaged collection and no file gave."""
    if not found.damaged:
        return
    there = {point for point, what in trail.written.items() if what.layer == found.name}
    found.unreadable |= there - found.entries.keys() - trail.gone


def _trail(path: Path) -> _Trail:
    """Return what the trail says, as far as its lines can be read: `doctor --audit` names those that cannot."""
    written: dict[str, _Written] = {}
    gone: set[str] = set()
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return _Trail({}, frozenset())
    for line in lines:
        try:
            said = record(parsed(line))
            kind, what = said["kind"], record(said["what"])
            if kind in (PURGE, PURGE_BEGUN, SALVAGE):
                gone |= {_point(version) for versions in _erased(what) for version in versions}
                continue
            for one in records(what.get("memories", [what])):
                if {"id", "version", "layer", "content_hash"} <= one.keys():
                    memory_id, version = text(one["id"]), whole(one["version"])
                    point = point_id(memory_id, version)
                    status = text(one.get("status"), "")
                    written[point] = _Written(memory_id, version, text(one["layer"]), status, text(said["at"]))
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


def _from_backups(data_dir: Path, staging: Path, found: list[_Readable], trail: _Trail, account: Account) -> None:
    """Take what is missing from the newest backup that has it, and note what none has."""
    for held in reversed(backup.known(data_dir)):
        if not any(one.unreadable or one.open_ended for one in found):
            break
        file = Path(held["file"])
        folder = staging / "backup"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            manifest = backup.unpacked(file, folder)
            _from_backup(file, folder, manifest, {one.name: one for one in found}, trail, account)
        except MemoryAnchorError as error:
            account.notes.append(str(error))
    shutil.rmtree(staging / "backup", ignore_errors=True)
    for one in found:
        for point in sorted(one.unreadable):
            what = trail.written.get(point)
            told = Missing(what.id, what.version, one.name, what.at) if what else Missing(point, 0, one.name)
            account.lost.append(told)


def _from_backup(
    file: Path,
    folder: Path,
    manifest: Manifest,
    found: Mapping[str, _Readable],
    trail: _Trail,
    account: Account,
) -> None:
    for one in found.values():
        stored = manifest["collections"].get(one.name)
        if one.open_ended and not one.spec.embedders:
            one.spec = CollectionSpec(stored["embedders"] if stored is not None else {})
    for collection, entries in backup.chunks(folder, manifest):
        one = found[collection]
        made_with = manifest["collections"][collection]["embedders"]
        same = {name for name, who in made_with.items() if one.spec.embedders.get(name) == who}
        for entry in entries:
            memory, point = entry.memory, entry.memory.point_id
            wanted = point in one.unreadable or one.open_ended
            if not wanted or point in one.entries or point in trail.gone:
                continue
            rows = {name: row for name, row in entry.vectors.items() if name in same}
            one.entries[point] = replace(entry, vectors=_fitting(rows, one.spec))
            one.unreadable.discard(point)
            account.read["backups"] += 1
            told = Missing(memory.id, memory.version, collection, memory.recorded_at.isoformat(), str(file))
            account.from_backups.append(told)


def _mend_chains(found: _Readable, trail: _Trail) -> list[str]:
    """Close versions that a later one follows, and reopen the last of a memory whose latest is lost; return its ids.

    A fact's older text may be out of date, so it waits for review, unless the trail says that it had been put away.
    """
    chains: dict[str, list[str]] = {}
    for point, entry in sorted(found.entries.items(), key=lambda item: item[1].memory.version):
        chains.setdefault(entry.memory.id, []).append(point)
    reopened = []
    for memory_id, points in chains.items():
        for point, after in pairwise(points):
            entry = found.entries[point]
            if entry.memory.is_current:
                closed = entry.memory.closed(found.entries[after].memory.recorded_at)
                found.entries[point] = replace(entry, memory=replace(closed, receipts=()))
        last = found.entries[points[-1]]
        latest = _latest(memory_id, last.memory.version, trail)
        if latest is None and last.memory.is_current:
            continue
        if latest is not None and point_id(memory_id, latest.version) in trail.gone:
            continue  # the later one was erased on purpose
        status = Status(latest.status) if latest is not None else last.memory.status
        if status in (Status.ACTIVE, Status.DISPUTED) and last.memory.layer is Layer.VERIFIED_FACT:
            status = Status.PENDING
        open_again = replace(last.memory, is_current=True, recorded_to=None, status=status)
        found.entries[points[-1]] = replace(last, memory=open_again)
        reopened.append(memory_id)
    return reopened


def _latest(memory_id: str, version: int, trail: _Trail) -> _Written | None:
    """Return what the trail says of the last version of a memory, None when it is not later than `version`."""
    latest = None
    while (what := trail.written.get(point_id(memory_id, version + 1))) is not None:
        latest, version = what, version + 1
    return latest


# --- the new store ---------------------------------------------------------------------------------------------------


def _fill(store: MemoryStore, found: list[_Readable]) -> None:
    try:
        for one in found:
            store.open_collection(one.name, one.spec)
            entries = list(one.entries.values())
            for start in range(0, len(entries), BATCH):
                store.put(one.name, entries[start : start + BATCH])
        store.flush()
    finally:
        store.close()


def _swap(data_dir: Path, staging: Path, account: Account) -> None:
    if hasattr(os, "sync"):
        os.sync()  # every file of the new side, before the journal says that it is there
    aside = backup.next_aside(data_dir)
    account.changed, account.replaced = True, str(data_dir / aside)
    journal = {"staging": staging.name, "aside": aside, "old": ["store", SNAPSHOT_FILE]}
    write_atomic(data_dir / JOURNAL, json.dumps(journal).encode())
    finish_restore(data_dir)
    write_atomic(data_dir / aside / ACCOUNT_FILE, json.dumps(account.to_json(), indent=1).encode())


def _note(data_dir: Path, account: Account, now: datetime) -> None:
    from memory_anchor.adapters.audit import JsonlAudit

    lost: dict[str, list[str]] = {}
    for one in account.lost[:AUDIT_IDS_MAX]:
        if one.version:
            lost.setdefault(one.layer, []).append(f"{one.id}@{one.version}")
    told: Record = {"kept": account.kept, "read": account.read, "lost": lost, "lost_count": len(account.lost)}
    try:
        JsonlAudit(data_dir / "audit" / "audit.jsonl").append(SALVAGE, told, by="human:doctor", at=now)
    except MemoryAnchorError as error:  # the store stands; the trail is looked at by itself
        account.notes.append(str(error))


def last_account(data_dir: Path) -> tuple[Path, int] | None:
    """Return the folder and the number of lost versions of the last salvage whose damaged store is still there."""
    files = sorted(data_dir.glob(f"{backup.REPLACED}*/{ACCOUNT_FILE}"), key=lambda path: path.stat().st_mtime)
    for file in reversed(files):
        try:
            return file.parent, len(json.loads(file.read_text("utf-8"))["lost"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
