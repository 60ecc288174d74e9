"""What a backup says of itself: the first member of its archive, written as JSON and read strictly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from memory_anchor.json_values import Json, Record, items, parsed, record, text, whole
from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import EmbedderIdentity

FORMAT = 1


class CollectionPart(TypedDict):
    """What of one collection a backup holds."""

    versions: int
    embedders: dict[str, EmbedderIdentity]


class Manifest(TypedDict):
    """What a backup is, and how it is written in it. files: member -> (hash, bytes)."""

    format: int
    version: str
    made_at: str
    store: str
    collections: dict[str, CollectionPart]
    files: dict[str, tuple[str, int]]


def read_manifest(content: bytes) -> Manifest:
    """Return what the bytes say. Raises ValueError, KeyError: they are no manifest of this format."""
    told = record(parsed(content))
    collections = {name: record(part) for name, part in record(told["collections"]).items()}
    if told["format"] != FORMAT or set(collections) - set(COLLECTIONS):
        raise ValueError("made by another version")
    return {
        "format": FORMAT,
        "version": text(told["version"]),
        "made_at": text(told["made_at"]),
        "store": text(told["store"]),
        "collections": {
            name: {
                "versions": whole(part["versions"]),
                "embedders": {key: _embedder(record(who)) for key, who in record(part["embedders"]).items()},
            }
            for name, part in collections.items()
        },
        "files": {name: (text(pair[0]), whole(pair[1])) for name, pair in _pairs(told["files"]).items()},
    }


def _pairs(value: Json) -> dict[str, Sequence[Json]]:
    pairs = {name: items(pair) for name, pair in record(value).items()}
    if any(len(pair) != 2 for pair in pairs.values()):
        raise ValueError("a member has another fingerprint")
    return pairs


def _embedder(told: Record) -> EmbedderIdentity:
    return EmbedderIdentity(text(told["model"]), whole(told["dimensions"]), text(told["roles"]))
