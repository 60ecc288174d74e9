"""The store on a Qdrant server, or in the client's local mode: the same filters and scores as the Edge store.

For teams that share one memory, and for tests without a server. Identity and schema version lie in the collection's
metadata, so that every client sees them. Writes wait until they are applied. Local mode is for trying out: it scans
plain Python lists and refuses a second process, which becomes StoreBusy. `optimize` is the server's own business here.

Erasing: a server drops a deleted point's bytes when it next rewrites that segment and log, which a client cannot force;
local mode is rewritten at once.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memory_anchor.adapters.filters import Dialect, translate
from memory_anchor.adapters.payload import MOVING, from_payload, mark_of, to_payload, usage_payload
from memory_anchor.adapters.vectors import checked_rows, identity_conflict
from memory_anchor.errors import DiskFull, MemoryAnchorError, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.files import ours
from memory_anchor.model import COLLECTIONS, Memory, Usage
from memory_anchor.ports import DENSE, WORDS, CollectionSpec, EmbedderIdentity, Entry, Hit, Mark, SparseVector
from memory_anchor.where import INDEXED_FIELDS, Where

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

TIMEOUT_S = 10
"""Of one request to a server."""
_METADATA = "memory_anchor"
_LEASES = "memory_anchor_leases"
"""A collection without vectors, of one point a lease."""
_STATUS_REFUSED = (401, 403)
_STATUS_FULL = (507,)


class QdrantStore:
    """Collections on a server (`url`), in a folder of local mode (`path`), or in memory (`path=":memory:"`)."""

    kind = "qdrant"

    def __init__(self, *, url: str | None = None, path: str | None = None, api_key: str | None = None) -> None:
        """Exactly one of url and path.

        Raises StoreBusy: another process has the folder open. Unavailable: the server does not answer (at first use).
        """
        if (url is None) == (path is None):
            raise ValueError("a Qdrant store needs a url or a path, and not both")
        self._path = path
        self._where_it_is = url or str(path)
        self._embedders: dict[str, dict[str, EmbedderIdentity]] = {}
        # Local mode is plain Python and not thread-safe; a server's client is.
        self._guard: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if url else threading.RLock()
        self._client = self._connected(url, api_key)
        self._dialect = _client_dialect()

    def _connected(self, url: str | None, api_key: str | None) -> Any:
        from qdrant_client import QdrantClient

        with self._translated():
            if url is not None:
                return QdrantClient(url=url, api_key=api_key, timeout=TIMEOUT_S, check_compatibility=False)
            if self._path == ":memory:":
                return QdrantClient(":memory:")
            try:
                return QdrantClient(path=self._path, force_disable_check_same_thread=True)
            except OSError as error:
                raise ours(error, Path(str(self._path))) from error

    # --- collections -------------------------------------------------------------------------------------------------

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        if name not in COLLECTIONS:
            raise ValueError(f"{name!r} is not one of the collections {COLLECTIONS}")
        with self._call() as client:
            if not client.collection_exists(name):
                self._create(name, spec)
            stored = self._record(name)
            if stored.schema_version > spec.schema_version:
                raise StoreDamaged(
                    f"collection {name!r} was written by a newer memory-anchor (schema {stored.schema_version}, "
                    f"this one reads up to {spec.schema_version}); upgrade memory-anchor, nothing was changed."
                )
            if conflict := identity_conflict(name, stored.embedders, spec.embedders):
                raise conflict
            added = {vector: who for vector, who in spec.embedders.items() if vector not in stored.embedders}
            if added:
                self._add_vectors(name, stored, added)
            self._embedders[name] = {**stored.embedders, **added}

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec`; vectors made by another one are dropped, to be made anew."""
        with self._call() as client:
            stored = self._record(name).embedders
            changed = {vector: who for vector, who in stored.items() if spec.embedders.get(vector) != who}
            for vector in changed:
                client.delete_vector_name(name, vector)
            kept = {vector: who for vector, who in stored.items() if vector not in changed}
            added = {vector: who for vector, who in spec.embedders.items() if vector not in kept}
            self._add_vectors(name, CollectionSpec(kept, spec.schema_version), added)
            self._embedders[name] = dict(spec.embedders)

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return self._embedders[name]

    def _create(self, name: str, spec: CollectionSpec) -> None:
        from qdrant_client import models

        self._client.create_collection(
            name,
            vectors_config={vector: _vector_params(identity) for vector, identity in spec.embedders.items()},
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata=_metadata(spec),
        )
        if self._path is None:  # local mode has no payload indexes
            kinds: dict[str, Any] = {
                "keyword": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, prefix=True),
                "datetime": models.PayloadSchemaType.DATETIME,
                "integer": models.PayloadSchemaType.INTEGER,
                "float": models.PayloadSchemaType.FLOAT,
            }
            for field, kind in INDEXED_FIELDS.items():
                self._client.create_payload_index(name, field, field_schema=kinds[kind], wait=True)

    def _add_vectors(self, name: str, stored: CollectionSpec, added: Mapping[str, EmbedderIdentity]) -> None:
        from qdrant_client import models

        for vector, identity in added.items():
            self._client.create_vector_name(
                name,
                vector,
                models.DenseVectorNameConfig(
                    dense=models.DenseVectorConfig(size=identity.dimensions, distance=models.Distance.COSINE)
                ),
            )
        wider = CollectionSpec({**stored.embedders, **added}, stored.schema_version)
        self._client.update_collection(name, metadata=_metadata(wider))

    def _record(self, name: str) -> CollectionSpec:
        """Return what the collection's metadata says about it."""
        metadata: Any = (self._client.get_collection(name).config.metadata or {}).get(_METADATA)
        try:
            embedders = {vector: EmbedderIdentity(**who) for vector, who in metadata["embedders"].items()}
            return CollectionSpec(embedders, int(metadata["schema_version"]))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"collection {name!r} at {self._where_it_is} was not made by memory-anchor; use another server or path."
            ) from error

    # --- writes ------------------------------------------------------------------------------------------------------

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        from qdrant_client import models

        if not entries:
            return
        points = []
        for entry in entries:
            rows = checked_rows(entry.vectors, self._embedders[collection])
            vectors: dict[str, Any] = {name: row.tolist() for name, row in rows.items()}
            if entry.words and entry.words.indices:
                vectors[WORDS] = _sparse(entry.words)
            points.append(
                models.PointStruct(id=entry.memory.point_id, vector=vectors, payload=to_payload(entry.memory))
            )
        with self._call() as client:
            client.upsert(collection, points, wait=True)

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        from qdrant_client import models

        rows = {point: checked_rows(named, self._embedders[collection]) for point, named in vectors.items()}
        with self._call() as client:
            present = self._present(collection, list(rows))
            points = [
                models.PointVectors(id=point, vector={name: row.tolist() for name, row in named.items()})
                for point, named in rows.items()
                if point in present and named
            ]
            if points:
                client.update_vectors(collection, points, wait=True)

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        from qdrant_client import models

        with self._call() as client:
            present = self._present(collection, list(usages))
            operations = [
                models.SetPayloadOperation(set_payload=models.SetPayload(payload=usage_payload(usage), points=[point]))
                for point, usage in usages.items()
                if point in present
            ]
            if operations:
                client.batch_update_points(collection, operations, wait=True)

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        from qdrant_client import models

        with self._call() as client:
            if not point_ids:
                return
            client.delete(collection, models.PointIdsList(points=list(point_ids)), wait=True)
            if self._path not in (None, ":memory:"):
                _vacuum(Path(str(self._path)) / "collection" / collection / "storage.sqlite")

    # --- reads -------------------------------------------------------------------------------------------------------

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        if not point_ids:
            return []
        with self._call() as client:
            records = client.retrieve(collection, list(point_ids), with_payload=True, with_vectors=with_vectors)
        found = {str(record.id): record for record in records}
        return [_entry(found[point], with_vectors) for point in point_ids if point in found]

    def find(
        self,
        collection: str,
        where: Where,
        *,
        limit: int,
        order_by: str | None = None,
        descending: bool = False,
    ) -> list[Memory]:
        from qdrant_client import models

        direction = models.Direction.DESC if descending else models.Direction.ASC
        with self._call() as client:
            records, _ = client.scroll(
                collection,
                scroll_filter=self._filter(where),
                limit=limit,
                order_by=models.OrderBy(key=order_by, direction=direction) if order_by else None,
                with_payload=True,
            )
        return [from_payload(record.payload) for record in records]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        records, following = self._page(collection, where, page, after, with_payload=True, with_vectors=with_vectors)
        return [_entry(record, with_vectors) for record in records], following

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        records, following = self._page(collection, where, page, after, with_payload=list(MOVING), with_vectors=False)
        return [mark_of(str(one.id), one.payload or {}) for one in records], following

    def _page(
        self,
        collection: str,
        where: Where,
        page: int,
        after: str | None,
        *,
        with_payload: bool | list[str],
        with_vectors: bool,
    ) -> tuple[list[Any], str | None]:
        with self._call() as client:
            records, following = client.scroll(
                collection,
                scroll_filter=self._filter(where),
                limit=page,
                offset=after,
                with_payload=with_payload,
                with_vectors=with_vectors,
            )
        return records, None if following is None else str(following)

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        embedders = self._embedders[collection]
        if using not in embedders:
            return []
        row = checked_rows({using: vector}, embedders)[using]
        return self._hits(collection, row.tolist(), using, where, limit)

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit]:
        if not words.indices:
            return []
        return self._hits(collection, _sparse(words), WORDS, where, limit)

    def count(self, collection: str, where: Where) -> int:
        with self._call() as client:
            return int(client.count(collection, count_filter=self._filter(where), exact=True).count)

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        with self._call() as client:
            answer = client.facet(collection, field, facet_filter=self._filter(where), limit=limit, exact=True)
        return {str(hit.value): int(hit.count) for hit in answer.hits}

    # --- the whole store ---------------------------------------------------------------------------------------------

    def claim(self, name: str, holder: str, *, now: datetime, until: datetime) -> bool:
        from qdrant_client import models

        point = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_METADATA}/{name}"))
        free = models.Filter(
            should=[
                models.FieldCondition(key="holder", match=models.MatchValue(value=holder)),
                models.FieldCondition(key="until", range=models.Range(lte=now.timestamp())),
            ]
        )
        wanted = models.PointStruct(id=point, vector={}, payload={"holder": holder, "until": until.timestamp()})
        with self._call() as client:
            if not client.collection_exists(_LEASES):
                with contextlib.suppress(Exception):  # another engine may be making it; then it is there
                    client.create_collection(_LEASES, vectors_config={})
            # Inserted where there is none, replaced only where it is free: the server decides between two who ask.
            client.upsert(_LEASES, [wanted], wait=True, update_filter=free, ordering=models.WriteOrdering.STRONG)
            (found,) = client.retrieve(_LEASES, [point], with_payload=True)
        return (found.payload or {}).get("holder") == holder

    def flush(self) -> None:
        """Nothing waits here: a server flushes by itself, local mode with each write."""

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        with self._call() as client:
            client.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _present(self, collection: str, point_ids: list[str]) -> set[str]:
        records = self._client.retrieve(collection, point_ids, with_payload=False, with_vectors=False)
        return {str(record.id) for record in records}

    def _hits(self, collection: str, query: Any, using: str, where: Where, limit: int) -> list[Hit]:
        from qdrant_client import models

        with self._call() as client:
            answer = client.query_points(
                collection,
                query=query,
                using=using,
                query_filter=self._filter(where),
                search_params=models.SearchParams(exact=True) if self._path is None else None,
                limit=limit,
                with_payload=False,
            )
        return [Hit(str(point.id), float(point.score)) for point in answer.points]

    def _filter(self, where: Where) -> Any | None:
        return translate(where, self._dialect)

    @contextlib.contextmanager
    def _call(self) -> Iterator[Any]:
        with self._guard, self._translated():
            yield self._client

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the client's exceptions into ours; this is the one place that knows them."""
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        try:
            yield
        except UnexpectedResponse as error:
            raise self._of_status(error.status_code or 0) from error
        except (ResponseHandlingException, ConnectionError, TimeoutError) as error:
            raise Unavailable(
                f"the Qdrant server at {self._where_it_is} does not answer; start it, or set store.kind to edge."
            ) from error
        except RuntimeError as error:
            if "already accessed" in str(error):
                raise StoreBusy(
                    f"{self._where_it_is} is in use by another process; nothing was changed, "
                    "let it finish or use a Qdrant server."
                ) from error
            if "closed" in str(error):
                raise Unavailable(f"the store at {self._where_it_is} is closed; open it again.") from error
            raise

    def _of_status(self, status: int) -> MemoryAnchorError:
        where = f"the Qdrant server at {self._where_it_is}"
        if status in _STATUS_REFUSED:
            return Refused(f"{where} refused the request (HTTP {status}); check store.api_key.")
        if status in _STATUS_FULL:
            return DiskFull(f"{where} has no room left (HTTP {status}); free some space and retry.")
        if 400 <= status < 500:
            return StoreDamaged(f"{where} cannot do what was asked (HTTP {status}); run `memory-anchor doctor`.")
        return Unavailable(f"{where} failed (HTTP {status}); retry, and see its log.")


