"""How a collection is laid out on a Qdrant server: vectors, payload indexes, shards and replicas, quantisation.

Pure: settings and a `CollectionSpec` in, the client's models out. Every field a filter may name has an index; `account`
is the tenant's, by which the server stores related points next to each other. Shards and replicas are decided when a
collection is created; quantisation may change later, the server then rebuilds its segments in the background.

Rejected: a shard of its own for a large tenant (custom shard keys). It needs cluster mode from the first point on,
and IDF is counted within a shard: the promoted tenant's words would be scored on another scale than everybody else's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from memory_anchor.domain.ports import WORDS, CollectionSpec
from memory_anchor.domain.where import INDEXED_FIELDS

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

    from memory_anchor.base.json_values import Json

METADATA = "memory_anchor"
TENANT = "account"
OVERSAMPLING = {"scalar": 2.0, "binary": 4.0}
"""Candidates by quantised vectors for each wanted result; the full vectors rank them."""
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


def create(client: QdrantClient, name: str, layout: Layout, spec: CollectionSpec | None = None) -> None:
    """Create a collection, spread over a cluster as `layout` says; without a spec it holds payloads alone."""
    from qdrant_client import models

    client.create_collection(
        name,
        vectors_config={
            vector: models.VectorParams(size=identity.dimensions, distance=models.Distance.COSINE)
            for vector, identity in (spec.embedders if spec else {}).items()
        },
        sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)} if spec else None,
        metadata=metadata(spec) if spec else None,
        quantization_config=quantization(layout) if spec else None,
        shard_number=layout.shard_number or None,
        replication_factor=layout.replication_factor or None,
        write_consistency_factor=layout.write_consistency_factor or None,
    )


def metadata(spec: CollectionSpec) -> dict[str, Json]:
    embedders = {vector: asdict(identity) for vector, identity in spec.embedders.items()}
    return {METADATA: {"schema_version": spec.schema_version, "embedders": embedders}}


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
