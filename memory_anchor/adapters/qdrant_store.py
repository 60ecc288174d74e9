"""The store on a Qdrant server or cluster, or in the client's local mode; filters and scores equal the Edge store's.

For teams that share one memory, and for tests without a server. Identity and schema version are in the collection's
metadata, so that every client sees them. Writes wait until they are applied. Several engines may write at once: what
was read is only replaced as it was read (`revisions`), checked by the server in the upsert itself. Such writes go
through one replica of a shard, or two that arrive at two nodes would be applied in two orders. Local mode is for
trying out: it scans plain Python lists and refuses a second process, which becomes StoreBusy. The connection, its
retries and errors are in `qdrant_link`; how a collection is laid out is in `qdrant_layout`.

Erasing: a server drops a deleted point's bytes when it next rewrites that segment and log, which a client cannot force;
local mode is rewritten at once.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters import qdrant_layout, revisions
from memory_anchor.adapters.filters import Dialect, translate
from memory_anchor.adapters.payload import MARK_FIELDS, REVISION, from_payload, mark_of, to_payload, usage_payload
from memory_anchor.adapters.qdrant_layout import METADATA, Layout
from memory_anchor.adapters.qdrant_link import Access, QdrantLink, already_exists
from memory_anchor.adapters.vectors import checked_rows, identity_conflict
from memory_anchor.base.json_values import Record, text
from memory_anchor.domain.errors import BadInput, Mending, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS, Memory, Usage, account_of
from memory_anchor.domain.ports import DENSE, WORDS, CollectionSpec, EmbedderIdentity, Entry, Hit, Mark, SparseVector
from memory_anchor.domain.where import AnyOf, Condition, OneOf, StartsWith, Where

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from memory_anchor.domain.ports import Matrix

LEASES = "memory_anchor_leases"
"""A collection without vectors, one point a lease."""
VALUES_MAX = 100_000
"""Values of one keyword field among which a prefix is looked up."""


class QdrantStore:
    """Collections on a server (`url`), in a folder of local mode (`path`), or in memory (`path=":memory:"`)."""

    kind = "qdrant"

    def __init__(
        self,
        *,
        url: str | None = None,
        path: str | None = None,
        api_key: str | None = None,
        access: Access | None = None,
        layout: Layout | None = None,
    ) -> None:
        """Exactly one of url and path, or `access`, which says more.

        Raises StoreBusy: another process has the folder open. Unavailable: the server does not answer (at first use).
        """
        if access is None:
            if (url is None) == (path is None):
                raise ValueError("a Qdrant store needs a url or a path, and not both")
            access = Access((url,) if url else (), path, api_key)
        self._layout = layout or Layout()
        self._embedders: dict[str, dict[str, EmbedderIdentity]] = {}
        self._link = QdrantLink(access)
        self._ask = self._link.ask
        self._is_checked = False
        self._dialect = _client_dialect()

    @property
    def is_server(self) -> bool:
        return self._link.is_server

    # --- collections -------------------------------------------------------------------------------------------------

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        if name not in COLLECTIONS:
            raise ValueError(f"{name!r} is not one of the collections {COLLECTIONS}")
        if not self._is_checked:
            self._link.check_version()
            self._is_checked = True
        self._ask(lambda client: self._create(client, name, spec))
        stored = self._record(name)
        if stored.schema_version > spec.schema_version:
            raise StoreDamaged(
                f"collection {name!r} was written by a newer memory-anchor (schema {stored.schema_version}, "
                f"this one reads up to {spec.schema_version}); upgrade memory-anchor, nothing was changed.",
                Mending.UPGRADE,
            )
        if conflict := identity_conflict(name, stored.embedders, spec.embedders):
            raise conflict
        added = {vector: identity for vector, identity in spec.embedders.items() if vector not in stored.embedders}
        if added:
            self._add_vectors(name, CollectionSpec({**stored.embedders, **added}, stored.schema_version))
        if self._link.is_server:
            self._ask(lambda client: self._update_layout(client, name))
        self._embedders[name] = {**stored.embedders, **added}

    def peek(self, name: str) -> tuple[int, Mapping[str, EmbedderIdentity]] | None:
        self._link.check_version()
        if not self._ask(lambda client: client.collection_exists(name)):
            return None
        return self.count(name, Where()), self._record(name).embedders

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec`; vectors made by another one are dropped, to be made again."""
        stored = self._record(name).embedders
        unchanged = {vector: identity for vector, identity in stored.items() if spec.embedders.get(vector) == identity}
        for vector in stored.keys() - unchanged.keys():
            self._ask(partial(self._drop_vector, name, vector))
        self._add_vectors(name, CollectionSpec({**unchanged, **spec.embedders}, spec.schema_version))
        self._embedders[name] = dict(spec.embedders)

    def _create(self, client: QdrantClient, name: str, spec: CollectionSpec) -> None:
        """Create a collection where there is none; another engine may be creating it at this moment."""
        if client.collection_exists(name):
            return
        try:
            qdrant_layout.create(client, name, self._layout, spec)
        except Exception as error:
            if not already_exists(error):
                raise

    def _update_layout(self, client: QdrantClient, name: str) -> None:
        """Give a collection the payload indexes it lacks, and the quantisation of the settings."""
        from qdrant_client import models

        info = client.get_collection(name)
        for field, schema in qdrant_layout.indexes().items():
            index = info.payload_schema.get(field)
            is_tenant = bool(index and index.params and getattr(index.params, "is_tenant", None))
            if index is None or (field == qdrant_layout.TENANT and not is_tenant):
                client.create_payload_index(name, field, field_schema=schema, wait=True)
        if not qdrant_layout.is_quantized_as(info.config.quantization_config, self._layout):
            wanted = qdrant_layout.quantization(self._layout) or models.Disabled.DISABLED
            client.update_collection(name, quantization_config=wanted)

    def _add_vectors(self, name: str, spec: CollectionSpec) -> None:
        """Create the named vectors that are missing, then record who fills each."""
        from qdrant_client import models

        def change(client: QdrantClient) -> None:
            existing = client.get_collection(name).config.params.vectors or {}
            for vector, identity in spec.embedders.items():
                if vector not in existing:
                    dense = models.DenseVectorConfig(size=identity.dimensions, distance=models.Distance.COSINE)
                    client.create_vector_name(name, vector, models.DenseVectorNameConfig(dense=dense))
            client.update_collection(name, metadata=qdrant_layout.metadata(spec))

        self._ask(change)

    @staticmethod
    def _drop_vector(name: str, vector: str, client: QdrantClient) -> None:
        if vector in (client.get_collection(name).config.params.vectors or {}):
            client.delete_vector_name(name, vector)

    def _record(self, name: str) -> CollectionSpec:
        """Return what the collection's metadata says about it."""
        info = self._ask(lambda client: client.get_collection(name))
        try:
            metadata = (info.config.metadata or {})[METADATA]
            embedders = {vector: EmbedderIdentity(**identity) for vector, identity in metadata["embedders"].items()}
            return CollectionSpec(embedders, int(metadata["schema_version"]))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"collection {name!r} at {self._link.place} was not made by memory-anchor; use another server or path."
            ) from error

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return self._embedders[name]

    # --- writes ------------------------------------------------------------------------------------------------------

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        rows = [checked_rows(entry.vectors, self._embedders[collection]) for entry in entries]
        if any(entry.memory.revision is not None for entry in entries):
            self._put_as_read(collection, entries, rows)
            return
        points = [_point(entry, vectors, None) for entry, vectors in zip(entries, rows, strict=True)]
        self._ask(lambda client: client.upsert(collection, points, wait=True))

    def _put_as_read(self, collection: str, entries: Sequence[Entry], rows: Sequence[Mapping[str, Matrix]]) -> None:
        """Write all entries where each is still stored as it was read, else none.

        The server leaves out of an upsert what has another revision meanwhile. New versions go first and decide which
        engine was first; then the old ones are closed. In one upsert shards would race, and a reader between them would
        find a memory without a current version; so it may see two for a moment. A writer that lost a part (one was
        strengthened a moment ago) restores what it wrote before anybody is told.
        """
        before = self._records(collection, [entry.memory.point_id for entry in entries])
        stored = {point: record.payload or {} for point, record in before.items()}
        for entry in entries:
            revisions.check(entry.memory, stored.get(entry.memory.point_id))
        points = [
            _point(entry, vectors, stored.get(entry.memory.point_id))
            for entry, vectors in zip(entries, rows, strict=True)
        ]
        as_read = _unchanged(stored.values())
        upserted: list[models.PointStruct] = []
        for batch in ([p for p in points if p.id not in before], [p for p in points if p.id in before]):
            if not batch:
                continue
            self._upsert(collection, batch, as_read)
            lost_ids = self._lost(collection, batch)
            upserted += [point for point in batch if point.id not in lost_ids]
            if lost_ids:
                self._restore(collection, upserted, before)
                raise revisions.conflict([entry.memory for entry in entries if entry.memory.point_id in lost_ids])

    def _lost(self, collection: str, points: Sequence[models.PointStruct]) -> set[str]:
        """Return those of these points that were not written, because another engine was first."""
        wanted = {str(point.id): text((point.payload or {})[REVISION]) for point in points}
        fields = [REVISION, revisions.REVISED]
        records = self._ask(
            lambda client: client.retrieve(collection, list(wanted), with_payload=fields, with_vectors=False)
        )
        histories = {str(record.id): revisions.revision_history(record.payload) for record in records}
        return {point for point, revision in wanted.items() if revision not in histories.get(point, ())}

    def _restore(
        self, collection: str, points: Sequence[models.PointStruct], before: Mapping[str, models.Record]
    ) -> None:
        """Undo what a batch wrote, wherever nobody has continued from it."""
        from qdrant_client import models

        written = _has_revision([text((point.payload or {})[REVISION]) for point in points])
        new = [point.id for point in points if point.id not in before]
        old = [before[str(point.id)] for point in points if point.id in before]
        if new:
            selector = models.FilterSelector(filter=models.Filter(must=[written, models.HasIdCondition(has_id=new)]))
            medium = models.WriteOrdering.MEDIUM
            self._ask(lambda client: client.delete(collection, selector, wait=True, ordering=medium))
        if old:
            earlier = [
                models.PointStruct(id=record.id, vector=record.vector or {}, payload=record.payload) for record in old
            ]
            self._upsert(collection, earlier, models.Filter(must=[written]))

    def _upsert(self, collection: str, points: list[models.PointStruct], only: models.Filter) -> None:
        from qdrant_client import models

        medium = models.WriteOrdering.MEDIUM
        self._ask(lambda client: client.upsert(collection, points, wait=True, update_filter=only, ordering=medium))

    def _records(self, collection: str, point_ids: list[str]) -> Mapping[str, models.Record]:
        records = self._ask(lambda client: client.retrieve(collection, point_ids, with_payload=True, with_vectors=True))
        return {str(record.id): record for record in records}

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        from qdrant_client import models

        rows = {point: checked_rows(named, self._embedders[collection]) for point, named in vectors.items()}
        present = self._present(collection, list(rows))
        points = [
            models.PointVectors(id=point, vector={name: row.tolist() for name, row in named.items()})
            for point, named in rows.items()
            if point in present and named
        ]
        if points:
            self._ask(lambda client: client.update_vectors(collection, points, wait=True))

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        from qdrant_client import models

        present = self._present(collection, list(usages))
        operations = [
            models.SetPayloadOperation(set_payload=models.SetPayload(payload=usage_payload(usage), points=[point]))
            for point, usage in usages.items()
            if point in present
        ]
        if operations:
            self._ask(lambda client: client.batch_update_points(collection, operations, wait=True))

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        from qdrant_client import models

        if not point_ids:
            return
        selector = models.PointIdsList(points=list(point_ids))
        folder = self._link.access.path

        def erase(client: QdrantClient) -> None:
            client.delete(collection, selector, wait=True)
            if folder not in (None, ":memory:"):
                _vacuum(Path(str(folder)) / "collection" / collection / "storage.sqlite")

        self._ask(erase)

    # --- reads -------------------------------------------------------------------------------------------------------

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        if not point_ids:
            return []
        records = self._ask(
            lambda client: client.retrieve(collection, list(point_ids), with_payload=True, with_vectors=with_vectors)
        )
        by_id = {str(record.id): record for record in records}
        return [_entry(by_id[point], with_vectors) for point in point_ids if point in by_id]

    def find(
        self, collection: str, where: Where, *, limit: int, order_by: str | None = None, descending: bool = False
    ) -> list[Memory]:
        from qdrant_client import models

        direction = models.Direction.DESC if descending else models.Direction.ASC
        order = models.OrderBy(key=order_by, direction=direction) if order_by else None
        records, _ = self._page(collection, where, limit, order_by=order)
        return [_memory(record.payload or {}) for record in records]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        records, following = self._page(collection, where, page, after=after, with_vectors=with_vectors)
        return [_entry(record, with_vectors) for record in records], following

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        records, following = self._page(collection, where, page, after=after, with_payload=list(MARK_FIELDS))
        return [mark_of(str(record.id), record.payload or {}) for record in records], following

    def _page(
        self,
        collection: str,
        where: Where,
        limit: int,
        *,
        after: str | None = None,
        order_by: models.OrderBy | None = None,
        with_payload: bool | list[str] = True,
        with_vectors: bool = False,
    ) -> tuple[list[models.Record], str | None]:
        """Return a page of records and the cursor of the next one."""
        only = self._filter(collection, where)
        records, following = self._ask(
            lambda client: client.scroll(
                collection,
                scroll_filter=only,
                limit=limit,
                order_by=order_by,
                offset=after,
                with_payload=with_payload,
                with_vectors=with_vectors,
            )
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
        only = self._filter(collection, where)
        return int(self._ask(lambda client: client.count(collection, count_filter=only, exact=True)).count)

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        only = self._filter(collection, where)
        answer = self._ask(lambda client: client.facet(collection, field, facet_filter=only, limit=limit, exact=True))
        return {str(hit.value): int(hit.count) for hit in answer.hits}

    # --- the whole store ---------------------------------------------------------------------------------------------

    def claim(self, name: str, holder: str, *, now: datetime, until: datetime) -> bool:
        from qdrant_client import models

        point = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA}/{name}"))
        free = models.Filter(
            should=[
                models.FieldCondition(key="holder", match=models.MatchValue(value=holder)),
                models.FieldCondition(key="until", range=models.Range(lte=now.timestamp())),
            ]
        )
        wanted = models.PointStruct(id=point, vector={}, payload={"holder": holder, "until": until.timestamp()})

        def take(client: QdrantClient) -> models.Record:
            if not client.collection_exists(LEASES):
                with contextlib.suppress(Exception):  # another engine may be creating it; then it is there
                    qdrant_layout.create(client, LEASES, self._layout)
            # Inserted where there is none, replaced only where it is free: the server decides between two claims.
            client.upsert(LEASES, [wanted], wait=True, update_filter=free, ordering=models.WriteOrdering.MEDIUM)
            (stored,) = client.retrieve(LEASES, [point], with_payload=True)
            return stored

        return (self._ask(take).payload or {}).get("holder") == holder

    def flush(self) -> None:
        """Do nothing: a server flushes by itself, local mode with each write."""

    def size_bytes(self) -> int:
        return 0

    def close(self) -> None:
        self._link.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _present(self, collection: str, point_ids: list[str]) -> set[str]:
        if not point_ids:
            return set()
        records = self._ask(
            lambda client: client.retrieve(collection, point_ids, with_payload=False, with_vectors=False)
        )
        return {str(record.id) for record in records}

    def _hits(
        self, collection: str, query: list[float] | models.SparseVector, using: str, where: Where, limit: int
    ) -> list[Hit]:
        only = self._filter(collection, where)
        answer = self._ask(
            lambda client: client.query_points(
                collection,
                query=query,
                using=using,
                query_filter=only,
                search_params=qdrant_layout.search_params(self._layout) if self._link.is_server else None,
                limit=limit,
                with_payload=False,
            )
        )
        return [Hit(str(point.id), float(point.score)) for point in answer.points]

    def _filter(self, collection: str, where: Where) -> models.Filter | None:
        """Return the server's filter, the account first: it is the tenant, and every reader's audience names it."""
        values = {condition.field: condition.values for condition in where.all_of if isinstance(condition, OneOf)}
        if "audience" in values and qdrant_layout.TENANT not in values:
            accounts = tuple(dict.fromkeys(account_of(str(audience)) for audience in values["audience"]))
            where = Where((OneOf(qdrant_layout.TENANT, accounts), *where.all_of), where.none_of)
        if self._link.is_server:
            where = self._without_prefixes(collection, where)
        return translate(where, self._dialect)

    def _without_prefixes(self, collection: str, where: Where) -> Where:
        """Return the filter with every prefix as the values that begin with it: a server of 1.18 knows no prefixes."""

        def expanded(condition: Condition) -> Condition:
            if isinstance(condition, AnyOf):
                return AnyOf(tuple(self._without_prefixes(collection, option) for option in condition.options))
            if not isinstance(condition, StartsWith):
                return condition
            field, prefix = condition.field, condition.prefix
            values = self._ask(lambda client: client.facet(collection, field, limit=VALUES_MAX, exact=False)).hits
            if len(values) >= VALUES_MAX:
                raise BadInput(
                    f"{field} has more than {VALUES_MAX} values on this server; a prefix is looked up in fewer"
                )
            return OneOf(field, tuple(str(hit.value) for hit in values if str(hit.value).startswith(prefix)))

        return Where(tuple(map(expanded, where.all_of)), tuple(map(expanded, where.none_of)))


