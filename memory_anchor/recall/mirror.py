"""What ranking needs of each version, kept in memory: vector, words, place in its conversation. Derived, never truth.

The mirror scores what a search finds, and finds it too once it is whole: over a store whose changes it follows whatever
the filter, else where nothing but the reader limits the search. It exists because fusion needs numbers that engines do
not give (document frequencies of one project, the events next to a hit, a whole conversation's words) and because
decoding hundreds of payloads a query costs more than the search. A row takes about 1 kB at 384 dimensions. Only
bookkeeping moves (state, audience, vector); content never does.

Invariant: the mirror never has the last word on who may see what. Each memory is checked before it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, Tag
from memory_anchor.domain.ports import DENSE, Entry, Hit, SparseVector
from memory_anchor.domain.where import Where
from memory_anchor.language.traits import named_of
from memory_anchor.recall.centring import Centring
from memory_anchor.recall.mirror_row import MirrorRows, Place, RowTraits, conversation_place, rows_of_entries
from memory_anchor.recall.point_table import PointTable, packed_points
from memory_anchor.recall.ranking import inverse_frequency, saturated
from memory_anchor.recall.row_columns import NONE, Names, RowColumns
from memory_anchor.recall.vector_rows import VectorRows, least
from memory_anchor.recall.word_table import WordScores, WordTable, part_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import EmbedderIdentity, Matrix

MAX_ROWS = 250_000
"""Beyond this the mirror starts again from empty; rows come back as they are read."""
FIRST_ROWS = 1024
ROOM_SHARE = 16
"""A loaded mirror has room for such a part more."""
ROWS_OF_A_TEXT = 10
"""Candidates among rows with the very same text, the newest: what is logged daily leaves room for the rest."""
FARTHEST_NEXT = 3
"""Sequence numbers further apart than this are no neighbours: what was between is not known here."""
FORMAT = 5
"""To be raised when a row is derived or saved otherwise."""
TEXT_BUCKETS = 1 << 18
"""Texts are counted by a part of their number: rows of a full bucket are looked at one by one."""
_BY_ROW = (
    *("_live", "_script", "_project", "_conversation", "_place", "_after", "_before", "_group", "_tagged", "_named"),
    *("_length", "_happened", "_shape", "_text", "_said", "_checksum", "_words_checksum"),
)
_NONE_AT_FIRST = ("_project", "_conversation", "_place", "_after", "_before", "_group", "_tagged", "_checksum")
_NO_ROWS = np.zeros(0, np.int64)

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
        self.points = PointTable(FIRST_ROWS)
        self._names = bytearray()
        self._groups: dict[tuple[str, ...], int] = {}
        self._tag_lists: dict[tuple[Tag, ...], int] = {}
        self._projects, self._conversations = Names(), Names({"": 0})
        self._unlinked = set[int]()
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
        self._named = np.zeros(FIRST_ROWS, dtype=np.int64)
        self._length = np.zeros(FIRST_ROWS, dtype=np.float32)
        self._happened = np.zeros(FIRST_ROWS, dtype=np.float64)
        self._shape = np.zeros((FIRST_ROWS, 4), dtype=np.float32)
        self._checksum = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._words_checksum = np.zeros(FIRST_ROWS, dtype=np.uint64)
        self._text, self._said = np.zeros(FIRST_ROWS, dtype=np.int64), np.zeros(FIRST_ROWS, dtype=np.int64)
        self._text_counts = np.zeros(TEXT_BUCKETS, dtype=np.uint16)
        self._counts: dict[str, tuple[NDArray[np.bool_], int, NDArray[np.float32]]] = {}
        self._readable: dict[tuple[str, tuple[str, ...]], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.points)

    # --- filling ---------------------------------------------------------------------------------------------------

    def add_all(self, entries: Mapping[str, Entry], collection: str) -> None:
        """Add versions by their points, or refresh what may have changed of known ones."""
        places = [self.conversation_place(entry.memory, collection) for entry in entries.values()]
        new = rows_of_entries(list(entries.values()), collection, places)
        self.put(new, self.points.rows(new.points))
        for name in self._rows_of:
            vectors = {point: entry.vectors[name] for point, entry in entries.items() if name in entry.vectors}
            self.set_vectors(vectors, name)

    def put(self, new: MirrorRows, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add versions, or refresh of known ones all but words and text; return their rows. rows: -1 for a new one."""
        self._invalidate()
        fresh = np.flatnonzero(rows == NONE)
        if len(self) + len(fresh) > MAX_ROWS:
            self.clear()
            fresh = np.arange(len(new))
        rows = rows.copy()
        rows[fresh] = np.arange(len(self), len(self) + len(fresh))
        self._append(new.taken(fresh))
        self._live[rows] = [state in SEARCHABLE_STATES for state in new.values["state"]]
        self.columns.put(rows, new.values)
        self._put_in_conversations(rows, self._conversations.of(new.conversations), new.places)
        self._count(rows)
        return rows

    def _count(self, rows: NDArray[np.int64]) -> None:
        """Let the means follow what is found: a store that is read anew learns from no more."""
        for stored in self._rows_of.values():
            stored.count(rows, self._live[rows], self._script[rows])

    def _append(self, new: MirrorRows) -> None:
        """Add rows for versions that have none."""
        if not len(new):
            return
        first, size, traits = len(self), len(self) + len(new), new.traits
        self.reserve(size)
        part = slice(first, size)
        self.points.add(new.points)
        self._named[part] = np.cumsum([len(self._names), *map(len, traits.named[:-1])])
        self._names += b"".join(traits.named)
        self._script[part], self._shape[part] = traits.scripts, traits.shapes
        self._text[part], self._said[part] = traits.texts, traits.said
        self._words_checksum[part] = new.words_checksums()
        self._project[part] = self._projects.of(new.projects)
        self._happened[part] = new.happened / 1e6
        buckets, counts = np.unique(self._text[part] % TEXT_BUCKETS, return_counts=True)
        self._text_counts[buckets] += counts.astype(np.uint16)
        self._length[part] = new.sizes
        self._words.add(new.terms, np.repeat(np.arange(first, size), new.sizes), new.weights)

    def follow(self, new: MirrorRows) -> bool:
        """Take in versions as a store has them now; return whether anything changed. A replaced text's row goes."""
        last_of_each = {point: at for at, point in enumerate(new.points.view("V16")[:, 0].tolist())}
        new = new.taken(np.fromiter(last_of_each.values(), np.int64, len(last_of_each)))
        rows = self.points.rows(new.points)
        if len(known := np.flatnonzero(rows != NONE)):
            at, there = rows[known], new.taken(known)
            is_replaced = self._text[at] != there.traits.texts
            is_replaced |= self._words_checksum[at] != there.words_checksums()
            is_same = ~is_replaced & (self._checksum[at] == there.checksums) & self.columns.hold(at, there.values)
            self._drop(at[is_replaced])
            rows[known[is_replaced]] = NONE
            moved = np.setdiff1d(np.arange(len(new)), known[is_same])
            new, rows = new.taken(moved), rows[moved]
        if not len(new):
            return False
        rows = self.put(new, rows)
        is_wanted = self._checksum[rows] != new.checksums
        self._checksum[rows] = new.checksums
        for name, stored in self._rows_of.items():
            at, vectors = new.vectors.get(name, (_NO_ROWS, None))
            is_bare = is_wanted.copy()
            is_bare[at] = False
            if vectors is not None and len(at := at[kept := is_wanted[at]]):
                stored.put(rows[at], vectors[kept], self._script[rows[at]], counts=self._live[rows[at]])
            stored.clear(rows[is_bare], self._script[rows[is_bare]])
        return True

    def compare_as(self, other: Mirror) -> None:
        """Compare rows by the means of another mirror from now on; nothing may be added any more."""
        for name, stored in self._rows_of.items():
            stored.centring = other._rows_of[name].centring

    def set_vectors(self, vectors: Mapping[str, Matrix], using: str = DENSE) -> None:
        """Give known versions their raw vectors; unknown ones are ignored."""
        rows = self.points.rows(packed_points(vectors))
        known = np.flatnonzero(rows != NONE)
        if len(known) and using in self._rows_of:
            rows, found = rows[known], list(vectors.values())
            raw = np.stack([found[at] for at in known.tolist()])
            self._rows_of[using].put(rows, raw, self._script[rows], counts=self._live[rows])

    def drop(self, points: Iterable[str]) -> None:
        """Drop versions whose content was erased or moved; what comes again under such a point is a new row."""
        rows = self.points.rows(packed_points(points))
        self._invalidate()
        self._drop(rows[rows != NONE])

    def _drop(self, rows: NDArray[np.int64]) -> None:
        if not len(rows):
            return
        self._invalidate()
        self.points.forget(rows)
        self._live[rows] = False
        self.columns.forget(rows)
        self._put_in_conversations(rows, np.full(len(rows), NONE, np.int32), self._place[rows])
        self._count(rows)

    def settle(self) -> None:
        """Make everything ready that the first search would else make: words in order, neighbours, signs."""
        self._words.settle()
        self.points.settle()
        self._link()
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
        """Return the conversation that a memory belongs to and its place in it; None outside of any."""
        return conversation_place(memory, collection)

    def _put_in_conversations(
        self, rows: NDArray[np.int64], conversations: NDArray[np.int32], places: NDArray[np.int64]
    ) -> None:
        """Put each row into its conversation, or out of it where it is not live: it would keep its neighbours apart."""
        before, outside = self._conversation[rows], self._conversations[""]
        now = np.where(self._live[rows] & (conversations != outside), conversations, NONE)
        self._conversation[rows], self._place[rows] = now, places
        moved = before != now
        self._after[rows[moved]] = self._before[rows[moved]] = NONE
        self._unlinked.update(before[moved].tolist(), now[moved].tolist())

    def _link(self) -> None:
        """Make those next to each other in conversations that changed neighbours, where they are near enough."""
        if not self._unlinked:
            return
        changed = np.fromiter(self._unlinked - {NONE}, np.int32)
        self._unlinked.clear()
        rows = np.flatnonzero(np.isin(self._conversation[: len(self)], changed))
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
        self.points.grow(room)
        for name in _BY_ROW:
            old = getattr(self, name)
            new = np.full((room, *old.shape[1:]), NONE if name in _NONE_AT_FIRST else 0, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    # --- between two processes -------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays, for `load_arrays`; no text of a memory is among them."""
        self.settle()
        size = len(self)
        header = {"made_for": self._made_for(), "names": [list(names) for names in self._numbered()]}
        arrays: dict[str, NDArray[np.generic]] = {name: getattr(self, name)[:size] for name in _BY_ROW}
        arrays |= {f"column.{field}": array[:size] for field, array in self.columns.arrays.items()}
        arrays |= {f"words.{name}": array for name, array in self._words.to_arrays().items()}
        arrays |= {
            "told": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "named": np.frombuffer(bytes(self._names), dtype=np.uint8),
            "points": self.points.raw(),
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
        points = np.asarray(arrays["points"], np.uint8).reshape(-1, 16)
        size = len(points)
        self.reserve(size + size // ROOM_SHARE)
        self.points.add(points)
        self._names = bytearray(arrays["named"].tobytes())
        for name in _BY_ROW:
            getattr(self, name)[:size] = arrays[name]
        self._group[:size] = self._tagged[:size] = NONE
        for field, array in self.columns.arrays.items():
            array[:size] = arrays[f"column.{field}"]
        np.add.at(self._text_counts, self._text[:size] % TEXT_BUCKETS, np.uint16(1))
        for numbers, names in zip(self._numbered(), header["names"], strict=True):
            numbers.update(zip(names, range(len(names)), strict=True))
        self._words.load_arrays(part_of(arrays, "words"))
        for name, vectors in self._rows_of.items():
            vectors.load_arrays(part_of(arrays, name), size)
        self._live[:size] = False

    def _made_for(self) -> dict[str, object]:
        return {"format": FORMAT, "vectors": {name: asdict(identity) for name, identity in self._identities.items()}}

    def _numbered(self) -> tuple[Names, ...]:
        return self._projects, self._conversations, *self.columns.names.values()

    def is_as(self, numbers: NDArray[np.int64], checksums: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows are versions of these numbers, sorted, with these checksums."""
        mine = self.columns.arrays["number"][: len(self)]
        at = np.searchsorted(numbers, mine) % max(len(numbers), 1)
        return (numbers[at] == mine) & (checksums[at] == self._checksum[: len(self)]) if len(numbers) else mine < NONE

    def keep(self, is_kept: NDArray[np.bool_]) -> None:
        """Keep these of the rows that were loaded, and drop the others."""
        live = [code for state, code in self.columns.names["state"].items() if state in SEARCHABLE_STATES]
        self._live[: len(self)] = is_kept & np.isin(self.columns.arrays["state"][: len(self)], live)
        self._drop(np.flatnonzero(~is_kept))
        self._count(np.arange(len(self)))

    # --- reading ---------------------------------------------------------------------------------------------------

    def rows(self, points: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of known points, in the order given."""
        rows = self.points.rows(packed_points(points))
        return np.asarray(rows[rows != NONE])

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
        self._read_names(rows)
        present, which = np.unique(self._group[rows], return_inverse=True)
        groups, conversations = list(self._groups), self._conversation[rows]
        people = [groups[number] for number in present]
        return RowTraits(self._script[rows], conversations, self._happened[rows], self._shape[rows], people, which)

    def _read_names(self, rows: NDArray[np.int64]) -> None:
        """Read the tags and the people of rows that are asked for the first time."""
        unread = np.unique(rows[self._group[rows] == NONE])
        if not len(unread):
            return
        ends = np.append(self._named[1 : len(self)], len(self._names))
        named = [bytes(self._names[first:end]) for first, end in zip(self._named[unread], ends[unread], strict=True)]
        for row, (tags, people) in zip(unread.tolist(), named_of(named), strict=True):
            self._group[row] = self._groups.setdefault(people, len(self._groups))
            self._tagged[row] = self._tag_lists.setdefault(tags, len(self._tag_lists))

    def neighbours(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n, 4) live rows one after, one before, two after and two before in a conversation; -1 for none."""
        self._link()
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

    def nearest_hits(
        self, query: Matrix, rows: NDArray[np.int64], *, limit: int, using: str
    ) -> tuple[list[Hit], dict[int, int]]:
        """Return the nearest of these rows by their raw cosine, best first, as a store's `nearest` does.

        Who is among the last of them may be in doubt; then there are more, with place -> the store's number of each of
        those.
        """
        stored = self._rows_of[using]
        found, cosines, is_doubtful = stored.nearest_raw(query, rows, self._script[: len(self)], limit=limit)
        places = np.flatnonzero(is_doubtful)
        numbers = self.columns.arrays["number"][found[places]]
        return self._hits(found, cosines), dict(zip(places.tolist(), numbers.tolist(), strict=True))

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
        return list(map(Hit, self.points.texts(rows), scores.tolist()))

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
        self._read_names(rows)
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
