"""What several engines share on a Qdrant server besides memories: leases and records.

A lease is a point with its holder and its end, which the server itself gives to one of several.

A record is one point, without vectors, in a collection of its own. Every write has a token, the record's revision. The
server decides between two writers: a new record is an upsert that changes nothing which is there, a changed one
overwrites the payload where the revision is still the one that was read. Then the writer looks whether its own token is
stored, or among those before it, since others may have continued from it and a request whose answer was lost is sent
again. What is larger than a request should be is stored in pieces of its own, written before and removed after; a
reader that finds pieces gone reads the record again.

Rejected: memories' collections, whose filters and indexes are about scopes; a database beside Qdrant, one more server.
"""

from __future__ import annotations

import base64
import contextlib
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memory_anchor.adapters.file_records import BYTES_MAX, checked_name
from memory_anchor.adapters.qdrant_layout import METADATA, Layout, create
from memory_anchor.adapters.qdrant_link import QdrantLink, already_exists
from memory_anchor.adapters.system import new_token
from memory_anchor.base.json_values import Record, number, text, texts, whole
from memory_anchor.domain.errors import ChangedMeanwhile, StoreDamaged, TooLarge, Unavailable
from memory_anchor.domain.ports import ListedRecord, SharedRecord

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

LEASES = "memory_anchor_leases"
"""A collection without vectors, one point a lease."""


def claim_lease(link: QdrantLink, layout: Layout, name: str, holder: str, *, now: float, until: float) -> bool:
    """Give `holder` the lease until then, unless another's lasts beyond `now` (seconds); return whether it did."""
    from qdrant_client import models

    point = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA}/{name}"))
    free = models.Filter(
        should=[
            models.FieldCondition(key="holder", match=models.MatchValue(value=holder)),
            models.FieldCondition(key="until", range=models.Range(lte=now)),
        ]
    )
    wanted = models.PointStruct(id=point, vector={}, payload={"holder": holder, "until": until})

    def claim(client: QdrantClient) -> models.Record:
        if not client.collection_exists(LEASES):
            with contextlib.suppress(Exception):  # another engine may be creating it; then it is there
                create(client, LEASES, layout)
        # Inserted where there is none, replaced only where it is free: the server decides between two claims.
        client.upsert(LEASES, [wanted], wait=True, update_filter=free, ordering=models.WriteOrdering.MEDIUM)
        (stored,) = client.retrieve(LEASES, [point], with_payload=True)
        return stored

    return (link.ask(claim).payload or {}).get("holder") == holder


COLLECTION = "memory_anchor_records"
PIECE_BYTES = 3 << 20
"""Of compressed content in one point; 4 MB as base64, far below what a server takes in one request."""
EARLIER_MAX = 64
"""Revisions before the present one that a record remembers: as many may follow a write before its writer looks."""
TOKEN_CHARS = 16
PAGE = 1_000
READS = 5
ORPHANED_AFTER_S = 3_600.0
"""Age from which pieces that no record names are those of a writer that was killed."""
_FOLDER = "folders"