def _point(entry: Entry, rows: Mapping[str, Matrix], before: Record | None) -> models.PointStruct:
    """Return a point with a new revision. before: the payload stored in its place."""
    from qdrant_client import models

    vectors: dict[str, list[float] | models.SparseVector] = {name: row.tolist() for name, row in rows.items()}
    if entry.words and entry.words.indices:
        vectors[WORDS] = _sparse(entry.words)
    payload = revisions.with_revision(to_payload(entry.memory), before)
    return models.PointStruct(id=entry.memory.point_id, vector=vectors, payload=payload)


def _has_revision(one_of: list[str]) -> models.FieldCondition:
    from qdrant_client import models

    return models.FieldCondition(key=REVISION, match=models.MatchAny(any=one_of))


def _unchanged(payloads: Iterable[Record]) -> models.Filter:
    """Return the filter that lets through what is still stored with one of these revisions."""
    from qdrant_client import models

    stored = [str(payload.get(REVISION) or "") for payload in payloads]
    either: list[models.Condition] = [_has_revision(list(filter(None, stored)))] if any(stored) else []
    if not all(stored):  # a payload from before there were revisions
        either.append(models.IsEmptyCondition(is_empty=models.PayloadField(key=REVISION)))
    return models.Filter(should=either) if either else models.Filter(must=[models.HasIdCondition(has_id=[])])


