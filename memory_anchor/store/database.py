"""The two databases that hold the truth: SQLite, one file of one machine, and PostgreSQL for several engines.

Both give the same: reads on a pool of connections (as many as threads that read at once), writes through one
connection as groups (`group_commit`), foreign errors as ours. The lock of every write is the database's own, so two
processes never decide at the same time: `BEGIN IMMEDIATE`, or an advisory lock before a transaction's first read.

SQLite: a write-ahead log, synced at each COMMIT (`synchronous=FULL`); deleted bytes are overwritten
(`secure_delete`); the file is made 0600 before SQLite opens it, and its log takes that mode. The log is copied into
the file behind the writers (`_Checkpoints`). `:memory:` is one connection: its readers take the writers' lock, and a
group is one unit there, or they would see what is not committed. Rejected: a shared cache, whose readers fail at once
where a writer holds a table, whatever the timeout.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
import threading
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

from memory_anchor.base.files import file_error, make_private, sync_file, sync_folder
from memory_anchor.domain.errors import (
    DiskFull,
    MemoryAnchorError,
    Mending,
    StoreBusy,
    StoreDamaged,
    Unavailable,
)
from memory_anchor.store.group_commit import MOST, CommitFailed, GroupCommit, Row, SqlConnection, SqlLink, Value
from memory_anchor.store.layout import LAYOUT, SQLITE, SqlDialect

T = TypeVar("T")
IN_MEMORY = Path(":memory:")
DATABASE_FILE = Path("store", "memory.db")
"""Where a data directory has its database."""
WAIT_MS = 5_000
"""How long a connection waits for another one's lock."""
POOL_MAX = 16
"""Reading connections that are kept; more are opened where more threads read at once, and closed after it."""
LOG_PAGES_MAX = 8_000
"""Pages of the write-ahead log above which the writer itself copies it into the file: 33 MB."""
COPY_AFTER_S, SHORTEN_AFTER_S = 0.25, 5.0
"""When the log is copied into the file after a write, and when it is cut to nothing without another one."""
PAGE_BYTES = 4_096
_FILES = ("", "-wal", "-shm")
_END = struct.Struct("<QQ")
END_SQL = """select (select coalesce(max(n), 0) from (select max(changed) as n from version
  union all select max(changed) from gone) as numbers), (select coalesce(max(line), 0) from audit)"""
"""The last change and the last line of the trail."""
_BLOCK_BYTES = 512
_NOT_OURS = ("malformed JSON", "no such column", "no such table", "no such index", "table ", "unrecognized token")
"""How SQLite says that a text, or the text of a table's definition, is not the one that we wrote."""


