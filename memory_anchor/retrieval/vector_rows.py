"""One embedder's vectors of the mirror's rows, with the means that make its cosines comparable.

A store may hold the rows of two models (an API's and the bundled one's); each has a `VectorRows` of its own, so that no
code path can compare a row of one with a row of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.retrieval.centring import Centring

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.ports import EmbedderIdentity, Matrix


LEVELS = 127
"""Steps of a component on each side of 0. A cosine then moves by under 0.002, and widening 400 rows takes 0.05 ms
where float16 took 0.7."""


class VectorRows:
    """Raw vectors as int8 with a scale each, aligned with the mirror's rows; the store keeps the exact ones.

    Not thread-safe: the searcher holds its lock.
    """

    def __init__(self, identity: EmbedderIdentity, rows: int) -> None:
        self.centring = Centring(identity)
        self._vectors = np.zeros((rows, identity.dimensions), dtype=np.int8)
        self._scale = np.zeros(rows, dtype=np.float32)
        self._embedded = np.zeros(rows, dtype=bool)

    def grow(self) -> None:
        """Make room for twice as many rows."""
        self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)])
        self._scale = np.concatenate([self._scale, np.zeros_like(self._scale)])
        self._embedded = np.concatenate([self._embedded, np.zeros_like(self._embedded)])

    def set(self, row: int, vector: Matrix, *, script: int, counts: bool) -> None:
        """Keep a raw vector. counts: the means learn from it, the first time it comes."""
        is_first = not self._embedded[row]
        largest = float(np.abs(vector).max(initial=0.0))
        self._scale[row] = largest / LEVELS
        self._vectors[row] = np.rint(vector * (LEVELS / largest)) if largest else 0
        self._embedded[row] = True
        if is_first and counts:
            scripts = np.asarray([script], dtype=np.int8)
            self.centring.learn(np.asarray(vector, dtype=np.float32)[None, :], scripts)

    def cosines(self, centred: Matrix, rows: NDArray[np.int64], scripts: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return the cosine of an already centred row with each row once centred; NaN where one is not embedded."""
        found = self.centring.cosines(self._wide(rows), scripts, centred)
        return np.where(self._embedded[rows], found, np.float32(np.nan))

    def alike(self, rows: NDArray[np.int64], scripts: NDArray[np.int8]) -> NDArray[np.float32]:
        """Return the (n, n) centred cosines among rows; 0 where one is not embedded."""
        centred = self.centring.documents(self._wide(rows), scripts)
        centred *= self._embedded[rows][:, None]
        return np.asarray(centred @ centred.T, dtype=np.float32)

    def _wide(self, rows: NDArray[np.int64]) -> Matrix:
        wide: Matrix = self._vectors[rows].astype(np.float32)
        wide *= self._scale[rows][:, None]
        return wide
