"""What several engines share on a Qdrant server beside memories: leases and records.

A lease on a Qdrant server: a point with its holder and its end, which the server itself gives to one of several.

Shared records on a Qdrant server: one point a record, without vectors, in a collection of its own.

Every write has a token, the record's revision. The server itself decides between two writers: a new record is an upsert
that changes nothing which is there, another one overwrites the payload where the revision is still the one that was
read; then the writer looks whether its own token stands there, or is among those before it, since others may have gone
on from it and a request whose answer was lost is sent again. What is larger than a request should be lies in pieces
beside it, written before and removed after; a reader that finds pieces gone reads the record anew.

Rejected: memories' collections, whose filters and indexes are about scopes; a database beside Qdrant, one more server.
"""

from __future__ import annotations

import base64
import contextlib
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from memory_anchor.adapters.file_records import BYTES_MAX, checked_name
from memory_anchor.adapters.qdrant_layout import METADATA, Layout, create
from memory_anchor.adapters.qdrant_link import QdrantLink, already_there
from memory_anchor.adapters.system import new_token
from memory_anchor.errors import ChangedMeanwhile, StoreDamaged, TooLarge, Unavailable
from memory_anchor.json_values import Record, number, text, texts, whole
from memory_anchor.ports import ListedRecord, SharedRecord

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

LEASES = "memory_anchor_leases"
"""Without vectors, of one point a lease."""


def claimed(link: QdrantLink, layout: Layout, name: str, holder: str, *, now: float, until: float) -> bool:
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

    def taken(client: QdrantClient) -> models.Record:
        if not client.collection_exists(LEASES):
            with contextlib.suppress(Exception):  # another engine may be making it; then it is there
                create(client, LEASES, layout)
        # Inserted where there is none, replaced only where it is free: the server decides between two who ask.
        client.upsert(LEASES, [wanted], wait=True, update_filter=free, ordering=models.WriteOrdering.MEDIUM)
        (found,) = client.retrieve(LEASES, [point], with_payload=True)
        return found

    return (link.ask(taken).payload or {}).get("holder") == holder


COLLECTION = "memory_anchor_records"
PIECE_BYTES = 3 << 20
"""Of compressed content in one point; 4 MB as base64, far below what a server takes in one request."""
KEPT = 64
"""Revisions before the present one that a record remembers: so many may go on from a write before its writer looks."""
TOKEN_CHARS = 16
PAGE = 1_000
READS = 5
LEFT_S = 3_600.0
"""After which pieces that no record names are those of a writer that was killed."""
_FOLDER = "folders"


