"""A lease on a Qdrant server: a point with its holder and its end, which the server itself gives to one of several."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from memory_anchor.adapters.qdrant_layout import METADATA, Layout, create
from memory_anchor.adapters.qdrant_link import QdrantLink

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

COLLECTION = "memory_anchor_leases"
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
        if not client.collection_exists(COLLECTION):
            with contextlib.suppress(Exception):  # another engine may be making it; then it is there
                create(client, COLLECTION, layout)
        # Inserted where there is none, replaced only where it is free: the server decides between two who ask.
        client.upsert(COLLECTION, [wanted], wait=True, update_filter=free, ordering=models.WriteOrdering.MEDIUM)
        (found,) = client.retrieve(COLLECTION, [point], with_payload=True)
        return found

    return (link.ask(taken).payload or {}).get("holder") == holder
