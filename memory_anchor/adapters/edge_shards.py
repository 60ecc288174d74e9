"""One collection of the Edge store on disk: numbered shards, and one small file that names the one that counts.

    <directory>/<collection>/collection.json    which shard, schema version, who made the vectors
    <directory>/<collection>/shard-3/           the engine's files

Whatever must not be half done (erasing, migrating, reindexing) copies the live points into the next shard and then
replaces `collection.json` in one rename: before it the old shard counts, after it the new one, and a shard that no file
names is removed at the next open. Rejected: renaming directories (two renames, four states to recover from) and
deleting in place (measured: deleted text stays readable in the write-ahead log through delete, flush and close).

Invariants: the directory lock is held; nobody reads or writes a shard while another takes its place; files are 0600 in
0700 directories. qdrant-edge 0.9.0 raises bare `Exception` for everything, so `translated` is the one place that reads
its messages. `optimize` is never called: it holds the GIL, 20,000 points froze every thread for 10 s, and the exact
scan needs no index.
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

from memory_anchor.adapters.payload import Payload
from memory_anchor.adapters.resident import release_mapped
from memory_anchor.adapters.vectors import identity_conflict
from memory_anchor.errors import (
    DiskFull,
    MemoryAnchorError,
    NotFound,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    WrongEmbedder,
)
from memory_anchor.model import INDEXED_FIELDS
from memory_anchor.ports import WORDS, CollectionSpec, EmbedderIdentity

RECORD_FILE = "collection.json"
_FORMAT = 1
_FLUSH_EVERY = 2_000
"""Points between flushes: 2,000 take 30 ms to flush (it holds the GIL), 30,000 unflushed make the next load 2 s."""
_COPY_PAGE = 500
_SEARCH_THREADS = 2

Migration = Callable[[Payload], Payload]
"""Turns a payload of one schema version into the next one's."""
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