class Database(ABC):
    """Connections to one database. Thread-safe. place: how messages name it, without a password."""

    dialect: SqlDialect
    layout = LAYOUT
    place: str

    def __init__(self, begin: tuple[str, ...], *, most: int = MOST) -> None:
        self._idle: list[SqlLink] = []
        self._pool = threading.Lock()
        self._writing: SqlLink | None = None
        self.groups = GroupCommit(self._writer, begin, most=most, committed=self._committed)
        self.written: Callable[[], None] = lambda: None
        """Called after each write that is committed: whoever follows the store goes to look."""

    def require_space(self) -> None:
        """Raise DiskFull, Unavailable: nothing may be added on this disk. A server looks after its own."""
        return

    def prepare(self) -> None:
        """Make the tables that are missing."""
        self.write(self._make_tables)

    def _make_tables(self, link: SqlLink) -> None:
        for statement in self.dialect.tables():
            link.run(statement)
        link.run("insert into meta values('layout', ?) on conflict(name) do nothing", (self.layout,))

    def _check_layout(self) -> None:
        """Raise StoreDamaged: another version of Memory Anchor made the tables."""
        found = [layout for (layout,) in self.rows("select value from meta where name = 'layout'")]
        if found != [self.layout]:
            raise StoreDamaged(
                f"{self.place} has tables of version {found}, not {self.layout}; upgrade memory-anchor, nothing was "
                "changed.",
                Mending.UPGRADE,
            )

    def write(self, unit: Callable[[SqlLink], T]) -> T:
        """Run `unit` in a transaction; return what it returned, durable. All of it is stored, or nothing."""
        with self.unit() as link:
            return unit(link)

    @contextlib.contextmanager
    def unit(self) -> Iterator[SqlLink]:
        """Do the block's work in one transaction, durable at its end: the writers' lock. All is stored, or nothing.

        What the block reads includes what it has written. Inside of another block it is a part of that one.
        """
        with self._translating(), self.groups.unit() as link:
            yield link

    def _committed(self) -> None:
        self.written()

    def afterwards(self, *follow: Callable[[], None]) -> None:
        """Call these when what this thread has written is committed; see `GroupCommit.afterwards`."""
        self.groups.afterwards(*follow)

    def note_end(self, *, change: int = 0, line: int = 0) -> None:
        """Keep how far changes and the trail go, beside the database, once the unit of this thread is committed."""
        del change, line

    @contextlib.contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except CommitFailed as failed:
            cause = failed.__cause__ or failed
            raise self.translated(cause) or Unavailable(
                f"{self.place}: the transaction of this write ended early ({type(cause).__name__}); "
                "nothing of it was stored, try again."
            ) from cause
        except Exception as error:
            if ours := self.translated(error):
                raise ours from error
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[SqlLink]:
        """Lend a connection that sees what is committed; each statement sees one state of the store.

        Inside of a unit it is the unit's own, which sees what that has written.
        """
        if (own := self.groups.inside) is not None:
            with self._translating():
                yield own
            return
        with self._pool:
            link = self._idle.pop() if self._idle else None
        try:
            with self._translating():
                link = link if link is not None and self.is_alive(link) else self.connect(writes=False)
                yield link
        finally:
            if link is not None:
                self._put_back(link)

    def rows(self, sql: str, values: tuple[str | int | float | bytes | None, ...] = ()) -> list[Row]:
        """Return the rows of a query; asked once more where the connection was found dead."""
        with self.reading() as link:
            try:
                return link.rows(sql, values)
            except Exception:
                if self.is_alive(link) or link is self.groups.inside:
                    raise
        with self.reading() as link:
            return link.rows(sql, values)

    def _put_back(self, link: SqlLink) -> None:
        """Keep a connection for the next reader; one that broke was not the only one."""
        with self._pool:
            if not self.is_alive(link):
                self._idle.clear()
            elif len(self._idle) < POOL_MAX:
                self._idle.append(link)
                return
        link.raw.close()

    def _writer(self) -> SqlLink:
        if self._writing is None or not self.is_alive(self._writing):
            self._writing = self.connect(writes=True)
        return self._writing

    def close(self) -> None:
        """Close every connection; whoever reads now finishes first, on a connection that is then closed."""
        with self.groups.lock, self._pool:
            for link in (*self._idle, *([self._writing] if self._writing else [])):
                link.raw.close()
            self._idle, self._writing = [], None

    @abstractmethod
    def connect(self, *, writes: bool) -> SqlLink: ...

    def is_alive(self, link: SqlLink) -> bool:
        """Return whether a connection can be used again; one to a file always can."""
        return not getattr(link.raw, "closed", False)

    @abstractmethod
    def translated(self, error: BaseException) -> MemoryAnchorError | None:
        """Return what a foreign error means, None for ours and for bugs. No text of a memory stands in it."""

    @abstractmethod
    def wipe(self) -> None:
        """Remove from the files what was deleted. Raises Unavailable: a reader still needs it."""

    @abstractmethod
    def size_bytes(self) -> int: ...

    @abstractmethod
    def faults(self) -> list[str]:
        """Return what the database itself finds damaged, one sentence each."""


