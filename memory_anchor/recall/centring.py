"""Mean vectors per script, taken off both sides before a cosine is compared with anything.

e5's vectors share one large direction, at another level for English and for Chinese; without it a cosine of 0.85 can
mean anything. The mean is a shipped constant per embedder (made by scripts/make_vector_means.py from our own
sentences) shrunk towards the store's own: (sum of the store's vectors + 300 x constant) / (n + 300). Raw vectors stay
in the store, so a better constant needs no new embedding. Rejected: own means alone (hurt small topical stores),
whitening and removing further components (no gain). An embedder without constants learns from the store alone.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.hashing import stable_hash
from memory_anchor.language.terms import is_chinese

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix

CONSTANT_COUNTS_FOR = 300
"""n0: how many memories the shipped mean counts for against the store's own."""
SCRIPTS = ("en", "zh")


@lru_cache(maxsize=1)
def _shipped() -> dict[str, NDArray[np.float32]]:
    with files("memory_anchor.recall").joinpath("vector_means.npz").open("rb") as file, np.load(file) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}


def script_of(text: str) -> int:
    """Return 1 for Chinese (more than 15 % CJK), else 0: the row of the means that applies."""
    return int(is_chinese(text))


def as_statement(row: Matrix, script: int, identity: EmbedderIdentity) -> Matrix:
    """Return the raw row of a query that is a statement, moved towards what questions look like.

    Statements asked as queries share a direction of their own; a part of it is taken off (docs/retrieval.md).
    """
    shift = _shipped().get(f"{stable_hash(identity.model)[:16]}.{SCRIPTS[script]}.said")
    return row if shift is None or shift.shape != row.shape else row - shift


LEVEL_COUNTS_FROM = 10
"""Of so many texts in a language their common nearness counts half."""


class Centring:
    """Running sums per script over one store; every method takes and returns (n, dimensions) float32."""

    def __init__(self, identity: EmbedderIdentity) -> None:
        shape = (len(SCRIPTS), identity.dimensions)
        self._sums, self._counts = np.zeros(shape, dtype=np.float64), np.zeros(len(SCRIPTS))
        self._constant = _constant(identity, shape)
        self._learned, self._known = 0, (-1, np.zeros(0, np.float32), np.zeros(0, np.float32))

    def learn(self, rows: Matrix, scripts: NDArray[np.int8], *, sign: int = 1) -> None:
        """Add the raw rows of memories to the store's own sums; with sign -1 take them off again."""
        for script in range(len(SCRIPTS)):
            chosen = scripts == script
            if chosen.any():
                self._sums[script] += sign * (rows if chosen.all() else rows[chosen]).sum(axis=0, dtype=np.float64)
                self._counts[script] += sign * int(chosen.sum())
        self._learned += 1

    def learned(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the sums (scripts, dimensions) and how many rows each is of."""
        return self._sums, self._counts

    def relearn(self, sums: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        """Load what `learned` gave for the same embedder. Raises ValueError: another shape."""
        self._sums, self._counts = sums.reshape(self._sums.shape), counts.reshape(self._counts.shape)
        self._learned += 1

    def documents(self, rows: Matrix, scripts: NDArray[np.int8]) -> Matrix:
        """Return raw document rows centred and normalised."""
        return _unit(rows - self._means()[0][scripts])

    def cosines(
        self, rows: NDArray[np.int8], scale: NDArray[np.float32], scripts: NDArray[np.int8], centred: Matrix
    ) -> NDArray[np.float32]:
        """Return the cosine of each raw, normalised document row, once centred, with an already centred row.

        rows: (n, dimensions) steps of `scale` (n,). By the law of cosines, so that a thousand rows need no copy but
        the one that widens them: |v - m|^2 = 1 - 2 v.m + m.m.
        """
        (means, squares), wide = self._means(), rows.astype(np.float32)
        # A product a column: BLAS takes twice as long for the three of them at once.
        along = scale * (wide @ centred)
        off = np.choose(scripts, [scale * (wide @ mean) for mean in means])
        lengths = 1 - 2 * off + squares[scripts]
        products = along - (means @ centred)[scripts]
        return np.asarray(products / np.sqrt(np.maximum(lengths, np.float32(1e-6))), dtype=np.float32)

    def query(self, row: Matrix, script: int) -> Matrix:
        """Return one raw query row (dimensions,) centred and normalised.

        The documents' mean serves for queries too: a mean of their own cost 4 to 17 points of R@10.
        """
        return np.asarray(_unit((row - self._means()[0][script])[None, :])[0])

    def level(self, centred: Matrix, script: int) -> float:
        """Return how near the texts of a script are on average to an already centred row, as far as that says nothing.

        Few texts in one language hardly move its mean: what the whole store is about stays in them, and is gone from
        those in the other language. 0 where half of the store or more is of this script, and less the fewer there are.
        """
        count = float(self._counts[script])
        minority = 1 - 2 * count / max(float(self._counts.sum()), 1.0)
        if not count or minority <= 0:
            return 0.0
        mean, own = self.means()[script], self._sums[script] / count
        length = float(np.sqrt(max(1 - 2 * own @ mean + mean @ mean, 1e-6)))
        return minority * count / (count + LEVEL_COUNTS_FROM) * float(centred @ (own - mean)) / length

    def means(self) -> NDArray[np.float32]:
        """Return (scripts, dimensions): what is taken off a raw row of each script. Not to be written to."""
        return self._means()[0]

    def _means(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the means and their squared lengths, cached until more is learned."""
        learned, (of, means, squares) = self._learned, self._known
        if of != learned:
            weights = (self._counts + CONSTANT_COUNTS_FOR)[:, None]
            means = np.asarray((self._sums + CONSTANT_COUNTS_FOR * self._constant) / weights, dtype=np.float32)
            means.flags.writeable = False
            squares = (means * means).sum(axis=1)
            self._known = learned, means, squares
        return means, squares


def _constant(identity: EmbedderIdentity, shape: tuple[int, int]) -> NDArray[np.float32]:
    name = stable_hash(identity.model)[:16]
    rows = [_shipped().get(f"{name}.{script}") for script in SCRIPTS]
    if any(row is None or row.shape != shape[1:] for row in rows):
        return np.zeros(shape, dtype=np.float32)
    return np.stack([row for row in rows if row is not None])


def _unit(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.float32(1e-9)), dtype=np.float32)