class EdgeCollection:
    """An open collection. Every call raises our errors only."""

    def __init__(
        self,
        home: Path,
        spec: CollectionSpec,
        *,
        require_room: Callable[[], None],
        migrations: Mapping[int, Migration] = MIGRATIONS,
    ) -> None:
        """Make the collection under `home`, or open and check it; require_room raises DiskFull below the reserve."""
        self.home = home
        self._require_room = require_room
        self._gate = Gate()
        self._writing = threading.Lock()
        self._unflushed = 0
        self._shard: Any = None
        require_room()
        with translated(home), private_files():
            home.mkdir(parents=True, exist_ok=True)
            record = _read_record(home)
            if record is None:
                self.record = self._made(spec)
            else:
                self.record = record
                self._open(spec, migrations)
            _seal(home)
        release_mapped(home)

    # --- use -----------------------------------------------------------------------------------------------------

    def read(self, ask: Callable[[Any], Any]) -> Any:
        """Return what `ask` makes of the shard."""
        with self._gate.shared(), translated(self.home):
            return ask(self._shard)

    def write(self, operation: Any, *, points: int) -> None:
        """Apply one operation, all of it or nothing, durable on return."""
        with self._gate.shared(), self._writing, translated(self.home):
            self._require_room()
            self._shard.update(operation)
            self._unflushed += points
            if self._unflushed >= _FLUSH_EVERY:
                self._flush()

    def flush(self) -> None:
        with self._gate.shared(), self._writing, translated(self.home):
            self._flush()

    def close(self) -> None:
        """Flush and close; the collection answers Unavailable from now on."""
        with self._gate.alone(), translated(self.home):
            self._shard.close()
            _seal(self.home)

    def _flush(self) -> None:
        self._shard.flush()
        self._unflushed = 0
        _seal(self.home)

    # --- replace the shard ---------------------------------------------------------------------------------------

    def erase(self, point_ids: Collection[str]) -> None:
        """Copy everything but these points into a new shard and drop the old files, backups of a migration included."""
        gone = frozenset(point_ids)
        with self._gate.alone(), translated(self.home), private_files():
            if not self._shard.retrieve(list(gone), False, False) and not self.record.kept:
                return
            self._copy_into_next(replace(self.record, kept=()), skip=gone)

    def replace_embedders(self, spec: CollectionSpec) -> None:
        """Drop the vectors of every embedder that changed, keeping memories and words; they can be embedded anew."""
        with self._gate.alone(), translated(self.home), private_files():
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
        """Copy the points into a new shard and make it count; what `record.kept` does not name is removed."""
        self._require_room()
        name = _next_shard(self.home)
        new = _create_shard(self.home / name, record.embedders)
        try:
            for points in _copied(self._shard, vectors=vectors, skip=skip, change=change):
                self._require_room()
                _update(new, points)
            new.flush()
            self.record = replace(record, shard=name)
            _write_record(self.home, self.record)
        except BaseException:
            new.close()
            shutil.rmtree(self.home / name, ignore_errors=True)
            raise
        old, self._shard, self._unflushed = self._shard, new, 0
        old.close()
        _remove_strays(self.home, self.record)
        _seal(self.home)

    # --- open ----------------------------------------------------------------------------------------------------

    def _made(self, spec: CollectionSpec) -> Record:
        """Create the first shard. Without a record nothing was ever acknowledged, unless the record was lost."""
        for stray in _shards(self.home):
            if _points_in(self.home / stray):
                raise StoreDamaged(
                    f"{self.home / RECORD_FILE} is missing beside a shard with memories; "
                    "restore it from a backup, or run `memory-anchor doctor`."
                )
            shutil.rmtree(self.home / stray)
        record = Record(_next_shard(self.home), spec.schema_version, dict(spec.embedders))
        self._shard = _create_shard(self.home / record.shard, record.embedders)
        self._shard.flush()
        _write_record(self.home, record)
        return record

    def _open(self, spec: CollectionSpec, migrations: Mapping[int, Migration]) -> None:
        self._check(spec, migrations)
        _remove_strays(self.home, self.record)
        self._shard = _load_shard(self.home / self.record.shard)
        try:
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

    def _complete(self, spec: CollectionSpec) -> None:
        """Add the vectors and payload indexes that a newer program wants and the shard has not."""
        added = {name: who for name, who in spec.embedders.items() if name not in self.record.embedders}
        for name, identity in added.items():
            _add_vector(self._shard, name, identity)
        if added:
            self._shard.flush()
            self.record = replace(self.record, embedders={**self.record.embedders, **added})
            _write_record(self.home, self.record)
        _index_fields(self._shard)

    def _migrate(self, version: int, migrations: Mapping[int, Migration]) -> None:
        steps = [migrations[step] for step in range(self.record.schema_version, version)]

        def change(payload: Payload) -> Payload:
            for step in steps:
                payload = step(payload)
            return payload

        # The old shard stays as it was: a backup that costs no copy and keeps its holes.
        kept = (*self.record.kept, self.record.shard)
        self._copy_into_next(replace(self.record, schema_version=version, kept=kept), change=change)


# --- the engine's objects ------------------------------------------------------------------------------------------