class QdrantRecords:
    """Thread-safe. The collection is made by the first use."""

    is_shared = True

    def __init__(self, link: QdrantLink, layout: Layout | None = None) -> None:
        self._link, self._ask = link, link.ask
        self._layout = layout or Layout()
        self._is_made = False

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
        self._make()
        ids = [_point(checked_name(name)) for name in names]
        found = self._ask(lambda client: client.retrieve(COLLECTION, ids, with_payload=["name", "revision"]))
        return {text(one["name"]): text(one["revision"]) for one in map(_told, found)}

    def write(self, name: str, content: bytes, *, before: str, durable: bool = True) -> str:
        del durable  # every write is in the log of each active replica
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        held = self._head(checked_name(name))
        if (str(held["revision"]) if held else "") != before:
            raise _changed(name)
        token, packed = new_token()[:TOKEN_CHARS], zlib.compress(content, 1)
        pieces = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
        if len(pieces) > 1:
            self._write_pieces(name, token, pieces)
        earlier = [before, *texts(held["earlier"])][:KEPT] if held else []
        head: Record = {
            "name": name,
            _FOLDER: [parent.as_posix() for parent in PurePosixPath(name).parents][:-1],
            "revision": token,
            "earlier": earlier,
            "at": time.time(),
            "bytes": len(content),
            "pieces": len(pieces) if len(pieces) > 1 else 0,
            "content": base64.b64encode(packed).decode() if len(pieces) <= 1 else "",
        }
        now = self._ask(partial(_put, _point(name), head, before))
        if now is None or token not in (now["revision"], *texts(now["earlier"])):
            self._drop_pieces(name, token, len(pieces))
            raise _changed(name)
        if held and held["pieces"]:
            self._drop_pieces(name, before, whole(held["pieces"]))
        return token

    def delete(self, name: str, *, before: str) -> None:
        from qdrant_client import models

        held = self._head(checked_name(name))
        if held is None:
            return
        if held["revision"] != before:
            raise _changed(name)
        these = models.FilterSelector(filter=_as_read(_point(name), before))
        medium = models.WriteOrdering.MEDIUM
        self._ask(lambda client: client.delete(COLLECTION, these, wait=True, ordering=medium))
        if self._head(name) is not None:
            raise _changed(name)
        self._drop_pieces(name, before, whole(held["pieces"]))

    def listed(self, folder: str) -> list[ListedRecord]:
        from qdrant_client import models

        self._make()
        below = models.Filter(must=[models.FieldCondition(key=_FOLDER, match=models.MatchValue(value=folder))])
        names, found, after = ["name", "revision", "at"], [], None
        while True:
            read = partial(_scrolled, below, after, names)
            records, after = self._ask(read)
            found += [
                ListedRecord(text(one["name"]), text(one["revision"]), number(one["at"])) for one in map(_told, records)
            ]
            if after is None:
                return sorted(found, key=lambda one: one.name)

    def sweep(self) -> int:
        """Remove pieces that a writer left when it was killed; return how many."""
        from qdrant_client import models

        self._make()
        old = models.FieldCondition(key="at", range=models.Range(lt=time.time() - LEFT_S))
        pieces = models.Filter(must=[models.IsEmptyCondition(is_empty=models.PayloadField(key="name")), old])
        gone: list[str] = []
        after = None
        while True:
            records, after = self._ask(partial(_scrolled, pieces, after, ["piece_of", "revision"]))
            told = {str(one.id): _told(one) for one in records}
            named = self.revisions(sorted({text(one["piece_of"]) for one in told.values()})) if records else {}
            gone += [piece for piece, one in told.items() if named.get(text(one["piece_of"])) != one["revision"]]
            if after is None:
                break
        if gone:
            self._ask(lambda client: client.delete(COLLECTION, models.PointIdsList(points=list(gone)), wait=True))
        return len(gone)

    def claim(self, name: str, holder: str, seconds: float) -> bool:
        """Give `holder` the lease of a name for so long, 0 gives it back; return whether it is theirs."""
        now = time.time()
        return claimed(self._link, self._layout, name, holder, now=now, until=now + seconds)

    def close(self) -> None:
        self._link.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        if self._is_made:
            return

        from qdrant_client import models

        def make(client: QdrantClient) -> None:
            if client.collection_exists(COLLECTION):
                return
            try:
                create(client, COLLECTION, replace(self._layout, shard_number=1))
            except Exception as error:  # another process may be making it
                if not already_there(error) and not isinstance(error, ValueError):
                    raise
            if self._link.is_server:
                client.create_payload_index(
                    COLLECTION, _FOLDER, field_schema=models.PayloadSchemaType.KEYWORD, wait=True
                )

        self._link.check_version()
        self._ask(make)
        self._is_made = True

    def _head(self, name: str, *, content: bool = False) -> Record | None:
        self._make()
        fields = True if content else ["revision", "earlier", "pieces"]
        found = self._ask(lambda client: client.retrieve(COLLECTION, [_point(name)], with_payload=fields))
        return _told(found[0]) if found else None

    def _packed(self, name: str, head: Record) -> bytes | None:
        """Return a record's compressed content, None where its pieces were replaced meanwhile."""
        if not head["pieces"]:
            return base64.b64decode(text(head["content"]))
        parts = []
        for place in range(whole(head["pieces"])):
            found = self._ask(partial(_retrieved, _point(name, f"{head['revision']}#{place}")))
            if not found:
                return None
            parts.append(base64.b64decode(text(_told(found[0])["content"])))
        return b"".join(parts)

    def _write_pieces(self, name: str, token: str, pieces: Sequence[bytes]) -> None:
        from qdrant_client import models

        for place, piece in enumerate(pieces):
            told = {"piece_of": name, "revision": token, "at": time.time(), "content": base64.b64encode(piece).decode()}
            point = models.PointStruct(id=_point(name, f"{token}#{place}"), vector={}, payload=told)
            self._ask(partial(_upserted, point))

    def _drop_pieces(self, name: str, token: str, count: int) -> None:
        from qdrant_client import models

        if count > 1:
            these = models.PointIdsList(points=[_point(name, f"{token}#{number}") for number in range(count)])
            self._ask(lambda client: client.delete(COLLECTION, these, wait=True))


def _put(point: str, head: Record, before: str, client: QdrantClient) -> Record | None:
    """Write a record's head where `before` still stands; return who stands there then, as little later as can be."""
    from qdrant_client import models

    medium = models.WriteOrdering.MEDIUM
    if before:  # never an upsert: one would bring back what somebody deleted meanwhile
        where = models.FilterSelector(filter=_as_read(point, before))
        client.overwrite_payload(COLLECTION, payload=dict(head), points=where, wait=True, ordering=medium)
    else:
        nothing = models.Filter(must=[models.HasIdCondition(has_id=[])])
        new = models.PointStruct(id=point, vector={}, payload=dict(head))
        client.upsert(COLLECTION, [new], wait=True, update_filter=nothing, ordering=medium)
    found = client.retrieve(COLLECTION, [point], with_payload=["revision", "earlier"])
    return _told(found[0]) if found else None


def _retrieved(point: str, client: QdrantClient) -> list[models.Record]:
    return client.retrieve(COLLECTION, [point], with_payload=True)


def _told(point: models.Record) -> Record:
    return point.payload or {}


def _upserted(point: models.PointStruct, client: QdrantClient) -> None:
    client.upsert(COLLECTION, [point], wait=True)


def _scrolled(
    only: models.Filter, after: models.ExtendedPointId | None, names: list[str], client: QdrantClient
) -> tuple[list[models.Record], models.ExtendedPointId | None]:
    return client.scroll(COLLECTION, scroll_filter=only, limit=PAGE, offset=after, with_payload=names)


def _as_read(point: str, revision: str) -> models.Filter:
    from qdrant_client import models

    same = models.FieldCondition(key="revision", match=models.MatchValue(value=revision))
    return models.Filter(must=[models.HasIdCondition(has_id=[point]), same])


def _point(name: str, piece: str = "") -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{METADATA}/records/{name}#{piece}"))


def _unpacked(name: str, packed: bytes, count: int) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, count + 1)
    except zlib.error as error:
        raise StoreDamaged(f"the record {name} on the server cannot be read; restore a backup.") from error
    if len(content) != count:
        raise StoreDamaged(f"the record {name} on the server cannot be read; restore a backup.")
    return content


def _changed(name: str) -> ChangedMeanwhile:
    return ChangedMeanwhile(f"{name} was changed by another process meanwhile; nothing was written, try again.")
