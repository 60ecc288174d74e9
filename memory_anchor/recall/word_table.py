"""The words of the mirror's rows: of each term the rows that have it, and its weight in each.

Most lie in three arrays sorted by term, 8 bytes a word; what was added since lies in small lists by term, until there
are enough of them to be sorted in. A list a term took three times as much at 100,000 memories: most terms are rare.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.recall.ranking import inverse_frequency

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import SparseVector

TAIL_MOST = 50_000
"""Words in lists by term: some 600 memories. A sixteenth of all where that is more, so each is sorted in seldom."""
TAIL_SHARE = 16
AT_ONCE = 4_096
"""So many words added at once are sorted in by the next reader."""


@dataclass(slots=True)
class _Postings:
    rows: array[int] = field(default_factory=lambda: array("i"))
    weights: array[float] = field(default_factory=lambda: array("f"))


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
        self._rows, self._weights = np.zeros(0, np.int32), np.zeros(0, np.float32)
        self._tail: dict[int, _Postings] = {}
        self._pieces: list[tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.float32]]] = []
        self._tail_size = 0

    def add(self, terms: NDArray[np.uint32], rows: NDArray[np.int32], weights: NDArray[np.float32]) -> None:
        """Add words: of each its term, its row and its weight; rows come in ascending order over all calls."""
        if len(terms) > AT_ONCE:
            self._pieces.append((terms, rows, weights))
            return
        for term, row, weight in zip(terms.tolist(), rows.tolist(), weights.tolist(), strict=True):
            postings = self._tail.get(term)
            if postings is None:
                postings = self._tail[term] = _Postings()
            postings.rows.append(row)
            postings.weights.append(weight)
        self._tail_size += len(terms)

    def of(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Return the rows that have a term and its weight in each, None where none has it."""
        if self._pieces or self._tail_size > max(TAIL_MOST, len(self._rows) // TAIL_SHARE):
            self.settle()
        at = int(np.searchsorted(self._terms, np.uint32(term)))
        is_known = at < len(self._terms) and self._terms[at] == term
        first, last = (self._starts[at], self._starts[at + 1]) if is_known else (0, 0)
        rows, weights = self._rows[first:last], self._weights[first:last]
        if (new := self._tail.get(term)) is None:
            return (rows, weights) if is_known else None
        return np.concatenate([rows, np.array(new.rows)]), np.concatenate([weights, np.array(new.weights)])

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
        """Sort everything into the three arrays."""
        lists = self._tail.values()
        counts = np.fromiter((len(each.rows) for each in lists), np.int64, len(lists))
        self._pieces.append(
            (
                np.repeat(np.fromiter(self._tail, np.uint32, len(lists)), counts),
                np.frombuffer(b"".join(each.rows.tobytes() for each in lists), np.int32),
                np.frombuffer(b"".join(each.weights.tobytes() for each in lists), np.float32),
            )
        )
        terms, rows, weights = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        self._pieces, self._tail, self._tail_size = [], {}, 0
        if not len(terms):
            return
        order = np.argsort(terms.astype(np.uint64) << np.uint64(32) | rows.astype(np.uint64))
        terms, rows, weights = terms[order], rows[order], weights[order]
        at = self._starts[np.searchsorted(self._terms, terms, side="right")]
        distinct, found = np.unique(terms, return_counts=True)
        together = np.union1d(self._terms, distinct)
        counts = np.zeros(len(together), np.int64)
        counts[np.searchsorted(together, self._terms)] = np.diff(self._starts)
        counts[np.searchsorted(together, distinct)] += found
        self._rows = np.insert(self._rows, at, rows) if len(self._rows) else rows
        self._weights = np.insert(self._weights, at, weights) if len(self._weights) else weights
        self._terms, self._starts = together, np.concatenate([[0], np.cumsum(counts)])

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays, for `load_arrays`."""
        self.settle()
        return {"terms": self._terms, "starts": self._starts, "rows": self._rows, "weights": self._weights}

    def load_arrays(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Load what `to_arrays` gave. Raises KeyError, ValueError: it is not of this kind."""
        self._terms, self._starts = np.asarray(arrays["terms"], np.uint32), np.asarray(arrays["starts"], np.int64)
        self._rows, self._weights = np.asarray(arrays["rows"], np.int32), np.asarray(arrays["weights"], np.float32)
        if len(self._starts) != len(self._terms) + 1 or self._starts[-1] != len(self._rows):
            raise ValueError("the words do not fit together")


def part_of(arrays: Mapping[str, NDArray[np.generic]], name: str) -> dict[str, NDArray[np.generic]]:
    """Return those arrays whose name begins with `name.`, without it."""
    start = f"{name}."
    return {part.removeprefix(start): arrays[part] for part in arrays if part.startswith(start)}
