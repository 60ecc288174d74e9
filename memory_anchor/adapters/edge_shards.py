"""One collection of the Edge store on disk: numbered shards, and one small file that names the current one.

    <directory>/<collection>/collection.json    which shard, schema version, who made the vectors
    <directory>/<collection>/shard-3/           the engine's files

What must not be half done (erasing, migrating, reindexing) copies the live points into the next shard and then replaces
`collection.json` in one rename: before it the old shard counts, after it the new one, and a shard that the file does
not name is removed at the next open. The new shard is on disk, every file and folder, before the record names it, and
the old one is removed after. Rejected: renaming directories (two renames, four states to recover from) and deleting in
place (measured: deleted text stays readable in the write-ahead log through delete, flush and close).

A write is durable when the engine's log is. The engine maps its log and syncs it only when it flushes, so `write` has
the log synced (`durability`; 0.2 ms).

Points never leave a shard, so each keeps a count of how many it had: the engine opens a truncated log or an emptied
segment without a word (measured: 0 of 20 points, no error), and the count makes that StoreDamaged. It is written after
the log and never runs ahead of it.

Invariants: the directory lock is held; nobody reads or writes a shard while another replaces it; files are 0600 in 0700
directories.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memory_anchor.adapters.edge_engine import (
    UNFINISHED,
    Migration,
    add_vector,
    copied_points,
    create_shard,
    index_fields,
    load_shard,
    readable_points,
    release_mapped,
    translated_errors,
    upsert,
)
from memory_anchor.adapters.payload import Payload, checksum_matches, with_checksum
from memory_anchor.adapters.vectors import identity_conflict
from memory_anchor.base.durability import Durability
from memory_anchor.base.files import make_folder, sync_file, sync_folder, sync_tree, write_atomic
from memory_anchor.domain.errors import Mending, StoreDamaged
from memory_anchor.domain.ports import CollectionSpec, EmbedderIdentity

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard, UpdateOperation

Answered = TypeVar("Answered")

RECORD_FILE = "collection.json"
_COUNT_FILE = "points.mark"
_COUNT_BYTES = 8
_FORMAT = 1
_GROUP = "store"
_WAL = "wal"
_SETTLED_NS = 1_000_000_000
"""A log file untouched for this long before its last sync, and since, holds nothing new: most of them are spare."""
RESCANS_MAX = 50
"""Readings of the log's folder whose files were renamed meanwhile; after that it is gone."""
_FLUSH_EVERY = 2_000
"""Points between flushes: 2,000 take 30 ms to flush (it holds the GIL), 30,000 unflushed make the next load 2 s."""
MIGRATIONS: Mapping[int, Migration] = {}
"""From schema version -> how its payloads become the next version's."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """What `collection.json` holds. backups: shards from before a migration, until something is erased."""

    shard: str
    schema_version: int
    embedders: Mapping[str, EmbedderIdentity]
    backups: tuple[str, ...] = ()


class ShardGate:
    """A lock shared by readers and writers of a shard, exclusive for what replaces it. Not reentrant."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        with self._condition:
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: self._inside == 0)
            yield


class PointCount:
    """How many points a shard ever had: one number in a file of its own, as safe from a kill as the log itself."""

    def __init__(self, shard: Path) -> None:
        path = shard / _COUNT_FILE
        path.touch(mode=0o600)
        self._file = path.open("r+b", buffering=0)

    def value(self) -> int:
        self._file.seek(0)
        return int.from_bytes(self._file.read(_COUNT_BYTES), "little")

    def set(self, points: int) -> None:
        self._file.seek(0)
        self._file.write(points.to_bytes(_COUNT_BYTES, "little"))

    def close(self) -> None:
        self._file.close()