class UnitLock:
    """The writers' lock as an object: whoever holds it is in a unit of the database. Reentrant."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._held = _HeldUnits()

    def __enter__(self) -> None:
        unit = self._database.unit()
        unit.__enter__()
        self._held.units.append(unit)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.units.pop().__exit__(kind, error, trace)


class _HeldUnits(threading.local):
    def __init__(self) -> None:
        self.units: list[contextlib.AbstractContextManager[SqlLink]] = []


class _SqliteLink(SqlLink):
    """What is not UTF-8 is damage of one row, which its checksum tells: such an answer is read again with what can be
    read of its texts. Reading all that way takes twice as long."""

    def __init__(self, raw: sqlite3.Connection, *, mark: str) -> None:
        super().__init__(cast("SqlConnection", raw), mark=mark, in_transaction=lambda: raw.in_transaction)
        self._sqlite = raw

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        try:
            return super().rows(sql, values)
        except sqlite3.OperationalError as error:
            if hasattr(error, "sqlite_errorcode"):  # said by SQLite; that a text cannot be decoded is said by Python
                raise
        self._sqlite.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        try:
            return super().rows(sql, values)
        finally:
            self._sqlite.text_factory = str


class Sqlite(Database):
    """newest: what is made last, where it is, all are; a table, and an index that no answer needs. end_sql: how far
    changes and trail go, "" for none."""

    dialect = SQLITE
    newest: tuple[str, ...] = ("record", "by_record")
    end_sql = END_SQL

    def __init__(self, path: Path, *, reserve_bytes: int = 0, sync_ms: int = 0) -> None:
        """path: of the file, made where it is missing; `IN_MEMORY` for none. reserve_bytes: free space below which
        nothing is added. sync_ms: when a COMMIT is synced after it, at the latest; 0 for before it returns.

        Raises Refused, Unavailable, DiskFull.
        """
        self.path, self.place = path, str(path)
        self._is_file = path != IN_MEMORY
        self._reserve_bytes, self._synchronous = reserve_bytes, "normal" if sync_ms else "full"
        super().__init__(("begin immediate",), most=MOST if self._is_file else 1)
        self._copying = threading.Lock()
        """One copies the log at a time: SQLite tells another one at once that somebody needs the log."""
        self._checkpoints = _Checkpoints(self._checkpointed, self._sync_log if sync_ms else None, sync_ms)
        if self._is_file:
            self._make_file()
        if not self._is_file or not self._has(self.newest[-1]):
            try:
                self.prepare()  # takes the writers' lock, for which nobody who only reads should wait
            except StoreDamaged:  # an index reads every row; without it the rows that can be read are read
                if not self._has(self.newest[0]):
                    raise
        self._check_layout()
        self._file_id = file_id(path)
        self._end: _EndMark | None = None
        if self._is_file and self.end_sql and not sync_ms:
            self._check_end(*end_of(mark := Path(f"{path}-end")))
            self._end = _EndMark(mark)

    def _has(self, name: str) -> bool:
        return bool(self.rows("select 1 from sqlite_master where name = ?", (name,)))

    def _check_end(self, noted_change: int, noted_line: int) -> None:
        """Raise StoreDamaged: a log that is cut short, or gone, is opened by SQLite without a word."""
        change, line = (int(number or 0) for number in self.rows(self.end_sql)[0])
        if noted_change > change or noted_line > line:
            raise StoreDamaged(
                f"{self.place}: {noted_change} changes and {noted_line} lines of the trail were written, {change} and "
                f"{line} can be read: its log was cut short; nothing was changed. "
                "`memory-anchor doctor --salvage` brings back what can be read.",
                Mending.SALVAGE,
            )

    def note_end(self, *, change: int = 0, line: int = 0) -> None:
        if self._end is not None:
            self.afterwards(partial(self._end.raise_to, change, line))

    def _make_file(self) -> None:
        """Make the file readable by its owner alone before SQLite opens it, its name durable."""
        make_private(self.path.parent)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))
            sync_folder(self.path.parent)
        except FileExistsError:
            pass
        except OSError as error:
            raise file_error(error, self.path) from error

    def require_space(self) -> None:
        if self._is_file and file_id(self.path) != self._file_id:
            raise Unavailable(
                f"{self.place} was removed or replaced while it was open; nothing was written. Run "
                "`memory-anchor engine stop`, then retry."
            )
        if self._is_file and self._reserve_bytes:
            free = shutil.disk_usage(self.path.parent).free
            if free < self._reserve_bytes:
                raise DiskFull(
                    f"{self.place}: its disk has {free >> 20} MiB free and needs {self._reserve_bytes >> 20} MiB; "
                    "nothing was written, free some space and retry."
                )

    def rows_written(self) -> int:
        """Return how many rows this process wrote so far; a unit that only reads changes nothing of it."""
        return int(getattr(self._writing.raw, "total_changes", 0)) if self._writing is not None else 0

    def _sync_log(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            sync_file(Path(f"{self.path}-wal"))

    def _committed(self) -> None:
        if self._is_file:
            self._checkpoints.due()
        super()._committed()

    @contextlib.contextmanager
    def reading(self) -> Iterator[SqlLink]:
        if self._is_file or self.groups.inside is not None:
            with super().reading() as link:
                yield link
            return
        with self.groups.lock, self._translating():
            yield self._writer()

    def connect(self, *, writes: bool) -> SqlLink:
        raw = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=256)
        pragmas = [f"busy_timeout={WAIT_MS}", "foreign_keys=on", "secure_delete=on", f"synchronous={self._synchronous}"]
        pragmas += ["fullfsync=on", "checkpoint_fullfsync=on"]  # macOS: fsync alone leaves it in the drive's cache
        if writes:
            pragmas[1:1] = [f"page_size={PAGE_BYTES}", "auto_vacuum=incremental", "journal_mode=wal"]
            pragmas.append(f"wal_autocheckpoint={LOG_PAGES_MAX}")
        else:
            pragmas.append("query_only=on")
        try:
            for pragma in pragmas:
                raw.execute(f"pragma {pragma}")
        except BaseException:
            raw.close()
            raise
        return _SqliteLink(raw, mark=self.dialect.mark)

    def translated(self, error: BaseException) -> MemoryAnchorError | None:
        if isinstance(error, UnicodeDecodeError):  # in SQLite's own words about a damaged definition of a table
            return self._damaged("no text")
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(f"{self.place} is being written by another process; nothing was written, try again.")
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"{self.place} has no room; nothing was written, free some space and retry.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith(_NOT_OURS):
            return self._damaged(name)
        if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return Unavailable(
                f"{self.place} cannot be used ({name}); whether the last write is stored is unknown: look at the disk."
            )
        return None

    def _damaged(self, why: str) -> StoreDamaged:
        return StoreDamaged(
            f"{self.place} cannot be read ({why}); nothing was changed. "
            "`memory-anchor doctor --salvage` brings back what can be read.",
            Mending.SALVAGE,
        )

    def _checkpointed(self, mode: str, wait_ms: int) -> bool:
        """Copy the log into the file; return whether somebody still needed the log.

        Behind the writers first, and then the few pages that were added meanwhile while they wait: a log that is copied
        whole is written from its beginning again, and a commit that does not lengthen the file is synced faster.
        """
        link = self.connect(writes=True)
        with self._copying, contextlib.closing(link.raw):
            link.run(f"pragma busy_timeout={wait_ms}")
            is_read = bool(link.rows(f"pragma wal_checkpoint({mode})")[0][0])
            if mode == "passive":
                with self.groups.lock:
                    link.rows("pragma wal_checkpoint(passive)")
            return is_read

    def wipe(self) -> None:
        """A reader that began before the deletion keeps the old pages in the log: SQLite says so and does not fail."""
        with self._translating():
            is_read = self._is_file and self._checkpointed("truncate", WAIT_MS)
        if is_read:
            raise Unavailable(
                f"{self.place}: what was erased is in no answer any more, and still in the log of the file, which "
                "somebody reads; end that reader, then erase again."
            )

    def size_bytes(self) -> int:
        total = 0
        for end in _FILES if self._is_file else ():
            with contextlib.suppress(FileNotFoundError):
                total += getattr(Path(f"{self.path}{end}").stat(), "st_blocks", 0) * _BLOCK_BYTES
        return total

    def faults(self) -> list[str]:
        lines = [str(line) for (line,) in self.rows("pragma integrity_check(20)")]
        return [] if lines == ["ok"] else [f"{self.place}: {line}" for line in lines]

    def close(self) -> None:
        self._checkpoints.stop()
        if self._is_file:
            with contextlib.suppress(sqlite3.Error):
                self._checkpointed("truncate", 0)
        super().close()
        if self._end is not None:
            self._end.close()


class _EndMark:
    """How far a database went, in a file of its own: 24 bytes, written after a COMMIT and never ahead of it.

    Not synced: after a power cut it says less than the log, which was. One with another checksum says nothing.
    Raises Refused, DiskFull: it cannot be opened or made.
    """

    def __init__(self, path: Path) -> None:
        self.change = self.line = 0
        self._lock = threading.Lock()
        try:
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise file_error(error, path) from error
        self.change, self.line = end_of(path)

    def raise_to(self, change: int, line: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            if change > self.change or line > self.line:
                self.change, self.line = max(change, self.change), max(line, self.line)
                numbers = _END.pack(self.change, self.line)
                os.lseek(self._file, 0, os.SEEK_SET)
                os.write(self._file, numbers + zlib.crc32(numbers).to_bytes(8, "little"))

    def close(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            os.close(self._file)
            self._file = -1


def file_id(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name, None where there is none."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def end_of(path: Path) -> tuple[int, int]:
    """Return the last change and the last line of the trail that a database noted in `path`, 0 where it did not."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        numbers = content[: _END.size]
        if zlib.crc32(numbers).to_bytes(8, "little") == content[_END.size :]:
            change, line = _END.unpack(numbers)
            return change, line
    return 0, 0


