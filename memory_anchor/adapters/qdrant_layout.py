"""How a collection is laid out on a Qdrant server: vectors, payload indexes, shards and replicas, quantisation.

Every field a filter may name has an index; `account` is the tenant's, by which the server stores related points next to
each other. A graph is made for each account alone, since no search goes over two, and none where searches are exact.
Shards and replicas are decided when a collection is created; graph and quantisation may change later, the server then
rebuilds its segments in the background. Where quantised vectors are searched, the whole ones stay on disk.

Rejected: a shard of its own for a large tenant (custom shard keys). It needs cluster mode from the first point on,
and IDF is counted within a shard: the promoted tenant's words would be scored on another scale than everybody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memory_anchor.domain.ports import WORDS
from memory_anchor.domain.where import INDEXED_FIELDS

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from memory_anchor.base.json_values import Json
    from memory_anchor.domain.ports import EmbedderIdentity

METADATA = "memory_anchor"
INDEX_SCHEMA = 2
"""Of an index. Releases that kept their truth here wrote 1, and refuse what is newer."""
TENANT = "account"
OVERSAMPLING = {"scalar": 2.0, "binary": 4.0}
"""Candidates by quantised vectors for each wanted result; the full vectors rank them."""
GRAPH_M = 16
"""Links of a vector in the graph of its account."""
HNSW_EF = 256
"""Candidates looked at in the graph of a large collection; measured in docs/qdrant.md."""


@dataclass(frozen=True, slots=True)
class Layout:
    """0 leaves a number to the server. exact: scan every vector that the filter lets through, whatever the size.

    Else the server goes through its graph, which found 75 of 100 of the very best in the bench (docs/qdrant.md).
    """

    shard_number: int = 0
    replication_factor: int = 0
    write_consistency_factor: int = 0
    quantization: Literal["none", "scalar", "binary"] = "none"
    exact: bool = True


def create(
    client: QdrantClient, name: str, layout: Layout, embedders: Mapping[str, EmbedderIdentity], owner: str
) -> None:
    """Create a collection, spread over a cluster as `layout` says."""
    from qdrant_client import models

    client.create_collection(
        name,
        vectors_config={
            vector: models.VectorParams(
                size=identity.dimensions,
                distance=models.Distance.COSINE,
                on_disk=True if layout.quantization != "none" else None,
            )
            for vector, identity in embedders.items()
        },
        sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        metadata=metadata(owner),
        hnsw_config=_graph(layout),
        quantization_config=quantization(layout),
        shard_number=layout.shard_number or None,
        replication_factor=layout.replication_factor or None,
        write_consistency_factor=layout.write_consistency_factor or None,
    )


def update(name: str, layout: Layout, client: QdrantClient) -> None:
    """Give a collection the payload indexes it lacks, and the quantisation of the settings."""
    from qdrant_client import models

    info = client.get_collection(name)
    for field, schema in indexes().items():
        index = info.payload_schema.get(field)
        is_tenant = bool(index and index.params and getattr(index.params, "is_tenant", None))
        if index is None or (field == TENANT and not is_tenant):
            client.create_payload_index(name, field, field_schema=schema, wait=True)
    if not is_quantized_as(info.config.quantization_config, layout):
        client.update_collection(name, quantization_config=quantization(layout) or models.Disabled.DISABLED)
    graph = _graph(layout)
    if (info.config.hnsw_config.m, info.config.hnsw_config.payload_m) != (graph.m, graph.payload_m):
        client.update_collection(name, hnsw_config=graph)


def _graph(layout: Layout) -> models.HnswConfigDiff:
    from qdrant_client import models

    return models.HnswConfigDiff(m=0, payload_m=0 if layout.exact else GRAPH_M)


def metadata(owner: str) -> dict[str, Json]:
    """Return what a collection says of itself. owner: of the database that it is made of."""
    return {METADATA: {"schema_version": INDEX_SCHEMA, "index_of": owner}}


def owner_in(stored: Mapping[str, object] | None) -> str:
    """Return the database that a collection's metadata names, "" for none."""
    ours = (stored or {}).get(METADATA)
    return str(ours.get("index_of") or "") if isinstance(ours, Mapping) else ""


def indexes() -> dict[str, models.PayloadSchemaType | models.KeywordIndexParams]:
    """Return the payload index of each field."""
    from qdrant_client import models

    plain = {
        "datetime": models.PayloadSchemaType.DATETIME,
        "integer": models.PayloadSchemaType.INTEGER,
        "float": models.PayloadSchemaType.FLOAT,
    }
    return {
        field: models.KeywordIndexParams(
            type=models.KeywordIndexType.KEYWORD, is_tenant=True if field == TENANT else None
        )
        if kind == "keyword"
        else plain[kind]
        for field, kind in INDEXED_FIELDS.items()
    }


def quantization(layout: Layout) -> models.ScalarQuantization | models.BinaryQuantization | None:
    """Return the quantisation of dense vectors, kept in memory; whole vectors stay on disk for rescoring."""
    from qdrant_client import models

    match layout.quantization:
        case "scalar":
            config = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
            return models.ScalarQuantization(scalar=config)
        case "binary":
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        case _:
            return None


def search_params(layout: Layout) -> models.SearchParams:
    """Return how a vector search runs."""
    from qdrant_client import models

    if layout.exact:
        return models.SearchParams(exact=True)
    oversampling = OVERSAMPLING.get(layout.quantization)
    return models.SearchParams(
        hnsw_ef=HNSW_EF,
        quantization=models.QuantizationSearchParams(rescore=True, oversampling=oversampling) if oversampling else None,
    )


def is_quantized_as(stored: models.QuantizationConfig | None, layout: Layout) -> bool:
    """Return whether a collection's stored quantisation is the one of the settings."""
    kinds = [name for name in ("scalar", "binary") if getattr(stored, name, None) is not None]
    return (kinds or ["none"])[-1] == layout.quantization
