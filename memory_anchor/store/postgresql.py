"""PostgreSQL as a store's database, for several servers of one memory; and which of the two databases settings name.

Not only memories: a lock that has a name says which of several processes runs the jobs (`holds`).
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from pathlib import Path
from typing import cast

from memory_anchor.domain.errors import (
    BadInput,
    DiskFull,
    MemoryAnchorError,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    extra_missing,
)
from memory_anchor.store.database import WAIT_MS, Database, Sqlite
from memory_anchor.store.group_commit import SqlConnection, SqlLink
from memory_anchor.store.layout import POSTGRESQL

_ADVISORY_LOCK = 0x6D656D6F7279
"""The key of the lock of every write: "memory"."""
_NAMED_LOCKS = 0x6D656D
"""The upper half of the keys of locks that have names."""


class Postgresql(Database):
    """A database on a server. Waits for the lock of writes at most `WAIT_MS`."""

    dialect = POSTGRESQL

    def __init__(self, url: str) -> None:
        """url: as libpq reads it. Raises Unavailable: no server, no access, or the extra `server` is missing."""
        try:
            import psycopg
        except ImportError:
            raise extra_missing("server", "database.url postgresql") from None
        self._url, self._psycopg = url, psycopg
        self.place = "the PostgreSQL database"
        self._holding = threading.Lock()
        self._asking: SqlLink | None = None
        """The connection that asks for locks of a name and has them; it lives as long as this object."""
        self._held: set[str] = set()
        super().__init__(("begin", f"select pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        try:
            self.prepare()
        except Unavailable as error:
            # What precedes it may repeat a part of the address; a server's severity is in its own language.
            before, _, said = str(error.__cause__).rpartition(" failed: ")
            line = said.partition("\n")[0] if "connection to server " in before else "no server at this address"
            why = line.partition(":  ")[2] or line
            raise Unavailable(
                f"{self.place} does not answer ({why}); nothing was changed. Start it, or correct database.url."
            ) from error
        self._check_layout()

    def connect(self, *, writes: bool) -> SqlLink:
        options = f"-c lock_timeout={WAIT_MS} -c default_transaction_read_only={'off' if writes else 'on'}"
        raw = self._psycopg.connect(self._url, autocommit=True, connect_timeout=WAIT_MS // 1_000, options=options)
        in_transaction = self._psycopg.pq.TransactionStatus.INTRANS
        return SqlLink(
            cast("SqlConnection", raw),
            mark=self.dialect.mark,
            in_transaction=lambda: raw.info.transaction_status == in_transaction,
        )

    def translated(self, error: BaseException) -> MemoryAnchorError | None:
        errors = self._psycopg.errors
        if isinstance(error, UnicodeDecodeError | errors.DataCorrupted | errors.IndexCorrupted):
            return StoreDamaged(f"{self.place} cannot be read ({type(error).__name__}); restore it from a dump.")
        if isinstance(error, errors.DiskFull):
            return DiskFull(f"{self.place} has no room; nothing was written, free some space there and retry.")
        if isinstance(error, errors.LockNotAvailable):
            return StoreBusy(f"{self.place} is being written by another engine; nothing was written, try again.")
        if isinstance(error, errors.InsufficientPrivilege | errors.InvalidSchemaName):
            why = error.diag.message_primary
            return Refused(f"{self.place} refuses ({why}), nothing was changed; grant it to the role of database.url.")
        if isinstance(error, errors.DataError):
            return BadInput(f"{self.place} refuses a value ({type(error).__name__}): a NUL is no text.")
        if isinstance(error, self._psycopg.OperationalError | errors.ReadOnlySqlTransaction):
            return Unavailable(
                f"{self.place} does not answer ({type(error).__name__}); whether the last write is stored is unknown."
            )
        return None

    def holds(self, name: str) -> bool:
        """Return whether this process has the lock of that name; it takes a free one, for as long as it lives.

        The lock is a connection's: one that ended, with its process or the server, lets go at once.
        """
        with self._holding, self._translating():
            try:
                is_ours = self._asked(name)
            except self._psycopg.Error:
                if self._asking is None:
                    raise
                self._end_asking()  # it ended, and every lock with it
                is_ours = self._asked(name)
            self._held |= {name} if is_ours else set()
            return is_ours

    def _asked(self, name: str) -> bool:
        if self._asking is None:
            self._asking = self.connect(writes=False)
        if name in self._held:  # a lock that is taken twice is let go twice
            return bool(self._asking.rows("select 1"))
        sql = "select case when pg_try_advisory_lock(?) then 1 else 0 end"
        return self._asking.rows(sql, (_key(name),)) == [(1,)]

    def _end_asking(self) -> None:
        if self._asking is not None:
            self._asking.raw.close()
        self._asking, self._held = None, set()

    def let_go(self, name: str) -> None:
        """Let another process have the lock of that name."""
        with self._holding:
            if name in self._held and self._asking is not None:
                self._held.discard(name)
                try:
                    self._asking.rows("select 1 where pg_advisory_unlock(?)", (_key(name),))
                except self._psycopg.Error:
                    self._end_asking()

    def close(self) -> None:
        with self._holding:
            self._end_asking()
        super().close()

    def wipe(self) -> None:
        """Let the server use the room again. Its own log and its backups are the server's (docs/store.md)."""
        with contextlib.closing(self.connect(writes=True).raw) as raw:
            for table in ("version", "term", "vec", "used", "record"):
                raw.cursor().execute(f"vacuum {table}", ())

    def size_bytes(self) -> int:
        ((size,),) = self.rows("select pg_database_size(current_database())")
        return int(size or 0)

    def faults(self) -> list[str]:
        """The server has checksums of its own, where it was set up with them."""
        return []


def _key(name: str) -> int:
    return _NAMED_LOCKS << 32 | zlib.crc32(name.encode())


def open_database(url: str, default: Path, *, reserve_bytes: int = 0, sync_ms: int = 0) -> Database:
    """Return the database that `database.url` names. default: the file of `sqlite`; the others as of `Sqlite`.

    Raises BadInput: neither `sqlite` nor an address of PostgreSQL.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return Postgresql(url)
    if url != "sqlite":
        raise BadInput("database.url is neither 'sqlite' nor postgresql://HOST/NAME; the value is not shown")
    return Sqlite(default, reserve_bytes=reserve_bytes, sync_ms=sync_ms)
