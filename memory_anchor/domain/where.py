"""The filter of a store query, which every adapter translates.

Conditions name payload fields (`INDEXED_FIELDS`); `Where` joins them. Values only, so that filters can be compared and
cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field holds one of these values (for list fields: shares one)."""

    field: str
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """at_least <= field < below; either side may be open. Instants or numbers."""

    field: str
    at_least: datetime | float | None = None
    below: datetime | float | None = None


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The keyword field begins with this prefix."""

    field: str
    prefix: str


@dataclass(frozen=True, slots=True)
class HasVector:
    """The point carries this named vector."""

    name: str = "dense"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these filters holds."""

    options: tuple[Where, ...]


Condition = OneOf | Between | StartsWith | HasVector | AnyOf


@dataclass(frozen=True, slots=True)
class Where:
    """All of `all_of` and none of `none_of`; `Where()` matches everything."""

    all_of: tuple[Condition, ...] = ()
    none_of: tuple[Condition, ...] = ()

    def and_(self, *conditions: Condition) -> Where:
        return Where(self.all_of + conditions, self.none_of)

    def but_not(self, *conditions: Condition) -> Where:
        return Where(self.all_of, self.none_of + conditions)


INDEXED_FIELDS: Mapping[str, Literal["keyword", "datetime", "integer", "float"]] = {
    "id": "keyword",
    "version": "integer",
    "state": "keyword",
    "audience": "keyword",
    "account": "keyword",
    "project": "keyword",
    "conversation": "keyword",
    "conversation_seq": "integer",
    "agent": "keyword",
    "author": "keyword",
    "written_in": "keyword",
    "layer": "keyword",
    "type": "keyword",
    "tag": "keyword",
    "where": "keyword",
    "who": "keyword",
    "origin": "keyword",
    "pinned": "keyword",  # "yes" or "no": bool filters are ten times slower
    "content_hash": "keyword",
    "request_keys": "keyword",
    "when": "datetime",
    "recorded_at": "datetime",
    "recorded_to": "datetime",
    "valid_from": "datetime",
    "valid_to": "datetime",
    "expires_at": "datetime",
    "last_at": "datetime",
}
"""The payload fields a `Where` may name, on every engine. `recorded_to`, `valid_to` hold FOREVER for an open end;
`happened_at` is not stored: events are filtered by `when`, facts by `recorded_at`."""
