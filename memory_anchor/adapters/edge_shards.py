"""One collection of the Edge store on disk: numbered shards, and one small file that names the one that counts.

    <directory>/<collection>/collection.json    which shard, schema version, who made the vectors
    <directory>/<collection>/shard-3/           the engine's files

Whatever must not be half done (erasing, migrating, reindexing) copies the live points into the next shard and then
replaces `collection.json` in one rename: before it the old shard counts, after it the new one, and a shard that no file
names is removed at the next open. Rejected: renaming directories (two renames, four states to recover from) and
deleting in place (measured: deleted text stays readable in the write-ahead log through delete, flush and close).

Invariants: the directory lock is held; nobody reads or writes a shard while another takes its place; files are 0600 in
0700 directories. Points never leave a shard, so each keeps a mark of how many it had: the engine opens a truncated log
or an emptied segment without a word (measured: 0 of 20 points, no error), and the mark makes that StoreDamaged.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from memory_anchor.adapters.edge_engine import (
    Migration,
    add_vector,
    copied_points,
    create_shard,
    index_fields,
    load_shard,
    readable_points,
    translated,
    upsert,
)
from memory_anchor.adapters.payload import Payload
from memory_anchor.adapters.resident import release_mapped
from memory_anchor.adapters.vectors import identity_conflict
from memory_anchor.errors import StoreDamaged
from memory_anchor.ports import CollectionSpec, EmbedderIdentity

RECORD_FILE = "collection.json"
_MARK_FILE = "points.mark"
_MARK_BYTES = 8
_FORMAT = 1
_FLUSH_EVERY = 2_000
"""Points between flushes: 2,000 take 30 ms to flush (it holds the GIL), 30,000 unflushed make the next load 2 s."""
MIGRATIONS: Mapping[int, Migration] = {}
"""From schema version -> how its payloads become the next version's."""


@dataclass(frozen=True, slots=True)
class Record:
    """What `collection.json` holds. kept: shards of before a migration, left as a backup until something is erased."""

    shard: str
    schema_version: int
    embedders: Mapping[str, EmbedderIdentity]
    kept: tuple[str, ...] = field(default=())


class Gate:
    """Many may pass at once, or one alone. Not reentrant."""

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
    def alone(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: self._inside == 0)
            yield


class Mark:
    """How many points a shard ever had: one number in a file of its own, as safe from a kill as the log itself."""

    def __init__(self, shard: Path) -> None:
        path = shard / _MARK_FILE
        path.touch(mode=0o600)
        self._file = path.open("r+b", buffering=0)

    def value(self) -> int:
        self._file.seek(0)
        return int.from_bytes(self._file.read(_MARK_BYTES), "little")

    def set(self, points: int) -> None:
        self._file.seek(0)
        self._file.write(points.to_bytes(_MARK_BYTES, "little"))

    def close(self) -> None:
        self._file.close()


