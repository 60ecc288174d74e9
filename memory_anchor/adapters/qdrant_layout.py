"""How a collection lies on a Qdrant server: vectors, payload indexes, shards and replicas, quantisation.

Pure: settings and a `CollectionSpec` in, the client's models out. Every field a filter may name has an index; that of
`account` is the tenant's, by which the server keeps what belongs together next to each other. Shards and replicas are
decided when a collection is made; quantisation may change later, the server then rebuilds its segments behind.

Rejected: a shard of its own for a large tenant (custom shard keys). It needs cluster mode from the first point on,
and IDF is counted within a shard: the promoted tenant's words would be scored on another scale than everybody else's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from memory_anchor.ports import WORDS, CollectionSpec, EmbedderIdentity
from memory_anchor.where import INDEXED_FIELDS

METADATA = "memory_anchor"
TENANT = "account"
OVERSAMPLING = {"scalar": 2.0, "binary": 4.0}
"""Candidates of quantised vectors for each one that is asked for; their order is made by the whole vectors."""
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


def collection(spec: CollectionSpec, layout: Layout) -> dict[str, Any]:
    """Return the arguments that make a collection on a server."""
    from qdrant_client import models

    return {
        "vectors_config": {vector: vector_params(identity) for vector, identity in spec.embedders.items()},
        "sparse_vectors_config": {WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        "metadata": metadata(spec),
        **spread(layout),
        **({"quantization_config": quantization(layout)} if layout.quantization != "none" else {}),
    }


def spread(layout: Layout) -> dict[str, int]:
    """Return how a collection is spread over a cluster."""
    chosen = ("shard_number", "replication_factor", "write_consistency_factor")
    return {name: value for name in chosen if (value := int(getattr(layout, name)))}


def vector_params(identity: EmbedderIdentity) -> Any:
    from qdrant_client import models

    return models.VectorParams(size=identity.dimensions, distance=models.Distance.COSINE)


def metadata(spec: CollectionSpec) -> dict[str, Any]:
    embedders = {vector: asdict(identity) for vector, identity in spec.embedders.items()}
    return {METADATA: {"schema_version": spec.schema_version, "embedders": embedders}}


def indexes() -> dict[str, Any]:
    """Return field -> the payload index it has."""
    from qdrant_client import models

    plain: dict[str, Any] = {
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


def quantization(layout: Layout) -> Any:
    """Return the quantisation of dense vectors, kept in memory; whole vectors stay on disk for rescoring."""
    from qdrant_client import models

    match layout.quantization:
        case "scalar":
            config = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=True)
            return models.ScalarQuantization(scalar=config)
        case "binary":
            return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
        case _:
            return models.Disabled.DISABLED


def search_params(layout: Layout) -> Any:
    """Return how a search by meaning looks."""
    from qdrant_client import models

    if layout.exact:
        return models.SearchParams(exact=True)
    oversampling = OVERSAMPLING.get(layout.quantization)
    return models.SearchParams(
        hnsw_ef=HNSW_EF,
        quantization=models.QuantizationSearchParams(rescore=True, oversampling=oversampling) if oversampling else None,
    )


def is_quantized_as(stored: Any, layout: Layout) -> bool:
    """Return whether a collection's quantisation is the one that is wanted. stored: of its configuration."""
    kind = "none"
    for name in ("scalar", "binary"):
        if getattr(stored, name, None) is not None:
            kind = name
    return kind == layout.quantization
