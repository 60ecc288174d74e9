"""Small named texts as rows: what a process keeps beside its memories, in the transactions of the store.

`changed` counts the writes of all records, so a replica asks for what is above the number it has seen. A deleted record
stays as a row without content, for a replica to remove its copy, until a later one is deleted a day after it. Each row
has a checksum, as every row of the store.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from memory_anchor.base.files import file_error, make_private, read_bounded
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, StoreDamaged, TooLarge
from memory_anchor.domain.ports import ListedRecord, StoredRecord
from memory_anchor.store.layout import micros

if TYPE_CHECKING:
    from memory_anchor.store.database import Database
    from memory_anchor.store.group_commit import SqlLink, Value

BYTES_MAX = 64 << 20
MOVED = ("jobs.json", "usage.json", "jobs", "requests", "team/ingest")
"""Files and folders of a data directory of the old layout, and of a backup, whose content is rows in a database."""
UNFINISHED = (".lock", ".tmp")
NAMES_AT_ONCE = 500
GONE_KEPT = timedelta(days=1)
_LAST = "select coalesce(max(changed), 0) from record"
_PUT = f"""insert into record(name, changed, at, crc, content) values(?, ({_LAST}) + 1, ?, ?, ?) on conflict(name)
  do update set changed = excluded.changed, at = excluded.at, crc = excluded.crc, content = excluded.content"""
_MICROSECONDS = 1_000_000


class SqlRecords:
    """The port `SmallRecords` over a database. Thread-safe, and safe across processes and machines."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self.database, self._now = database, now

    def read(self, name: str) -> StoredRecord | None:
        """Raises StoreDamaged: the row is not as it was written."""
        sql = "select content, crc, changed from record where name = ? and content is not null"
        for content, crc, changed in self.database.rows(sql, (checked_name(name),)):
            return StoredRecord(name, _sound(self.database, name, cast("bytes", content), crc), str(changed))
        return None

    def revisions(self, names: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for first in range(0, len(names), NAMES_AT_ONCE):
            piece = tuple(map(checked_name, names[first : first + NAMES_AT_ONCE]))
            marks = ", ".join("?" * len(piece))
            sql = f"select name, changed from record where content is not null and name in ({marks})"
            found |= {str(name): str(changed) for name, changed in self.database.rows(sql, piece)}
        return found

    def write(self, name: str, content: bytes, *, before: str | None) -> str:
        if len(content) > BYTES_MAX:
            raise TooLarge(f"{name} would have {len(content)} bytes; allowed are {BYTES_MAX}")
        with self.database.unit() as link:
            self._check(link, name, before)
            link.run(_PUT, (checked_name(name), micros(self._now()), checksum_of(name, content), content))
            return _revision(link, name)

    def delete(self, name: str, *, before: str | None) -> None:
        with self.database.unit() as link:
            if not _revision(link, name):
                return
            self._check(link, name, before)
            now = self._now()
            link.run(_PUT, (checked_name(name), micros(now), 0, None))
            old = (micros(now - GONE_KEPT), name)
            link.run("delete from record where content is null and at < ? and name <> ?", old)

    def listed(self, folder: str) -> list[ListedRecord]:
        prefix = f"{checked_name(folder)}/"
        sql = "select name, changed, at from record where name >= ? and name < ? and content is not null order by name"
        rows = self.database.rows(sql, (prefix, f"{folder}0"))  # the sign after a slash
        return [ListedRecord(str(name), str(changed), cast("int", at) / _MICROSECONDS) for name, changed, at in rows]

    def unit(self) -> AbstractContextManager[SqlLink]:
        return self.database.unit()

    def wipe(self) -> None:
        self.database.afterwards(self.database.wipe)

    # --- for those who follow, and for copies ------------------------------------------------------------------------

    def last_change(self) -> int:
        ((last,),) = self.database.rows(_LAST)
        return cast("int", last)

    def changes(self, *, above: int, names: Sequence[str] = ()) -> Iterator[tuple[int, str, bytes | None]]:
        """Yield (number, name, content) of what was written since, None for a deleted one. Raises StoreDamaged.

        names: only of records that are named so, or begin with one that ends in a slash; () for all.
        """
        tests = ["substr(name, 1, length(?)) = ?" if name.endswith("/") else "name = ?" for name in names]
        values = [value for name in names for value in ((name, name) if name.endswith("/") else (name,))]
        test = f"and ({' or '.join(tests)})" if tests else ""
        sql = f"select changed, name, content, crc from record where changed > ? {test} order by changed"
        for changed, name, content, crc in self.database.rows(sql, (above, *values)):
            sound = None if content is None else _sound(self.database, str(name), cast("bytes", content), crc)
            yield cast("int", changed), str(name), sound

    def write_files(self, folder: Path, *, but: Container[str]) -> None:
        """Write the records that have no file as the files that `take_over` reads. but: first parts left out."""
        for _, name, content in self.changes(above=0):
            if content is not None and is_moved(name) and name.partition("/")[0] not in but:
                path = folder / checked_name(name)
                make_private(path.parent)
                path.write_bytes(content)

    def take_over(self, data_dir: Path) -> list[str]:
        """Take over the records that are files in a data directory; return their names. The files stay."""
        taken = []
        with self.database.unit():
            for path in chain.from_iterable(
                (data_dir / place, *sorted((data_dir / place).rglob("*"))) for place in MOVED
            ):
                if path.is_symlink() or not path.is_file() or path.suffix in UNFINISHED:
                    continue
                try:
                    content = read_bounded(path, most_bytes=BYTES_MAX)
                except OSError as error:
                    raise file_error(error, path) from error
                if content is not None:
                    taken.append(path.relative_to(data_dir).as_posix())
                    self.write(taken[-1], content, before=None)
        return taken

    @staticmethod
    def _check(link: SqlLink, name: str, before: str | None) -> None:
        if before is not None and _revision(link, name) != before:
            raise ChangedMeanwhile(f"{name} was changed meanwhile; nothing was written, try again.")


def checked_name(name: str) -> str:
    """Return a name that stays below the data directory. Raises BadInput."""
    path = PurePosixPath(name)
    if not name or len(name) > 200 or path.is_absolute() or ".." in path.parts or path.as_posix() != name:
        raise BadInput(f"{name[:80]!r} is no name of a record; allowed are up to 200 characters such as team/keys.json")
    return name


def record_faults(database: Database) -> Iterator[str]:
    """Yield a sentence for each record that is not as it was written."""
    for name, content, crc in database.rows("select name, content, crc from record where content is not null"):
        if checksum_of(str(name), cast("bytes", content)) != crc:
            yield _damage(database, str(name))


def there_as_files(data_dir: Path) -> list[str]:
    """Return which files and folders of a data directory hold records that a database has as rows."""
    return [place for place in MOVED if (data_dir / place).exists()]


def is_moved(name: str) -> bool:
    """Return whether a record of this name is a row alone, without a file."""
    return any(name == place or name.startswith(f"{place}/") for place in MOVED)


def _revision(link: SqlLink, name: str) -> str:
    rows = link.rows("select changed from record where name = ? and content is not null", (name,))
    return str(rows[0][0]) if rows else ""


def checksum_of(name: str, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(name.encode("utf-8", "surrogateescape")))


def _sound(database: Database, name: str, content: bytes, crc: Value) -> bytes:
    if checksum_of(name, content) != crc:
        raise StoreDamaged(_damage(database, name))
    return content


def _damage(database: Database, name: str) -> str:
    return f"{database.place}: the record {name} is not as it was written; `memory-anchor backup restore` has it."
