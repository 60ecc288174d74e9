"""What ranking needs of each version, kept in memory: vector, words, place in its conversation. Derived, never truth.

The mirror scores what a search finds, and finds it too once it is whole and nothing but the reader limits the search;
the store finds with every other filter pushed down. It exists because fusion needs numbers that engines do not give
(document frequencies of one project, the events next to a hit, a whole conversation's words) and because decoding
hundreds of payloads a query costs more than the search. A row is added when a memory is written or first read; it costs
about 0.8 kB at 384 dimensions. Only bookkeeping moves (state, audience, vector); content never does.

Invariant: the mirror never has the last word on who may see what. Each memory is checked before it is shown.
"""

from __future__ import annotations

import bisect
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, Tag
from memory_anchor.domain.ports import DENSE, Entry, Mark, SparseVector
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.language.shape import shape_of
from memory_anchor.language.terms import normal
from memory_anchor.recall.centring import Centring, script_of
from memory_anchor.recall.vector_rows import VectorRows, least

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
NONE = -1
_TEXT_DIGITS = 15
"""Hexadecimal digits of a text's hash that fit into 64 bits."""
FORMAT = 3
"""To be raised when a row is derived or saved otherwise."""
_BY_ROW = (
    *("_live", "_script", "_project", "_audience", "_collection", "_conversation", "_after", "_before", "_group"),
    *("_length", "_happened", "_shape", "_text", "_said"),
)


class _Names(dict[str, int]):
    """Strings as small integers: a new one gets the next."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


@dataclass(slots=True)
class _Postings:
    rows: array[int] = field(default_factory=lambda: array("i"))
    weights: array[float] = field(default_factory=lambda: array("f"))


OtherLanguage = Sequence[Sequence[Sequence[int]]]
"""For each of a question's words the phrases that say it in the other language, each as its term ids."""


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