class QdrantRecords:
    """Thread-safe. The collection is created by the first use."""

    is_shared = True

    def __init__(self, link: QdrantLink, layout: Layout | None = None) -> None:
        self._link, self._ask = link, link.ask
        self._layout = layout or Layout()
        self._is_created = False

    def read(self, name: str) -> SharedRecord | None:
        for _ in range(READS):
            head = self._head(name, content=True)
            if head is None:
                return None
            packed = self._packed(name, head)
            if packed is not None:
                return SharedRecord(name, _unpacked(name, packed, whole(head["bytes"])), str(head["revision"]))
        raise Unavailable(f"{name} is written all the time; try again.")

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        self._create()
        ids = [_point(checked_name(name)) for name in names]
        points = self._ask(lambda client: client.retrieve(COLLECTION, ids, with_payload=["name", "revision"]))
        return {text(head["name"]): text(head["revision"]) for head in map(_payload, points)}

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        del durable  # every write is in the log of each active replica
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        stored = self._head(checked_name(name))
        if (str(stored["revision"]) if stored else "") != before:
            raise _changed(name)
        token, packed = new_token()[:TOKEN_CHARS], zlib.compress(content, 1)
        pieces = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
        if len(pieces) > 1:
            self._write_pieces(name, token, pieces)
        head: Record = {
            "name": name,
            _FOLDER: [parent.as_posix() for parent in PurePosixPath(name).parents][:-1],
            "revision": token,
            "earlier": [before, *texts(stored["earlier"])][:EARLIER_MAX] if stored else [],
            "at": time.time(),
            "bytes": len(content),
            "pieces": len(pieces) if len(pieces) > 1 else 0,
            "content": base64.b64encode(packed).decode() if len(pieces) <= 1 else "",
        }
        now = self._ask(lambda client: _put(_point(name), head, before, client))
        if now is None or token not in (now["revision"], *texts(now["earlier"])):
            self._drop_pieces(name, token, len(pieces))
            raise _changed(name)
        if stored and stored["pieces"]:
            self._drop_pieces(name, before, whole(stored["pieces"]))
        return token

    def delete(self, name: str, *, before: str) -> None:
        from qdrant_client import models

        stored = self._head(checked_name(name))
        if stored is None:
            return
        if stored["revision"] != before:
            raise _changed(name)
        selector = models.FilterSelector(filter=_as_read(_point(name), before))
        medium = models.WriteOrdering.MEDIUM
        self._ask(lambda client: client.delete(COLLECTION, selector, wait=True, ordering=medium))
        if self._head(name) is not None:
            raise _changed(name)
        self._drop_pieces(name, before, whole(stored["pieces"]))

    def listed(self, folder: str) -> list[ListedRecord]:
        from qdrant_client import models

        below = models.Filter(must=[models.FieldCondition(key=_FOLDER, match=models.MatchValue(value=folder))])
        heads = [_payload(point) for page in self._pages(below, ["name", "revision", "at"]) for point in page]
        records = [ListedRecord(text(head["name"]), text(head["revision"]), number(head["at"])) for head in heads]
        return sorted(records, key=lambda record: record.name)

    def sweep(self) -> int:
        """Remove pieces left by writers that were killed; return how many."""
        from qdrant_client import models

        old = models.FieldCondition(key="at", range=models.Range(lt=time.time() - ORPHANED_AFTER_S))
        pieces = models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="name")), old])
        orphans: list[str] = []
        for page in self._pages(pieces, ["piece_of", "revision"]):
            by_id = {str(point.id): _payload(point) for point in page}
            current = self.revisions(sorted({text(piece["piece_of"]) for piece in by_id.values()})) if page else {}
            orphans += [id for id, piece in by_id.items() if current.get(text(piece["piece_of"])) != piece["revision"]]
        if orphans:
            self._ask(lambda client: client.delete(COLLECTION, models.PointIdsList(points=[*orphans]), wait=True))
        return len(orphans)

    def claim(self, name: str, holder: str, seconds: float) -> bool:
        """Give `holder` the lease of a name for so long, 0 gives it back; return whether it is theirs."""
        now = time.time()
        return claim_lease(self._link, self._layout, name, holder, now=now, until=now + seconds)

    def close(self) -> None:
        self._link.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        if self._is_created:
            return

        from qdrant_client import models

        def create_collection(client: QdrantClient) -> None:
            if client.collection_exists(COLLECTION):
                return
            try:
                create(client, COLLECTION, replace(self._layout, shard_number=1))
            except Exception as error:  # another process may be creating it
                if not already_exists(error) and not isinstance(error, ValueError):
                    raise
            if self._link.is_server:
                keyword = models.PayloadSchemaType.KEYWORD
                client.create_payload_index(COLLECTION, _FOLDER, field_schema=keyword, wait=True)

        self._link.check_version()
        self._ask(create_collection)
        self._is_created = True

    def _pages(self, only: models.Filter, fields: list[str]) -> Iterator[list[models.Record]]:
        """Yield the points that fulfil a filter, a page at a time, with these fields of their payload."""
        self._create()
        after: models.ExtendedPointId | None = None

        def scroll(client: QdrantClient) -> tuple[list[models.Record], models.ExtendedPointId | None]:
            return client.scroll(COLLECTION, scroll_filter=only, limit=PAGE, offset=after, with_payload=fields)

        while True:
            points, after = self._ask(scroll)
            yield points
            if after is None:
                return

    def _payload_of(self, point: str, fields: bool | list[str] = True) -> Record | None:
        points = self._ask(lambda client: client.retrieve(COLLECTION, [point], with_payload=fields))
        return _payload(points[0]) if points else None

    def _head(self, name: str, *, content: bool = False) -> Record | None:
        self._create()
        return self._payload_of(_point(name), True if content else ["revision", "earlier", "pieces"])

    def _packed(self, name: str, head: Record) -> bytes | None:
        """Return a record's compressed content, None where its pieces were replaced meanwhile."""
        if not head["pieces"]:
            return base64.b64decode(text(head["content"]))
        parts = []
        for index in range(whole(head["pieces"])):
            piece = self._payload_of(_point(name, f"{head['revision']}#{index}"))
            if piece is None:
                return None
            parts.append(base64.b64decode(text(piece["content"])))
        return b"".join(parts)

    def _write_pieces(self, name: str, token: str, pieces: Sequence[bytes]) -> None:
        from qdrant_client import models

        def upsert(point: models.PointStruct, client: QdrantClient) -> None:
            client.upsert(COLLECTION, [point], wait=True)

        for index, piece in enumerate(pieces):
            content = base64.b64encode(piece).decode()
            payload = {"piece_of": name, "revision": token, "at": time.time(), "content": content}
            point = models.PointStruct(id=_point(name, f"{token}#{index}"), vector={}, payload=payload)
            self._ask(partial(upsert, point))

    def _drop_pieces(self, name: str, token: str, count: int) -> None:
        from qdrant_client import models

        if count > 1:
            selector = models.PointIdsList(points=[_point(name, f"{token}#{index}") for index in range(count)])
            self._ask(lambda client: client.delete(COLLECTION, selector, wait=True))


