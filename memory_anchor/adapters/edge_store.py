"""The default store: Qdrant's engine in this process, one shard a collection, behind the directory lock.

Chosen because it is the real engine (write-ahead log, payload indexes, sparse vectors with IDF) without a server.
Measured on qdrant-edge-py 0.9.0: 30 kills with 5,011 acknowledged writes lost none while the lock was held; without it
two processes lost 17 of 200, so nothing is opened without one. One `upsert` is one atomic, logged operation. A full
disk is SIGBUS and not an exception, hence the reserve of free space. Every vector is scanned: 50,000 of 384 take 2 ms
in 16 bits (`Turbo16`, cosines within 5e-6), and building an index would hold the GIL for minutes.

The files on disk and how shards are replaced are in `edge_shards`, filters in `filters`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, cast
from uuid import UUID

import numpy as np

from memory_anchor.adapters.edge_engine import Migration, inconsistent_indexes, translated_errors, vectors_of
from memory_anchor.adapters.edge_shards import MIGRATIONS, EdgeCollection, private_files
from memory_anchor.adapters.filters import Dialect, translate
from memory_anchor.adapters.payload import (
    MARK_FIELDS,
    checksum_matches,
    from_payload,
    mark_of,
    to_payload,
    usage_payload,
    with_checksum,
)
from memory_anchor.adapters.sparse_files import keeps_holes
from memory_anchor.adapters.vectors import checked_rows, identity_conflict
from memory_anchor.base.durability import Durability
from memory_anchor.base.files import make_folder
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import BadInput, DiskFull, Mending, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.domain.model import COLLECTIONS, Memory, Usage
from memory_anchor.domain.ports import (
    DENSE,
    WORDS,
    CollectionSpec,
    EmbedderIdentity,
    Entry,
    HeldLock,
    Hit,
    Mark,
    SparseVector,
)
from memory_anchor.domain.where import Where

if TYPE_CHECKING:
    from qdrant_edge import ConditionType, OrderBy, Record, ScoringQueryType, WithPayloadType
    from qdrant_edge import Filter as EdgeFilter

    from memory_anchor.domain.ports import Matrix

RESERVE_BYTES = 64 * 1024 * 1024
"""Free space below which nothing is loaded or written: two segments of the write-ahead log."""
NEW_SHARD_BYTES = 176 * 1024 * 1024
"""A new shard with one vector is 165 MB long, all of it mapped. On a disk it takes half a megabyte; tmpfs gives a page
to every hole that is read: 141 MB without vectors, and a first write with 100 or 220 MB free ended in SIGBUS."""
_IDS_CACHED = 65_536
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, on every POSIX system."""


