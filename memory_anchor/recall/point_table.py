"""The points of the mirror's rows, 16 bytes each, and which row a point has.

Rows are found in sorted keys, those added last in sorted keys of their own. Names as strings in a list and a dict took
190 bytes a row and a tenth of the time in which a mirror is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES = 16
LATE_MOST, LATE_SHARE = 1_024, 8
"""Rows beside the sorted ones before they are sorted in; of many rows that part of all."""
NONE = -1


def packed_points(points: Iterable[str]) -> NDArray[np.uint8]:
    """Return points as they are kept: (n, 16)."""
    return np.frombuffer(bytes.fromhex("".join(points).replace("-", "")), np.uint8).reshape(-1, BYTES)


def point_texts(points: NDArray[np.uint8]) -> list[str]:
    """Return these points as they are named."""
    digits = points.tobytes().hex()
    each = (digits[start : start + 2 * BYTES] for start in range(0, len(digits), 2 * BYTES))
    return [f"{one[:8]}-{one[8:12]}-{one[12:16]}-{one[16:20]}-{one[20:]}" for one in each]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """The first 8 bytes of points, sorted, and the row of each. most_alike: how many begin alike."""

    keys: NDArray[np.uint64]
    rows: NDArray[np.int32]
    most_alike: int


def _sorted(keys: NDArray[np.uint64], rows: NDArray[np.int64]) -> _Sorted:
    order = np.argsort(keys)
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1], [True]]))
    return _Sorted(keys, rows[order].astype(np.int32), int(np.diff(starts).max(initial=0)) if len(keys) else 0)


class PointTable:
    """Not thread-safe: the searcher holds its lock. `len` counts rows, those that were given up too."""

    def __init__(self, rows: int) -> None:
        self._raw, self._is_there = np.zeros((rows, BYTES), np.uint8), np.zeros(rows, dtype=bool)
        self._size = self._settled = 0
        self._early, self._late = self._found(0, 0), self._found(0, 0)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, point: str) -> bool:
        return self.get(point) is not None

    def __getitem__(self, row: int) -> str:
        return point_texts(self._raw[row])[0]

    def get(self, point: str) -> int | None:
        """Return the row of a point, None where it has none."""
        row = int(self.rows(packed_points([point]))[0])
        return None if row == NONE else row

    def rows(self, points: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the rows of these points, -1 where one has none."""
        found, keys = np.full(len(points), NONE, np.int64), _keys_of(points)
        if len(self._late.keys) + self._settled < self._size:
            self._late = self._found(self._settled, self._size)
        for place in (self._early, self._late):
            first = np.searchsorted(place.keys, keys)
            for further in range(place.most_alike):
                at = np.minimum(first + further, len(place.keys) - 1)
                same = np.flatnonzero(place.keys[at] == keys)
                rows = place.rows[at[same]].astype(np.int64)
                whole = self._is_there[rows] & (self._raw[rows] == points[same]).all(axis=1)
                found[same[whole]] = rows[whole]
        return found

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the points of these rows."""
        return point_texts(self._raw[rows])

    def add(self, points: NDArray[np.uint8]) -> None:
        """Give each of these points, which have none, the next row; there is room."""
        first, self._size = self._size, self._size + len(points)
        self._raw[first : self._size], self._is_there[first : self._size] = points, True
        if self._size - self._settled > max(LATE_MOST, self._size // LATE_SHARE):
            self.settle()

    def forget(self, rows: NDArray[np.int64]) -> None:
        """Take the rows away from their points."""
        self._is_there[rows] = False

    @property
    def has_gaps(self) -> bool:
        return not self._is_there[: self._size].all()

    def settle(self) -> None:
        """Sort in what was added last."""
        self._settled = self._size
        self._early, self._late = self._found(0, self._size), self._found(0, 0)

    def _found(self, first: int, end: int) -> _Sorted:
        return _sorted(_keys_of(self._raw[first:end]), np.arange(first, end))

    def grow(self, rows: int) -> None:
        """Make room for so many rows."""
        raw, is_there = np.zeros((rows, BYTES), np.uint8), np.zeros(rows, dtype=bool)
        raw[: self._size], is_there[: self._size] = self._raw[: self._size], self._is_there[: self._size]
        self._raw, self._is_there = raw, is_there

    def raw(self) -> NDArray[np.uint8]:
        """Return the points of all rows, (n, 16)."""
        return self._raw[: self._size]


def _keys_of(points: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(points[:, :8]).view(np.uint64)[:, 0]
