"""What an index beside the store needs of it: whole points in the order of their writes, and where the index stands.

Nothing here decodes a memory: a payload is the stored text, with the usage beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from memory_anchor.adapters.system import new_token
from memory_anchor.domain.ports import Mark, WholePoint
from memory_anchor.store.tables import point_bytes, point_text

if TYPE_CHECKING:
    from memory_anchor.store.database import Database
    from memory_anchor.store.group_commit import Row, SqlLink

PIECE = 64
"""Points in one answer: some 200 kB."""
MARKS_PIECE = 2_000
_IN_COLLECTION = "version.collection || '' = ?"
"""Not by the index of collections: SQLite read and sorted all of one for each piece."""
_WHOLE = """select version.seq, version.changed, version.point, version.doc, used.doc, vec.names, vec.dense, vec.words
  from version left join vec on vec.seq = version.seq left join used on used.seq = version.seq
  where"""
_KEPT = "insert into meta(name, value) values(?, ?) on conflict(name) do update set value = excluded.value"
_LAST = """select coalesce(max(n), 0) from
  (select max(changed) as n from version union all select max(changed) from gone) as numbers"""


class PointSource:
    """Thread-safe, as the database is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last_change(self) -> int:
        ((last,),) = self._database.rows(_LAST)
        return cast("int", last)

    def count(self, collection: str) -> int:
        ((count,),) = self._database.rows("select count(*) from version where collection = ?", (collection,))
        return cast("int", count)

    def changed(self, collection: str, *, above: int, up_to: int) -> list[WholePoint]:
        """Return a piece of what was last written in these numbers, in their order; [] at the end."""
        sql = f"{_WHOLE} {_IN_COLLECTION} and version.changed > ? and version.changed <= ?"
        rows = self._database.rows(f"{sql} order by version.changed limit {PIECE}", (collection, above, up_to))
        return [_point_of(row) for row in rows]

    def all(self, collection: str, *, above: int) -> list[WholePoint]:
        """Return a piece of a collection above a number of a version, in their order; [] at the end."""
        sql = f"{_WHOLE} {_IN_COLLECTION} and version.seq > ? order by version.seq limit {PIECE}"
        return [_point_of(row) for row in self._database.rows(sql, (collection, above))]

    def points(self, collection: str, point_ids: Sequence[str]) -> list[WholePoint]:
        """Return those of these points that exist."""
        marks = ", ".join("?" * len(point_ids))
        sql = f"{_WHOLE} version.collection = ? and version.point in ({marks})"
        rows = self._database.rows(sql, (collection, *map(point_bytes, point_ids)))
        return [_point_of(row) for row in rows]

    def marks(self, collection: str) -> Iterator[Mark]:
        above = 0
        sql = f"""select seq, point, state, audience from version where {_IN_COLLECTION} and seq > ?
          order by seq limit {MARKS_PIECE}"""
        while rows := self._database.rows(sql, (collection, above)):
            for seq, point, state, audience in rows:
                above = cast("int", seq)
                yield Mark(point_text(cast("bytes", point)), str(state), str(audience))

    def gone(self, collection: str, *, above: int, up_to: int) -> list[str]:
        """Return the points of the collection that were erased in these numbers."""
        sql = "select point from gone where collection = ? and changed > ? and changed <= ?"
        rows = self._database.rows(sql, (collection, above, up_to))
        return [point_text(cast("bytes", point)) for (point,) in rows]

    def touched(self, collection: str, *, above: int) -> list[str]:
        """Return the points of the collection that were written above a number, and still are there."""
        sql = f"select point from version where {_IN_COLLECTION} and changed > ?"
        return [point_text(cast("bytes", point)) for (point,) in self._database.rows(sql, (collection, above))]

    def database_id(self) -> str:
        """Return the id of this database, made once, by which an index is known as its own."""

        def made(link: SqlLink) -> str:
            link.run("insert into meta(name, value) values('id', ?) on conflict do nothing", (new_token(),))
            ((stored,),) = link.rows("select value from meta where name = 'id'")
            return str(stored)

        return self.kept("id") or self._database.write(made)

    def kept(self, name: str) -> str:
        """Return a small text of that name, "" where there is none."""
        rows = self._database.rows("select value from meta where name = ?", (name,))
        return str(rows[0][0]) if rows else ""

    def keep(self, name: str, value: str) -> None:
        """Store a small text, durable on return."""
        self._database.write(lambda link: link.run(_KEPT, (name, value)))


def _point_of(row: Row) -> WholePoint:
    number, changed, point, doc, usage, names, dense, words = row
    payload = str(doc) if usage is None else f"{str(doc)[:-1]},{str(usage)[1:]}"
    return WholePoint(
        cast("int", number),
        cast("int", changed),
        point_text(cast("bytes", point)),
        payload,
        str(names or ""),
        cast("bytes", dense or b""),
        cast("bytes", words or b""),
    )