class EdgeStore:
    """Collections under one directory. Thread-safe; one process at a time, which the lock ensures."""

    kind = "edge"

    def __init__(
        self,
        directory: Path,
        *,
        lock: HeldLock,
        reserve_bytes: int = RESERVE_BYTES,
        durability: Durability | None = None,
        migrations: Mapping[int, Migration] = MIGRATIONS,
    ) -> None:
        """lock: held until after `close`; taken before this module's engine is imported.

        durability: shared with what else a write touches; None syncs each write before it returns.

        Raises StoreBusy: the lock is not held. DiskFull: less than `reserve_bytes` are free.
        """
        self.directory = directory
        self._lock = lock
        self._reserve_bytes = reserve_bytes
        self.durability = durability or Durability()
        self._migrations = migrations
        self._collections: dict[str, EdgeCollection] = {}
        self._opening = threading.Lock()
        with translated_errors(directory), private_files():
            self._require_lock()
            make_folder(directory, mode=0o700)
            self._fills_holes = not keeps_holes(directory)
        self._require_free_space(sum(_still_to_allocate(directory / name) for name in COLLECTIONS))

    # --- collections -----------------------------------------------------------------------------------------------

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        with self._opening:
            current = self._collections.get(name)
            if current is not None:
                if current.fits(spec):
                    return
                if conflict := identity_conflict(name, current.record.embedders, spec.embedders):
                    raise conflict
                self._collections.pop(name).close()
            self._collections[name] = self._opened(name, spec)

    def peek(self, name: str) -> tuple[int, Mapping[str, EmbedderIdentity]] | None:
        if name not in self._collections and not (self.directory / name).exists():
            return None
        self.open_collection(name, CollectionSpec({}))
        return self.count(name, Where()), self.embedders(name)

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec`; vectors made by another one are dropped, to be made again.

        Memories and words stay; what has no dense vector now is found by `none_of=(HasVector(),)`. Readers of an open
        collection use the old shard until the new one is complete.
        """
        with self._opening:
            collection = self._collections.get(name)
            if collection is None:
                collection = self._opened(name, CollectionSpec(embedders={}, schema_version=spec.schema_version))
            self._require_free_space(NEW_SHARD_BYTES)
            collection.replace_embedders(spec)
            self._collections[name] = collection

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return self._collections[name].record.embedders

    def salvage(self, name: str, spec: CollectionSpec) -> int:
        """Open a collection that lost points to damage, keeping what can be read; return how many points that is.

        The damaged shard stays beside the new one until something is erased. For `doctor`, after asking a human.
        """
        with self._opening:
            if name in self._collections:
                self._collections.pop(name).close()
            self._collections[name] = self._opened(name, spec, salvage=True)
        return self.count(name, Where())

    def _opened(self, name: str, spec: CollectionSpec, *, salvage: bool = False) -> EdgeCollection:
        if name not in COLLECTIONS:
            raise ValueError(f"{name!r} is not one of the collections {COLLECTIONS}")
        self._require_lock()
        return EdgeCollection(
            self.directory / name,
            spec,
            require_free_space=self._require_free_space,
            durability=self.durability,
            migrations=self._migrations,
            salvage=salvage,
        )

    # --- writes ------------------------------------------------------------------------------------------------------

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        import qdrant_edge as edge

        if not entries:
            return
        target = self._writable(collection)
        points = []
        for entry in entries:
            vectors: dict[str, list[float] | edge.SparseVector | list[list[float]]] = {
                name: row.tolist() for name, row in checked_rows(entry.vectors, target.record.embedders).items()
            }
            if entry.words and entry.words.indices:
                vectors[WORDS] = edge.SparseVector(list(entry.words.indices), list(entry.words.values))
            points.append(edge.Point(entry.memory.point_id, vectors, with_checksum(to_payload(entry.memory))))
        target.write(edge.UpdateOperation.upsert_points(points), points=len(points))

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        import qdrant_edge as edge

        target = self._writable(collection)
        rows = {point: checked_rows(named, target.record.embedders) for point, named in vectors.items()}
        present = self._present(collection, rows)
        points = [
            edge.PointVectors(point, {name: row.tolist() for name, row in named.items()})
            for point, named in rows.items()
            if point in present and named
        ]
        if points:
            target.write(edge.UpdateOperation.update_vectors(points), points=len(points))

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        import qdrant_edge as edge

        target = self._writable(collection)
        present = self._present(collection, usages)
        for point, usage in usages.items():
            if point in present:
                target.write(edge.UpdateOperation.set_payload([point], usage_payload(usage)), points=1)

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        target = self._writable(collection)
        self._require_free_space(NEW_SHARD_BYTES)  # what is left is copied into a new shard
        target.erase(point_ids)

    # --- reads -------------------------------------------------------------------------------------------------------

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        if not point_ids:
            return []
        records = self._collections[collection].read(lambda shard: shard.retrieve(list(point_ids), True, with_vectors))
        by_id = {str(record.id): record for record in records}
        return [self._entry(by_id[point], with_vectors) for point in point_ids if point in by_id]

    def find(
        self, collection: str, where: Where, *, limit: int, order_by: str | None = None, descending: bool = False
    ) -> list[Memory]:
        import qdrant_edge as edge

        direction = edge.Direction.Desc if descending else edge.Direction.Asc
        order = edge.OrderBy(order_by, direction) if order_by else None
        records, _ = self._page(collection, where, limit, order_by=order)
        return [self._memory(record) for record in records]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        records, following = self._page(collection, where, page, after=after, with_vectors=with_vectors)
        return [self._entry(record, with_vectors) for record in records], following

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        import qdrant_edge as edge

        fields = edge.PayloadSelector.Include(list(MARK_FIELDS))
        records, following = self._page(collection, where, page, after=after, with_payload=fields)
        return [mark_of(str(record.id), record.payload or {}) for record in records], following

    def _page(
        self,
        collection: str,
        where: Where,
        limit: int,
        *,
        after: str | None = None,
        order_by: OrderBy | None = None,
        with_payload: WithPayloadType = True,
        with_vectors: bool = False,
    ) -> tuple[list[Record], str | None]:
        """Return a page of records and the cursor of the next one."""
        import qdrant_edge as edge

        request = edge.ScrollRequest(
            offset=after,
            limit=limit,
            filter=translate(where, _edge_dialect()),
            with_payload=with_payload,
            with_vector=with_vectors,
            order_by=order_by,
        )
        records, following = self._collections[collection].read(lambda shard: shard.scroll(request))
        return records, None if following is None else str(following)

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        import qdrant_edge as edge

        target = self._collections[collection]
        if using not in target.record.embedders:
            return []
        row = checked_rows({using: vector}, target.record.embedders)[using]
        return self._hits(target, edge.Query.Nearest(row.tolist(), using=using), where, limit)

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit]:
        import qdrant_edge as edge

        if not words.indices:
            return []
        query = edge.Query.Nearest(edge.SparseVector(list(words.indices), list(words.values)), using=WORDS)
        return self._hits(self._collections[collection], query, where, limit)

    def count(self, collection: str, where: Where) -> int:
        import qdrant_edge as edge

        request = edge.CountRequest(exact=True, filter=translate(where, _edge_dialect()))
        return int(self._collections[collection].read(lambda shard: shard.count(request)))

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        import qdrant_edge as edge

        request = edge.FacetRequest(field, limit=limit, exact=True, filter=translate(where, _edge_dialect()))
        answer = self._collections[collection].read(lambda shard: shard.facet(request))
        return {str(hit.value): int(hit.count) for hit in answer.hits}

    def inconsistent_indexes(self, collection: str) -> list[str]:
        """Return the fields whose payload index does not agree with the payloads."""
        return list(self._collections[collection].read(inconsistent_indexes))

    # --- the whole store ---------------------------------------------------------------------------------------------

    def claim(self, name: str, holder: str, *, now: datetime, until: datetime) -> bool:
        """Return True: the directory lock lets no other process in."""
        del name, holder, now, until
        return True

    def flush(self) -> None:
        for collection in list(self._collections.values()):
            collection.flush()

    def size_bytes(self) -> int:
        """Return what the files take on disk; their apparent size is a hundred times that (they are sparse)."""
        total = 0
        for folder, _, names in os.walk(self.directory):
            for name in names:
                try:
                    blocks = getattr((Path(folder) / name).lstat(), "st_blocks", 0)
                except FileNotFoundError:  # the engine drops old log segments meanwhile
                    continue
                total += blocks * _BLOCK_BYTES
        return total

    def close(self) -> None:
        with contextlib.suppress(Unavailable):  # the failed sync was reported to its writer
            self.durability.sync()  # or the audit trail's head would be written after the lock is released
        with self._opening:
            while self._collections:
                _, collection = self._collections.popitem()
                collection.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _memory(self, record: Record) -> Memory:
        """Return a record's memory. Raises StoreDamaged: its payload is invalid, or not the one that was written.

        The engine has no checksums: a flipped bit in a text would reach a model as what was written, one in an audience
        would show a memory to the wrong reader. The text's own hash also covers payloads from before there was a sum.
        """
        try:
            payload = record.payload or {}  # the engine builds it again on every access
            memory = from_payload(payload)
        except (BadInput, KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._damaged(record) from error
        if not checksum_matches(payload):
            raise self._damaged(record)
        if memory.content_hash and content_hash(memory.content) != memory.content_hash:
            raise self._damaged(record)
        return memory

    def _damaged(self, record: Record) -> StoreDamaged:
        id = (record.payload or {}).get("id")
        return StoreDamaged(
            f"{self.directory}: version {record.id}{f' of memory {id}' if isinstance(id, str) else ''} is not as "
            "it was written; nothing was changed. `memory-anchor doctor --salvage` brings back what can be read.",
            Mending.SALVAGE,
        )

    def _entry(self, record: Record, with_vectors: bool) -> Entry:
        memory = self._memory(record)
        if not with_vectors:
            return Entry(memory)
        rows, words = vectors_of(record)
        return Entry(
            memory,
            {name: np.asarray(row, dtype=np.float32) for name, row in rows.items()},
            SparseVector(tuple(words.indices), tuple(words.values)) if words is not None else None,
        )

    def _writable(self, collection: str) -> EdgeCollection:
        self._require_lock()
        return self._collections[collection]

    def _require_lock(self) -> None:
        if not self._lock.held:
            raise StoreBusy(f"{self.directory} is not locked by this process; take its lock before opening the store.")

    def _require_free_space(self, allocating: int = 0) -> None:
        """Raise DiskFull below the reserve. allocating: bytes that newly mapped files take where holes are filled."""
        needed = self._reserve_bytes + (allocating if self._fills_holes else 0)
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            advice = "free some space and retry."
            if allocating and self._fills_holes:
                advice = "its file system fills holes (tmpfs does): free some space, or use a folder on a disk."
            raise DiskFull(
                f"{self.directory} has {free // 2**20} MiB free and needs {needed // 2**20} MiB; "
                f"nothing was written, {advice}"
            )

    def _present(self, collection: str, point_ids: Iterable[str]) -> set[str]:
        records = self._collections[collection].read(lambda shard: shard.retrieve([*point_ids], False, False))
        return {str(record.id) for record in records}

    def _hits(self, target: EdgeCollection, query: ScoringQueryType, where: Where, limit: int) -> list[Hit]:
        import qdrant_edge as edge

        request = edge.QueryRequest(
            query=query,
            filter=translate(where, _edge_dialect()),
            limit=limit,
            with_payload=False,
            with_vector=False,
            params=edge.SearchParams(exact=True),
        )
        points = target.read(lambda shard: shard.query(request))
        return [Hit(_id_text(point.id.int), point.score) for point in points if isinstance(point.id, UUID)]


@lru_cache(maxsize=_IDS_CACHED)
def _id_text(number: int) -> str:
    """Return a point id as text; formatting 500 of them in every search took a millisecond."""
    return str(UUID(int=number))


def _still_to_allocate(home: Path) -> int:
    """Return what a collection's files may take beyond what they take now, where reading fills their holes."""
    shards = home.glob("shard-*") if home.is_dir() else ()
    paths = [f"{folder}/{name}" for shard in shards for folder, _, names in os.walk(shard) for name in names]
    files = [status for status in map(os.lstat, paths) if stat.S_ISREG(status.st_mode)]
    allocated = sum(getattr(status, "st_blocks", 0) * _BLOCK_BYTES for status in files)
    return max(0, min(NEW_SHARD_BYTES, sum(status.st_size for status in files) or NEW_SHARD_BYTES) - allocated)


@cache
def _edge_dialect() -> Dialect[ConditionType, EdgeFilter]:
    import qdrant_edge as edge

    field = edge.FieldCondition
    return Dialect(
        one_of=lambda key, values: field(key=key, match=edge.MatchAny(cast("list[str] | list[int]", list(values)))),
        time_range=lambda key, low, high: field(key=key, range=edge.RangeDateTime(gte=low, lt=high)),
        number_range=lambda key, low, high: field(key=key, range=edge.RangeFloat(gte=low, lt=high)),
        starts_with=lambda key, prefix: field(key=key, match=edge.MatchPrefix(prefix)),
        has_vector=edge.HasVectorCondition,
        nothing=lambda: edge.HasIdCondition(set()),
        group=lambda must, should, must_not: edge.Filter(
            must=must or None, should=should or None, must_not=must_not or None
        ),
    )
