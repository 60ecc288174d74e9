"""The trail as rows: a record stands or falls with what it records, and the chain is the one of the trail in a file."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.store.audit_rows import LocalTrail, SqlAudit
from memory_anchor.store.database import DATABASE_FILE, Sqlite
from memory_anchor.store.group_commit import SqlLink

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Sqlite]:
    with closing(Sqlite(tmp_path / DATABASE_FILE)) as made:
        yield made


@pytest.fixture
def trail(database: Sqlite) -> SqlAudit:
    return SqlAudit(database)


def said(trail: SqlAudit | JsonlAudit, *names: str) -> None:
    for name in names:
        trail.append("note", {"name": name}, by="human:eve", at=NOON)


def names(trail: SqlAudit | JsonlAudit) -> list[object]:
    return [record["what"].get("name") for record in trail.records()]


def test_the_rows_are_the_lines_that_a_file_would_have(trail: SqlAudit, tmp_path: Path) -> None:
    """Trail: same records, numbers, hashes and bytes, so that it can be exported and verified as a file."""
    in_a_file = JsonlAudit(tmp_path / "audit.jsonl")
    said(trail, "one", "two")
    said(in_a_file, "one", "two")

    assert b"".join(trail.lines()) == in_a_file.path.read_bytes()
    assert trail.verify() is None
    assert trail.first("note") == {"name": "one"} and trail.latest("note") == {"name": "two"}
    assert trail.latest("other") is None


def test_a_unit_that_fails_takes_its_record_with_it(trail: SqlAudit, database: Sqlite) -> None:
    """Trail: the chain goes on from the last record that was stored."""
    said(trail, "one")
    with pytest.raises(KeyError), database.unit():
        said(trail, "never")
        raise KeyError
    with pytest.raises(KeyError), trail.recording("note", [{"name": "nor this"}], by="eve", at=NOON):
        raise KeyError
    said(trail, "two")

    assert names(trail) == ["one", "two"] and trail.verify() is None


def test_a_commit_that_fails_takes_the_records_of_its_group(
    trail: SqlAudit, database: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trail: what was not stored is in no record, and the chain holds."""
    said(trail, "one")
    run = SqlLink.run

    def fails(link: SqlLink, sql: str, values: tuple[object, ...] = ()) -> int:
        if sql == "commit":
            raise sqlite3.OperationalError("disk I/O error")
        return run(link, sql, values)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(SqlLink, "run", fails)
        with pytest.raises(Unavailable):
            said(trail, "never")
    said(trail, "two")

    assert names(trail) == ["one", "two"] and trail.verify() is None


def test_writers_at_once_make_one_chain(trail: SqlAudit) -> None:
    """Trail: each record follows another one's, whoever wrote it."""
    threads = [threading.Thread(target=said, args=(trail, *(f"{n}.{m}" for m in range(10)))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert trail.verify() is None and len(names(trail)) == 60


@pytest.mark.parametrize("change", ["update audit set record = replace(record, 'two', 'six') where line = 2", "cut"])
def test_what_was_changed_or_cut_off_shows(trail: SqlAudit, database: Sqlite, change: str) -> None:
    """Trail: a changed byte, a missing end; and after the next record as before."""
    said(trail, "one", "two", "three")
    trail.close()
    sql = "delete from audit where line > 1" if change == "cut" else change
    database.write(lambda link: link.run(sql))

    broken = trail.verify()
    said(trail, "four")

    assert broken is not None and broken.line == 2
    after = trail.verify()
    assert after is not None and after.line == 2
    assert names(trail)[-1] == "four"


def test_a_longer_copy_continues_the_chain_and_another_one_does_not(trail: SqlAudit, tmp_path: Path) -> None:
    """Trail adopt: records that are here are skipped; what is adopted was not made here."""
    copy, other = JsonlAudit(tmp_path / "copy.jsonl"), JsonlAudit(tmp_path / "other.jsonl")
    said(trail, "one")
    said(copy, "one", "two", "three")
    said(other, "another", "two")

    with pytest.raises(BadInput, match="another trail"):
        trail.adopt([json.loads(line) for line in other.path.read_bytes().splitlines()])
    assert trail.adopt([json.loads(line) for line in copy.path.read_bytes().splitlines()]) == 2

    assert names(trail) == ["one", "two", "three"] and trail.verify() is None
    assert trail.latest("note") == {"name": "one"}


def test_a_data_directory_has_the_trail_of_its_store(tmp_path: Path) -> None:
    """Trail: a file until there is a database, then its rows, also for who looked before; looking makes nothing."""
    data = tmp_path / "data"
    trail = LocalTrail(data)
    assert list(trail.records()) == [] and trail.verify() is None and not data.exists()
    (data / "audit").mkdir(parents=True)
    said(JsonlAudit(data / "audit" / "audit.jsonl"), "in a file")
    assert [record["what"] for record in trail.records()] == [{"name": "in a file"}]
    with closing(Sqlite(data / DATABASE_FILE)) as database:
        said(SqlAudit(database), "one")

        assert [record["what"] for record in trail.records()] == [{"name": "one"}]