def _put(point: str, head: Record, before: str, client: QdrantClient) -> Record | None:
    """Write a record's head where `before` is still stored; return what is stored right after."""
    from qdrant_client import models

    medium = models.WriteOrdering.MEDIUM
    if before:  # never an upsert: one would bring back what somebody deleted meanwhile
        where = models.FilterSelector(filter=_as_read(point, before))
        client.overwrite_payload(COLLECTION, payload=dict(head), points=where, wait=True, ordering=medium)
    else:
        nothing = models.Filter(must=[models.HasIdCondition(has_id=[])])
        new = models.PointStruct(id=point, vector={}, payload=dict(head))
        client.upsert(COLLECTION, [new], wait=True, update_filter=nothing, ordering=medium)
    points = client.retrieve(COLLECTION, [point], with_payload=["revision", "earlier"])
    return _payload(points[0]) if points else None


def _payload(point: models.Record) -> Record:
    return point.payload or {}


def _as_read(point: str, revision: str) -> models.Filter:
    from qdrant_client import models

    same = models.FieldCondition(key="revision", match=models.MatchValue(value=revision))
    return models.Filter(must=[models.HasIdCondition(has_id=[point]), same])


def _point(name: str, piece: str = "") -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA}/records/{name}#{piece}"))


def _unpacked(name: str, packed: bytes, count: int) -> bytes:
    damaged = StoreDamaged(f"the record {name} on the server cannot be read; restore a backup.")
    try:
        content = zlib.decompressobj().decompress(packed, count + 1)
    except zlib.error as error:
        raise damaged from error
    if len(content) != count:
        raise damaged
    return content


def _changed(name: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"{name} was changed by another process meanwhile; nothing was written, try again.")
