"""The small files that every replica of a memory has: two data directories as copies of one PostgreSQL's rows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from pgserver import Cluster
from threads import at_once

from memory_anchor.adapters.projects import Projects
from memory_anchor.adapters.system import SystemClock
from memory_anchor.base import nofollow
from memory_anchor.base.files import file_lock, refresh, remove_durably, write_atomic
from memory_anchor.domain.errors import NoCredential, Refused, Unavailable
from memory_anchor.extensions.service.keys import KeyFile, new_key
from memory_anchor.identity.keys import KeyRing
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.shared_files import SharedFiles
from memory_anchor.testing import PASSPHRASE, cheap_keys

EACH = 10


class Machine:
    """One replica's directory and its connection."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.database = folder, Postgresql(url)
        self.records = SqlRecords(self.database, SystemClock().now)
        self.shared = SharedFiles(folder, self.records)

    def begin(self) -> Machine:
        self.shared.begin()
        return self

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def read(self, name: str) -> str | None:
        refresh(self.folder)
        path = self.folder / name
        return path.read_text() if path.exists() else None

    def close(self) -> None:
        self.shared.end()
        self.database.close()


@pytest.fixture
def two(postgres: Cluster, tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    url = postgres.emptied()
    with closing(Machine(tmp_path / "a", url)) as a, closing(Machine(tmp_path / "b", url)) as b:
        yield a.begin(), b.begin()


def test_what_one_replica_writes_or_removes_the_other_has_when_it_looks(two: tuple[Machine, Machine]) -> None:
    a, b = two
    write_atomic(a / "identity/known_approvers.json", b"one")
    nofollow.write(a / "identity/team", ".ai/proposals/p-1.yaml", b"two")
    assert (b.read("identity/known_approvers.json"), b.read("identity/team/.ai/proposals/p-1.yaml")) == ("one", "two")

    write_atomic(b / "identity/known_approvers.json", b"three")
    remove_durably(b / "identity/team/.ai/proposals/p-1.yaml")

    assert (a.read("identity/known_approvers.json"), a.read("identity/team/.ai/proposals/p-1.yaml")) == ("three", None)
    assert (a / "identity/known_approvers.json").stat().st_mode & 0o777 == 0o600


def test_what_belongs_to_one_machine_stays_there(two: tuple[Machine, Machine]) -> None:
    """Spool, logs, edits' backups and a conversation's turns are of the replica that made them."""
    a, b = two
    names = ("spool/1", "identity/p/backups/1.yaml", "lorebooks/x/turns/c.json", "contexts/1.json")
    for name in names:
        write_atomic(a / name, b"here")

    assert [b.read(name) for name in names] == [None] * len(names)
    assert a.records.last_change() == 0


def test_of_replicas_that_change_one_file_under_its_lock_no_change_is_lost(two: tuple[Machine, Machine]) -> None:
    """Lock: the database's own, the copies brought up to date before the block reads."""

    def count(machine: Machine) -> None:
        for _ in range(EACH):
            with file_lock(machine / "projects.json.lock"):
                path = machine / "projects.json"
                number = int(path.read_text()) if path.exists() else 0
                write_atomic(path, str(number + 1).encode())

    at_once(*[lambda machine=machine: count(machine) for machine in two for _ in range(2)])  # type: ignore[misc]

    assert [machine.read("projects.json") for machine in two] == [str(4 * EACH)] * 2


def test_a_change_that_fails_leaves_neither_row_nor_copy(two: tuple[Machine, Machine]) -> None:
    """One transaction: what a block wrote, its audit line, its records."""
    a, _ = two
    write_atomic(a / "identity/heads.json", b"before")
    trail = SqlAudit(a.database)

    with pytest.raises(KeyError), file_lock(a / "identity/approval.lock"):
        write_atomic(a / "identity/heads.json", b"after")
        write_atomic(a / "identity/new.json", b"after")
        trail.append("constitution.effective", {}, by="human:alice", at=SystemClock().now())
        raise KeyError("the human's machine broke down")

    for machine in two:
        assert (machine.read("identity/heads.json"), machine.read("identity/new.json")) == ("before", None)
    assert trail.size() == 0


def test_what_a_kill_left_in_a_copy_is_put_right_at_the_next_start(two: tuple[Machine, Machine]) -> None:
    """Kill between the copy and the COMMIT: the rows decide."""
    a, b = two
    write_atomic(a / "identity/heads.json", b"committed")
    b.shared.end()
    (b / "identity").mkdir(exist_ok=True)
    (b / "identity/heads.json").write_text("never committed")
    (b / "identity/new.json").write_text("never committed")

    b.begin()

    assert b.read("identity/heads.json") == "committed" and b.read("identity/new.json") is None
    assert (b / "replaced-1/identity/new.json").read_text() == "never committed"
    assert list(b.folder.glob("replaced-1/**/heads.json")) == []


def test_an_empty_directory_becomes_a_replica_and_a_set_up_one_the_first(postgres: Cluster, tmp_path: Path) -> None:
    """`init` before there was a database: its key and texts become the rows."""
    url = postgres.emptied()
    with closing(Machine(tmp_path / "a", url)) as first, closing(Machine(tmp_path / "b", url)) as second:
        write_atomic(first / "identity/approver.json", json.dumps({"public": "A"}).encode())
        write_atomic(first / "first_key.json", b"{}")
        first.begin()

        assert second.begin().read("identity/approver.json") == '{"public": "A"}'
        assert second.read("first_key.json") == "{}"


def test_a_directory_with_another_key_is_refused_and_one_with_other_files_keeps_them_aside(
    postgres: Cluster, tmp_path: Path
) -> None:
    url = postgres.emptied()
    with ExitStack() as stack:
        first, stranger, other = (stack.enter_context(closing(Machine(tmp_path / name, url))) for name in "abc")
        write_atomic(first / "identity/approver.json", b'{"public": "A"}')
        first.begin()
        write_atomic(stranger / "identity/approver.json", b'{"public": "B"}')
        write_atomic(other / "lorebooks/mine/x.book", b"mine")

        with pytest.raises(Refused, match="the key of another installation"):
            stranger.begin()
        assert (stranger / "identity/approver.json").read_text() == '{"public": "B"}'

        other.begin()
        assert other.read("lorebooks/mine/x.book") is None
        assert (other / "replaced-1/lorebooks/mine/x.book").read_text() == "mine"


@pytest.mark.parametrize("rows", ["another file", "a key that was removed", "a key that cannot be read"])
def test_a_replica_at_another_database_deletes_none_of_its_own_files(
    postgres: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, rows: str
) -> None:
    """Start: the human's private key and texts of a directory that was a replica elsewhere go aside; that is said."""
    url = postgres.emptied()
    with closing(Machine(tmp_path / "a", url)) as first, closing(Machine(tmp_path / "own", url)) as own:
        write_atomic(first / "projects.json", b"{}")
        if rows != "another file":
            write_atomic(first / "identity/approver.json", b'{"public": "A"}')
        first.begin()
        if rows == "a key that was removed":
            remove_durably(first / "identity/approver.json")
        key = b"torn" if rows == "a key that cannot be read" else b'{"public": "B", "private": "..."}'
        files = {"identity/approver.json": key, "identity/constitution.yaml": b"goal: zymurgy", "replica": b""}
        for name, content in files.items():
            write_atomic(own / name, content)

        own.begin()

        aside = own / "replaced-1"
        assert [(aside / name).read_bytes() for name in list(files)[:2]] == list(files.values())[:2]
        assert own.read("identity/constitution.yaml") is None and own.read("projects.json") == "{}"
        assert "identity/approver.json" in caplog.text and str(aside) in caplog.text and "zymurgy" not in caplog.text


def test_a_replica_with_a_key_at_an_empty_database_becomes_its_first(postgres: Cluster, tmp_path: Path) -> None:
    """Start: where nothing is shared yet, a directory's own key and texts are what is shared."""
    with closing(Machine(tmp_path / "own", postgres.emptied())) as own:
        files = {"identity/approver.json": '{"public": "B"}', "identity/constitution.yaml": "goal: mine"}
        for name, content in {**files, "replica": ""}.items():
            write_atomic(own / name, content.encode())

        own.begin()

        assert {name: own.read(name) for name in files} == files
        assert [one.name for one in own.records.listed("identity")] == sorted(files)
        assert list(own.folder.glob("replaced-*")) == []


def test_what_another_replica_removed_meanwhile_is_removed_here(two: tuple[Machine, Machine]) -> None:
    """Start: a file whose row says that it was removed is a copy, and goes."""
    a, b = two
    write_atomic(a / "identity/heads.json", b"kept")
    write_atomic(a / "identity/old.json", b"old")
    assert b.read("identity/old.json") == "old"
    b.shared.end()
    remove_durably(a / "identity/old.json")

    b.begin()

    assert not (b / "identity/old.json").exists() and list(b.folder.glob("replaced-*")) == []


def test_a_key_made_at_one_replica_opens_every_one_until_it_is_revoked_at_any(two: tuple[Machine, Machine]) -> None:
    a, _ = two
    now = SystemClock().now()
    with cheap_keys():
        signer = KeyRing(a / "identity", SqlAudit(a.database)).create(name="alice", passphrase=PASSPHRASE)
    here, there = (KeyFile.of(machine.folder, SqlAudit(machine.database)) for machine in two)
    key, made = new_key(signer, new_bytes=os.urandom, now=now, account="local", user="bob")

    here.add(made, now)
    assert there.authenticate(key, now).user == "bob"

    there.revoke(made.id, now)
    with pytest.raises(NoCredential, match="was revoked"):
        here.authenticate(key, now)


def test_a_project_that_one_replica_learns_is_known_to_the_other(two: tuple[Machine, Machine]) -> None:
    _, b = two
    known = [Projects(machine / "projects.json", lambda: "never") for machine in two]
    b.shared._changed = lambda names: known[1].file_changed() if "projects.json" in names else None
    known[0].register("atlas")

    refresh(b.folder)

    assert list(known[1].all()) == ["atlas"]


def test_without_the_database_a_shared_file_is_not_written(two: tuple[Machine, Machine], postgres: Cluster) -> None:
    """PostgreSQL is away: one sentence, and the copy is as it was."""
    a, _ = two
    write_atomic(a / "identity/heads.json", b"before")
    postgres.kill()
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            write_atomic(a / "identity/heads.json", b"after")
        assert (a / "identity/heads.json").read_text() == "before"
        with pytest.raises(Unavailable):
            refresh(a.folder)
    finally:
        postgres.start()
    assert a.read("identity/heads.json") == "before"
