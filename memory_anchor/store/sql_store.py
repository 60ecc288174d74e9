"""The store port over a database: every version, its vectors and its usage in one transaction.

Each method is one statement that reads or one unit that writes. Search by itself is exact and has no index: vectors and
words are read out of the rows that a filter lets through, some 20 ms over 10,000 vectors. Whoever follows the store
(`changes`) and answers faster is asked first (`searched_by`), then an index on a server (`index_search`); the exact
search is what they are compared with.

Invariant: a write that returned is durable, and one that raised has stored nothing (docs/store.md names the exception).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from memory_anchor.base.json_values import items, parsed, record, text, whole
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.model import COLLECTIONS, Memory
from memory_anchor.domain.ports import (
    DENSE,
    CollectionSpec,
    EmbedderIdentity,
    Entry,
    Hit,
    Mark,
    SparseVector,
    VectorQuery,
)
from memory_anchor.domain.where import Where
from memory_anchor.store import revisions
from memory_anchor.store.index_follower import FOLLOWED as FOLLOWED_BESIDE
from memory_anchor.store.index_follower import IndexFollower
from memory_anchor.store.index_search import IndexSearch
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.record_rows import record_faults
from memory_anchor.store.tables import (
    COLUMNS,
    FOLLOWED,
    SELECTED,
    SELECTED_COUNT,
    STORED,
    VECTOR,
    NewRow,
    checked_rows,
    checksums_of,
    collection_test,
    condition_of,
    facet_of,
    followed_of,
    identity_conflict,
    inverse_frequency,
    joined_words,
    memory_of,
    order_term,
    ordering_of,
    point_bytes,
    point_text,
    row_of,
    terms_alone,
    terms_of,
    used_of,
    vector_of,
    vector_row,
    vectors_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.model import Usage
    from memory_anchor.domain.ports import AskedIndex, CandidateSearch, FollowedRows, Matrix, SearchIndex
    from memory_anchor.store.database import Database
    from memory_anchor.store.group_commit import Row, SqlLink, Value

IDS_PER_QUERY = 500
FOLLOWED_AT_ONCE = 1_000
"""Versions that a follower is given in one answer."""
ROWS_PER_PIECE = 500
ROWS_AT_ONCE = 16
_ROWS = f"""select version.seq, version.point, {VECTOR} from version join vec on vec.seq = version.seq
  where version.seq in ({", ".join("?" * ROWS_AT_ONCE)})"""
_NUMBERS = "(select max(changed) as n from version union all select max(changed) from gone) as numbers"
_NEXT = f"select coalesce(max(n), 0) + 1 from {_NUMBERS}"
_INSERT = f"insert into version(seq, changed, {', '.join(COLUMNS)}, crc) values({', '.join('?' * (len(COLUMNS) + 3))})"
_USED = """insert into used(seq, last_at, doc, crc) values(?, ?, ?, ?)
  on conflict(seq) do update set last_at = excluded.last_at, doc = excluded.doc, crc = excluded.crc"""
_NEW_VECTOR = "insert into vec(seq, names, dense, words, crc, traits) values(?, ?, ?, ?, ?, ?)"
_VECTOR = """insert into vec(seq, names, dense, words, crc) values(?, ?, ?, ?, ?)
  on conflict(seq) do update set names = excluded.names, dense = excluded.dense,
  words = excluded.words, crc = excluded.crc"""
_META = "insert into meta(name, value) values(?, ?) on conflict(name) do update set value = excluded.value"


class SqlStore:
    """Collections as rows of one database. Thread-safe; several processes may write."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._dialect = database.dialect
        self._embedders: dict[str, dict[str, EmbedderIdentity]] = {}
        self.kind = database.dialect.name
        self.searched_by: CandidateSearch | None = None
        self.beside: IndexFollower | None = None
        self._index_search: IndexSearch | None = None
        self._close_index: Callable[[], None] = lambda: None

    # --- collections -----------------------------------------------------------------------------------------------

    def open_collection(self, name: str, spec: CollectionSpec) -> None:
        if name not in COLLECTIONS:
            raise ValueError(f"{name!r} is not one of the collections {COLLECTIONS}")
        with self.database.reading() as link:
            stored = _identities(link, name)
        if stored is None or not spec.embedders.items() <= stored.items():
            stored = self.database.write(lambda link: _added(link, name, spec.embedders))
        self._embedders[name] = stored
        if self.beside is not None and self._embedders.keys() >= set(FOLLOWED_BESIDE):
            self.beside.start()

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return dict(self._embedders[name])

    def reindex(self, name: str, spec: CollectionSpec) -> None:
        """Give the collection the embedders of `spec`, in one transaction; vectors made by another one are dropped."""

        def unit(link: SqlLink) -> None:
            before = _identities(link, name) or {}
            kept = {vector for vector, identity in spec.embedders.items() if before.get(vector) == identity}
            if before.keys() - kept:
                self._drop_vectors(link, name, kept)
            link.run(_META, (_meta_name(name), _identities_text(spec.embedders)))

        self.database.write(unit)
        self._embedders[name] = dict(spec.embedders)

    def _drop_vectors(self, link: SqlLink, collection: str, kept: set[str]) -> None:
        last = 0
        sql = f"""select version.seq, version.point, {VECTOR} from version join vec on vec.seq = version.seq
          where version.collection = ? and version.seq > ? order by version.seq limit ?"""
        while rows := link.rows(sql, (collection, last, ROWS_PER_PIECE)):
            for seq, point, *vector in cast("list[tuple[int, bytes, Value]]", rows):
                last = seq
                dense, words = vectors_of(point, tuple(vector), self.database.place)
                left = {name: row for name, row in dense.items() if name in kept}
                if len(left) < len(dense):
                    _write_vector(link, seq, vector_of(point, left, words))

    # --- writes ------------------------------------------------------------------------------------------------------

    def put(self, collection: str, entries: Sequence[Entry]) -> None:
        embedders = self._embedders[collection]
        rows = [row_of(collection, entry, checked_rows(entry.vectors, embedders)) for entry in entries]
        if rows:
            self.database.require_space()
            with self.database.unit() as link:
                self.database.note_end(change=_put(link, collection, rows))

    def set_vectors(self, collection: str, vectors: Mapping[str, Mapping[str, Matrix]]) -> None:
        embedders = self._embedders[collection]
        checked = {point_bytes(point): checked_rows(named, embedders) for point, named in vectors.items()}

        def unit(link: SqlLink) -> None:
            columns = f"version.seq, version.point, {VECTOR}"
            tables = "version left join vec on vec.seq = version.seq"
            for seq, point, *vector in _by_point(link, columns, tables, collection, list(checked)):
                at, number = cast("bytes", point), cast("int", seq)
                dense, words = vectors_of(at, tuple(vector), self.database.place)
                _write_vector(link, number, vector_of(at, dense | checked[at], words))

        if checked:
            self.database.require_space()
            self.database.write(unit)

    def set_usage(self, collection: str, usages: Mapping[str, Usage]) -> None:
        named = {point_bytes(point): usage for point, usage in usages.items()}

        def unit(link: SqlLink) -> None:
            for seq, point in _by_point(link, "seq, point", "version", collection, list(named)):
                link.run(_USED, (seq, *used_of(named[cast("bytes", point)])))
                link.run(f"update version set changed = ({_NEXT}) where seq = ?", (seq,))

        if named:
            self.database.write(unit)

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        def unit(link: SqlLink) -> None:
            points = [point_bytes(each) for each in point_ids]
            for seq, point, doc in _by_point(link, "seq, point, doc", "version", collection, points):
                _delete_terms(link, cast("int", seq), str(doc))
                link.run(f"insert into gone(changed, collection, point) values(({_NEXT}), ?, ?)", (collection, point))
                link.run("delete from version where seq = ?", (seq,))

        if point_ids:
            with self.database.unit() as link:
                unit(link)
                self.database.afterwards(self.database.wipe)

    # --- reads -------------------------------------------------------------------------------------------------------

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        columns, tables = _entry_parts(with_vectors)
        points = [point_bytes(point) for point in point_ids]
        with self.database.reading() as link:
            rows = _by_point(link, columns, tables, collection, points)
        entries = {row[1]: self._entry(row) for row in rows}
        return [entries[point] for point in points if point in entries]

    def find(
        self, collection: str, where: Where, *, limit: int, order_by: str | None = None, descending: bool = False
    ) -> list[Memory]:
        there, order = "1=1", ""
        if order_by is not None:
            column, there = ordering_of(order_by, self._dialect)
            way = "desc" if descending else "asc"
            order = f"order by {order_term(column, where)} {way}, version.point {way}"
        test, values = condition_of(where, self._dialect)
        # Numbers are sorted, and the first rows read whole: sorting whole rows took ten times as long.
        rows = self.database.rows(
            f"select {SELECTED} from {STORED} where version.seq in (select version.seq from version "
            f"where {collection_test(where, self.database.rows)} and {there} and {test} {order} "
            f"limit {int(limit)}) {order}",
            (collection, *values),
        )
        return [memory_of(row, self.database.place) for row in rows]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        rows, following = self._page(*_entry_parts(with_vectors), collection, where, page, after)
        return [self._entry(row) for row in rows], following

    def marks(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None
    ) -> tuple[list[Mark], str | None]:
        rows, following = self._page("state, point, audience", "version", collection, where, page, after)
        return [
            Mark(point_text(cast("bytes", point)), str(state), str(audience)) for state, point, audience in rows
        ], following

    def count(self, collection: str, where: Where) -> int:
        return int(self._matches("count(*)", "version", collection, where)[0][0] or 0)

    def facet(self, collection: str, field: str, where: Where, *, limit: int = 1000) -> dict[str, int]:
        value, tables = facet_of(field, self._dialect)
        end = f"group by 1 order by 2 desc, 1 limit {int(limit)}"
        rows = self._matches(f"{value}, count(*)", tables, collection, where, there=f"{value} is not null", end=end)
        return {str(name): int(count or 0) for name, count in rows}

    def nearest(self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE) -> list[Hit]:
        return self.query_batch(collection, [VectorQuery(vector, limit, using)], where)[0]

    def matching(self, collection: str, words: SparseVector, where: Where, *, limit: int) -> list[Hit]:
        return self.query_batch(collection, [VectorQuery(words, limit)], where)[0]

    def query_batch(self, collection: str, queries: Sequence[VectorQuery], where: Where) -> list[list[Hit]]:
        for search in self._searches():
            if (hits := search.query_batch(collection, queries, where)) is not None:
                return hits
        return self.query_here(collection, queries, where, 0)

    def _searches(self) -> Iterator[CandidateSearch]:
        """Yield who may answer a search faster than reading the rows."""
        if self.searched_by is not None:
            yield self.searched_by
        if self._index_search is not None and not self.in_unit:
            yield self._index_search

    def query_here(self, collection: str, queries: Sequence[VectorQuery], where: Where, above: int) -> list[list[Hit]]:
        """Return what `query_batch` does of the versions written above a number, by reading their rows."""
        return [
            self.matching_here(collection, query.vector, where, limit=query.limit, above=above)
            if isinstance(query.vector, SparseVector)
            else self.nearest_here(collection, query.vector, where, limit=query.limit, using=query.using, above=above)
            for query in queries
        ]

    def nearest_here(
        self, collection: str, vector: Matrix, where: Where, *, limit: int, using: str = DENSE, above: int = 0
    ) -> list[Hit]:
        """Return the nearest of the versions written above a number, by reading their rows."""
        columns, tables = f"version.point, {VECTOR}", "version join vec on vec.seq = version.seq"
        points: list[bytes] = []
        found: list[Matrix] = []
        there = f"vec.dense is not null{_written_above(above)}"
        for point, *stored in self._matches(columns, tables, collection, where, there=there):
            dense, _ = vectors_of(cast("bytes", point), tuple(stored), self.database.place)
            if using in dense:
                points.append(cast("bytes", point))
                found.append(dense[using])
        if not found:
            return []
        rows, query = np.stack(found), np.asarray(vector, dtype=np.float32)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
        return _best(points, rows @ query / np.where(lengths == 0, 1, lengths), limit)

    def matching_here(
        self, collection: str, words: SparseVector, where: Where, *, limit: int, above: int = 0
    ) -> list[Hit]:
        """Return who shares terms of the versions written above a number, by reading the words of all of them.

        Rarity is counted over these, whatever the filter, in a collection of its real size.
        """
        test, values = condition_of(where, self._dialect)
        rows = self.database.rows(
            f"""select version.point, vec.words, case when {test} then 1 else 0 end
            from version join vec on vec.seq = version.seq
            where version.collection = ? and vec.words is not null{_written_above(above)}""",
            (*values, collection),
        )
        if not rows or not words.indices:
            return []
        size = len(rows) if not above else self.count(collection, Where())
        terms, weights, owner = joined_words([cast("bytes", row[1]) for row in rows])
        scores, shares = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
        for term, weight in zip(words.indices, words.values, strict=True):
            at = np.flatnonzero(terms == term)
            scores[owner[at]] += weight * inverse_frequency(len(at), size) * weights[at]
            shares[owner[at]] = True
        kept = np.flatnonzero(shares & np.array([row[2] == 1 for row in rows]))
        return _best([cast("bytes", rows[each][0]) for each in kept], scores[kept], limit)

    # --- for those who follow ----------------------------------------------------------------------------------------

    def last_change(self) -> int:
        ((last,),) = self.database.rows(f"select coalesce(max(n), 0) from {_NUMBERS}")
        return cast("int", last)

    @property
    def in_unit(self) -> bool:
        return self.database.groups.inside is not None

    def changes(self, collections: Sequence[str], *, above: int, up_to: int) -> FollowedRows | None:
        return self._followed("version.changed > ? and version.changed <= ?", "changed", (above, up_to), collections)

    def versions(self, collections: Sequence[str], *, above: int) -> FollowedRows | None:
        return self._followed("version.seq > ?", "seq", (above,), collections)

    def of_numbers(self, collections: Sequence[str], numbers: Sequence[int]) -> FollowedRows | None:
        return self._followed(f"version.seq in ({', '.join('?' * len(numbers))})", "seq", tuple(numbers), collections)

    def checksums(self, collections: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        parts, above = [(np.zeros(0, np.int64), np.zeros(0, np.int64))], 0
        while rows := self._pieces(
            "version.seq, version.crc, vec.crc", "version.seq > ?", "seq", (above,), collections
        ):
            numbers, of_versions, of_vectors = zip(*rows, strict=True)
            parts.append((np.array(numbers, np.int64), checksums_of(of_versions, of_vectors)))
            above = cast("int", numbers[-1])
        return np.concatenate([numbers for numbers, _ in parts]), np.concatenate([crcs for _, crcs in parts])

    def _followed(
        self, test: str, order: str, values: tuple[int, ...], collections: Sequence[str]
    ) -> FollowedRows | None:
        rows = self._pieces(FOLLOWED, test, order, values, collections)
        return followed_of(rows) if rows else None

    def _pieces(
        self, columns: str, test: str, order: str, values: tuple[int, ...], collections: Sequence[str]
    ) -> list[Row]:
        """Return the first of the versions that fulfil a test."""
        # What they are not: by an index of what they are SQLite read and sorted all of them for each piece.
        others = [name for name in COLLECTIONS if name not in collections]
        return self.database.rows(
            f"select {columns} from version left join vec on vec.seq = version.seq where {test} "
            f"and version.collection not in ({', '.join('?' * len(others))}) order by version.{order} limit ?",
            (*values, *others, FOLLOWED_AT_ONCE),
        )

    def gone(self, *, above: int, up_to: int) -> list[tuple[str, str]]:
        rows = self.database.rows(
            "select collection, point from gone where changed > ? and changed <= ? order by changed", (above, up_to)
        )
        return [(str(collection), point_text(cast("bytes", point))) for collection, point in rows]

    def rows(self, numbers: Sequence[int], using: str) -> dict[int, Matrix]:
        found: dict[int, Matrix] = {}
        for first in range(0, len(numbers), ROWS_AT_ONCE):
            piece = [*numbers[first : first + ROWS_AT_ONCE]]
            piece += piece[-1:] * (ROWS_AT_ONCE - len(piece))  # one text of the query: SQLite has it ready
            for seq, point, *vector in self.database.rows(_ROWS, tuple(piece)):
                if (row := vector_row(cast("bytes", point), tuple(vector), using)) is not None:
                    found[cast("int", seq)] = row
        return found

    def numbers(self, collection: str, where: Where) -> list[int]:
        if (alone := terms_alone(where)) is not None:
            rows = self.database.rows(alone[0], tuple(alone[1]))
        else:
            rows = self._matches("version.seq", "version", collection, where)
        return [cast("int", row[0]) for row in rows]

    # --- the whole store ---------------------------------------------------------------------------------------------

    def faults(self) -> Iterator[str]:
        """Yield a sentence for each damage: what the database finds, then each version whose checksum is wrong."""
        yield from self.database.faults()
        yield from record_faults(self.database)
        last = 0
        while rows := self.database.rows(
            f"select {SELECTED}, {VECTOR}, version.seq from {STORED} left join vec on vec.seq = version.seq "
            "where version.seq > ? order by version.seq limit ?",
            (last, ROWS_PER_PIECE),
        ):
            for row in rows:
                last = cast("int", row[-1])
                try:
                    self._entry(row)
                except Exception as error:
                    yield str(error)

    def size_bytes(self) -> int:
        return self.database.size_bytes()

    def keep_index(
        self,
        index: SearchIndex,
        *,
        has_space: Callable[[], bool] = lambda: True,
        leads: Callable[[], bool] = lambda: True,
        close: Callable[[], None] = lambda: None,
        asked: AskedIndex | None = None,
    ) -> None:
        """Keep an index beside this store by a thread, from when the collections are open until it closes.

        asked: the same one, where it answers searches that nobody answers faster.
        """
        source = PointSource(self.database)
        self.beside = IndexFollower(source, index, self.embedders, has_space=has_space, leads=leads)
        self._index_search = IndexSearch(asked, self.beside, source, self) if asked is not None else None
        self._close_index = close
        self.database.written = self.beside.wake

    def index_fault(self) -> str:
        """Return why an index on a server does not answer, "" where it does or there is none."""
        return self._index_search.fault() if self._index_search is not None else ""

    def close(self) -> None:
        self.database.close()
        if self.beside is not None:
            self.beside.close()
            self._close_index()
        self.database.close()

    # --- helpers -----------------------------------------------------------------------------------------------------

    def _matches(
        self, columns: str, tables: str, collection: str, where: Where, *, there: str = "1=1", end: str = ""
    ) -> list[Row]:
        test, values = condition_of(where, self._dialect)
        return self.database.rows(
            f"select {columns} from {tables} "
            f"where {collection_test(where, self.database.rows)} and {there} and {test} {end}",
            (collection, *values),
        )

    def _page(
        self, columns: str, tables: str, collection: str, where: Where, page: int, after: str | None
    ) -> tuple[list[Row], str | None]:
        """Return one page in point order and the point that begins the next one; a point is the second column."""
        test, values = condition_of(where, self._dialect)
        rows = self.database.rows(
            f"select {columns} from {tables} where version.collection = ? and version.point >= ? and {test} "
            f"order by version.point limit {page + 1}",
            (collection, b"" if after is None else point_bytes(after), *values),
        )
        return rows[:page], point_text(cast("bytes", rows[page][1])) if len(rows) > page else None

    def _entry(self, row: Row) -> Entry:
        """Return the entry of a row of `SELECTED`, with its vectors where `VECTOR` follows."""
        memory = memory_of(row, self.database.place)
        vector = row[SELECTED_COUNT : SELECTED_COUNT + 4]
        if not vector:
            return Entry(memory)
        return Entry(memory, *vectors_of(cast("bytes", row[1]), vector, self.database.place))


def _entry_parts(with_vectors: bool) -> tuple[str, str]:
    """Return columns and tables of `SqlStore._entry`."""
    if not with_vectors:
        return SELECTED, STORED
    return f"{SELECTED}, {VECTOR}", f"{STORED} left join vec on vec.seq = version.seq"


def _by_point(link: SqlLink, columns: str, tables: str, collection: str, points: Sequence[bytes]) -> list[Row]:
    """Return the rows of these points that exist, in no order."""
    rows: list[Row] = []
    for first in range(0, len(points), IDS_PER_QUERY):
        piece = points[first : first + IDS_PER_QUERY]
        sql = f"select {columns} from {tables} where version.collection = ? and version.point in "
        rows += link.rows(f"{sql}({', '.join('?' * len(piece))})", (collection, *piece))
    return rows


def _put(link: SqlLink, collection: str, rows: Sequence[NewRow]) -> int:
    """Insert or replace these versions; return the number of the last change. Raises ChangedMeanwhile: one was changed
    since it was read."""
    points = [row.point for row in rows]
    stored = {
        point: (cast("int", seq), str(doc))
        for point, seq, doc in _by_point(link, "point, seq, doc", "version", collection, points)
    }
    for row in rows:
        if row.memory.revision is not None:
            revisions.check(row.memory, record(parsed(stored[row.point][1])) if row.point in stored else None)
    changed = number = cast("int", link.rows(_NEXT)[0][0])
    for changed, row in enumerate({row.point: row for row in rows}.values(), number):
        if row.point not in stored:
            link.run(_INSERT, (changed, changed, *row.columns, row.crc))
            _add_parts(link, changed, row)
            continue
        seq, doc = stored[row.point]
        _delete_terms(link, seq, doc)
        link.run("delete from version where seq = ?", (seq,))  # its vectors and usage go with it
        link.run(_INSERT, (seq, changed, *row.columns, row.crc))
        _add_parts(link, seq, row)
    return changed


def _add_parts(link: SqlLink, seq: int, row: NewRow) -> None:
    link.run_many("insert into term(field, value, seq) values(?, ?, ?)", [(*term, seq) for term in row.terms])
    if row.vector is not None:
        link.run(_NEW_VECTOR, (seq, *row.vector, row.traits))
    if row.used is not None:
        link.run(_USED, (seq, *row.used))


def _delete_terms(link: SqlLink, seq: int, doc: str) -> None:
    link.run_many("delete from term where field = ? and value = ? and seq = ?", [(*t, seq) for t in _terms_in(doc)])


def _terms_in(doc: str) -> frozenset[tuple[int, str]]:
    """Return the terms of a stored text; of a damaged one none, which `faults` names."""
    try:
        return terms_of(record(parsed(doc)))
    except ValueError:
        return frozenset()


def _written_above(number: int) -> str:
    return f" and version.changed > {int(number)}" if number else ""


def _write_vector(link: SqlLink, seq: int, vector: Row | None) -> None:
    """Replace a version's vectors and words."""
    if vector is None:
        link.run("delete from vec where seq = ?", (seq,))
    else:
        link.run(_VECTOR, (seq, *vector))
    link.run(f"update version set changed = ({_NEXT}) where seq = ?", (seq,))


def _best(points: Sequence[bytes], scores: np.ndarray, limit: int) -> list[Hit]:
    return [Hit(point_text(points[at]), float(scores[at])) for at in np.argsort(-scores, kind="stable")[:limit]]


# --- what a collection was embedded with -----------------------------------------------------------------------------


def _meta_name(collection: str) -> str:
    return f"embedders:{collection}"


def _identities(link: SqlLink, collection: str) -> dict[str, EmbedderIdentity] | None:
    """Return the embedders of a collection, None where it was never opened."""
    for (stored,) in link.rows("select value from meta where name = ?", (_meta_name(collection),)):
        try:
            return identities_of(str(stored))
        except (ValueError, IndexError) as error:
            raise StoreDamaged(f"what {collection} was embedded with cannot be read; restore a backup.") from error
    return None


def identities_of(stored: str) -> dict[str, EmbedderIdentity]:
    """Return the embedders that `meta` names of a collection. Raises ValueError, IndexError: it names none."""
    named = {name: items(value) for name, value in record(parsed(stored)).items()}
    return {name: EmbedderIdentity(text(one[0]), whole(one[1]), text(one[2])) for name, one in named.items()}


def _identities_text(embedders: Mapping[str, EmbedderIdentity]) -> str:
    return json.dumps({name: [one.model, one.dimensions, one.roles] for name, one in embedders.items()})


def _added(link: SqlLink, collection: str, wanted: Mapping[str, EmbedderIdentity]) -> dict[str, EmbedderIdentity]:
    """Add embedders to a collection; return all it has. Raises WrongEmbedder: one has another identity there."""
    stored = _identities(link, collection) or {}
    if conflict := identity_conflict(collection, stored, wanted):
        raise conflict
    stored |= wanted
    link.run(_META, (_meta_name(collection), _identities_text(stored)))
    return stored
