"""Versions as the mirror takes them in, as columns: of memories, or of what a followed store gives without their texts.

A row of its own in Python took 60 microseconds a version; as columns it is a twelfth, and most of that is SQLite's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import FOREVER
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.traits import TraitColumns, packed, traits_of, unpacked
from memory_anchor.recall.point_table import packed_points
from memory_anchor.recall.row_columns import NEVER, NONE, micros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.model import Memory
    from memory_anchor.domain.ports import Entry, FollowedRows, Matrix

Place = tuple[str, int]
"""A conversation on one day, and a place in it."""
_DAY = 86_400_000_000
"""Microseconds."""


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """Versions of different points, aligned. points: (n, 16).

    values: names, times and numbers, as `RowColumns.put` takes them. conversations: the name of the one that each is in
    on one day, "" outside of any; places: its place there. happened: microseconds. terms, weights: the words of all,
    `sizes` of each. vectors: of each named vector which of these have it, and their raw rows. checksums: of vectors
    and words, -1 where they are not known.
    """

    points: NDArray[np.uint8]
    values: Mapping[str, Sequence[str] | NDArray[np.int64]]
    projects: Sequence[str]
    conversations: Sequence[str]
    places: NDArray[np.int64]
    happened: NDArray[np.int64]
    traits: TraitColumns
    terms: NDArray[np.uint32]
    weights: NDArray[np.float32]
    sizes: NDArray[np.int64]
    vectors: Mapping[str, tuple[NDArray[np.int64], Matrix]]
    checksums: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.points)

    def words_checksums(self) -> NDArray[np.uint64]:
        """Return of each a number that differs, as good as surely, where its words do."""
        mixed = (self.terms.astype(np.uint64) << np.uint64(32) | self.weights.view(np.uint32)) * _MIX
        ends = np.cumsum(np.concatenate([np.zeros(1, np.uint64), mixed ^ mixed >> np.uint64(29)]))
        last = np.cumsum(self.sizes)
        return np.asarray(ends[last] - ends[last - self.sizes])

    def taken(self, wanted: NDArray[np.int64]) -> MirrorRows:
        """Return these of them, in this order."""
        if len(wanted) == len(self) and (wanted == np.arange(len(self))).all():
            return self
        ends = np.cumsum(self.sizes)
        sizes = self.sizes[wanted]
        words = np.repeat(ends[wanted] - sizes - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum())
        place = np.full(len(self), NONE, np.int64)
        place[wanted] = np.arange(len(wanted))
        traits, at = self.traits, wanted.tolist()
        return MirrorRows(
            self.points[wanted],
            {
                name: found[wanted] if isinstance(found, np.ndarray) else [found[row] for row in at]
                for name, found in self.values.items()
            },
            [self.projects[row] for row in at],
            [self.conversations[row] for row in at],
            self.places[wanted],
            self.happened[wanted],
            TraitColumns(
                traits.scripts[wanted],
                traits.shapes[wanted],
                traits.texts[wanted],
                traits.said[wanted],
                [traits.named[row] for row in at],
                traits.is_known[wanted],
            ),
            self.terms[words],
            self.weights[words],
            sizes,
            {
                name: (place[rows][place[rows] != NONE], vectors[place[rows] != NONE])
                for name, (rows, vectors) in self.vectors.items()
            },
            self.checksums[wanted],
        )


_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class RowTraits:
    """What the mirror knows of some rows besides their vectors and words, aligned with them.

    scripts: 1 for Chinese, else 0. conversations: their numbers (a day of one each), -1 outside of any. happened:
    seconds since 1970. shapes: (n, 4) asks, names a time, names a number (0 or 1) and the log of how much is said.
    people: the distinct groups of people of these rows, lower case; group: which of them each row has.
    """

    scripts: NDArray[np.int8]
    conversations: NDArray[np.int32]
    happened: NDArray[np.float64]
    shapes: NDArray[np.float32]
    people: list[tuple[str, ...]]
    group: NDArray[np.intp]


def rows_of_entries(entries: Sequence[Entry], collection: str, conversations: Sequence[Place | None]) -> MirrorRows:
    """Return versions of a collection; their vectors are set apart."""
    memories = [entry.memory for entry in entries]
    words = [entry.words or searched_words(entry.memory) for entry in entries]
    happened = _column([micros(memory.happened_at) for memory in memories])
    places = [place or ("", NEVER) for place in conversations]
    return MirrorRows(
        packed_points(memory.point_id for memory in memories),
        {
            "collection": [collection] * len(entries),
            "audience": [memory.audience for memory in memories],
            "state": [memory.state for memory in memories],
            "type": [memory.type.value for memory in memories],
            "recorded_at": _column([micros(memory.recorded_at) for memory in memories]),
            "recorded_to": _column([micros(memory.recorded_to or FOREVER) for memory in memories]),
            "when": _column([micros(memory.when) for memory in memories]),
            "content_at": _column([micros(memory.content_at) for memory in memories]),
            "number": np.full(len(entries), NONE, np.int64),
        },
        [f"{memory.scope.account}|{memory.scope.project}" for memory in memories],
        [name for name, _ in places],
        _column([place for _, place in places]),
        happened,
        unpacked([packed(traits_of(memory)) for memory in memories]),
        np.array([term for each in words for term in each.indices], np.uint32),
        np.array([weight for each in words for weight in each.values], np.float32),
        _column([len(each.indices) for each in words]),
        {},
        np.full(len(entries), NONE, np.int64),
    )


def rows_of_followed(rows: FollowedRows, traits: TraitColumns) -> MirrorRows:
    names, times = rows.names, rows.times
    projects = [f"{account}|{project}" for account, project in zip(names["account"], names["project"], strict=True)]
    return MirrorRows(
        rows.points,
        {
            **{name: names[name] for name in ("collection", "audience", "state", "type")},
            **{name: times[name] for name in ("recorded_at", "recorded_to", "content_at")},
            "when": times["when_at"],
            "number": rows.numbers,
        },
        projects,
        _conversations(names["collection"], projects, names["conversation"], times["happened_at"], rows.places),
        rows.places,
        times["happened_at"],
        traits,
        rows.terms,
        rows.weights,
        rows.sizes,
        rows.vectors,
        rows.checksums,
    )


def _conversations(
    collections: Sequence[str],
    projects: Sequence[str],
    names: Sequence[str],
    happened: NDArray[np.int64],
    places: NDArray[np.int64],
) -> list[str]:
    has_place, days = (places != NEVER).tolist(), (happened // _DAY).tolist()
    each = zip(collections, projects, names, has_place, days, strict=True)
    return [
        f"{collection}|{project}|{name}|{day}" if name and there else ""
        for collection, project, name, there, day in each
    ]


def conversation_place(memory: Memory, collection: str) -> Place | None:
    """Return the conversation (on one day) that a memory belongs to and its place in it; None outside of any.

    A connection kept for weeks is not one conversation.
    """
    scope = memory.scope
    if not scope.conversation or memory.conversation_seq is None:
        return None
    day = micros(memory.happened_at) // _DAY
    return f"{collection}|{scope.account}|{scope.project}|{scope.conversation}|{day}", memory.conversation_seq


def _column(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)