def _number(*parts: str) -> int:
    return int(stable_hash(*parts)[:_TEXT_DIGITS], 16)


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
        self.ids: list[str] = []
        self._groups: dict[tuple[str, ...], int] = {}
        self._projects, self._audiences, self._conversations, self._collections = (_Names() for _ in range(4))
        self._postings: dict[int, _Postings] = {}
        self._turns: list[list[tuple[int, int]]] = []
        self._tags: dict[int, tuple[Tag, ...]] = {}
        self._live = np.zeros(FIRST_ROWS, dtype=bool)
        self._script = np.zeros(FIRST_ROWS, dtype=np.int8)
        self._project = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._audience = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._collection = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._conversation = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._after = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._before = np.full(FIRST_ROWS, NONE, dtype=np.int64)
        self._group = np.full(FIRST_ROWS, NONE, dtype=np.int32)
        self._length = np.zeros(FIRST_ROWS, dtype=np.float32)
        self._happened = np.zeros(FIRST_ROWS, dtype=np.float64)
        self._shape = np.zeros((FIRST_ROWS, 4), dtype=np.float32)
        self._text, self._said = np.zeros(FIRST_ROWS, dtype=np.int64), np.zeros(FIRST_ROWS, dtype=np.int64)
        self._text_counts: Counter[int] = Counter()
        self._most_repeated = 0
        self._counts: dict[str, tuple[NDArray[np.bool_], int, NDArray[np.float32]]] = {}
        self._readable: dict[tuple[str, tuple[str, ...]], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.points)

    # --- filling ---------------------------------------------------------------------------------------------------

    def add_all(self, entries: Mapping[str, Entry], collection: str) -> None:
        """Add versions by their points, or refresh what may have changed of known ones.

        Their vectors go in together, which takes a third of the time.
        """
        self._invalidate()
        for point, entry in entries.items():
            memory = entry.memory
            row = self.row_of.get(point)
            if row is None:
                row = self._new_row(memory, point, entry.words or searched_words(memory), collection)
            self._live[row] = memory.state in SEARCHABLE_STATES
            self._audience[row] = self._audiences[memory.audience]
            position, is_in = self.conversation_place(memory, collection), self._conversation[row] != NONE
            # A version that is not live would keep its neighbours apart.
            if position is not None and self._live[row] and not is_in:
                self._join(row, self._conversations[position[0]], position[1])
            elif position is not None and is_in and not self._live[row]:
                self._leave(row)
        for name in self._rows_of:
            vectors = {point: entry.vectors[name] for point, entry in entries.items() if name in entry.vectors}
            self.set_vectors(vectors, name)
        rows = self.rows(list(entries))
        for stored in self._rows_of.values():  # the means follow what is found: a store read anew learns from no more
            stored.count(rows, self._live[rows], self._script[rows])

    def set_vectors(self, vectors: Mapping[str, Matrix], using: str = DENSE) -> None:
        """Give known versions their raw vectors; unknown ones are ignored."""
        known = {row: vectors[point] for point in vectors if (row := self.row_of.get(point)) is not None}
        if known and using in self._rows_of:
            rows = np.fromiter(known, dtype=np.int64, count=len(known))
            self._rows_of[using].put(rows, np.stack(list(known.values())), self._script[rows], counts=self._live[rows])

    def drop(self, points: Iterable[str]) -> None:
        """Drop versions whose content was erased or moved; what comes again under such a point is a new row."""
        self._invalidate()
        rows = [row for point in points if (row := self.row_of.pop(point, None)) is not None]
        for row in rows:
            self._live[row] = False
            self._leave(row)
        dropped = np.asarray(rows, dtype=np.int64)
        for stored in self._rows_of.values():
            stored.count(dropped, self._live[dropped], self._script[dropped])

    def sign(self) -> None:
        """Make new vectors ready for `nearest`, which else does it itself."""
        for vectors in self._rows_of.values():
            vectors.sign(self._script[: len(self)])

    def _invalidate(self) -> None:
        self.changes += 1
        self._counts.clear()
        self._readable.clear()

    def _new_row(self, memory: Memory, point: str, words: SparseVector, collection: str) -> int:
        if len(self.points) >= MAX_ROWS:
            self.clear()
        row = len(self.points)
        if row == len(self._live):
            self._grow()
        self.row_of[point] = row
        self.points.append(point)
        self.ids.append(memory.id)
        self._group[row] = self._groups.setdefault(tuple(map(normal, memory.who)), len(self._groups))
        scope = memory.scope
        self._script[row] = script_of(embedded_text(memory))
        self._project[row] = self._projects[f"{scope.account}|{scope.project}"]
        self._collection[row] = self._collections[collection]
        self._length[row] = len(words.indices)
        self._happened[row] = memory.happened_at.timestamp()
        self._said[row] = _number(scope.account, scope.project, scope.conversation) if scope.conversation else 0
        if memory.tags:
            self._tags[row] = memory.tags
        cited = (citation.ref for citation in memory.citations)
        about = (
            memory.key,
            memory.where or "",
            "|".join(memory.who),
            "|".join(tag.name for tag in memory.tags),
            *cited,
        )
        self._text[row] = text = _number(memory.content, *about)  # a repeated text is the same in all of this
        self._text_counts[text] += 1
        self._most_repeated = max(self._most_repeated, self._text_counts[text])
        shape = shape_of(memory.content)
        self._shape[row] = (shape.asks, shape.tells_time, shape.tells_number, shape.said)
        for term, weight in zip(words.indices, words.values, strict=True):
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = _Postings()
            postings.rows.append(row)
            postings.weights.append(weight)
        return row

    def _leave(self, row: int) -> None:
        """Take a row out of its conversation, if it is in one, and make its neighbours neighbours."""
        if self._conversation[row] == NONE:
            return
        turns = self._turns[int(self._conversation[row])]
        position = next(at for at, (_, other) in enumerate(turns) if other == row)
        turns.pop(position)
        self._after[row] = self._before[row] = self._conversation[row] = NONE
        self._link(turns, position - 1, position)

    def conversation_place(self, memory: Memory, collection: str) -> tuple[str, int] | None:
        """Return the conversation (on one day) that a memory belongs to and its place in it; None outside of any."""
        scope = memory.scope
        if not scope.conversation or memory.conversation_seq is None:
            return None
        day = memory.happened_at.date().isoformat()
        return f"{collection}|{scope.account}|{scope.project}|{scope.conversation}|{day}", memory.conversation_seq

    def _join(self, row: int, number: int, place: int) -> None:
        """Add a row to its conversation on one day: a connection kept for weeks is not one conversation."""
        if number == len(self._turns):
            self._turns.append([])
        turns = self._turns[number]
        position = bisect.bisect(turns, (place, row))
        turns.insert(position, (place, row))
        self._conversation[row] = number
        self._link(turns, position - 1, position)
        self._link(turns, position, position + 1)

    def _link(self, turns: Sequence[tuple[int, int]], left: int, right: int) -> None:
        """Make two rows neighbours, where they are near enough; the last one at an end has none."""
        if left >= 0 and right < len(turns):
            (early, first), (late, second) = turns[left], turns[right]
            is_next = late - early <= FARTHEST_NEXT
            self._after[first], self._before[second] = (second, first) if is_next else (NONE, NONE)
        elif left >= 0:
            self._after[turns[left][1]] = NONE
        elif right < len(turns):
            self._before[turns[right][1]] = NONE

    def _grow(self) -> None:
        for vectors in self._rows_of.values():
            vectors.grow()
        for name in _BY_ROW:
            old = getattr(self, name)
            new = np.full_like(old, NONE if name in ("_conversation", "_after", "_before") else 0)
            setattr(self, name, np.concatenate([old, new]))

    # --- between two processes -------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return everything as arrays, for `load_arrays` in another process; no text of a memory is among them."""
        self.sign()
        size, postings = len(self), self._postings.values()
        header = {
            "made_for": self._made_for(),
            "ids": self.ids,
            "groups": list(self._groups),
            "names": [list(names) for names in self._numbered()],
            "tags": {row: [(tag.name, tag.weight) for tag in tags] for row, tags in self._tags.items()},
        }
        arrays: dict[str, NDArray[np.generic]] = {name: getattr(self, name)[:size] for name in _BY_ROW}
        arrays |= {
            "told": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
            "points": np.frombuffer(b"".join(UUID(point).bytes for point in self.points), dtype=np.uint8),
            "terms": np.fromiter(self._postings, dtype=np.int64, count=len(postings)),
            "held": np.fromiter((len(posting.rows) for posting in postings), dtype=np.int64, count=len(postings)),
            "rows": np.frombuffer(b"".join(posting.rows.tobytes() for posting in postings), dtype=np.intc),
            "weights": np.frombuffer(b"".join(posting.weights.tobytes() for posting in postings), dtype=np.float32),
            "talks": np.asarray([(n, *turn) for n, turns in enumerate(self._turns) for turn in turns], dtype=np.int64),
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
        self.ids = header["ids"]
        size, raw = len(self.ids), arrays["points"].tobytes()
        self.points = [str(UUID(bytes=raw[start : start + 16])) for start in range(0, len(raw), 16)]
        self.row_of = {point: row for row, point in enumerate(self.points)}
        while len(self._live) < size:
            self._grow()
        for name in _BY_ROW:
            getattr(self, name)[:size] = arrays[name]
        self._text_counts = Counter(self._text[:size].tolist())
        self._most_repeated = max(self._text_counts.values(), default=0)
        self._groups = {tuple(who): number for number, who in enumerate(header["groups"])}
        for numbers, names in zip(self._numbered(), header["names"], strict=True):
            numbers.update(zip(names, range(len(names)), strict=True))
        self._tags = {int(row): tuple(Tag(*tag) for tag in tags) for row, tags in header["tags"].items()}
        ends = np.cumsum(arrays["held"])
        rows, weights = np.split(arrays["rows"], ends), np.split(arrays["weights"], ends)
        for term, own, weight in zip(arrays["terms"].tolist(), rows, weights, strict=False):
            self._postings[term] = _Postings(array("i", own.tobytes()), array("f", weight.tobytes()))
        self._turns = [[] for _ in self._conversations]
        for number, place, row in arrays["talks"].reshape(-1, 3).tolist():
            self._turns[number].append((place, row))
        for name, vectors in self._rows_of.items():
            start = f"{name}."
            vectors.load_arrays(
                {part.removeprefix(start): arrays[part] for part in arrays if part.startswith(start)}, size
            )
        self._live[:size] = False
        self._confirmed = np.zeros(size, dtype=bool)

    def _made_for(self) -> dict[str, object]:
        return {"format": FORMAT, "vectors": {name: asdict(identity) for name, identity in self._identities.items()}}

    def _numbered(self) -> tuple[_Names, ...]:
        return self._projects, self._audiences, self._conversations, self._collections

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
        self._live[rows[here]] = [mark.state in SEARCHABLE_STATES for mark in compress(marks, here)]
        self._audience[rows[here]] = [self._audiences[mark.audience] for mark in compress(marks, here)]
        return list(compress(known, ~complete))

    def drop_unconfirmed(self) -> int:
        """Drop loaded versions that were not confirmed, out of means and conversations too; return how many stay."""
        rows = np.arange(len(self))
        for vectors in self._rows_of.values():
            vectors.count(rows, self._live[rows], self._script[rows])
        left = np.flatnonzero(~self._confirmed)
        for number in np.unique(self._conversation[left][self._conversation[left] >= 0]).tolist():
            turns, self._turns[number] = self._turns[number], []
            inside = [row for _, row in turns]
            self._after[inside] = self._before[inside] = self._conversation[inside] = NONE
            for place, row in turns:
                if self._confirmed[row] and self._live[row]:
                    self._join(row, number, place)
        return int(self._confirmed.sum())

    # --- reading ---------------------------------------------------------------------------------------------------

    def rows(self, points: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of known points, in the order given."""
        return np.asarray([self.row_of[point] for point in points if point in self.row_of], dtype=np.int64)

    def within(self, rows: NDArray[np.int64], collection: str) -> NDArray[np.bool_]:
        """Return which rows are in this collection."""
        return np.asarray(self._collection[rows] == self._collections.get(collection, NONE))

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
    def _step(links: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(rows >= 0, links[rows], NONE)

    def readable(self, rows: NDArray[np.int64], audiences: Iterable[str]) -> NDArray[np.bool_]:
        """Return whether each row is live and for one of these audiences, as far as the mirror knows."""
        allowed = [self._audiences.get(name, NONE) for name in audiences]
        return self._live[rows] & np.isin(self._audience[rows], allowed)

    def readable_in(self, collection: str, audiences: tuple[str, ...]) -> NDArray[np.int64]:
        """Return the live rows of a collection that are for one of these audiences; cached until a write.

        Of rows with one text the newest `ROWS_OF_A_TEXT`.
        """
        key = collection, audiences
        if key not in self._readable:
            inside = np.flatnonzero(self._collection[: len(self)] == self._collections.get(collection, NONE))
            self._readable[key] = self._newest_of_each_text(inside[self.readable(inside, audiences)])
        return self._readable[key]

    def _newest_of_each_text(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._most_repeated <= ROWS_OF_A_TEXT:
            return rows
        texts = self._text[rows]
        order = np.lexsort((-self._happened[rows], texts))
        starts = np.flatnonzero(np.diff(texts[order], prepend=-1))
        place = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
        return np.sort(rows[order[place < ROWS_OF_A_TEXT]])

    def same_conversation(self, row: int, within_s: float) -> NDArray[np.int64]:
        """Return the live rows of the same conversation that happened so near to this one, the nearest first."""
        rows = np.flatnonzero((self._said[: len(self)] == self._said[row]) & self._live[: len(self)])
        apart = np.abs(self._happened[rows] - self._happened[row])
        near = (apart <= within_s) & (rows != row) & (self._said[row] != 0)
        return np.asarray(rows[near][np.argsort(apart[near], kind="stable")])

    def tags(self, rows: NDArray[np.int64]) -> list[tuple[Tag, ...]]:
        """Return the tags of each row."""
        return [self._tags.get(row, ()) for row in rows.tolist()]

    def words(
        self, term_ids: Sequence[int], project: str, abroad: Sequence[Sequence[Sequence[int]]] = ()
    ) -> WordScores:
        """Return BM25 over every row, with document frequencies of this project (`account|project`) alone."""
        from memory_anchor.recall.ranking import inverse_frequency, saturated

        mine, count, lengths = self._counts_of(project)
        of_row, conversations = self._conversation[: len(self)], len(self._turns)
        scores = np.zeros(len(self), dtype=np.float32)
        whole = np.zeros(conversations, dtype=np.float32)
        conversation_count = max(int((lengths > 0).sum()), 1)
        frequencies = np.zeros(len(term_ids))
        idf = inverse_frequency(frequencies, count)  # of a term that no memory has
        for position, term in enumerate(term_ids):
            postings = self._postings.get(term)
            if postings is None:
                continue
            rows, weights = np.array(postings.rows), np.array(postings.weights)
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
        from memory_anchor.recall.ranking import inverse_frequency

        total, mass = np.zeros(len(self), dtype=np.float32), 0.0
        for phrases in concepts:
            heaviest = np.zeros(len(self), dtype=np.float32)
            for phrase in phrases:
                known = [self._postings[term] for term in phrase if term in self._postings]
                if len(known) < len(phrase):
                    continue  # no memory has all of it
                weakest = np.full(len(self), np.inf, dtype=np.float32)
                for postings in known:
                    rows, own = np.array(postings.rows), np.zeros(len(self), dtype=np.float32)
                    rarity = inverse_frequency(np.asarray([np.count_nonzero(mine[rows])], dtype=float), count)[0]
                    own[rows] = np.array(postings.weights) * np.float32(rarity)
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
            lengths = np.bincount(self._conversation[:size][inside], self._length[:size][inside], len(self._turns))
            self._counts[project] = mine, int(mine.sum()), lengths.astype(np.float32)
        return self._counts[project]
