"""Collections as a release left them that kept its truth on a Qdrant server; here in a folder of local mode."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient, models

from memory_anchor.adapters.payload import to_payload
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import DENSE, WORDS, EmbedderIdentity, Entry

TINY = EmbedderIdentity("tiny", 8)


def leave(folder: Path, entries: Sequence[Entry]) -> None:
    """Write what such a release would have written into a folder."""
    with closing(QdrantClient(path=str(folder))) as client:
        fill(client, entries)


def fill(client: QdrantClient, entries: Sequence[Entry], *, collection: str = "verified_fact") -> None:
    """Write what such a release would have written: a revision with each version, who embeds in the metadata."""
    for name in COLLECTIONS:
        client.create_collection(
            name,
            vectors_config={DENSE: models.VectorParams(size=8, distance=models.Distance.COSINE)},
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata={"memory_anchor": {"schema_version": 1, "embedders": {DENSE: asdict(TINY)}}},
        )
    client.upsert(collection, [_point(number, entry) for number, entry in enumerate(entries)])


def _point(number: int, entry: Entry) -> models.PointStruct:
    vectors: dict[str, Any] = {name: row.tolist() for name, row in entry.vectors.items()}
    if entry.words:
        vectors[WORDS] = models.SparseVector(indices=list(entry.words.indices), values=list(entry.words.values))
    payload = {**to_payload(entry.memory), "revision": f"{entry.memory.version}.{number:016x}", "revised": ["1.x"]}
    return models.PointStruct(id=entry.memory.point_id, vector=vectors, payload=payload)
