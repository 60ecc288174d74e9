"""The audit trail as rows: one more line in the transaction of what it records.

Lines, numbers and hashes are those of the trail in a file (`adapters.audit`), so that a trail moves from there to here,
is exported and is verified the same. Neither is ahead of the other here: a write that failed took its line with it, and
nothing has to be noted before or compared at a start. A head says how far the trail goes, so cutting lines off the end
shows: it is written every few lines and at the end of the process, for with each line it was a page more of every save.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.audit_chain import (
    GAP,
    START,
    BrokenLink,
    broken_link,
    chain_body,
    chain_record,
    chained_line,
    continuing,
)
from memory_anchor.base.files import make_private
from memory_anchor.base.json_values import Json, Record
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.ports import AuditRecord
from memory_anchor.store.database import DATABASE_FILE, Database, file_id
from memory_anchor.store.postgresql import open_database

if TYPE_CHECKING:
    from memory_anchor.store.group_commit import SqlLink, Value

HEAD = "audit"
"""The name in `meta` under which the number and the hash of the last record stand."""
HEAD_EACH = 32
"""Lines after which the head is written."""
PAGE = 500
LINES_AT_ONCE = 1_000
_INSERT = "insert into audit(line, kind, imported, record) values(?, ?, ?, ?)"
_HEAD = "insert into meta(name, value) values(?, ?) on conflict(name) do update set value = excluded.value"


class SqlAudit:
    """The `AuditLog` port over a database. Thread-safe, and safe across processes."""

    def __init__(self, database: Database) -> None:
        self.database, self.place = database, database.place
        self._without: dict[str, int] = {}
        """Kind -> the last line up to which none is of it."""

    def size(self) -> int:
        """Return how many lines there are."""
        with self.database.reading() as link:
            return _next_line(link) - 1

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        """Append one record, durable with the unit it is part of, or on return; return its hash (64 hex digits).

        what: JSON values, never a memory's text or a secret. Raises BadInput: the record is too long.
        """
        with self.database.unit() as link:
            number, before = _end(link)
            head = _head(link)
            if head is not None and head[0] > number:  # lines were cut off the end: that is said for ever
                gap: Record = {"expected": head[0], "found": number}
                before = _add(link, head[0], before, GAP, gap, by="system", at=at)
                number = head[0] + 1
            self.database.note_end(line=_next_line(link))
            return _add(link, number, before, kind, what, by=by, at=at)

    @contextlib.contextmanager
    def recording(self, kind: str, whats: Sequence[Mapping[str, Json]], *, by: str, at: datetime) -> Iterator[None]:
        """Make what the block stores, and these records, one unit."""
        with self.database.unit():
            yield
            for what in whats:
                self.append(kind, what, by=by, at=at)

    def verify(self) -> BrokenLink | None:
        """Return the first broken link, None when the whole chain holds. A recorded gap counts as one."""
        with self.database.reading() as link:
            return broken_link(_lines(link), _head(link), "the row that")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep everybody from appending during the block."""
        with self.database.unit():
            yield

    def close(self) -> None:
        """Write the head, at the end of a process."""
        with self.database.unit() as link:
            end, head = _end(link), _head(link)
            if end[0] > (head or (0, ""))[0]:
                _write_head(link, *end)

    def lines(self) -> Iterator[bytes]:
        """Yield the whole trail as a file of JSON lines holds it, oldest line first."""
        with self.database.reading() as link:
            yield from (raw for _, raw in _lines(link))

    def write_files(self, folder: Path) -> None:
        """Write the trail as the files that `JsonlAudit` reads."""
        make_private(folder)
        file = folder / "audit.jsonl"
        with file.open("wb") as written, self.database.reading() as link:
            written.writelines(raw for _, raw in _lines(link))
            number, hashed = _end(link)
            head = _head(link) or (0, "")
            end = head if head[0] > number else (number, hashed)
            sql = "select record from audit where imported = 1 order by line"
            numbers = [record["n"] for (raw,) in link.rows(sql) if (record := chain_record(_bytes_of(raw)))]
        if end[0]:
            (folder / "audit.jsonl.head").write_bytes(b"%012d %s\n" % (end[0], end[1].encode()))
        if numbers:
            (folder / "audit.jsonl.imported").write_bytes(b"".join(b"%d %d\n" % (n, n) for n in numbers))

    def records(self, kinds: str = "") -> Iterator[AuditRecord]:
        """Yield every readable record whose kind begins with `kinds`, oldest first, without verifying it."""
        with self.database.reading() as link:
            for _, raw in _lines(link, kinds):
                if (record := chain_record(raw)) is not None and str(record["kind"]).startswith(kinds):
                    yield record

    def first(self, kind: str) -> dict[str, Json] | None:
        """Return the `what` of the first record of a kind that was made here, None without one."""
        sql = "select record from audit where kind = ? and imported = 0 and line > ? order by line limit 1"
        with self.database.reading() as link:
            last = _next_line(link) - 1
            rows = link.rows(sql, (kind, self._without.get(kind, 0)))
        if not rows and not self.database.groups.inside:
            self._without[kind] = last
        return _what(rows[0][0]) if rows else None

    def latest(self, kind: str) -> dict[str, Json] | None:
        """Return the `what` of the last record of a kind that was made here, None without one."""
        sql = "select record from audit where kind = ? and imported = 0 order by line desc limit 1"
        rows = self.database.rows(sql, (kind,))
        return _what(rows[0][0]) if rows else None

    def adopt(self, records: Sequence[Record]) -> int:
        """Continue the chain with records of a longer copy of it, durable on return; return how many were new.

        Records that are here already are skipped. Raises BadInput: the copy differs from this chain, and nothing was
        written.
        """
        with self.database.unit() as link:
            end, head = _end(link), _head(link) or (0, "")
            fresh = continuing(self.records(), end, head, records, f"the trail in {self.database.place}")
            link.run_many(
                _INSERT,
                [
                    (line, record["kind"], 1, chain_body(record) + b"\n")
                    for line, record in enumerate(fresh, _next_line(link))
                ],
            )
            if fresh and fresh[-1]["n"] > head[0]:
                _write_head(link, fresh[-1]["n"], fresh[-1]["hash"])
        return len(fresh)

    def take_over(self, lines: Sequence[tuple[bytes, bool]]) -> None:
        """Take over lines of a trail in a file, each with whether it was imported."""
        with self.database.unit() as link:
            rows = [
                (line, "" if (record := chain_record(raw)) is None else record["kind"], int(is_imported), raw)
                for line, (raw, is_imported) in enumerate(lines, _next_line(link))
            ]
            link.run_many(_INSERT, rows)

    def acknowledge(self, head: tuple[int, str] | None) -> None:
        """Take over how far a trail in a file was acknowledged."""
        if head is not None:
            with self.database.unit() as link:
                _write_head(link, *head)