def _create_shard(path: Path, embedders: Mapping[str, EmbedderIdentity]) -> Any:
    import qdrant_edge as edge

    config = edge.EdgeConfig(
        vectors={
            name: edge.EdgeVectorParams(size=identity.dimensions, distance=edge.Distance.Cosine)
            for name, identity in embedders.items()
        },
        sparse_vectors={WORDS: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        max_search_threads=_SEARCH_THREADS,
    )
    path.mkdir(mode=0o700)
    shard = edge.EdgeShard.create(str(path), config)
    _index_fields(shard)
    return shard


def _load_shard(path: Path) -> Any:
    import qdrant_edge as edge

    return edge.EdgeShard.load(str(path))


def _index_fields(shard: Any) -> None:
    """Create the payload indexes that are missing; `prefix` serves `StartsWith`."""
    import qdrant_edge as edge

    schemas: dict[str, Any] = {
        "keyword": edge.KeywordIndexParams(prefix=True),
        "datetime": edge.PayloadSchemaType.Datetime,
        "integer": edge.PayloadSchemaType.Integer,
        "float": edge.PayloadSchemaType.Float,
    }
    present = shard.info().payload_schema
    for name, kind in INDEXED_FIELDS.items():
        if name not in present:
            shard.update(edge.UpdateOperation.create_field_index(name, schemas[kind]))


def _add_vector(shard: Any, name: str, identity: EmbedderIdentity) -> None:
    import qdrant_edge as edge

    # Deleting first makes it repeatable: a crash may have left the vector made and not recorded.
    with contextlib.suppress(Exception):
        shard.update(edge.UpdateOperation.delete_vector_name(name))
    shard.update(edge.UpdateOperation.create_dense_vector(name, identity.dimensions, edge.Distance.Cosine))


def _update(shard: Any, points: list[Any]) -> None:
    import qdrant_edge as edge

    shard.update(edge.UpdateOperation.upsert_points(points))


def _copied(
    shard: Any, *, vectors: Collection[str] | None, skip: frozenset[str], change: Migration | None
) -> Iterator[list[Any]]:
    """Yield pages of new points; vectors: the dense ones to carry over, None for all."""
    import qdrant_edge as edge

    after: Any = None
    while True:
        request = edge.ScrollRequest(offset=after, limit=_COPY_PAGE, with_payload=True, with_vector=True)
        records, after = shard.scroll(request)
        points = []
        for record in records:
            if str(record.id) in skip:
                continue
            rows = record.vector or {}
            kept = {name: row for name, row in rows.items() if vectors is None or name == WORDS or name in vectors}
            payload = change(record.payload) if change else record.payload
            points.append(edge.Point(str(record.id), kept, payload))
        if points:
            yield points
        if after is None:
            return


def _points_in(path: Path) -> int:
    """Return how many points a shard holds, 0 when it was never finished."""
    import qdrant_edge as edge

    try:
        shard = edge.EdgeShard.load(str(path))
    except Exception:
        return 0
    count = int(shard.count(edge.CountRequest(exact=True)))
    shard.close()
    return count


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
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """Make files 0600 and folders 0700 meanwhile; the engine itself makes them 0644."""
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


# --- errors ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def translated(home: Path) -> Iterator[None]:
    """Turn what the engine raises into ours; our own errors and bugs pass."""
    try:
        yield
    except MemoryAnchorError:
        raise
    except OSError as error:
        raise _of_message(f"os error {error.errno} {error.strerror}", home) from error
    except BaseException as error:
        # The engine raises bare Exceptions; a panic of its Rust code arrives as PanicException, a BaseException.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise _of_message(str(error), home) from error


_MEANINGS: tuple[tuple[tuple[str, ...], type[MemoryAnchorError], str], ...] = (
    (("wouldblock",), StoreBusy, "{home} is in use by another process; nothing was changed, let it finish and retry."),
    (
        ("no space left", "os error 28 ", "os error 28)", "quota"),
        DiskFull,
        "{home}: the disk is full; free some space and retry.",
    ),
    (
        ("permission denied", "os error 13 ", "read-only file system", "os error 30 ", "operation not permitted"),
        Refused,
        "{home} may not be written; give this user write permission, then retry.",
    ),
    (("too many open files",), Unavailable, "{home}: too many open files; raise the limit (ulimit -n) and retry."),
    (("shard is not initialized",), Unavailable, "{home} is closed; open the store again."),
    (("no point with id",), NotFound, "{home}: a memory was erased meanwhile; read again and retry."),
    (
        ("vector dimension error", "not existing vector name"),
        WrongEmbedder,
        "{home}: the vector does not fit the collection; run `memory-anchor reindex`.",
    ),
)
_DAMAGED = "{home} cannot be read as it is; nothing was changed. Run `memory-anchor doctor`, or restore a backup."


def _of_message(message: str, home: Path) -> MemoryAnchorError:
    """Return our error for an engine's message, without its wording: that may quote a payload."""
    lowered = message.lower() + " "
    for signs, kind, sentence in _MEANINGS:
        if any(sign in lowered for sign in signs):
            return kind(sentence.format(home=home))
    return StoreDamaged(_DAMAGED.format(home=home))
