"""What a release that kept its truth on a Qdrant server left there, or in a folder of the client's local mode.

Read once, to be carried into a database (`admin.moving`): every version with its usage, receipts, vectors and words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters.payload import from_payload
from memory_anchor.adapters.qdrant_layout import METADATA, owner_in
from memory_anchor.adapters.qdrant_link import Access, QdrantLink
from memory_anchor.domain.errors import Refused, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import WORDS, EmbedderIdentity, Entry, SparseVector

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from memory_anchor.domain.where import Where


class OldServer:
    """Collections of an earlier release, read page by page."""

    def __init__(self, access: Access) -> None:
        """Raises StoreBusy: another process has the folder open. BadInput: an address is none."""
        self._link = QdrantLink(access)
        self.place = self._link.place

    def holds_memories(self) -> bool:
        """Return whether a collection holds memories that no database answers for."""
        self._link.check_version()
        return any(self._is_truth(name) and self.count(name) for name in COLLECTIONS)

    def _is_truth(self, name: str) -> bool:
        found = self._metadata(name)
        return found is not None and METADATA in found and not owner_in(found)

    def _metadata(self, name: str) -> Mapping[str, object] | None:
        """Return what a collection says of itself, None where there is none."""

        def read(client: QdrantClient) -> Mapping[str, object] | None:
            return client.get_collection(name).config.metadata or {} if client.collection_exists(name) else None

        return self._link.ask(read)

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        """Return who made the vectors of a collection.

        Raises Refused: it is an index. StoreDamaged: it was not made by memory-anchor.
        """
        found = self._metadata(name)
        if found is None:
            return {}
        if owner_in(found):
            raise Refused(
                f"{name} at {self.place} is an index already, made of a database; there is nothing to migrate"
            )
        try:
            ours = found[METADATA]
            return {vector: EmbedderIdentity(**one) for vector, one in ours["embedders"].items()}  # type: ignore[index]
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise StoreDamaged(
                f"collection {name!r} at {self.place} was not made by memory-anchor; name another server or path."
            ) from error

    def count(self, name: str) -> int:
        if self._metadata(name) is None:
            return 0
        return int(self._link.ask(lambda client: client.count(name, exact=True)).count)

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        """Return one page in point-id order and the cursor of the next one. where: everything."""
        del where
        if self._metadata(collection) is None:
            return [], None
        records, following = self._link.ask(
            lambda client: client.scroll(
                collection, limit=page, offset=after, with_payload=True, with_vectors=with_vectors
            )
        )
        return [_entry(one) for one in records], None if following is None else str(following)

    def close(self) -> None:
        self._link.close()


def _entry(record: models.Record) -> Entry:
    from qdrant_client import models

    stored = record.vector if isinstance(record.vector, dict) else {}
    words = stored.get(WORDS)
    return Entry(
        replace(from_payload(record.payload or {}), revision=None),
        {name: np.asarray(row, dtype=np.float32) for name, row in stored.items() if name != WORDS},
        # A server answers with the shortest text of a weight in 32 bits; the database holds the weight.
        SparseVector(tuple(words.indices), tuple(np.asarray(words.values, np.float32).tolist()))
        if isinstance(words, models.SparseVector)
        else None,
    )
