"""What of each row of the mirror a search is filtered by, as columns; a filter as the rows that fulfil it.

Who may read, state, type and times are compared here, a tenth of a millisecond for 100,000 rows. Every other condition
(tags, people, places) is one query of the store, for the numbers of its versions; what the columns leave over is cut
with them. Conditions mean what they mean in the store (`domain.where`), to the microsecond.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.ports import ABSENT
from memory_anchor.domain.where import AnyOf, Between, Condition, HasVector, OneOf, Where

if TYPE_CHECKING:
    from numpy.typing import NDArray

NONE = -1
NEVER = ABSENT
"""The time of what has none: no range holds it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
NAMED = ("collection", "audience", "state", "type")
LISTED = frozenset({"tag", "who"})
"""Fields of several values: the store has an index of each value alone."""
TIMES = ("recorded_at", "recorded_to", "when", "content_at")
_NO_ROWS = np.zeros(0, dtype=np.int64)


def micros(instant: datetime | None) -> int:
    """Return microseconds since 1970, `NEVER` for None."""
    return NEVER if instant is None else (instant - _EPOCH) // _MICROSECOND


class Names(dict[str, int]):
    """Strings as small integers: a new one gets the next."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number

    def of(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Return the number of each of these."""
        return np.array(list(map(self.__getitem__, names)), np.int32)


class RowColumns:
    """Not thread-safe: the searcher holds its lock. `numbers`: of each row, which version of the store it is."""

    def __init__(self, rows: int) -> None:
        self.names = {field: Names() for field in NAMED}
        self.arrays: dict[str, NDArray[np.int32] | NDArray[np.int64]] = {
            **{field: np.full(rows, NONE, np.int32) for field in NAMED},
            **{field: np.full(rows, NEVER, np.int64) for field in TIMES},
            "number": np.full(rows, NONE, np.int64),
        }
        self._in_order: tuple[int, NDArray[np.int64]] | None = None

    def grow(self, rows: int) -> None:
        """Make room for as many rows."""
        for field, old in self.arrays.items():
            new = np.full(rows, NEVER if field in TIMES else NONE, old.dtype)
            new[: len(old)] = old
            self.arrays[field] = new

    def put(self, rows: NDArray[np.int64], values: Mapping[str, Sequence[str] | NDArray[np.int64]]) -> None:
        """Set what is known of these rows: names, times in microseconds, and their numbers."""
        for field, found in values.items():
            self.arrays[field][rows] = found if isinstance(found, np.ndarray) else self.names[field].of(found)
        self._in_order = None

    def forget(self, rows: NDArray[np.int64]) -> None:
        """Take rows out of every collection; the version they were may come back as another row."""
        self.arrays["collection"][rows] = self.arrays["number"][rows] = NONE
        self._in_order = None

    def rows_of(self, field: str, name: str, size: int) -> NDArray[np.int64]:
        """Return which of the first `size` rows have this name, sorted."""
        return (
            np.flatnonzero(self.arrays[field][:size] == self.code(field, name))
            if name in self.names[field]
            else _NO_ROWS
        )

    def hold(
        self, rows: NDArray[np.int64], values: Mapping[str, Sequence[str] | NDArray[np.int64]]
    ) -> NDArray[np.bool_]:
        """Return which of these rows have just these names, times and numbers."""
        same = np.ones(len(rows), dtype=bool)
        for field, found in values.items():
            wanted = found if isinstance(found, np.ndarray) else self.names[field].of(found)
            same &= self.arrays[field][rows] == wanted
        return same

    def code(self, field: str, name: str) -> int:
        """Return the number of a name in its column, -1 where no row has it."""
        return self.names[field].get(name, NONE)

    def fulfilling(
        self,
        where: Where,
        rows: NDArray[np.int64],
        embedded: Mapping[str, NDArray[np.bool_]],
        numbers: Sequence[int] | None,
        size: int,
    ) -> NDArray[np.int64]:
        """Return which of these rows, sorted, fulfil a filter, sorted.

        embedded: of every named vector, which rows have it. numbers: what the store finds by `asked_of_store`, None
        where nothing is asked of it. size: how many rows there are.
        """
        names = embedded.keys()
        if numbers is not None:
            found = np.sort(self._rows_of(np.asarray(numbers, np.int64), size))
            rows = found[np.isin(found, rows, assume_unique=True)] if len(rows) < size else found
        for condition in where.all_of:
            if _knows(condition, names):
                rows = rows[self._test(condition, rows, embedded)]
        for condition in where.none_of:
            if _knows(condition, names):
                rows = rows[~self._test(condition, rows, embedded)]
        return rows

    def _rows_of(self, numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        """Return the rows of these versions, those that have none left out."""
        if self._in_order is None or self._in_order[0] != size:
            self._in_order = size, np.argsort(self.arrays["number"][:size], kind="stable")
        order = self._in_order[1]
        known = self.arrays["number"][order]
        at = np.searchsorted(known, numbers)
        at[at == size] = 0
        return order[at[known[at] == numbers]] if size else np.zeros(0, np.int64)

    def _test(
        self, condition: Condition, rows: NDArray[np.int64], embedded: Mapping[str, NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        match condition:
            case OneOf(field, values):
                column = self.arrays[field][rows]
                codes = [self.code(field, value) for value in values if isinstance(value, str)]
                return np.asarray(np.isin(column, codes), dtype=np.bool_)
            case Between(field, at_least, below):
                column = self.arrays[field][rows]
                holds: NDArray[np.bool_] = np.not_equal(column, NEVER)
                if at_least is not None:
                    holds &= column >= _bound(at_least)
                if below is not None:
                    holds &= column < _bound(below)
                return holds
            case HasVector(name):
                return np.asarray(embedded[name][rows], dtype=np.bool_)
            case AnyOf(options):
                holds = np.zeros(len(rows), dtype=bool)
                for option in options:
                    each = np.ones(len(rows), dtype=bool)
                    for inner in option.all_of:
                        each &= self._test(inner, rows, embedded)
                    for inner in option.none_of:
                        each &= ~self._test(inner, rows, embedded)
                    holds |= each
                return holds
            case _:
                raise ValueError(f"{type(condition).__name__} is asked of the store")


def _bound(bound: datetime | float) -> float:
    return micros(bound) if isinstance(bound, datetime) else bound


def asked_of_store(where: Where, vectors: Collection[str]) -> Where | None:
    """Return the filter by which the store must be asked for numbers, None where the columns know it all.

    Lists of values alone are read from the store's index of values; with anything else the whole filter lets the store
    choose the best of its indexes. vectors: names of the vectors that the mirror has.
    """
    rest_all = tuple(each for each in where.all_of if not _knows(each, vectors))
    rest_none = tuple(each for each in where.none_of if not _knows(each, vectors))
    if not rest_all and not rest_none:
        return None
    is_list = not rest_none and all(isinstance(each, OneOf) and each.field in LISTED for each in rest_all)
    return Where(rest_all) if is_list else where


def _knows(condition: Condition, vectors: Collection[str]) -> bool:
    match condition:
        case OneOf(field, _):
            return field in NAMED
        case Between(field, _, _):
            return field in TIMES
        case HasVector(name):
            return name in vectors
        case AnyOf(options):
            inside = (each for option in options for each in (*option.all_of, *option.none_of))
            return all(_knows(each, vectors) for each in inside)
        case _:
            return False
