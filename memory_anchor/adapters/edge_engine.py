"""What the Edge engine is asked and what it answers: its objects in, our errors out.

qdrant-edge 0.9.0 raises a bare `Exception` for everything (and Rust panics as a `BaseException`), so
`translated_errors` is the one place that reads its messages; a test covers each of them. `optimize` is never called: it
holds the GIL, 20,000 points froze every thread for 10 s, and the exact scan needs no index.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.sparse_files import TreeImage, copy_tree, image_of, write_tree
from memory_anchor.base.files import sync_folder, sync_tree
from memory_anchor.domain.errors import (
    DiskFull,
    MemoryAnchorError,
    Mending,
    NotFound,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    WrongEmbedder,
)
from memory_anchor.domain.ports import WORDS, EmbedderIdentity
from memory_anchor.domain.where import INDEXED_FIELDS

if TYPE_CHECKING:
    from typing import TypeAlias

    from qdrant_edge import (
        EdgeShard,
        KeywordIndexParams,
        PayloadSchemaType,
        PointId,
        Record,
        SparseVector,
        WithPayloadType,
    )

    Row: TypeAlias = list[float] | list[list[float]]
    Stored: TypeAlias = dict[str, list[float] | SparseVector | list[list[float]]]

UNFINISHED = "half-"
"""Prefix of a shard that is being made."""
_PAGE = 500
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (a private folder is made in it)
_SCRATCH_BYTES = 512 * 1024 * 1024
"""A shard's files are 166 MB long, and running out of space while they are mapped is SIGBUS."""
_SEARCH_THREADS = 2
_STORED_AS = "Turbo16"
"""Of 50,000 rows of 384: Float32 9.2 ms a scan; Turbo16 2.0 and cosines within 5e-6; Turbo8 1.2, and 1 in 100 of the
nearest 80 missed. A shard made by an earlier version stays as it is until something is erased or reindexed."""
_EMPTY: dict[tuple[object, ...], TreeImage] = {}
"""Files of empty shards, by storage type and embedders: some 200 KB each, and there are few."""


def create_shard(path: Path, embedders: Mapping[str, EmbedderIdentity]) -> EdgeShard:
    """Return a new, empty shard with every payload index, at `path`, which must not exist.

    Creating 26 indexes costs some 290 fsyncs, 0.2 to 6 s on a busy disk: where there is a file system in memory it is
    made there and its half megabyte copied; the next collection with these embedders only writes the same files again.
    It gets its name when all of it is on disk, so that no start loads an incomplete one: the engine maps its files, and
    one that a power cut emptied ends the process.
    """
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    kind = (_STORED_AS, *((name, identity.dimensions) for name, identity in embedders.items()))
    scratch = _memory_folder()
    if kind in _EMPTY:
        write_tree(_EMPTY[kind], unfinished)
    elif scratch is None:
        _create_in_place(unfinished, embedders).close()
    else:
        with tempfile.TemporaryDirectory(prefix="memory-anchor-", dir=scratch) as folder:
            made = Path(folder) / "shard"
            _create_in_place(made, embedders).close()
            copy_tree(made, unfinished)
    _EMPTY.setdefault(kind, image_of(unfinished))
    sync_tree(unfinished)
    unfinished.rename(path)
    sync_folder(path.parent)
    import qdrant_edge as edge

    return edge.EdgeShard.load(str(path))


def _memory_folder() -> Path | None:
    """Return a folder in memory with space for a shard's apparent size, or None."""
    try:
        free = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        return None
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) and free >= _SCRATCH_BYTES else None


def _create_in_place(path: Path, embedders: Mapping[str, EmbedderIdentity]) -> EdgeShard:
    import qdrant_edge as edge

    config = edge.EdgeConfig(
        vectors={
            name: edge.EdgeVectorParams(
                size=identity.dimensions,
                distance=edge.Distance.Cosine,
                datatype=getattr(edge.VectorStorageDatatype, _STORED_AS),
            )
            for name, identity in embedders.items()
        },
        sparse_vectors={WORDS: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf)},
        max_search_threads=_SEARCH_THREADS,
    )
    path.mkdir(mode=0o700)
    shard = edge.EdgeShard.create(str(path), config)
    index_fields(shard)
    return shard


SCANNED_FIELDS = frozenset({"account", "layer", "agent", "valid_from", "valid_to", "last_at"})
"""Filtered rarely and together with an indexed field, so the engine reads the payload: each index is ten small files a
shard, and loading them all is a third of a cold start."""


def index_fields(shard: EdgeShard) -> bool:
    """Create the payload indexes that are missing; return whether any was. `prefix` serves `StartsWith`."""
    import qdrant_edge as edge

    schemas: dict[str, PayloadSchemaType | KeywordIndexParams] = {
        "keyword": edge.KeywordIndexParams(prefix=True),
        "datetime": edge.PayloadSchemaType.Datetime,
        "integer": edge.PayloadSchemaType.Integer,
        "float": edge.PayloadSchemaType.Float,
    }
    present = shard.info().payload_schema
    missing = [name for name in INDEXED_FIELDS if name not in present and name not in SCANNED_FIELDS]
    for name in missing:
        shard.update(edge.UpdateOperation.create_field_index(name, schemas[INDEXED_FIELDS[name]]))
    return bool(missing)


def pages(
    shard: EdgeShard, *, with_payload: WithPayloadType = True, with_vectors: bool = False, size: int = _PAGE
) -> Iterator[list[Record]]:
    """Yield every record of a shard, a page at a time."""
    import qdrant_edge as edge

    after: PointId | None = None
    while True:
        records, after = shard.scroll(
            edge.ScrollRequest(offset=after, limit=size, with_payload=with_payload, with_vector=with_vectors)
        )
        yield records
        if after is None:
            return


def vectors_of(record: Record) -> tuple[dict[str, Row], SparseVector | None]:
    """Return the dense rows by name and the words of a record that was read with its vectors."""
    import qdrant_edge as edge

    stored = dict(record.vector) if isinstance(record.vector, dict) else {}
    words = stored.pop(WORDS, None)
    rows = {name: row for name, row in stored.items() if not isinstance(row, edge.SparseVector)}
    return rows, words if isinstance(words, edge.SparseVector) else None


@contextlib.contextmanager
def translated_errors(home: Path) -> Iterator[None]:
    """Turn what the engine raises into our errors; our own and bugs pass."""
    try:
        yield
    except MemoryAnchorError:
        raise
    except OSError as error:
        raise _of_message(f"os error {error.errno} {error.strerror}", home) from error
    except BaseException as error:
        if not _of_the_engine(error):
            raise
        raise _of_message(str(error), home) from error


def _of_the_engine(error: BaseException) -> bool:
    """Return whether the engine raised it: a bare Exception, or a panic of its Rust code, which is a BaseException."""
    return type(error) is Exception or type(error).__name__ == "PanicException"


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
    return StoreDamaged(_DAMAGED.format(home=home), Mending.SALVAGE)