class EdgeCollection:
    """An open collection. Every call raises our errors only."""

    def __init__(
        self,
        home: Path,
        spec: CollectionSpec,
        *,
        require_room: Callable[[], None],
        migrations: Mapping[int, Migration] = MIGRATIONS,
        salvage: bool = False,
    ) -> None:
        """Make the collection under `home`, or open and check it.

        require_room: raises DiskFull below the reserve. salvage: accept that points are missing; what can be read is
        copied into a new shard and the damaged one kept beside it.
        """
        self.home = home
        self._require_room = require_room
        self._gate = Gate()
        self._writing = threading.Lock()
        self._unflushed = 0
        self._shard: Any = None
        self._mark: Mark | None = None
        require_room()
        with translated(home), private_files():
            home.mkdir(parents=True, exist_ok=True)
            record = _read_record(home)
            if record is None:
                self.record = self._made(spec)
            else:
                self.record = record
                self._open(spec, migrations, salvage=salvage)
            self._renew_mark()
            _seal(home)
        release_mapped(home)

    # --- use -----------------------------------------------------------------------------------------------------

    def fits(self, spec: CollectionSpec) -> bool:
        """Return whether the open collection already is what `spec` asks for."""
        wanted = spec.embedders.items()
        same = all(self.record.embedders.get(name) == identity for name, identity in wanted)
        return same and self.record.schema_version == spec.schema_version

    def read(self, ask: Callable[[Any], Any]) -> Any:
        """Return what `ask` makes of the shard."""
        with self._gate.shared(), translated(self.home):
            return ask(self._shard)

    def write(self, operation: Any, *, points: int) -> None:
        """Apply one operation, all of it or nothing, durable on return."""
        # The writers' lock comes before the gate, here and in `_copy_into_next`, or the two would wait for each other.
        with self._writing, self._gate.shared(), translated(self.home):
            self._require_room()
            self._shard.update(operation)
            self._raise_mark()
            self._unflushed += points
            if self._unflushed >= _FLUSH_EVERY:
                self._flush()

    def flush(self) -> None:
        with self._writing, self._gate.shared(), translated(self.home):
            self._flush()

    def close(self) -> None:
        """Flush and close; the collection answers Unavailable from now on."""
        with self._writing, self._gate.alone(), translated(self.home):
            self._shard.close()
            if self._mark is not None:
                self._mark.close()
            _seal(self.home)

    def _flush(self) -> None:
        self._shard.flush()
        self._unflushed = 0
        _seal(self.home)

    def _renew_mark(self) -> None:
        if self._mark is not None:
            self._mark.close()
        self._mark = Mark(self.home / self.record.shard)
        self._raise_mark()

    def _raise_mark(self) -> None:
        if self._mark is not None:
            self._mark.set(self._points())

    def _points(self) -> int:
        return int(self._shard.info().points_count)  # 20 us; an exact count takes 1 ms at 10,000

    # --- replace the shard ---------------------------------------------------------------------------------------

    def erase(self, point_ids: Collection[str]) -> None:
        """Copy everything but these points into a new shard and drop the old files, backups of a migration included."""
        gone = frozenset(point_ids)
        with self._writing, translated(self.home):
            if self.record.kept or self._shard.retrieve(list(gone), False, False):
                self._copy_into_next(replace(self.record, kept=()), skip=gone)

    def replace_embedders(self, spec: CollectionSpec) -> None:
        """Drop the vectors of every embedder that changed, keeping memories and words; they can be embedded anew."""
        with self._writing, translated(self.home):
            stored = self.record.embedders
            unchanged = {name for name, identity in spec.embedders.items() if stored.get(name) == identity}
            self._copy_into_next(replace(self.record, embedders=dict(spec.embedders)), vectors=unchanged)

    def _copy_into_next(
        self,
        record: Record,
        *,
        skip: frozenset[str] = frozenset(),
        vectors: Collection[str] | None = None,
        change: Migration | None = None,
    ) -> None:
        """Copy the points into a new shard and make it count; what `record.kept` does not name is removed.

        The caller holds the writers' lock; readers go on with the old shard until the new one is complete.
        """
        self._require_room()
        name = _next_shard(self.home)
        new = create_shard(self.home / name, record.embedders)
        try:
            unflushed = 0
            for points in copied_points(self._shard, vectors=vectors, skip=skip, change=change):
                self._require_room()
                upsert(new, points)
                unflushed += len(points)
                if unflushed >= _FLUSH_EVERY:
                    new.flush()
                    unflushed = 0
            new.flush()
            _write_record(self.home, replace(record, shard=name))
        except BaseException:
            new.close()
            shutil.rmtree(self.home / name, ignore_errors=True)
            raise
        with self._gate.alone():
            old, self._shard = self._shard, new
            self.record = replace(record, shard=name)
            self._unflushed = 0
            self._renew_mark()
            old.close()
        _remove_strays(self.home, self.record)
        _seal(self.home)

    # --- open ----------------------------------------------------------------------------------------------------

    def _made(self, spec: CollectionSpec) -> Record:
        """Create the first shard. Without a record nothing was ever acknowledged, unless the record was lost."""
        for stray in _shards(self.home):
            if readable_points(self.home / stray):
                raise StoreDamaged(
                    f"{self.home / RECORD_FILE} is missing beside a shard with memories; "
                    "restore it from a backup, or run `memory-anchor doctor`."
                )
            shutil.rmtree(self.home / stray)
        record = Record(_next_shard(self.home), spec.schema_version, dict(spec.embedders))
        self._shard = create_shard(self.home / record.shard, record.embedders)
        _write_record(self.home, record)
        return record

    def _open(self, spec: CollectionSpec, migrations: Mapping[int, Migration], *, salvage: bool) -> None:
        self._check(spec, migrations)
        _remove_strays(self.home, self.record)
        self._shard = load_shard(self.home / self.record.shard)
        try:
            if salvage:
                kept = (*self.record.kept, self.record.shard)
                self._copy_into_next(replace(self.record, kept=kept))
            else:
                self._check_mark()
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
                f"{spec.schema_version}); upgrade memory-anchor, nothing was changed."
            )
        missing = [version for version in range(stored, spec.schema_version) if version not in migrations]
        if missing:
            raise StoreDamaged(f"{self.home} has schema {stored}, and no migration leads on from {missing[0]}.")
        if conflict := identity_conflict(self.home.name, self.record.embedders, spec.embedders):
            raise conflict

    def _check_mark(self) -> None:
        mark = Mark(self.home / self.record.shard)
        written, readable = mark.value(), self._points()
        mark.close()
        if readable < written:
            raise StoreDamaged(
                f"{self.home}: {written} versions were written and {readable} can be read. Restore a backup, "
                "or run `memory-anchor doctor` to go on with what is left."
            )

    def _complete(self, spec: CollectionSpec) -> None:
        """Add the vectors and payload indexes that a newer program wants and the shard has not."""
        added = {name: who for name, who in spec.embedders.items() if name not in self.record.embedders}
        for name, identity in added.items():
            add_vector(self._shard, name, identity)
        if added:
            self._shard.flush()
            self.record = replace(self.record, embedders={**self.record.embedders, **added})
            _write_record(self.home, self.record)
        index_fields(self._shard)

    def _migrate(self, version: int, migrations: Mapping[int, Migration]) -> None:
        steps = [migrations[step] for step in range(self.record.schema_version, version)]

        def change(payload: Payload) -> Payload:
            for step in steps:
                payload = step(payload)
            return payload

        # The old shard stays as it was: a backup that costs no copy and keeps its holes.
        kept = (*self.record.kept, self.record.shard)
        self._copy_into_next(replace(self.record, schema_version=version, kept=kept), change=change)