def _add(link: SqlLink, number: int, before: str, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
    record, hashed = chained_line(number, before, kind, what, by=by, at=at)
    link.run(_INSERT, (_next_line(link), kind, 0, record))
    if number % HEAD_EACH == 0:
        _write_head(link, number + 1, hashed)
    return hashed


def _write_head(link: SqlLink, number: int, hashed: str) -> None:
    link.run(_HEAD, (HEAD, f"{number} {hashed}"))


def _end(link: SqlLink) -> tuple[int, str]:
    """Return number and hash of the last record."""
    number, hashed = 0, START
    for (raw,) in link.rows("select record from audit order by line desc limit 1"):
        if (record := chain_record(_bytes_of(raw))) is not None:
            number, hashed = record["n"], record["hash"]
    return number, hashed


def _head(link: SqlLink) -> tuple[int, str] | None:
    for (value,) in link.rows("select value from meta where name = ?", (HEAD,)):
        number, _, hashed = str(value).partition(" ")
        return int(number), hashed
    return None


def _next_line(link: SqlLink) -> int:
    return 1 + cast("int", link.rows("select coalesce(max(line), 0) from audit")[0][0])


def _lines(link: SqlLink, kinds: str = "") -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines, read in pages; kinds: only of records whose kind begins so."""
    line = 0
    sql = f"select line, record from audit where line > ? and substr(kind, 1, ?) = ? order by line limit {PAGE}"
    while rows := link.rows(sql, (line, len(kinds), kinds)):
        for number, raw in rows:
            line = cast("int", number)
            yield line, _bytes_of(raw)


def _bytes_of(raw: Value) -> bytes:
    """Return a stored record as it is; somebody else may have put a text in its place."""
    return raw if isinstance(raw, bytes) else str(raw).encode("utf-8", "surrogateescape")


def _what(raw: Value) -> dict[str, Json] | None:
    record = chain_record(_bytes_of(raw))
    return record["what"] if record is not None else None


def taken_over(trail: JsonlAudit, rows: SqlAudit, now: datetime) -> bool:
    """Copy a trail in a file into rows; return whether they are now the same, and verify as it did."""
    broken, head, was = trail.verify(), trail.settled(now), hashlib.sha256()
    lines = trail.lines()
    with rows.database.unit():
        while piece := list(islice(lines, LINES_AT_ONCE)):
            was.update(b"".join(raw for raw, _ in piece))
            rows.take_over(piece)
        rows.acknowledge(head)
    is_ = hashlib.sha256()
    for line in rows.lines():
        is_.update(line)
    return is_.digest() == was.digest() and rows.verify() == broken


def move_in(folder: Path, rows: SqlAudit, now: datetime) -> None:
    """Move a trail in a folder into rows. Raises StoreDamaged: it did not read back as it was."""
    if folder.is_dir():
        if not taken_over(JsonlAudit(folder / "audit.jsonl"), rows, now):
            raise StoreDamaged("the audit trail did not read back as it was written; nothing was changed.")
        rows.close()
        shutil.rmtree(folder)


class LocalTrail:
    """The trail of a data directory as it stands at each call: in a file until there is a database, then its rows.

    For processes beside the engine, which may make or upgrade the store meanwhile. Reading makes nothing.
    """

    def __init__(self, data_dir: Path, *, url: str = "") -> None:
        """url: `database.url` of the settings."""
        self._file = data_dir / DATABASE_FILE
        self._in_file = JsonlAudit(data_dir / "audit" / "audit.jsonl")
        self._url = url if url.startswith("postgres") else ""
        self._rows: SqlAudit | None = None
        self._opened: tuple[int, int] | None = None

    def _reads(self) -> JsonlAudit | SqlAudit:
        if not self._url and not self._file.exists():
            return self._in_file
        return self._rows_of_today()

    def _rows_of_today(self) -> SqlAudit:
        """Return the rows of the database that is there: a restore, say, puts another file in its place."""
        if self._rows is not None and not self._url and file_id(self._file) != self._opened:
            self.close()
        if self._rows is None:
            self._rows = SqlAudit(open_database(self._url or "sqlite", self._file))
            self._opened = file_id(self._file)
        return self._rows

    def _writes(self) -> JsonlAudit | SqlAudit:
        """A directory without any trail gets a database."""
        reads = self._reads()
        is_new = not self._in_file.path.parent.exists()
        return self._rows_of_today() if is_new and reads is self._in_file else reads

    @property
    def is_shared(self) -> bool:
        """Whether other machines write to it too."""
        return bool(self._url)

    @property
    def database(self) -> Database | None:
        """The database that the trail is in, None while it is a file."""
        reads = self._reads()
        return reads.database if isinstance(reads, SqlAudit) else None

    def close(self) -> None:
        if self._rows is not None:
            self._rows.database.close()
            self._rows = None

    @property
    def place(self) -> str:
        return self._reads().place

    def size(self) -> int:
        return self._reads().size()

    def verify(self) -> BrokenLink | None:
        return self._reads().verify()

    def records(self, kinds: str = "") -> Iterator[AuditRecord]:
        return self._reads().records(kinds)

    def first(self, kind: str) -> dict[str, Json] | None:
        return self._reads().first(kind)

    def latest(self, kind: str) -> dict[str, Json] | None:
        return self._reads().latest(kind)

    def append(self, kind: str, what: Mapping[str, Json], *, by: str, at: datetime) -> str:
        return self._writes().append(kind, what, by=by, at=at)

    def adopt(self, records: Sequence[Record]) -> int:
        """As of `SqlAudit`; for who has asked the engine before, which made or upgraded the database."""
        return self._rows_of_today().adopt(records)
