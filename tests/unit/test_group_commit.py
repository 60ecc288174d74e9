"""Group commit: whoever is last in line commits for all, and each writer learns what became of their own unit."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.store.database import Sqlite
from memory_anchor.store.group_commit import CommitFailed, GroupCommit, SqlConnection, SqlLink

THREADS = 6
UNITS = 5


class Flaky(SqlLink):
    """A connection whose commits fail on order. groups: the units of each transaction that reached COMMIT."""

    def __init__(self, path: Path, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.raw = cast("SqlConnection", sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        super().__init__(self.raw, mark="?", in_transaction=lambda: bool(cast("Any", self.raw).in_transaction))
        self.fails = fails
        self.commits = 0
        self.groups: list[set[str]] = []
        self.failed: set[str] = set()
        self.run("create table unit(name text primary key)")

    def run(self, sql: str, values: Any = ()) -> int:
        if sql == "commit":
            self.commits += 1
            names = {str(name) for (name,) in self.rows("select name from unit")} - self.stored()
            self.groups.append(names)
            if self.fails(self.commits):
                self.failed |= names
                raise sqlite3.OperationalError("disk I/O error")
        return super().run(sql, values)

    def stored(self) -> set[str]:
        """What another connection sees."""
        path = cast("Any", self.raw).execute("pragma database_list").fetchone()[2]
        with closing(sqlite3.connect(path)) as other:
            return {name for (name,) in other.execute("select name from unit")}


class Broken(Exception):
    """What a failing unit raises."""


def unit_of(name: str, *, is_failing: bool) -> Callable[[SqlLink], str]:
    def unit(link: SqlLink) -> str:
        link.run("insert into unit values(?)", (name,))
        if is_failing:
            raise Broken(name)
        return name

    return unit


def written(joined: GroupCommit, plans: list[list[bool]]) -> dict[str, str]:
    """Run each thread's units, `is_failing` each; return of each unit what it came to."""
    outcomes: dict[str, str] = {}
    ready = threading.Barrier(len(plans))

    def run(thread: int) -> None:
        ready.wait()
        for number, is_failing in enumerate(plans[thread]):
            name = f"{thread}.{number}"
            try:
                assert joined.write(unit_of(name, is_failing=is_failing)) == name
                outcomes[name] = "returned"
            except (Broken, CommitFailed) as error:
                outcomes[name] = type(error).__name__

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def wal(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=off")
    return path


@given(
    plans=st.lists(st.lists(st.booleans(), min_size=UNITS, max_size=UNITS), min_size=THREADS, max_size=THREADS),
    bad_commits=st.sets(st.integers(1, THREADS * UNITS)),
    most=st.sampled_from((1, 3, 64)),
)
def test_exactly_the_units_that_returned_are_stored(plans: list[list[bool]], bad_commits: set[int], most: int) -> None:
    """Group commit: a failed unit goes alone; a failed COMMIT fails every unit of its group, and no other."""
    with TemporaryDirectory() as folder:
        link = Flaky(wal(Path(folder) / "units.db"), lambda commit: commit in bad_commits)
        with closing(link.raw):
            outcomes = written(GroupCommit(lambda: link, ("begin immediate",), most=most), plans)

            assert len(outcomes) == THREADS * UNITS
            assert link.stored() == {name for name, outcome in outcomes.items() if outcome == "returned"}
            assert link.failed == {name for name, outcome in outcomes.items() if outcome == "CommitFailed"}
            broken = {f"{thread}.{n}" for thread, plan in enumerate(plans) for n, fails in enumerate(plan) if fails}
            assert broken == {name for name, outcome in outcomes.items() if outcome == "Broken"}
            assert max((len(group) for group in link.groups), default=0) <= most


@pytest.mark.parametrize("is_committed", [True, False])
def test_whoever_waits_in_line_shares_one_commit_and_its_failure(tmp_path: Path, is_committed: bool) -> None:
    """Group commit: seven writers that came while one wrote are one transaction with it."""
    link = Flaky(wal(tmp_path / "units.db"), lambda _: not is_committed)
    joined = GroupCommit(lambda: link, ("begin immediate",))
    others = list(range(7))
    outcomes: list[str] = []

    def write(number: int) -> None:
        try:
            outcomes.append(joined.write(unit_of(str(number), is_failing=number == 3)))
        except (Broken, CommitFailed) as error:
            outcomes.append(type(error).__name__)

    threads = [threading.Thread(target=write, args=(number,)) for number in others]

    def first(link: SqlLink) -> None:
        link.run("insert into unit values('first')")
        for thread in threads:
            thread.start()
        while joined.waiting < len(others):
            threading.Event().wait(0.001)

    with closing(link.raw):
        if is_committed:
            joined.write(first)
        else:
            with pytest.raises(CommitFailed):
                joined.write(first)
        for thread in threads:
            thread.join(60)

        assert link.groups == [{"first", *map(str, {*others} - {3})}]
        assert link.stored() == (link.groups[0] if is_committed else set())
        assert sorted(outcomes) == sorted(
            ["Broken", *([str(n) for n in others if n != 3] if is_committed else ["CommitFailed"] * 6)]
        )


def test_a_transaction_that_a_unit_could_not_begin_concerns_it_alone(tmp_path: Path) -> None:
    """Group commit: where another process holds the lock, the writer is told, and the next one begins anew."""
    path = wal(tmp_path / "units.db")
    link = Flaky(path)
    joined = GroupCommit(lambda: link, ("begin immediate",))
    with closing(link.raw), closing(sqlite3.connect(path, isolation_level=None)) as other:
        link.run("pragma busy_timeout=0")
        other.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            joined.write(unit_of("early", is_failing=False))
        other.execute("commit")

        joined.write(unit_of("later", is_failing=False))

        assert link.stored() == {"later"}


def test_a_block_is_the_writers_lock_and_sees_what_it_wrote(tmp_path: Path) -> None:
    """Group commit: eight writers that read, decide and write lose no count; each block sees the one before it."""
    link = Flaky(wal(tmp_path / "units.db"))
    joined = GroupCommit(lambda: link, ("begin immediate",))

    def count() -> None:
        for _ in range(UNITS):
            with joined.unit() as inside:
                ((many,),) = inside.rows("select count(*) from unit")
                inside.run("insert into unit values(?)", (f"number {many}",))

    threads = [threading.Thread(target=count) for _ in range(8)]
    with closing(link.raw):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

        assert link.stored() == {f"number {n}" for n in range(8 * UNITS)}


def test_what_follows_a_commit_is_called_whatever_another_one_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group commit: the work is stored, so each cache hears of it, and its log is copied; then the failure is told."""
    monkeypatch.setattr("memory_anchor.store.database.SHORTEN_AFTER_S", 0.05)
    calls: list[str] = []

    def broken() -> None:
        calls.append("broken")
        raise Broken

    with closing(Sqlite(tmp_path / "memory.db")) as database:
        database.written = lambda: calls.append("written")
        with pytest.raises(Broken), database.unit() as link:
            link.run("insert into meta(name, value) values('a', 'b')")
            database.afterwards(broken)
            database.afterwards(lambda: calls.append("cache"))
            assert calls == []

        assert calls == ["written", "broken", "cache"]
        assert database.rows("select value from meta where name = 'a'") == [("b",)]
        for _ in range(1_000):  # nothing else writes
            if (tmp_path / "memory.db-wal").stat().st_size == 0:
                break
            threading.Event().wait(0.02)
        else:
            pytest.fail("the log was not copied into the file")


def test_what_is_undone_is_followed_by_nobody(tmp_path: Path) -> None:
    """Group commit: neither the index nor a cache hears of a unit that failed."""
    calls: list[str] = []
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        database.written = lambda: calls.append("written")
        with pytest.raises(Broken), database.unit():
            database.afterwards(lambda: calls.append("cache"))
            raise Broken

    assert calls == []


def test_a_block_in_a_block_is_undone_alone(tmp_path: Path) -> None:
    """Group commit: the outer block goes on after what failed within it; what was to follow that does not."""
    link = Flaky(wal(tmp_path / "units.db"))
    joined = GroupCommit(lambda: link, ("begin immediate",))
    followed: list[str] = []
    with closing(link.raw):
        with joined.unit():
            joined.write(unit_of("kept", is_failing=False))
            joined.afterwards(lambda: followed.append("kept"))
            with pytest.raises(Broken), joined.unit():
                joined.afterwards(lambda: followed.append("undone"))
                joined.write(unit_of("undone", is_failing=True))
            assert followed == [] and link.stored() == set()

        assert link.stored() == {"kept"} and followed == ["kept"]


def test_what_is_to_follow_a_failed_commit_never_does(tmp_path: Path) -> None:
    """Group commit: nothing is told of what was not stored."""
    link = Flaky(wal(tmp_path / "units.db"), lambda _: True)
    joined = GroupCommit(lambda: link, ("begin immediate",))
    followed: list[str] = []
    with closing(link.raw):
        with pytest.raises(CommitFailed), joined.unit():
            joined.afterwards(lambda: followed.append("never"))
            joined.write(unit_of("never", is_failing=False))
        joined.afterwards(lambda: followed.append("at once"))

        assert followed == ["at once"] and link.stored() == set()