def _vector_params(identity: EmbedderIdentity) -> Any:
    from qdrant_client import models

    return models.VectorParams(size=identity.dimensions, distance=models.Distance.COSINE)


def _metadata(spec: CollectionSpec) -> dict[str, Any]:
    embedders = {vector: asdict(identity) for vector, identity in spec.embedders.items()}
    return {_METADATA: {"schema_version": spec.schema_version, "embedders": embedders}}


def _sparse(words: SparseVector) -> Any:
    from qdrant_client import models

    return models.SparseVector(indices=list(words.indices), values=list(words.values))


def _entry(record: Any, with_vectors: bool) -> Entry:
    memory = from_payload(record.payload)
    if not with_vectors:
        return Entry(memory)
    stored = dict(record.vector or {})
    words = stored.pop(WORDS, None)
    return Entry(
        memory,
        {name: np.asarray(row, dtype=np.float32) for name, row in stored.items()},
        SparseVector(tuple(words.indices), tuple(words.values)) if words is not None else None,
    )


def _vacuum(path: Path) -> None:
    """Rewrite local mode's database, so that no free page holds what was deleted."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM")


def _client_dialect() -> Dialect:
    from qdrant_client import models

    def field(key: str, **condition: Any) -> Any:
        return models.FieldCondition(key=key, **condition)

    return Dialect(
        one_of=lambda key, values: field(key, match=models.MatchAny(any=list(values))),
        time_range=lambda key, low, high: field(key, range=models.DatetimeRange(gte=low, lt=high)),
        number_range=lambda key, low, high: field(key, range=models.Range(gte=low, lt=high)),
        starts_with=lambda key, prefix: field(key, match=models.MatchPrefix(prefix=prefix)),
        has_vector=lambda name: models.HasVectorCondition(has_vector=name),
        nothing=lambda: models.HasIdCondition(has_id=[]),
        group=lambda must, should, must_not: models.Filter(
            must=must or None, should=should or None, must_not=must_not or None
        ),
    )
