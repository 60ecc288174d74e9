"""What ranking needs of each version, kept in memory: vector, words, place in its conversation. Derived, never truth.

The mirror scores what a search finds, and finds it too once it is whole: over a store whose changes it follows whatever
the filter, else where nothing but the reader limits the search. It exists because fusion needs numbers that engines do
not give (document frequencies of one project, the events next to a hit, a whole conversation's words) and because
decoding hundreds of payloads a query costs more than the search. A row takes about 1.5 kB at 384 dimensions. Only
bookkeeping moves (state, audience, vector); content never does.

Invariant: the mirror never has the last word on who may see what. Each memory is checked before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import compress
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, Tag
from memory_anchor.domain.ports import DENSE, Entry, Hit, Mark, SparseVector
from memory_anchor.domain.where import Where
from memory_anchor.recall.centring import Centring
from memory_anchor.recall.mirror_row import MirrorRow, Place, RowTraits, row_of_entry
from memory_anchor.recall.ranking import inverse_frequency, saturated
from memory_anchor.recall.row_columns import NONE, TIMES, Names, RowColumns
from memory_anchor.recall.vector_rows import VectorRows, least
from memory_anchor.recall.word_table import WordScores, WordTable, part_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix

MAX_ROWS = 250_000
"""Beyond this the mirror starts again from empty; rows come back as they are read."""
FIRST_ROWS = 1024
ROWS_OF_A_TEXT = 10
"""Candidates among rows with the very same text, the newest: what is logged daily leaves room for the rest."""
FARTHEST_NEXT = 3
"""Sequence numbers further apart than this are no neighbours: what was between is not known here."""
FORMAT = 4
"""To be raised when a row is derived or saved otherwise."""
TEXT_BUCKETS = 1 << 18
"""Texts are counted by a part of their number: rows of a full bucket are looked at one by one."""
_BY_ROW = (
    *("_live", "_script", "_project", "_conversation", "_place", "_after", "_before", "_group", "_tagged"),
    *("_length", "_happened", "_shape", "_text", "_said", "_checksum", "_words_checksum"),
)
_NONE_AT_FIRST = (
    "_project",
    "_conversation",
    "_place",
    "_after",
    "_before",
    "_group",
    "_tagged",
    "_checksum",
    "_words_checksum",
)


OtherLanguage = Sequence[Sequence[Sequence[int]]]
"""For each of a question's words the phrases that say it in the other language, each as its term ids."""


