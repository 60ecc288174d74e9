"""A backup's manifest: the first member of its archive, written as JSON and read strictly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from memory_anchor.base.json_values import Json, Record, items, parsed, record, text, whole
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import EmbedderIdentity

FORMAT = 1


class CollectionPart(TypedDict):
    """What a backup holds of one collection."""

    versions: int
    embedders: dict[str, EmbedderIdentity]


class Manifest(TypedDict):
    """files: member -> (hash, bytes)."""

    format: int
    version: str
    made_at: str
    store: str
    collections: dict[str, CollectionPart]
    files: dict[str, tuple[str, int]]


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest in these bytes. Raises ValueError, KeyError: they are none of this format."""
    stored = record(parsed(content))
    collections = {name: record(part) for name, part in record(stored["collections"]).items()}
    if stored["format"] != FORMAT or set(collections) - set(COLLECTIONS):
        raise ValueError("made by another version")
    return {
        "format": FORMAT,
        "version": text(stored["version"]),
        "made_at": text(stored["made_at"]),
        "store": text(stored["store"]),
        "collections": {
            name: {
                "versions": whole(part["versions"]),
                "embedders": {key: _embedder(record(embedder)) for key, embedder in record(part["embedders"]).items()},
            }
            for name, part in collections.items()
        },
        "files": {name: (text(pair[0]), whole(pair[1])) for name, pair in _pairs(stored["files"]).items()},
    }


def _pairs(value: Json) -> dict[str, Sequence[Json]]:
    pairs = {name: items(pair) for name, pair in record(value).items()}
    if any(len(pair) != 2 for pair in pairs.values()):
        raise ValueError("a member has another fingerprint")
    return pairs


def _embedder(identity: Record) -> EmbedderIdentity:
    return EmbedderIdentity(text(identity["model"]), whole(identity["dimensions"]), text(identity["roles"]))
