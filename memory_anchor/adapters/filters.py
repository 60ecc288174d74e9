"""One translation of our filters into Qdrant's, in two dialects.

Qdrant Edge and the Qdrant client have the same filter tree under different classes. `translate` walks a `Where` once;
a `Dialect` only builds the leaves and groups: both engines get the same tree, and a condition is added in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar, assert_never

from memory_anchor.adapters.payload import time_text
from memory_anchor.domain.where import AnyOf, Between, Condition, HasVector, OneOf, StartsWith, Where

Leaf = TypeVar("Leaf")
Group = TypeVar("Group")
"""A condition, and a group of them, in an engine's own classes."""


@dataclass(frozen=True, slots=True)
class Dialect(Generic[Leaf, Group]):
    """How to build one engine's own condition objects.

    time_range takes ISO texts, number_range numbers: at_least (inclusive) and below (exclusive), None is open.
    nothing matches no point at all.
    """

    one_of: Callable[[str, Sequence[str | int]], Leaf]
    time_range: Callable[[str, str | None, str | None], Leaf]
    number_range: Callable[[str, float | None, float | None], Leaf]
    starts_with: Callable[[str, str], Leaf]
    has_vector: Callable[[str], Leaf]
    nothing: Callable[[], Leaf]
    group: Callable[[list[Leaf | Group], list[Leaf | Group], list[Leaf | Group]], Group]
    """(must, should, must_not) -> filter"""


def translate(where: Where, dialect: Dialect[Leaf, Group]) -> Group | None:
    """Return the engine's filter, or None when `where` matches everything."""
    if not where.all_of and not where.none_of:
        return None
    return dialect.group(
        [_leaf(condition, dialect) for condition in where.all_of],
        [],
        [_leaf(condition, dialect) for condition in where.none_of],
    )


def _leaf(condition: Condition, dialect: Dialect[Leaf, Group]) -> Leaf | Group:
    match condition:
        case OneOf(field, values):
            return dialect.one_of(field, values) if values else dialect.nothing()
        case Between(field, at_least, below):
            if isinstance(at_least, datetime) or isinstance(below, datetime):
                return dialect.time_range(field, _text(at_least), _text(below))
            return dialect.number_range(field, at_least, below)
        case StartsWith(field, prefix):
            return dialect.starts_with(field, prefix)
        case HasVector(name):
            return dialect.has_vector(name)
        case AnyOf(options):
            if not options:
                return dialect.nothing()
            groups = [translate(option, dialect) for option in options]
            return dialect.group([], [group or dialect.group([], [], []) for group in groups], [])
        case _:
            assert_never(condition)


def _text(instant: datetime | float | None) -> str | None:
    if instant is None:
        return None
    if not isinstance(instant, datetime):
        raise TypeError("a range has instants or numbers on both sides, not one of each")
    return time_text(instant)
