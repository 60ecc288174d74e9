"""One embedder's vectors of the mirror's rows, with the means that make its cosines comparable.

A store may hold the rows of two models (an API's and the bundled one's); each has a `VectorRows` of its own, so that no
code path can compare a row of one with a row of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.recall.centring import Centring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix


LEVELS = 127
"""Steps of a component on each side of 0. A cosine then moves by under 0.002, and widening 400 rows takes 0.05 ms
where float16 took 0.7."""
COMPARED = 20_000
"""Of so many rows every cosine is computed."""
SHORTLIST, SHORTLIST_SHARE, SHORTLIST_LEAST = 10, 0.1, 5_000
"""Of more rows, that of those nearest by signs: so many for each one asked for, this share of all, and no fewer than
these (docs/retrieval.md: what it misses)."""
DOUBTED = 3.0
"""Standard deviations of a cosine's rounding within which the stored vectors decide who is the last found."""
DOUBTED_MOST = 200
"""Where more are as near, as many rows with one vector are, it does not matter which of them are found."""
_BITS, _PLANES = 64, 3
_BY_ROW = ("_vectors", "_scale", "_norm", "_embedded", "_learned", "_is_signed")
_BATCH = 512
"""Rows of a product with one query: of more OpenBLAS uses a thread a core, which costs fifty times as much on a busy
machine."""