class _Checkpoints:
    """Copies the log into the file a quarter of a second after a write, on a thread and a connection of its own.

    So no writer pays for it, and no reader has to look through a long log. A failure costs nothing but time: the log
    holds what the file does not, and the next write tries again. sync: where a COMMIT did not wait for the disk, makes
    what is in the log durable; called at most sync_ms after a write.
    """

    def __init__(self, checkpoint: Callable[[str, int], bool], sync: Callable[[], None] | None, sync_ms: int) -> None:
        self._checkpoint, self._sync = checkpoint, sync
        self._after_s = sync_ms / 1_000 if sync else COPY_AFTER_S
        self._due, self._stopped, self._starting = threading.Event(), threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def due(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopped.is_set():
                    self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
                    self._thread.start()
        self._due.set()

    def stop(self) -> None:
        self._stopped.set()
        self._due.set()
        with self._starting:  # another thread's write may have made it, and not started it yet
            thread = self._thread
        if thread is not None and thread.is_alive():  # Ctrl-C may fall into its start
            thread.join()
        self._synced()

    def _synced(self) -> None:
        if self._sync is not None:
            with contextlib.suppress(OSError):  # the next write tries again, and a checkpoint syncs first
                self._sync()

    def _run(self) -> None:
        is_short = True
        while not self._stopped.is_set():
            is_written = self._due.wait(None if is_short else SHORTEN_AFTER_S)
            if is_written and self._stopped.wait(self._after_s):
                return
            self._due.clear()
            if is_written:
                self._synced()
            with contextlib.suppress(sqlite3.Error):
                self._checkpoint("passive" if is_written else "truncate", 0)
            is_short = not is_written