class LogFiles:
    """The engine's write-ahead log: a few mapped files of 32 MiB, of which one is written to and others are spare."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._synced: dict[str, tuple[int, int]] = {}
        """File -> its time of change, and the time at which it was last synced; in ns."""
        self._names: frozenset[str] = frozenset()

    def sync(self) -> None:
        """Return when the log is on disk. Raises OSError: it is gone, say, with the whole data directory."""
        for scan in range(RESCANS_MAX):
            try:
                with os.scandir(self._folder) as entries:
                    changed = {e.name: e.stat().st_mtime_ns for e in entries if e.is_file(follow_symlinks=False)}
                for name, at in changed.items():
                    before, synced = self._synced.get(name, (0, 0))
                    if at != before or synced - before <= _SETTLED_NS:
                        now = time.time_ns()
                        sync_file(self._folder / name)
                        self._synced[name] = at, now
                break
            except FileNotFoundError:  # the engine renamed or dropped a full one meanwhile
                if scan == RESCANS_MAX - 1:
                    raise
        if self._names != changed.keys():
            sync_folder(self._folder)
            self._names = frozenset(changed)


class EdgeCollection:
    """An open collection. Every call raises our errors only."""

    def __init__(
        self,
        home: Path,
        spec: CollectionSpec,
        *,
        require_free_space: Callable[[], None],
        durability: Durability,
        migrations: Mapping[int, Migration] = MIGRATIONS,
        salvage: bool = False,
    ) -> None:
        """Make the collection under `home`, or open and check it.

        require_free_space: raises DiskFull below the reserve. durability: has the log of each write synced. salvage:
        accept that points are missing; what can be read is copied into a new shard and the damaged one kept as backup.
        """
        self.home = home
        self._require_free_space = require_free_space
        self._gate = ShardGate()
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._durability = durability
        self._unflushed = 0
        self._log: LogFiles | None = None
        self._shard: EdgeShard
        self._count: PointCount | None = None
        require_free_space()
        with translated_errors(home), private_files():
            make_folder(home, mode=0o700)
            for path in home.glob(f"{UNFINISHED}*"):  # a kill or a power cut left it; nothing ever counted on it
                shutil.rmtree(path)
            record = _read_record(home)
            if record is None:
                self.record = self._made(spec)
            else:
                self.record = record
                self._open(spec, migrations, salvage=salvage)
            self._follow_shard()
            _make_private(home)
        release_mapped(home)

    # --- use -----------------------------------------------------------------------------------------------------

    def fits(self, spec: CollectionSpec) -> bool:
        """Return whether the open collection already is what `spec` asks for."""
        embedders = spec.embedders.items()
        same = all(self.record.embedders.get(name) == identity for name, identity in embedders)
        return same and self.record.schema_version == spec.schema_version

    def read(self, ask: Callable[[EdgeShard], Answered]) -> Answered:
        """Return what `ask` makes of the shard."""
        with self._gate.shared(), translated_errors(self.home):
            return ask(self._shard)

    def write(self, operation: UpdateOperation, *, points: int) -> None:
        """Apply one operation, all of it or nothing, durable on return (see `Durability`)."""
        self._durability.sync_others(_GROUP, str(self.home))
        # The writers' lock comes before the gate, here and in `_copy_into_next`, or the two would wait for each other.
        with self._writing, self._gate.shared(), translated_errors(self.home):
            self._require_free_space()
            self._shard.update(operation)
            self._unflushed += points
            if self._unflushed >= _FLUSH_EVERY:
                self._flush()
        self._durability.note_write(_GROUP, str(self.home), self._sync)

    def flush(self) -> None:
        with self._writing, self._gate.shared(), translated_errors(self.home):
            self._flush()

    def close(self) -> None:
        """Flush and close; the collection answers Unavailable from now on."""
        with self._writing, self._gate.exclusive(), self._syncing, translated_errors(self.home):
            sync_folders(self.home / self.record.shard)
            self._shard.close()
            if self._count is not None:
                self._count.close()
            self._log = self._count = None
            _make_private(self.home)

    def _sync(self) -> None:
        """Sync the log of the current shard, then write down how many points it holds."""
        with self._syncing:
            log, count = self._log, self._count
            if log is None or count is None:
                return
            try:
                points = self._points()
            except Exception:
                return  # closed, and so flushed
            log.sync()
            count.set(points)

    def _flush(self) -> None:
        # The engine drops its log when what it holds is in the segments; it never syncs the folders it made in them.
        sync_folders(self.home / self.record.shard)
        self._shard.flush()
        self._unflushed = 0
        _make_private(self.home)

    def _follow_shard(self) -> None:
        """Use the log and the count of the shard that is current now. The caller holds `_syncing`, or is alone."""
        if self._count is not None:
            self._count.close()
        self._log = LogFiles(self.home / self.record.shard / _WAL)
        self._count = PointCount(self.home / self.record.shard)
        points = self._points()
        self._log.sync()  # after a kill it holds what only the page cache has
        self._count.set(points)

    def _points(self) -> int:
        return int(self._shard.info().points_count)  # 20 us; an exact count takes 1 ms at 10,000

    # --- replace the shard ---------------------------------------------------------------------------------------

    def erase(self, point_ids: Collection[str]) -> None:
        """Copy everything but these points into a new shard and remove the old files, backups included."""
        erased = frozenset(point_ids)
        with self._writing, translated_errors(self.home):
            if self.record.backups or self._shard.retrieve(list(erased), False, False):
                self._copy_into_next(replace(self.record, backups=()), skip=erased)

    def replace_embedders(self, spec: CollectionSpec) -> None:
        """Drop the vectors of every embedder that changed, keeping memories and words."""
        with self._writing, translated_errors(self.home):
            stored = self.record.embedders
            unchanged = {name for name, identity in spec.embedders.items() if stored.get(name) == identity}
            self._copy_into_next(replace(self.record, embedders=dict(spec.embedders)), vectors=unchanged)

    def _copy_into_next(
        self,
        record: CollectionRecord,
        *,
        skip: frozenset[str] = frozenset(),
        vectors: Collection[str] | None = None,
        change: Migration | None = None,
    ) -> None:
        """Copy the points into a new shard and make it current; shards not in `record.backups` are removed.

        The caller holds the writers' lock; readers use the old shard until the new one is complete.
        """
        self._require_free_space()
        name = _next_shard(self.home)
        new = create_shard(self.home / name, record.embedders)
        try:
            unflushed = 0
            for points in copied_points(self._shard, vectors=vectors, skip=skip, change=change):
                self._require_free_space()
                upsert(new, points)
                unflushed += len(points)
                if unflushed >= _FLUSH_EVERY:
                    new.flush()
                    unflushed = 0
            new.flush()
            sync_tree(self.home / name)
            _write_record(self.home, replace(record, shard=name))
        except BaseException:
            new.close()
            shutil.rmtree(self.home / name, ignore_errors=True)
            raise
        with self._gate.exclusive(), self._syncing:
            old, self._shard = self._shard, new
            self.record = replace(record, shard=name)
            self._unflushed = 0
            self._follow_shard()
            old.close()
        _remove_strays(self.home, self.record)
        _make_private(self.home)

    # --- open ----------------------------------------------------------------------------------------------------

    def _made(self, spec: CollectionSpec) -> CollectionRecord:
        """Create the first shard. Without a record nothing was ever acknowledged, unless the record was lost."""
        for stray in _shards(self.home):
            if readable_points(self.home / stray):
                raise StoreDamaged(
                    f"{self.home / RECORD_FILE} is missing beside a shard with memories; "
                    "restore it from a backup, or run `memory-anchor doctor`.",
                    Mending.SALVAGE,
                )
            shutil.rmtree(self.home / stray)
        record = CollectionRecord(_next_shard(self.home), spec.schema_version, dict(spec.embedders))
        self._shard = create_shard(self.home / record.shard, record.embedders)
        sync_tree(self.home / record.shard)
        _write_record(self.home, record)
        return record

    def _open(self, spec: CollectionSpec, migrations: Mapping[int, Migration], *, salvage: bool) -> None:
        self._check(spec, migrations)
        _remove_strays(self.home, self.record)
        self._shard = load_shard(self.home / self.record.shard)
        try:
            if salvage:
                self._copy_into_next(self._with_backup())
            else:
                self._check_count()
            self._complete(spec)
            if self.record.schema_version < spec.schema_version:
                self._migrate(spec.schema_version, migrations)
        except BaseException:
            self._shard.close()
            raise

    def _check(self, spec: CollectionSpec, migrations: Mapping[int, Migration]) -> None:
        """Raise before anything is loaded when this program must not touch the collection."""
        stored = self.record.schema_version
        if stored > spec.schema_version:
            raise StoreDamaged(
                f"{self.home} was written by a newer memory-anchor (schema {stored}, this one reads up to "
                f"{spec.schema_version}); upgrade memory-anchor, nothing was changed.",
                Mending.UPGRADE,
            )
        missing = [version for version in range(stored, spec.schema_version) if version not in migrations]
        if missing:
            raise too_old(self.home, f"schema {stored}, and no migration leads on from {missing[0]}")
        if conflict := identity_conflict(self.home.name, self.record.embedders, spec.embedders):
            raise conflict

    def _check_count(self) -> None:
        count = PointCount(self.home / self.record.shard)
        written, readable = count.value(), self._points()
        count.close()
        if readable < written:
            raise StoreDamaged(
                f"{self.home}: {written} versions were written and {readable} can be read. Restore a backup, "
                "or run `memory-anchor doctor` to go on with what is left.",
                Mending.SALVAGE,
            )

    def _complete(self, spec: CollectionSpec) -> None:
        """Add the vectors and payload indexes that a newer program wants and the shard lacks."""
        added = {name: made_by for name, made_by in spec.embedders.items() if name not in self.record.embedders}
        for name, identity in added.items():
            add_vector(self._shard, name, identity)
        if index_fields(self._shard) or added:
            self._shard.flush()
            sync_tree(self.home / self.record.shard)
        if added:
            self.record = replace(self.record, embedders={**self.record.embedders, **added})
            _write_record(self.home, self.record)

    def _migrate(self, version: int, migrations: Mapping[int, Migration]) -> None:
        steps = [migrations[step] for step in range(self.record.schema_version, version)]

        def change(payload: Payload) -> Payload:
            intact = checksum_matches(payload)
            for step in steps:
                payload = step(payload)
            return with_checksum(payload) if intact else payload

        self._copy_into_next(replace(self._with_backup(), schema_version=version), change=change)

    def _with_backup(self) -> CollectionRecord:
        """Return the record with the current shard as a backup: it costs no copy and keeps its holes."""
        return replace(self.record, backups=(*self.record.backups, self.record.shard))


# --- files -----------------------------------------------------------------------------------------------------------


def _shards(home: Path) -> list[str]:
    return [path.name for path in home.iterdir() if path.name.startswith("shard-")]


def _next_shard(home: Path) -> str:
    return f"shard-{1 + max((int(name.removeprefix('shard-')) for name in _shards(home)), default=0)}"


def _remove_strays(home: Path, record: CollectionRecord) -> None:
    for name in _shards(home):
        if name != record.shard and name not in record.backups:
            shutil.rmtree(home / name)


def _read_record(home: Path) -> CollectionRecord | None:
    path = home / RECORD_FILE
    try:
        stored = json.loads(path.read_text("utf-8"))
        if stored["format"] > _FORMAT:
            raise StoreDamaged(
                f"{path} has format {stored['format']}: it was written by a newer memory-anchor (this one reads "
                f"{_FORMAT}); upgrade memory-anchor, nothing was changed.",
                Mending.UPGRADE,
            )
        if stored["format"] < _FORMAT:
            raise too_old(home, f"format {stored['format']}")
        embedders = {name: EmbedderIdentity(**identity) for name, identity in stored["embedders"].items()}
        return CollectionRecord(stored["shard"], int(stored["schema_version"]), embedders, tuple(stored["kept"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(
            f"{path} cannot be read; restore it from a backup, or run `memory-anchor doctor`.", Mending.SALVAGE
        ) from error


def too_old(home: Path, what: str) -> StoreDamaged:
    """Return the error for a collection that only an older program can read; `doctor` shows the way out."""
    return StoreDamaged(
        f"{home} was written by an older memory-anchor ({what}); nothing was changed. Export it with that version and "
        "import it here.",
        Mending.OLDER_VERSION,
    )


def _write_record(home: Path, record: CollectionRecord) -> None:
    """Replace `collection.json` in one step, durable on return."""
    content = {
        "format": _FORMAT,
        "shard": record.shard,
        "schema_version": record.schema_version,
        "embedders": {name: asdict(identity) for name, identity in record.embedders.items()},
        "kept": list(record.backups),
    }
    write_atomic(home / RECORD_FILE, json.dumps(content, indent=1).encode())


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Create files 0600 and folders 0700 within the block; the engine itself creates 0644.

    The umask belongs to the whole process: only for opening, which is short and one at a time.
    """
    old_mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(old_mask)


def sync_folders(shard: Path) -> None:
    """Make the names of the engine's files durable; their content it syncs itself."""
    for folder, _, _ in os.walk(shard):
        sync_folder(Path(folder))


def _make_private(home: Path) -> None:
    """Restrict the files that the engine made since to their owner; until then the 0700 folder protects them.

    Setting a mode writes the file's inode again, and a collection has 230 files, so only wrong modes are changed.
    """
    for folder, _, files in os.walk(home):
        for path, mode in ((folder, 0o700), *((f"{folder}/{name}", 0o600) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                if stat.S_IMODE(os.stat(path).st_mode) != mode:  # noqa: PTH116 - a Path each costs more than the call
                    os.chmod(path, mode)  # noqa: PTH101