class VectorRows:
    """Raw vectors as int8 with a scale each, aligned with the mirror's rows; the store keeps the exact ones.

    Besides, one bit a component, whether it lies above the mean: counting the bits in which two rows differ costs a
    fifteenth of their product, and among the nearest by that are the nearest. Not thread-safe: the searcher holds its
    lock.
    """

    def __init__(self, identity: EmbedderIdentity, rows: int) -> None:
        self.centring = Centring(identity)
        self._vectors = np.zeros((rows, identity.dimensions), dtype=np.int8)
        self._scale = np.zeros(rows, dtype=np.float32)
        self._norm = np.ones(rows, dtype=np.float32)
        self._embedded = np.zeros(rows, dtype=bool)
        self._is_signed = np.zeros(rows, dtype=bool)
        self._signs = np.zeros((-(-identity.dimensions // _BITS), rows), dtype=np.uint64)
        self._learned = np.zeros(rows, dtype=bool)
        self._count = self._counted = 0
        self._means = self.centring.means()

    def to_arrays(self, rows: int) -> dict[str, NDArray[np.generic]]:
        """Return the first `rows` rows and the means as arrays; `sign` was called."""
        by_row = {name: getattr(self, name)[:rows] for name in _BY_ROW}
        sums, counts = self.centring.learned()
        return {**by_row, "signs": self._signs[:, :rows], "signed_with": self._means, "sums": sums, "counts": counts}

    def load_arrays(self, arrays: Mapping[str, NDArray[np.generic]], rows: int) -> None:
        """Load what `to_arrays` gave of as many rows. Raises ValueError, KeyError: it is not of this kind."""
        for name in _BY_ROW:
            getattr(self, name)[:rows] = arrays[name]
        self._signs[:, :rows] = arrays["signs"]
        self._means = np.asarray(arrays["signed_with"], dtype=np.float32).reshape(self._means.shape)
        self._count = self._counted = int(self._embedded.sum())
        self.centring.relearn(np.asarray(arrays["sums"], np.float64), np.asarray(arrays["counts"], np.float64))

    def embedded(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows have a vector."""
        return self._embedded[rows]

    def lacking(self, wanted: NDArray[np.bool_]) -> int:
        """Return how many of the wanted rows have no vector. wanted: of every row."""
        return int(np.count_nonzero(wanted & ~self._embedded[: len(wanted)]))

    @property
    def embedded_rows(self) -> NDArray[np.bool_]:
        """Return of every row whether it has a vector."""
        return self._embedded

    def grow(self, rows: int) -> None:
        """Make room for so many rows."""
        for name in _BY_ROW:
            old = getattr(self, name)
            new = np.zeros((rows, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        signs = np.zeros((len(self._signs), rows), np.uint64)
        signs[:, : self._signs.shape[1]] = self._signs
        self._signs = signs

    def put(
        self, rows: NDArray[np.int64], vectors: Matrix, scripts: NDArray[np.int8], *, counts: NDArray[np.bool_]
    ) -> None:
        """Keep raw vectors of distinct rows. counts: whether the means learn from each."""
        self.count(rows, np.zeros(len(rows), dtype=bool), scripts)
        self._count += int((~self._embedded[rows]).sum())
        scale = np.maximum(vectors.max(axis=1, initial=0.0), -vectors.min(axis=1, initial=0.0)) / LEVELS
        self._scale[rows] = scale
        steps = vectors / np.where(scale > 0, scale, 1)[:, None]
        np.rint(steps, out=steps)
        self._vectors[rows] = steps.astype(np.int8)
        self._norm[rows] = np.maximum(np.sqrt(np.einsum("ij,ij->i", steps, steps)), 1)
        self._embedded[rows] = True
        self._is_signed[rows] = False
        self.count(rows, counts, scripts)

    def clear(self, rows: NDArray[np.int64], scripts: NDArray[np.int8]) -> None:
        """Take the vectors of these rows away."""
        self.count(rows, np.zeros(len(rows), dtype=bool), scripts)
        self._count -= int(self._embedded[rows].sum())
        self._embedded[rows] = False

    def count(self, rows: NDArray[np.int64], counts: NDArray[np.bool_], scripts: NDArray[np.int8]) -> None:
        """Let the means learn from the embedded rows that count, and no longer from those that do not."""
        for sign, changed in (
            (1, counts & self._embedded[rows] & ~self._learned[rows]),
            (-1, ~counts & self._learned[rows]),
        ):
            if changed.any():
                self.centring.learn(self._wide(rows[changed]), scripts[changed], sign=sign)
                self._learned[rows[changed]] = sign > 0

    def sign(self, scripts: NDArray[np.int8]) -> None:
        """Compute the signs of what was set since; of every row once there are twice as many and the means have moved.

        scripts: of every row.
        """
        if self._count > 2 * self._counted:
            self._means, self._counted = self.centring.means(), self._count
            self._is_signed[:] = False
        waiting = np.flatnonzero(self._embedded & ~self._is_signed)
        self._is_signed[waiting] = True
        for start in range(0, len(waiting), _BATCH):
            rows = waiting[start : start + _BATCH]
            self._signs[:, rows] = _signs(self._wide(rows) - self._means[scripts[rows]])

    def nearest(
        self, centred: Matrix, groups: Sequence[NDArray[np.int64]], scripts: NDArray[np.int8], *, limit: int
    ) -> NDArray[np.int64]:
        """Return the `limit` rows of each group that are nearest to an already centred row, in no order.

        scripts: of every row. Among the nearest by signs (`SHORTLIST`) the cosine decides.
        """
        shortlists = self._shortlists(centred, groups, scripts, limit)
        found = [first[least(-self.cosines(centred, first, scripts[first]), limit)] for first in shortlists]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def nearest_raw(
        self, query: Matrix, rows: NDArray[np.int64], scripts: NDArray[np.int8], *, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
        """Return the `limit` of these rows nearest to a raw row without centring, best first, and their cosines.

        There are more of them where some are so near the last that the steps of a component may have decided: those
        are in doubt, the last of the return.
        """
        script = int(np.count_nonzero(scripts[rows]) * 2 > len(rows))
        (first,) = self._shortlists(self.centring.query(query, script), [rows], scripts, limit)
        length = float(np.linalg.norm(query)) or 1.0
        cosines = self._products(query, first) / (self._norm[first] * np.float32(length))
        if len(first) > limit:
            last = np.partition(cosines, len(first) - limit)[len(first) - limit]
            # Rounding moves a component by a uniform half of a step at most, so a cosine by 0.29 steps, normally.
            doubt = DOUBTED * np.float32(12**-0.5) / self._norm[first]
            best = np.flatnonzero(cosines >= last - doubt)
            is_doubtful = cosines[best] <= last + doubt[best]
        if len(first) <= limit or np.count_nonzero(is_doubtful) > DOUBTED_MOST:
            best = least(-cosines, limit)
            is_doubtful = np.zeros(len(best), dtype=bool)
        order = np.lexsort((first[best], -cosines[best]))
        return first[best[order]], cosines[best[order]], is_doubtful[order]

    def _shortlists(
        self, centred: Matrix, groups: Sequence[NDArray[np.int64]], scripts: NDArray[np.int8], limit: int
    ) -> Iterator[NDArray[np.int64]]:
        """Yield of each group the embedded rows that a cosine is computed of."""
        apart: NDArray[np.uint16] | None = None
        for group in groups:
            embedded = group if self._count == len(scripts) else group[self._embedded[group]]
            if len(embedded) <= COMPARED:
                yield embedded
                continue
            if apart is None:
                self.sign(scripts)
                apart = self._apart(centred, len(scripts))
            wanted = max(SHORTLIST * limit, round(SHORTLIST_SHARE * len(embedded)), SHORTLIST_LEAST)
            yield embedded[_fewest(apart[embedded], wanted)]

    def _apart(self, centred: Matrix, size: int) -> NDArray[np.uint16]:
        """Return of each row how much of a query lies on the other side of the mean: its components there, in eighths
        of the largest.

        Counting the components alone took as long and lost seven times as many of the nearest.
        """
        sizes = np.rint(np.abs(centred) * ((1 << _PLANES) - 1) / max(float(np.abs(centred).max()), 1e-9)).astype(
            np.uint8
        )
        planes = [_signs((sizes >> place & 1)[None, :].astype(np.float32))[:, 0] for place in range(_PLANES)]
        apart = np.zeros(size, dtype=np.uint16)
        for at, (words, of_query) in enumerate(zip(self._signs, _signs(centred[None, :])[:, 0], strict=True)):
            differs = words[:size] ^ of_query
            for place, plane in enumerate(planes):
                apart += np.bitwise_count(differs & plane[at]).astype(np.uint16) << np.uint16(place)
        return apart

    def _products(self, query: Matrix, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the product of a row with the steps of each of these rows, piece by piece: they stay in the cache."""
        products = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BATCH):
            piece = rows[start : start + _BATCH]
            products[start : start + _BATCH] = self._vectors[piece].astype(np.float32) @ query
        return products

    def cosines(self, centred: Matrix, rows: NDArray[np.int64], scripts: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return the cosine of an already centred row with each row once centred; NaN where one is not embedded."""
        found = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BATCH):
            part = slice(start, start + _BATCH)
            piece = rows[part]
            found[part] = self.centring.cosines(self._vectors[piece], self._scale[piece], scripts[part], centred)
        return np.where(self._embedded[rows], found, np.float32(np.nan))

    def pairwise_cosines(self, rows: NDArray[np.int64], scripts: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return the (n, n) centred cosines among rows; 0 where one is not embedded."""
        centred = self.centring.documents(self._wide(rows), scripts)
        centred *= self._embedded[rows][:, None]
        return np.asarray(centred @ centred.T, dtype=np.float32)

    def _wide(self, rows: NDArray[np.int64]) -> Matrix:
        wide: Matrix = self._vectors[rows].astype(np.float32)
        wide *= self._scale[rows][:, None]
        return wide


def least(values: NDArray[np.number], limit: int) -> NDArray[np.int64]:
    """Return the places of the `limit` least values, in no order."""
    if len(values) <= limit:
        return np.arange(len(values))
    return np.argpartition(values, limit)[:limit]


def _fewest(counts: NDArray[np.uint16], limit: int) -> NDArray[np.int64]:
    """Return the places of the `limit` least of many small counts, the first of those alike; in a third of the time."""
    if len(counts) <= limit:
        return np.arange(len(counts))
    edge = int(np.searchsorted(np.bincount(counts).cumsum(), limit))
    below = np.flatnonzero(counts < edge)
    return np.concatenate([below, np.flatnonzero(counts == edge)[: limit - len(below)]])


def _signs(rows: Matrix) -> NDArray[np.uint64]:
    """Return (words, n): 64 signs a word of each of n rows."""
    packed = np.packbits(rows > 0, axis=1)
    room = np.zeros((len(rows), -(-rows.shape[1] // _BITS) * (_BITS // 8)), dtype=np.uint8)
    room[:, : packed.shape[1]] = packed
    return room.view(np.uint64).T