# --- files -----------------------------------------------------------------------------------------------------------


def _shards(home: Path) -> list[str]:
    return [path.name for path in home.iterdir() if path.name.startswith("shard-")]


def _next_shard(home: Path) -> str:
    return f"shard-{1 + max((int(name.removeprefix('shard-')) for name in _shards(home)), default=0)}"


def _remove_strays(home: Path, record: Record) -> None:
    for name in _shards(home):
        if name != record.shard and name not in record.kept:
            shutil.rmtree(home / name)


def _read_record(home: Path) -> Record | None:
    path = home / RECORD_FILE
    try:
        words = json.loads(path.read_text("utf-8"))
        if words["format"] != _FORMAT:
            raise StoreDamaged(f"{path} has format {words['format']}, this memory-anchor reads {_FORMAT}; upgrade it.")
        embedders = {name: EmbedderIdentity(**identity) for name, identity in words["embedders"].items()}
        return Record(words["shard"], int(words["schema_version"]), embedders, tuple(words["kept"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(
            f"{path} cannot be read; restore it from a backup, or run `memory-anchor doctor`."
        ) from error


def _write_record(home: Path, record: Record) -> None:
    """Replace `collection.json` in one step, durable on return."""
    words = {
        "format": _FORMAT,
        "shard": record.shard,
        "schema_version": record.schema_version,
        "embedders": {name: asdict(identity) for name, identity in record.embedders.items()},
        "kept": list(record.kept),
    }
    temporary = home / (RECORD_FILE + ".new")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(words, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(home / RECORD_FILE)
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        # The rename is done: failing now would leave the caller believing in the old record.
        with contextlib.suppress(OSError):
            os.fsync(handle)
        os.close(handle)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Make files 0600 and folders 0700 meanwhile; the engine itself makes them 0644.

    The umask belongs to the whole process: only for opening, which is short and one at a time.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _seal(home: Path) -> None:
    """Close to others what the engine made since; until then the 0700 folder keeps it closed."""
    for folder, _, files in os.walk(home):
        here = Path(folder)
        here.chmod(0o700)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                (here / name).chmod(0o600)
