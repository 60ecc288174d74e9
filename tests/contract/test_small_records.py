"""Small named texts, as rows of each database: read, compared and set, listed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from threads import at_once

from memory_anchor.adapters.system import SystemClock
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile, StoreDamaged
from memory_anchor.domain.ports import SmallRecords, StoredRecord
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ManualClock


def stored(records: SmallRecords, name: str) -> StoredRecord:
    record = records.read(name)
    assert record is not None
    return record


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallRecords]:
    path = tmp_path / "memory.db" if request.param == "sqlite" else IN_MEMORY
    is_server = request.param == "postgresql"
    database = Postgresql(request.getfixturevalue("postgres").emptied()) if is_server else Sqlite(path)
    with closing(database):
        yield SqlRecords(database, SystemClock().now)


def test_what_is_written_is_read_back_whole(records: SmallRecords) -> None:
    """Records: a record is what was written last."""
    assert records.read("team/keys.json") is None
    first = records.write("team/keys.json", b"\x00one\xff", before="")
    second = records.write("team/keys.json", b"", before=first)

    record = stored(records, "team/keys.json")

    assert (record.name, record.content, record.revision) == ("team/keys.json", b"", second)
    assert first != second
    assert records.revisions(["team/keys.json", "team/none"]) == {"team/keys.json": second}


def test_a_write_over_what_was_not_read_is_refused_and_changes_nothing(records: SmallRecords) -> None:
    """Records: compare and set."""
    first = records.write("a", b"one", before="")
    second = records.write("a", b"two", before=first)

    for stale in ("", first, "made-up"):
        with pytest.raises(ChangedMeanwhile):
            records.write("a", b"lost", before=stale)
        with pytest.raises(ChangedMeanwhile):
            records.delete("a", before=stale)

    record = stored(records, "a")
    assert (record.content, record.revision) == (b"two", second)


def test_a_write_to_what_was_deleted_meanwhile_does_not_bring_it_back(records: SmallRecords) -> None:
    """Records: what is deleted stays deleted."""
    first = records.write("a", b"one", before="")
    records.delete("a", before=first)

    with pytest.raises(ChangedMeanwhile):
        records.write("a", b"two", before=first)

    assert records.read("a") is None
    records.delete("a", before=first)  # gone is gone
    assert records.write("a", b"three", before="")


def test_of_writers_at_once_each_acknowledged_write_counts_once(records: SmallRecords) -> None:
    """Records: no write that was acknowledged is lost: a counter that eight threads raise."""
    records.write("counter", b"0", before="")
    lost = []

    def raise_it() -> None:
        for _ in range(10):
            while True:
                record = stored(records, "counter")
                try:
                    records.write("counter", str(int(record.content) + 1).encode(), before=record.revision)
                    break
                except ChangedMeanwhile:
                    lost.append(1)

    at_once(*[raise_it] * 8)

    record = stored(records, "counter")
    assert record.content == b"80"


def test_of_two_who_make_the_same_record_one_does(records: SmallRecords) -> None:
    """Records: one maker of a record."""
    made, refused = [], []

    def make(content: bytes) -> None:
        try:
            made.append((content, records.write("team/ingest/x.json", content, before="")))
        except ChangedMeanwhile:
            refused.append(content)

    at_once(*(partial(make, str(number).encode()) for number in range(8)))

    assert len(made) == 1 and len(refused) == 7
    record = stored(records, "team/ingest/x.json")
    assert (record.content, record.revision) == made[0]


def test_a_list_names_what_lies_below_a_folder_and_nothing_else(records: SmallRecords) -> None:
    """Records: list by prefix."""
    for name in ("team/ingest/b.json", "team/ingest/a.json", "team/keys.json", "teams/c.json"):
        records.write(name, b"{}", before="")

    assert [one.name for one in records.listed("team/ingest")] == ["team/ingest/a.json", "team/ingest/b.json"]
    assert [one.name for one in records.listed("team")] == [
        "team/ingest/a.json",
        "team/ingest/b.json",
        "team/keys.json",
    ]
    assert records.listed("nothing") == []
    for one in records.listed("team"):
        assert records.revisions([one.name]) == {one.name: one.revision}
        assert one.at > 1_600_000_000


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "x" * 201])
def test_a_name_that_leads_elsewhere_is_refused(records: SmallRecords, name: str) -> None:
    """Records: records stay below the data directory."""
    with pytest.raises(BadInput):
        records.write(name, b"", before="")
    with pytest.raises(BadInput):
        records.revisions([name])


def test_a_write_over_whatever_is_there_needs_no_revision(records: SmallRecords) -> None:
    """Records: one writer's own state; deleting what is not there is no error."""
    records.write("jobs.json", b"one", before=None)
    records.write("jobs.json", b"two", before=None)
    assert stored(records, "jobs.json").content == b"two"

    records.delete("jobs.json", before=None)
    records.delete("jobs.json", before=None)
    assert records.read("jobs.json") is None


def test_a_record_that_a_unit_wrote_goes_with_the_unit(tmp_path: Path) -> None:
    """Rows: in one transaction with what else the unit writes."""
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        rows = SqlRecords(database, SystemClock().now)
        with pytest.raises(KeyError), database.unit():
            rows.write("jobs/x.json", b"{}", before="")
            raise KeyError("the rest of the unit failed")

        assert rows.read("jobs/x.json") is None and rows.last_change() == 0


def test_a_row_with_a_flipped_bit_is_said_and_not_given(tmp_path: Path) -> None:
    """Rows: a checksum each, named by `doctor --deep` too."""
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        rows = SqlRecords(database, SystemClock().now)
        rows.write("team/ingest/a.json", b"accepted", before="")
        database.write(lambda link: link.run("update record set content = ?", (b"acceqted",)))

        with pytest.raises(StoreDamaged, match=r"team/ingest/a\.json is not as it was written"):
            rows.read("team/ingest/a.json")
        assert any("team/ingest/a.json" in fault for fault in SqlStore(database).faults())


def test_what_was_deleted_is_told_for_a_day_and_then_forgotten(tmp_path: Path) -> None:
    """Rows: a replica that was away for less than a day hears of each deletion; names do not gather for ever."""
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    with closing(Sqlite(tmp_path / "memory.db")) as database:
        rows = SqlRecords(database, clock.now)

        def deleted(name: str) -> list[str]:
            rows.write(name, b"{}", before="")
            rows.delete(name, before=None)
            return [told for _, told, content in rows.changes(above=0) if content is None]

        rows.write("kept", b"{}", before="")
        assert deleted("a") == ["a"]
        clock.advance(hours=23)
        assert deleted("b") == ["a", "b"]
        clock.advance(hours=2)
        assert deleted("c") == ["b", "c"]
        assert rows.read("kept") is not None


def test_who_follows_sees_each_write_once_and_each_deletion(records: SqlRecords) -> None:
    """Rows: `changed` counts the writes of all records, deleted ones included."""
    records.write("a", b"1", before="")
    records.write("b", b"2", before="")
    seen = records.last_change()
    assert [(name, content) for _, name, content in records.changes(above=0)] == [("a", b"1"), ("b", b"2")]

    records.write("a", b"3", before=None)
    records.delete("b", before=None)

    assert [(name, content) for _, name, content in records.changes(above=seen)] == [("a", b"3"), ("b", None)]