class Mirror:
    """Rows of one searcher's memories. Not thread-safe: the searcher holds its lock around every call.

    identities: named vector -> who makes it. `using` names the vector that a method compares. `changes` counts what
    moved words, rows or who may read them; vectors are no part of it.
    """

    def __init__(self, identities: Mapping[str, EmbedderIdentity]) -> None:
        self._identities = identities
        self.era = self.changes = 0
        self.clear()

    def clear(self) -> None:
        """Forget every row; they come back as they are read. `era` counts how often; `is_whole` is for `Index.warm`."""
        self.era += 1
        self.changes += 1
        self.is_whole = False
        self._rows_of = {name: VectorRows(identity, FIRST_ROWS) for name, identity in self._identities.items()}
        self.row_of: dict[str, int] = {}
        self.points: list[str] = []
        self._groups: dict[tuple[str, ...], int] = {}
        self._tag_lists: dict[tuple[Tag, ...], int] = {}
        self._projects, self._conversations = Names(), Names()
        self.columns = RowColumns(FIRST_ROWS)
        self._words = WordTable()
        self._live = np.zeros(FIRST_ROWS, dtype=bool)
        self._script = np.zeros(FIRST_ROWS, dtype=np.int8)
        self._project = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._conversation = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._place = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._after = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._before = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._group = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._tagged = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._length = np.zeros(FIRST_ROWS, dtype=np.float32)
        self._happened = np.zeros(FIRST_ROWS, dtype=np.float64)
        self._shape = np.zeros((FIRST_ROWS, 4), dtype=np.float32)
        self._checksum = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._words_checksum = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._text, self._said = np.zeros(FIRST_ROWS, dtype=np.int64), np.zeros(FIRST_ROWS, dtype=np.int64)
        self._text_counts = np.zeros(TEXT_BUCKETS, dtype=np.uint16)
        self._counts: dict[str, tuple[NDArray[np.bool_], int, NDArray[np.float32]]] = {}
        self._readable: dict[tuple[str, tuple[str, ...]], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.points)

    # --- filling ---------------------------------------------------------------------------------------------------

    def add_all(self, entries: Mapping[str, Entry], collection: str) -> None:
        """Add versions by their points, or refresh what may have changed of known ones.

        Their vectors go in together, which takes a third of the time.
        """
        self.put(
            [
                row_of_entry(point, entry, collection, self.conversation_place(entry.memory, collection))
                for point, entry in entries.items()
            ]
        )
        for name in self._rows_of:
            vectors = {point: entry.vectors[name] for point, entry in entries.items() if name in entry.vectors}
            self.set_vectors(vectors, name)

    def put(self, new: Sequence[MirrorRow]) -> None:
        """Add versions, or refresh what may have changed of known ones: all but words and text."""
        self._invalidate()
        fresh = list({row.point: row for row in new if row.point not in self.row_of}.values())
        if len(self.points) + len(fresh) > MAX_ROWS:
            self.clear()
            fresh = list({row.point: row for row in new}.values())
        self._append(fresh)
        rows = np.fromiter((self.row_of[row.point] for row in new), np.int64, len(new))
        self._live[rows] = [row.state in SEARCHABLE_STATES for row in new]
        self.columns.put(
            rows,
            {
                "collection": [row.collection for row in new],
                "audience": [row.audience for row in new],
                "state": [row.state for row in new],
                "type": [row.type for row in new],
                "number": [row.number for row in new],
                **{field: [row.times[at] for row in new] for at, field in enumerate(TIMES)},
            },
        )
        self._place_in_conversations(rows, [row.place for row in new])
        self._count(rows)

    def _count(self, rows: NDArray[np.int64]) -> None:
        """Let the means follow what is found: a store that is read anew learns from no more."""
        for stored in self._rows_of.values():
            stored.count(rows, self._live[rows], self._script[rows])

    def _append(self, new: Sequence[MirrorRow]) -> None:
        """Add rows for versions that have none."""
        if not new:
            return
        first, size = len(self.points), len(self.points) + len(new)
        self.reserve(size)
        part, traits = slice(first, size), [row.traits for row in new]
        self.row_of.update((row.point, number) for number, row in enumerate(new, first))
        self.points += [row.point for row in new]
        self._group[part] = [self._groups.setdefault(each.people, len(self._groups)) for each in traits]
        self._tagged[part] = [self._tag_lists.setdefault(each.tags, len(self._tag_lists)) for each in traits]
        self._script[part] = [each.script for each in traits]
        self._shape[part] = [each.shape for each in traits]
        self._text[part] = [each.text for each in traits]
        self._words_checksum[part] = [row.words_checksum for row in new]
        self._said[part] = [each.said for each in traits]
        self._project[part] = [self._projects[row.project] for row in new]
        self._happened[part] = [row.happened for row in new]
        buckets, counts = np.unique(self._text[part] % TEXT_BUCKETS, return_counts=True)
        self._text_counts[buckets] += counts.astype(np.uint16)
        sizes = np.fromiter((len(row.terms) for row in new), np.int32, len(new))
        self._length[part] = sizes
        self._words.add(
            np.concatenate([row.terms for row in new]),
            np.repeat(np.arange(first, size, dtype=np.int32), sizes),
            np.concatenate([row.weights for row in new]),
        )

    def follow(self, new: Sequence[MirrorRow], vectors: Mapping[str, Mapping[str, Matrix]]) -> bool:
        """Take in versions as a store has them now; return whether anything changed that a search sees.

        vectors: point -> name -> raw row. Where a text was replaced under its point, the old row goes.
        """
        known = {row.point: number for row in new if (number := self.row_of.get(row.point)) is not None}
        replaced = [row.point for row in new if row.point in known and self._is_replaced(known[row.point], row)]
        if replaced:
            self.drop(replaced)
        moved = [row for row in new if row.point not in self.row_of or not self._is_same(self.row_of[row.point], row)]
        if not moved:
            return False
        self.put(moved)
        rows = [self.row_of[row.point] for row in moved]
        wanted = [row.point for row, at in zip(moved, rows, strict=True) if self._checksum[at] != row.checksum]
        self._checksum[rows] = [row.checksum for row in moved]
        for name, stored in self._rows_of.items():
            self.set_vectors({point: vectors[point][name] for point in wanted if name in vectors[point]}, name)
            bare = [self.row_of[point] for point in wanted if name not in vectors[point]]
            stored.clear(np.asarray(bare, np.int64), self._script[bare])
        return True

    def _is_replaced(self, number: int, row: MirrorRow) -> bool:
        return bool(self._text[number] != row.traits.text or self._words_checksum[number] != row.words_checksum)

    def _is_same(self, number: int, row: MirrorRow) -> bool:
        return self._checksum[number] == row.checksum and self.columns.holds(
            number, (row.collection, row.audience, row.state, row.type), row.times
        )

    def set_vectors(self, vectors: Mapping[str, Matrix], using: str = DENSE) -> None:
        """Give known versions their raw vectors; unknown ones are ignored."""
        known = {row: vectors[point] for point in vectors if (row := self.row_of.get(point)) is not None}
        if known and using in self._rows_of:
            rows = np.fromiter(known, dtype=np.int64, count=len(known))
            self._rows_of[using].put(rows, np.stack(list(known.values())), self._script[rows], counts=self._live[rows])

    def drop(self, points: Iterable[str]) -> None:
        """Drop versions whose content was erased or moved; what comes again under such a point is a new row."""
        self._invalidate()
        found = [row for point in points if (row := self.row_of.pop(point, None)) is not None]
        rows = np.asarray(found, dtype=np.int64)
        self._live[rows] = False
        self.columns.forget(rows)
        self._place_in_conversations(rows, [None] * len(rows))
        self._count(rows)

    def settle(self) -> None:
        """Make everything ready that the first search would else make: words in order, signs."""
        self._words.settle()
        self.sign()

    def sign(self) -> None:
        """Make new vectors ready for `nearest`, which else does it itself."""
        for vectors in self._rows_of.values():
            vectors.sign(self._script[: len(self)])

    def _invalidate(self) -> None:
        self.changes += 1
        self._counts.clear()
        self._readable.clear()

    def conversation_place(self, memory: Memory, collection: str) -> Place | None:
        """Return the conversation (on one day) that a memory belongs to and its place in it; None outside of any.

        A connection kept for weeks is not one conversation.
        """
        scope = memory.scope
        if not scope.conversation or memory.conversation_seq is None:
            return None
        day = memory.happened_at.date().isoformat()
        return f"{collection}|{scope.account}|{scope.project}|{scope.conversation}|{day}", memory.conversation_seq

    def _place_in_conversations(self, rows: NDArray[np.int64], places: Sequence[Place | None]) -> None:
        """Put each row into its conversation, or out of it where it is not live: it would keep its neighbours apart."""
        before, now = self._conversation[rows], np.full(len(rows), NONE, np.int32)
        for at, (row, place) in enumerate(zip(rows.tolist(), places, strict=True)):
            if place is not None and self._live[row]:
                now[at], self._place[row] = self._conversations[place[0]], place[1]
        self._conversation[rows] = now
        moved = before != now
        changed = np.unique(np.concatenate([before[moved], now[moved]]))
        self._after[rows[moved]] = self._before[rows[moved]] = NONE
        self._link(np.flatnonzero(np.isin(self._conversation[: len(self)], changed[changed != NONE])))

    def _link(self, rows: NDArray[np.int64]) -> None:
        """Make those next to each other neighbours, where they are near enough. rows: of whole conversations."""
        rows = rows[np.lexsort((rows, self._place[rows], self._conversation[rows]))]
        self._after[rows] = self._before[rows] = NONE
        early, late = rows[:-1], rows[1:]
        is_next = self._conversation[early] == self._conversation[late]
        is_next &= self._place[late] - self._place[early] <= FARTHEST_NEXT
        self._after[early[is_next]], self._before[late[is_next]] = late[is_next], early[is_next]

    def reserve(self, size: int) -> None:
        """Make room for so many rows; where there is too little, for a quarter more than there is."""
        room = len(self._live)
        if size <= room:
            return
        room = max(size, room + room // 4, FIRST_ROWS)
        for vectors in self._rows_of.values():
            vectors.grow(room)
        self.columns.grow(room)
        for name in _BY_ROW:
            old = getattr(self, name)
            new = np.full((room, *old.shape[1:]), NONE if name in _NONE_AT_FIRST else 0, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    # --- between two processes -------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays, for `load_arrays` in another process; no text of a memory is among them."""
        self.sign()
        size = len(self)
        header = {
            "made_for": self._made_for(),
            "groups": list(self._groups),
            "names": [list(names) for names in self._numbered()],
            "tags": [[(tag.name, tag.weight) for tag in tags] for tags in self._tag_lists],
        }
        arrays: dict[str, NDArray[np.generic]] = {name: getattr(self, name)[:size] for name in _BY_ROW}
        arrays |= {f"column.{field}": array[:size] for field, array in self.columns.arrays.items()}
        arrays |= {f"words.{name}": array for name, array in self._words.to_arrays().items()}
        arrays |= {
            "told": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "points": np.frombuffer(b"".join(UUID(point).bytes for point in self.points), dtype=np.uint8),
        }
        for name, vectors in self._rows_of.items():
            arrays |= {f"{name}.{part}": array for part, array in vectors.to_arrays(size).items()}
        return arrays

    def load_arrays(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Replace every row by what `to_arrays` gave. Nothing is found until it is confirmed.

        Raises ValueError, KeyError: it is of other embedders, or not of this kind.
        """
        header = json.loads(arrays["told"].tobytes())
        if header["made_for"] != self._made_for():
            raise ValueError("it is of another format, or of other embedders")
        self.clear()
        raw = arrays["points"].tobytes()
        self.points = [str(UUID(bytes=raw[start : start + 16])) for start in range(0, len(raw), 16)]
        size = len(self.points)
        self.row_of = {point: row for row, point in enumerate(self.points)}
        self.reserve(size)
        for name in _BY_ROW:
            getattr(self, name)[:size] = arrays[name]
        for field, array in self.columns.arrays.items():
            array[:size] = arrays[f"column.{field}"]
        np.add.at(self._text_counts, self._text[:size] % TEXT_BUCKETS, np.uint16(1))
        self._groups = {tuple(who): number for number, who in enumerate(header["groups"])}
        self._tag_lists = {tuple(Tag(*tag) for tag in tags): number for number, tags in enumerate(header["tags"])}
        for numbers, names in zip(self._numbered(), header["names"], strict=True):
            numbers.update(zip(names, range(len(names)), strict=True))
        self._words.load_arrays(part_of(arrays, "words"))
        for name, vectors in self._rows_of.items():
            vectors.load_arrays(part_of(arrays, name), size)
        self._live[:size] = False
        self._confirmed = np.zeros(size, dtype=bool)

    def _made_for(self) -> dict[str, object]:
        return {"format": FORMAT, "vectors": {name: asdict(identity) for name, identity in self._identities.items()}}

    def _numbered(self) -> tuple[Names, ...]:
        return self._projects, self._conversations, *self.columns.names.values()

    def confirm(self, marks: Sequence[Mark]) -> list[str]:
        """Update what changed of loaded versions; return the points that are unknown here or lack a vector."""
        self._invalidate()
        known = {mark.point_id: self.row_of.get(mark.point_id, NONE) for mark in marks}
        rows = np.fromiter(known.values(), dtype=np.int64, count=len(marks))
        here = rows >= 0
        complete = here.copy()
        for vectors in self._rows_of.values():
            complete &= vectors.embedded(rows)
        self._confirmed[rows[here]] = True
        known_marks = list(compress(marks, here))
        self._live[rows[here]] = [mark.state in SEARCHABLE_STATES for mark in known_marks]
        moved = {"audience": [mark.audience for mark in known_marks], "state": [mark.state for mark in known_marks]}
        self.columns.put(rows[here], moved)
        return list(compress(known, ~complete))

    def drop_unconfirmed(self) -> int:
        """Drop loaded versions that were not confirmed, out of means and conversations too; return how many stay."""
        rows = np.arange(len(self))
        self._count(rows)
        left = ~(self._confirmed & self._live[: len(self)])
        changed = np.unique(self._conversation[: len(self)][left])
        self._conversation[: len(self)][left] = NONE
        self._after[: len(self)][left] = self._before[: len(self)][left] = NONE
        self._link(np.flatnonzero(np.isin(self._conversation[: len(self)], changed[changed != NONE])))
        return int(self._confirmed.sum())

    # --- reading ---------------------------------------------------------------------------------------------------

    def rows(self, points: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of known points, in the order given."""
        return np.asarray([self.row_of[point] for point in points if point in self.row_of], dtype=np.int64)

    def within(self, rows: NDArray[np.int64], collection: str) -> NDArray[np.bool_]:
        """Return which rows are in this collection."""
        return np.asarray(self.columns.arrays["collection"][rows] == self.columns.code("collection", collection))

    def centring(self, using: str = DENSE) -> Centring | None:
        """Return the means of one embedder's rows; None where there is no such embedder."""
        vectors = self._rows_of.get(using)
        return None if vectors is None else vectors.centring

    def nearest(
        self, query: Matrix, script: int, groups: Sequence[NDArray[np.int64]], *, limit: int, using: str = DENSE
    ) -> NDArray[np.int64]:
        """Return the `limit` rows of each group nearest to a raw query row, in no order; those not embedded never."""
        vectors = self._rows_of[using]
        centred = vectors.centring.query(query, script)
        return vectors.nearest(centred, groups, self._script[: len(self)], limit=limit)

    def cosines(
        self, query: Matrix | None, script: int, rows: NDArray[np.int64], *, using: str = DENSE
    ) -> NDArray[np.float32]:
        """Return the centred cosine of a raw row, a query's or a memory's, with each row; NaN where one of the two is
        not embedded."""
        if query is None:
            return np.full(len(rows), np.nan, dtype=np.float32)
        vectors = self._rows_of[using]
        return vectors.cosines(vectors.centring.query(query, script), rows, self._script[rows])

    def pairwise_cosines(self, rows: NDArray[np.int64], *, using: str = DENSE) -> NDArray[np.float32]:
        """Return the (n, n) centred cosines among rows; 0 where one is not embedded."""
        vectors = self._rows_of.get(using)
        if vectors is None:
            return np.zeros((len(rows), len(rows)), dtype=np.float32)
        return vectors.pairwise_cosines(rows, self._script[rows])

    def embedded(self, rows: NDArray[np.int64], *, using: str = DENSE) -> NDArray[np.bool_]:
        """Return which of these rows have a vector of this embedder."""
        vectors = self._rows_of.get(using)
        return vectors.embedded(rows) if vectors is not None else np.zeros(len(rows), dtype=np.bool_)

    def newest_without_row(self, rows: NDArray[np.int64], *, limit: int, using: str = DENSE) -> NDArray[np.int64]:
        """Return the newest of these rows that have no vector of this embedder yet."""
        waiting = rows[~self._rows_of[using].embedded(rows)]
        return waiting[least(-self._happened[waiting], limit)]

    def without_row(self, using: str = DENSE) -> int:
        """Return how many live rows have no vector of this embedder."""
        return self._rows_of[using].lacking(self._live[: len(self)])

    def traits(self, rows: NDArray[np.int64]) -> RowTraits:
        """Return what is known of these rows."""
        present, which = np.unique(self._group[rows], return_inverse=True)
        groups, conversations = list(self._groups), self._conversation[rows]
        people = [groups[number] for number in present]
        return RowTraits(self._script[rows], conversations, self._happened[rows], self._shape[rows], people, which)

    def neighbours(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n, 4) live rows one after, one before, two after and two before in a conversation; -1 for none."""
        after, before = self._step(self._after, rows), self._step(self._before, rows)
        found = np.stack([after, before, self._step(self._after, after), self._step(self._before, before)], axis=1)
        return np.where((found >= 0) & self._live[found], found, NONE)

    @staticmethod
    def _step(links: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(rows >= 0, links[rows].astype(np.int64), NONE)

    def readable(self, rows: NDArray[np.int64], audiences: Iterable[str]) -> NDArray[np.bool_]:
        """Return whether each row is live and for one of these audiences, as far as the mirror knows."""
        allowed = [self.columns.code("audience", name) for name in audiences]
        return self._live[rows] & np.isin(self.columns.arrays["audience"][rows], allowed)

    def readable_in(self, collection: str, audiences: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the live rows of a collection that are for one of these audiences; cached until a write.

        Of rows with one text the newest `ROWS_OF_A_TEXT`.
        """
        key = collection, audiences
        if key not in self._readable:
            inside = self.columns.rows_of("collection", collection, len(self))
            self._readable[key] = self._newest_of_each_text(inside[self.readable(inside, audiences)])
        return self._readable[key]

    def fulfilling(self, collection: str, where: Where, numbers: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the rows of a collection that fulfil a filter, sorted. numbers: as of `RowColumns.fulfilling`."""
        inside = self.columns.rows_of("collection", collection, len(self))
        embedded = {name: vectors.embedded_rows for name, vectors in self._rows_of.items()}
        return self.columns.fulfilling(where, inside, embedded, numbers, len(self))

    def found_by(self, collection: str, where: Where, numbers: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the same rows, of those with one text the newest `ROWS_OF_A_TEXT`."""
        return self._newest_of_each_text(self.fulfilling(collection, where, numbers))

    def nearest_hits(self, query: Matrix, rows: NDArray[np.int64], *, limit: int, using: str) -> list[Hit]:
        """Return the nearest of these rows by their raw cosine, best first, as a store's `nearest` does."""
        stored = self._rows_of[using]
        return self._hits(*stored.nearest_raw(query, rows, self._script[: len(self)], limit=limit))

    def matching_hits(self, words: SparseVector, collection: str, rows: NDArray[np.int64], *, limit: int) -> list[Hit]:
        """Return the best of these rows by their words, rarity counted over the collection, as a store's `matching`."""
        inside = self.columns.arrays["collection"][: len(self)] == self.columns.code("collection", collection)
        count = int(np.count_nonzero(inside & (self._length[: len(self)] > 0)))
        scores, shares = self._words.scores(words, inside, count)
        rows = rows[shares[rows]]
        best = least(-scores[rows], limit)
        best = best[np.lexsort((rows[best], -scores[rows[best]]))]
        return self._hits(rows[best], scores[rows[best]])

    def _hits(self, rows: NDArray[np.int64], scores: NDArray[np.floating]) -> list[Hit]:
        return [Hit(self.points[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def _newest_of_each_text(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        is_repeated = self._text_counts[self._text[rows] % TEXT_BUCKETS] > ROWS_OF_A_TEXT
        if not is_repeated.any():
            return rows
        repeated = rows[is_repeated]
        texts = self._text[repeated]
        order = np.lexsort((-self._happened[repeated], texts))
        starts = np.flatnonzero(np.diff(texts[order], prepend=-1))
        place = np.arange(len(repeated)) - np.repeat(starts, np.diff(starts, append=len(repeated)))
        return np.sort(np.concatenate([rows[~is_repeated], repeated[order[place < ROWS_OF_A_TEXT]]]))

    def same_conversation(self, row: int, within_s: float) -> NDArray[np.int64]:
        """Return the live rows of the same conversation that happened so near to this one, the nearest first."""
        rows = np.flatnonzero((self._said[: len(self)] == self._said[row]) & self._live[: len(self)])
        apart = np.abs(self._happened[rows] - self._happened[row])
        near = (apart <= within_s) & (rows != row) & (self._said[row] != 0)
        return np.asarray(rows[near][np.argsort(apart[near], kind="stable")])

    def tags(self, rows: NDArray[np.int64]) -> list[tuple[Tag, ...]]:
        """Return the tags of each row."""
        lists = list(self._tag_lists)
        return [lists[number] for number in self._tagged[rows].tolist()]

    def words(
        self, term_ids: Sequence[int], project: str, abroad: Sequence[Sequence[Sequence[int]]] = ()
    ) -> WordScores:
        """Return BM25 over every row, with document frequencies of this project (`account|project`) alone."""
        mine, count, lengths = self._counts_of(project)
        of_row, conversations = self._conversation[: len(self)], len(self._conversations)
        scores = np.zeros(len(self), dtype=np.float32)
        whole = np.zeros(conversations, dtype=np.float32)
        conversation_count = max(int((lengths > 0).sum()), 1)
        frequencies = np.zeros(len(term_ids))
        idf = inverse_frequency(frequencies, count)  # of a term that no memory has
        for position, term in enumerate(term_ids):
            postings = self._words.of(term)
            if postings is None:
                continue
            rows, weights = postings
            own = mine[rows]
            frequencies[position] = np.count_nonzero(own)
            idf[position] = inverse_frequency(frequencies[position : position + 1], count)[0]
            scores[rows] += weights * np.float32(idf[position])
            if not conversations:
                continue
            numbers = of_row[rows[own]]
            counts = np.bincount(numbers[numbers >= 0], minlength=conversations).astype(np.float32)
            if counts.any():
                rarity = inverse_frequency(np.asarray([(counts > 0).sum()], dtype=float), conversation_count)[0]
                whole += saturated(counts, np.maximum(lengths, 1)) * np.float32(rarity)
        return WordScores(scores, whole, idf, frequencies > 0, self._abroad(abroad, mine, count) if abroad else None)

    def _abroad(self, concepts: OtherLanguage, mine: NDArray[np.bool_], count: int) -> NDArray[np.float32]:
        """Return the share of these words that every row has: a phrase weighs as its weakest term, of several phrases
        for one word the heaviest counts; each word by its rarity, an unknown one most."""
        total, mass = np.zeros(len(self), dtype=np.float32), 0.0
        for phrases in concepts:
            heaviest = np.zeros(len(self), dtype=np.float32)
            for phrase in phrases:
                known = [postings for term in phrase if (postings := self._words.of(term)) is not None]
                if len(known) < len(phrase):
                    continue  # no memory has all of it
                weakest = np.full(len(self), np.inf, dtype=np.float32)
                for rows, weights in known:
                    own = np.zeros(len(self), dtype=np.float32)
                    rarity = inverse_frequency(np.asarray([np.count_nonzero(mine[rows])], dtype=float), count)[0]
                    own[rows] = weights * np.float32(rarity)
                    np.minimum(weakest, own, out=weakest)
                np.maximum(heaviest, weakest, out=heaviest)
            mass += float(heaviest.max(initial=0.0)) or float(inverse_frequency(np.zeros(1), count)[0])
            total += heaviest
        return total / np.float32(mass)

    def counted_rows(self, project: str) -> NDArray[np.bool_]:
        """Return which rows count for the document frequencies of a project; passages count others (`knowledge`)."""
        size = len(self)
        return np.asarray((self._project[:size] == self._projects.get(project, NONE)) & self._live[:size])

    def _counts_of(self, project: str) -> tuple[NDArray[np.bool_], int, NDArray[np.float32]]:
        """Return which rows count for a project, how many, and how long each conversation is; cached until a write."""
        if project not in self._counts:
            size, mine = len(self), self.counted_rows(project)
            inside = mine & (self._conversation[:size] >= 0)
            lengths = np.bincount(
                self._conversation[:size][inside], self._length[:size][inside], len(self._conversations)
            )
            self._counts[project] = mine, int(mine.sum()), lengths.astype(np.float32)
        return self._counts[project]
