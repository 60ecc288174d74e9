"""Group commit without a writer's thread: the last in line commits for all.

Everyone runs their own unit of work in their own thread, as a savepoint of one open transaction, under one lock. Who
finds nobody waiting behind them commits; the others leave the lock and wait for that commit. So a lone writer commits
at once, and eight writers share an fsync. Chosen over a writer's thread, which needs two switches of threads a write
and was no faster for eight writers (.94 to 1.08 of one transaction a write), and over a transaction a write (.95).

A unit is a block (`unit`), so that it can hold what is read, what is decided by it and what is written: the block is
the writers' lock. A block inside a block of the same thread is a part of it, undone alone where it fails.

Invariants: `unit` ends when its work is committed. A unit that fails is rolled back alone and fails alone. A COMMIT
that fails, or a unit whose failure ended the transaction (SQLite does that on a full disk), fails every unit of its
group, and nothing of the group is stored. What `afterwards` was given runs when the work is committed, or never; all of
it, for what one of these raises is raised when each has run: the work is stored whatever they do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Value = str | int | float | bytes | None
Row = tuple[Value, ...]
T = TypeVar("T")
MOST = 64
"""Units of one transaction: nobody waits for more than these."""
LOOKS_AGAIN_S = 1.0
"""After this time a waiting writer looks whether whoever was to commit has gone (an interrupt while in line)."""


class SqlCursor(Protocol):
    rowcount: int

    def execute(self, sql: str, values: Sequence[Value], /) -> SqlCursor: ...
    def executemany(self, sql: str, rows: Sequence[Sequence[Value]], /) -> SqlCursor: ...
    def fetchall(self) -> list[Row]: ...


class SqlConnection(Protocol):
    def cursor(self) -> SqlCursor: ...
    def close(self) -> None: ...


class SqlLink:
    """One connection, in autocommit: transactions are begun and ended by statements. Not thread-safe."""

    def __init__(self, raw: SqlConnection, *, mark: str, in_transaction: Callable[[], bool]) -> None:
        """mark: what stands for a value in this database's SQL; ours says `?`.

        in_transaction: whether a transaction is open and can still be committed.
        """
        self.raw = raw
        self._mark = mark
        self.in_transaction = in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        return self.raw.cursor().execute(sql.replace("?", self._mark), values).fetchall()

    def run(self, sql: str, values: Sequence[Value] = ()) -> int:
        """Run a statement without an answer; return how many rows it touched."""
        return self.raw.cursor().execute(sql.replace("?", self._mark), values).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        if rows:
            self.raw.cursor().executemany(sql.replace("?", self._mark), rows)


class CommitFailed(Exception):
    """The transaction of a group did not end well; nothing of it is stored. The cause says why."""


@dataclass(slots=True)
class _OpenGroup:
    link: SqlLink
    units: int = 0
    failure: BaseException | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class _Inside(threading.local):
    """What a thread is doing: the connection of its unit, None outside of one, and what is to follow its commit."""

    link: SqlLink | None = None

    def __init__(self) -> None:
        self.following: list[Callable[[], None]] = []


class GroupCommit:
    """The only way to write through one connection. Thread-safe; a unit waits for no other thread that writes."""

    def __init__(
        self,
        link: Callable[[], SqlLink],
        begin: Sequence[str],
        *,
        most: int = MOST,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        """link: the writing connection, asked for at each transaction. begin: the statements that begin one.

        committed: called after each unit that is committed, as the first of what follows it.
        most: units of one transaction; 1 for a connection that is read by others between two units.
        """
        self._link, self._begin, self._most, self._committed = link, begin, most, committed
        self.lock = threading.Lock()
        """Held while a unit or a COMMIT runs."""
        self._counting = threading.Lock()
        self.waiting = 0
        """Writers in line."""
        self._group: _OpenGroup | None = None
        self._inside = _Inside()

    def write(self, unit: Callable[[SqlLink], T]) -> T:
        """Run `unit` in a transaction and return what it returned, once that is committed; see `unit`."""
        with self.unit() as link:
            return unit(link)

    @property
    def inside(self) -> SqlLink | None:
        """The connection of the unit that this thread runs, None outside of one."""
        return self._inside.link

    def afterwards(self, *follow: Callable[[], None]) -> None:
        """Call these when what this thread has written is committed: at the end of its unit, or now without one."""
        if self._inside.link is None:
            call_each(follow)
        else:
            self._inside.following.extend(follow)

    @contextlib.contextmanager
    def unit(self) -> Iterator[SqlLink]:
        """Do the block's work in a transaction, committed when the block has ended.

        Raises what the block raised; CommitFailed: the transaction of its group failed.
        """
        if self._inside.link is not None:
            following = len(self._inside.following)
            try:
                with self._savepoint(self._inside.link):
                    yield self._inside.link
            except BaseException:
                del self._inside.following[following:]
                raise
            return
        self._count(1)
        try:
            self.lock.acquire()
        finally:
            self._count(-1)
        try:
            group = self._group = self._group or self._begun()
            following_it: list[Callable[[], None]] = []
            self._inside.following = following_it
            try:
                with self._savepoint(group.link):
                    self._inside.link = group.link
                    try:
                        yield group.link
                    finally:
                        self._inside.link = None
                group.units += 1
            except BaseException as error:
                if not group.link.in_transaction():
                    group.failure = error
                raise
            finally:
                if group.failure or not self.waiting or group.units >= self._most:
                    self._end(group)
        finally:
            self.lock.release()
        while not group.ended.wait(LOOKS_AGAIN_S):
            with self.lock:
                if self._group is group and not self.waiting:
                    self._end(group)
        if group.failure:
            raise CommitFailed from group.failure
        call_each((self._committed, *following_it))

    def _count(self, more: int) -> None:
        with self._counting:
            self.waiting += more

    def _begun(self) -> _OpenGroup:
        """Begin a transaction; on a new connection where the one at hand died while nobody used it."""
        link = self._link()
        try:
            return self._begun_on(link)
        except Exception:
            if (another := self._link()) is link:
                raise
            return self._begun_on(another)

    def _begun_on(self, link: SqlLink) -> _OpenGroup:
        try:
            for statement in self._begin:
                link.rows(statement) if statement.startswith("select") else link.run(statement)
        except BaseException:
            _roll_back(link, "rollback")
            raise
        return _OpenGroup(link)

    def _end(self, group: _OpenGroup) -> None:
        """Commit or roll back, and let everybody of the group go on."""
        self._group = None
        try:
            if group.failure is None and group.units:
                group.link.run("commit")
        except BaseException as error:
            group.failure = error
        finally:
            if group.failure or not group.units:
                _roll_back(group.link, "rollback")
            group.ended.set()

    @contextlib.contextmanager
    def _savepoint(self, link: SqlLink) -> Iterator[None]:
        link.run("savepoint unit")
        try:
            yield
        except BaseException:
            _roll_back(link, "rollback to savepoint unit", "release savepoint unit")
            raise
        link.run("release savepoint unit")


def call_each(calls: Sequence[Callable[[], None]]) -> None:
    """Call each in order, whatever another one raises; raise that at the end."""
    with contextlib.ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call)


def _roll_back(link: SqlLink, *statements: str) -> None:
    """Run these; a transaction that the database has ended itself, or a dead connection, has nothing left to undo."""
    with contextlib.suppress(Exception):
        for statement in statements:
            link.run(statement)
