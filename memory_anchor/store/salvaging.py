"""Reading a damaged database row by row: every version and every line of the trail that is as it was written.

SQLite stops at the first page that it cannot read. So rows are asked for by number, in pages, and one by one where a
page fails; what fails alone, or whose checksum differs, is left out. Nothing here reads the format of the file itself.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from memory_anchor.domain.errors import MemoryAnchorError, Mending, StoreDamaged
from memory_anchor.domain.ports import EmbedderIdentity, Entry
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import END_SQL, IN_MEMORY, Sqlite, end_of
from memory_anchor.store.group_commit import Row, SqlConnection, SqlLink
from memory_anchor.store.layout import LAYOUT
from memory_anchor.store.record_rows import checksum_of
from memory_anchor.store.sql_store import identities_of
from memory_anchor.store.tables import SELECTED, SELECTED_COUNT, STORED, VECTOR, memory_of, vectors_of

PAGE = 200
ROWS_PER_BYTE = 40
"""A version takes more bytes than this, so a file has fewer rows: where the last number cannot be read."""


@dataclass(slots=True)
class Readable:
    """What could be read. lost_records: names of those that could not. is_whole: every row was as it was written."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    embedders: dict[str, dict[str, EmbedderIdentity]] = field(default_factory=dict)
    lines: list[tuple[bytes, bool]] = field(default_factory=list)
    records: dict[str, bytes] = field(default_factory=dict)
    lost_records: set[str] = field(default_factory=set)
    is_whole: bool = True


def readable(file: Path, scratch: Path) -> Readable:
    """Return what can be read of the database `file`, from a copy in the empty folder `scratch`.

    Raises StoreDamaged: a newer program made its tables.
    """
    found = Readable()
    scratch.mkdir(mode=0o700, parents=True)
    for end in ("", "-wal"):  # the log holds what was not copied into the file yet
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(f"{file}{end}", scratch / f"{file.name}{end}")
    raw = sqlite3.connect(scratch / file.name, isolation_level=None)
    raw.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    link = SqlLink(cast("SqlConnection", raw), mark="?", in_transaction=lambda: raw.in_transaction)
    most = file.stat().st_size // ROWS_PER_BYTE if file.exists() else 0
    try:
        _check(link, found)
        _check_end(link, file, found)
        _read_embedders(link, found)
        columns = f"version.seq, {SELECTED}, {VECTOR}"
        tables = f"{STORED} left join vec on vec.seq = version.seq"
        for row in _rows(link, columns, tables, "version.seq", most, found):
            _take(row, found)
        for _, raw_line, is_imported in _rows(link, "line, record, imported", "audit", "line", most, found):
            found.lines.append((raw_line if isinstance(raw_line, bytes) else str(raw_line).encode(), is_imported == 1))
        _read_records(link, most, found)
    finally:
        raw.close()
    return found


def _read_records(link: SqlLink, most: int, found: Readable) -> None:
    """Read the records; what they are called is read of their index too, which has pages of its own."""
    removed: set[str] = set()
    for _, name, content, crc in _rows(link, "rowid, name, content, crc", "record", "rowid", most, found):
        if isinstance(content, bytes) and checksum_of(str(name), content) == crc:
            found.records[str(name)] = content
        elif content is None:
            removed.add(str(name))
        else:
            found.lost_records.add(str(name))
    with contextlib.suppress(sqlite3.Error):
        found.lost_records |= {str(name) for (name,) in link.rows("select name from record order by name")}
    found.lost_records -= found.records.keys() | removed
    found.is_whole &= not found.lost_records


def readable_trail(file: Path, scratch: Path) -> SqlAudit:
    """Return the audit trail of a database that may be damaged, as far as it can be read, in memory."""
    rows = SqlAudit(Sqlite(IN_MEMORY))
    rows.take_over(readable(file, scratch).lines)
    return rows


def _check(link: SqlLink, found: Readable) -> None:
    with contextlib.suppress(sqlite3.Error):
        for layout in (str(value) for (value,) in link.rows("select value from meta where name = 'layout'")):
            if layout.isdigit() and int(layout) > int(LAYOUT):
                raise StoreDamaged(
                    f"the database has tables of version {layout}, not {LAYOUT}; upgrade memory-anchor, nothing was "
                    "changed.",
                    Mending.UPGRADE,
                )
    try:
        found.is_whole = [str(line) for (line,) in link.rows("pragma integrity_check(1)")] == ["ok"]
    except sqlite3.Error:
        found.is_whole = False


def _check_end(link: SqlLink, file: Path, found: Readable) -> None:
    """See whether the log was cut short, which SQLite does not tell."""
    last: Row = (0, 0)
    with contextlib.suppress(sqlite3.Error):
        (last,) = link.rows(END_SQL)
    if any(noted > int(there or 0) for noted, there in zip(end_of(Path(f"{file}-end")), last, strict=True)):
        found.is_whole = False


def _read_embedders(link: SqlLink, found: Readable) -> None:
    try:
        for name, value in link.rows("select name, value from meta where name like 'embedders:%'"):
            found.embedders[str(name).partition(":")[2]] = identities_of(str(value))
    except (sqlite3.Error, ValueError, IndexError):
        found.is_whole = False


def _rows(link: SqlLink, columns: str, tables: str, key: str, most: int, found: Readable) -> Iterator[Row]:
    """Yield the rows by their number, which is the first column; what cannot be read is left out."""
    last, end = 0, most
    with contextlib.suppress(sqlite3.Error, IndexError):
        end = int(link.rows(f"select coalesce(max({key}), 0) from {tables.partition(' ')[0]}")[0][0] or 0)
    sql = f"select {columns} from {tables} where {key} > ? and {key} <= ? order by {key}"
    while last < end:
        upto = min(last + PAGE, end)
        try:
            yield from link.rows(sql, (last, upto))
        except sqlite3.Error:
            found.is_whole = False
            for number in range(last, upto):
                with contextlib.suppress(sqlite3.Error):
                    yield from link.rows(sql, (number, number + 1))
        last = upto


def _take(row: Row, found: Readable) -> None:
    """Add the version of a row; a damaged vector is left out, for it can be made again."""
    stored, vector = row[1 : SELECTED_COUNT + 1], row[SELECTED_COUNT + 1 :]
    try:
        memory = memory_of(stored, "")
    except MemoryAnchorError:
        found.is_whole = False
        return
    try:
        entry = Entry(memory, *vectors_of(cast("bytes", stored[1]), vector, ""))
    except (MemoryAnchorError, ValueError):
        found.is_whole, entry = False, Entry(memory)
    found.entries.setdefault(str(stored[0]), []).append(entry)
