"""The words of the mirror's rows: of each term the rows that have it, and its weight in each.

A word is one 64-bit key, term, row and weight, so that sorting the keys puts everything in its place: a fifth of a
second for the words of 100,000 memories, nearly all of it without the interpreter. Settled, a word takes 5 bytes or 6;
what was added since lies in sorted keys beside, until there are enough of them to be sorted in. Lists by term took
three times as much at 100,000 memories: most terms are rare.

Weights are BM25 of small counts, a few dozen different ones, and kept by their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.recall.ranking import inverse_frequency

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import SparseVector

TAIL_MOST = 50_000
"""Words beside the settled ones: some 600 memories. A sixteenth of all where that is more, so each is sorted in
seldom."""
TAIL_SHARE = 16
WEIGHT_BITS, ROW_BITS = 12, 20
_TERM_SHIFT, _WEIGHT_SHIFT = np.uint64(WEIGHT_BITS + ROW_BITS), np.uint64(WEIGHT_BITS)
_ROW_MASK, _WEIGHT_MASK = np.uint64((1 << ROW_BITS) - 1), np.uint64((1 << WEIGHT_BITS) - 1)
_BELOW_TERM = np.uint64((1 << WEIGHT_BITS + ROW_BITS) - 1)
PLACE_BITS = 16
"""Numbers of weights are looked up by so many bits of a hash of each."""
_MIX, _PLACE_SHIFT = np.uint32(0x9E3779B1), np.uint32(32 - PLACE_BITS)
_SMALL = 256
"""Up to so many different weights the number of one takes a byte."""


@dataclass(frozen=True, slots=True)
class WordScores:
    """Word evidence over the whole mirror for one query.

    scores: (rows,) BM25 with the project's IDF. conversations: (conversations,) BM25 of whole conversations, aligned
    with conversation numbers. idf, known: per query term, and whether the project has it at all. abroad: (rows,) share
    of the query that a memory says in the other language, 0 to 1; None where nothing of it is known.
    """

    scores: NDArray[np.float32]
    conversations: NDArray[np.float32]
    idf: NDArray[np.float64]
    known: NDArray[np.bool_]
    abroad: NDArray[np.float32] | None = None


class WordTable:
    """Not thread-safe: the searcher holds its lock."""

    def __init__(self) -> None:
        self._terms, self._starts = np.zeros(0, np.uint32), np.zeros(1, np.int64)
        self._rows, self._numbers = np.zeros(0, np.int32), np.zeros(0, np.uint8)
        self._weights, self._number_at = np.zeros(1, np.float32), np.zeros(1 << PLACE_BITS, np.int64)
        self._tail = np.zeros(0, np.uint64)
        self._pieces: list[NDArray[np.uint64]] = []

    def add(self, terms: NDArray[np.uint32], rows: NDArray[np.int64], weights: NDArray[np.float32]) -> None:
        """Add words: of each its term, its row and its weight. Of more than 4,096 different weights the nearest of
        those known stands for a further one."""
        if len(terms):
            keys = terms.astype(np.uint64) << _TERM_SHIFT | rows.astype(np.uint64) << _WEIGHT_SHIFT
            self._pieces.append(keys | self._numbers_of(weights))

    def _numbers_of(self, weights: NDArray[np.float32]) -> NDArray[np.uint64]:
        """Return the number of each weight; a new one gets the next."""
        places = weights.view(np.uint32) * _MIX >> _PLACE_SHIFT
        numbers = self._number_at[places]
        other = np.flatnonzero(self._weights[numbers] != weights)
        if len(other):
            distinct, which = np.unique(weights[other], return_inverse=True)
            room = (1 << WEIGHT_BITS) - len(self._weights)
            self._weights = np.concatenate([self._weights, np.setdiff1d(distinct, self._weights)[:room]])
            nearest = np.array([np.abs(self._weights - weight).argmin() for weight in distinct])
            numbers[other] = nearest[which]
            self._number_at[places[other]] = numbers[other]
        return np.asarray(numbers, np.uint64)

    def of(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Return the rows that have a term and its weight in each, None where none has it."""
        if self._pieces:
            self._tail = np.sort(np.concatenate([self._tail, *self._pieces]))
            self._pieces = []
        if len(self._tail) > max(TAIL_MOST, len(self._rows) // TAIL_SHARE):
            self.settle()
        at = int(np.searchsorted(self._terms, np.uint32(term)))
        is_known = at < len(self._terms) and self._terms[at] == term
        first, last = (self._starts[at], self._starts[at + 1]) if is_known else (0, 0)
        rows, weights = self._rows[first:last], self._weights[self._numbers[first:last]]
        least = (
            np.uint64(term) << _TERM_SHIFT
        )  # no row has the last number, so what is above the last key is another term
        new = self._tail[slice(*np.searchsorted(self._tail, np.array([least, least | _BELOW_TERM])))]
        if not len(new):
            return (rows, weights) if is_known else None
        return np.concatenate([rows, _rows_of(new)]), np.concatenate([weights, self._weights[new & _WEIGHT_MASK]])

    def scores(
        self, words: SparseVector, inside: NDArray[np.bool_], count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return of every row its sum of query weight * weight * rarity, and whether it shares a term.

        inside: the rows that count; count: how many of them have words, for the rarity.
        """
        scores, shares = np.zeros(len(inside)), np.zeros(len(inside), dtype=bool)
        for term, weight in zip(words.indices, words.values, strict=True):
            if (postings := self.of(term)) is None:
                continue
            rows, weights = postings
            own = inside[rows]
            rarity = inverse_frequency(np.asarray([np.count_nonzero(own)], dtype=float), count)[0]
            scores[rows[own]] += weight * rarity * weights[own].astype(np.float64)
            shares[rows[own]] = True
        return scores, shares

    def settle(self) -> None:
        """Sort everything into its place."""
        if not len(self._tail) and not self._pieces:
            return
        if len(self._rows):
            settled = np.repeat(self._terms.astype(np.uint64) << _TERM_SHIFT, np.diff(self._starts))
            settled |= self._rows.astype(np.uint64) << _WEIGHT_SHIFT
            settled |= self._numbers
            self._pieces.append(settled)
        keys = np.concatenate([self._tail, *self._pieces])
        self._tail, self._pieces = np.zeros(0, np.uint64), []
        keys.sort()
        low, terms = keys.view("<u4").reshape(-1, 2).T  # half a key each: no more copies of them all than it takes
        starts = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1], [True]]))
        self._terms, self._starts = terms[starts[:-1]], starts
        self._rows = (low >> np.uint32(WEIGHT_BITS)).view(np.int32)
        self._numbers = low.astype(np.uint8 if len(self._weights) <= _SMALL else np.uint16)
        if len(self._weights) > _SMALL:
            self._numbers &= np.uint16(_WEIGHT_MASK)

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays, for `load_arrays`."""
        self.settle()
        words: dict[str, NDArray[np.generic]] = {"terms": self._terms, "starts": self._starts, "rows": self._rows}
        return {**words, "numbers": self._numbers, "weights": self._weights}

    def load_arrays(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Load what `to_arrays` gave. Raises KeyError, ValueError: it is not of this kind."""
        self._terms, self._starts = np.asarray(arrays["terms"], np.uint32), np.asarray(arrays["starts"], np.int64)
        self._rows, self._weights = np.asarray(arrays["rows"], np.int32), np.asarray(arrays["weights"], np.float32)
        if not len(self._weights):
            raise ValueError("there is no weight")
        self._numbers = np.asarray(arrays["numbers"], np.uint8 if len(self._weights) <= _SMALL else np.uint16)
        is_whole = len(self._starts) == len(self._terms) + 1
        if not is_whole or not self._starts[-1] == len(self._rows) == len(self._numbers):
            raise ValueError("the words do not fit together")


def _rows_of(keys: NDArray[np.uint64]) -> NDArray[np.int32]:
    return (keys >> _WEIGHT_SHIFT & _ROW_MASK).astype(np.int32)


def part_of(arrays: Mapping[str, NDArray[np.generic]], name: str) -> dict[str, NDArray[np.generic]]:
    """Return those arrays whose name begins with `name.`, without it."""
    start = f"{name}."
    return {part.removeprefix(start): arrays[part] for part in arrays if part.startswith(start)}