def _memory(payload: Record) -> Memory:
    memory = from_payload(payload)
    return memory if memory.revision else replace(memory, revision=f"{memory.version}.")


def _sparse(words: SparseVector) -> models.SparseVector:
    from qdrant_client import models

    return models.SparseVector(indices=list(words.indices), values=list(words.values))


def _entry(record: models.Record, with_vectors: bool) -> Entry:
    from qdrant_client import models

    memory = _memory(record.payload or {})
    if not with_vectors:
        return Entry(memory)
    stored = record.vector if isinstance(record.vector, dict) else {}
    words = stored.get(WORDS)
    return Entry(
        memory,
        {name: np.asarray(row, dtype=np.float32) for name, row in stored.items() if name != WORDS},
        SparseVector(tuple(words.indices), tuple(words.values)) if isinstance(words, models.SparseVector) else None,
    )


def _vacuum(path: Path) -> None:
    """Rewrite local mode's database, so that no free page holds what was deleted."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM")


def _client_dialect() -> Dialect[models.Condition, models.Filter]:
    from qdrant_client import models

    return Dialect(
        one_of=lambda key, values: models.FieldCondition(key=key, match=models.MatchAny(any=list(values))),
        time_range=lambda key, low, high: models.FieldCondition(key=key, range=models.DatetimeRange(gte=low, lt=high)),
        number_range=lambda key, low, high: models.FieldCondition(key=key, range=models.Range(gte=low, lt=high)),
        starts_with=lambda key, prefix: models.FieldCondition(key=key, match=models.MatchPrefix(prefix=prefix)),
        has_vector=lambda name: models.HasVectorCondition(has_vector=name),
        nothing=lambda: models.HasIdCondition(has_id=[]),
        group=lambda must, should, must_not: models.Filter(
            must=must or None, should=should or None, must_not=must_not or None
        ),
    )
