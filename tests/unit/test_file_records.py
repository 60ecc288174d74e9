"""Small named texts of a data directory: read, compared and set, listed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from threads import at_once

from memory_anchor.adapters.file_records import FileRecords, StoredRecord
from memory_anchor.domain.errors import BadInput, ChangedMeanwhile


def stored(records: FileRecords, name: str) -> StoredRecord:
    record = records.read(name)
    assert record is not None
    return record


@pytest.fixture
def records(tmp_path: Path) -> FileRecords:
    return FileRecords(tmp_path)


def test_what_is_written_is_read_back_whole(records: FileRecords) -> None:
    """Records: a record is what was written last."""
    assert records.read("team/keys.json") is None
    first = records.write("team/keys.json", b"\x00one\xff", before="")
    second = records.write("team/keys.json", b"", before=first)

    record = stored(records, "team/keys.json")

    assert (record.name, record.content, record.revision) == ("team/keys.json", b"", second)
    assert first != second
    assert records.revisions(["team/keys.json", "team/none"]) == {"team/keys.json": second}


def test_a_write_over_what_was_not_read_is_refused_and_changes_nothing(records: FileRecords) -> None:
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


def test_a_write_to_what_was_deleted_meanwhile_does_not_bring_it_back(records: FileRecords) -> None:
    """Records: what is deleted stays deleted."""
    first = records.write("a", b"one", before="")
    records.delete("a", before=first)

    with pytest.raises(ChangedMeanwhile):
        records.write("a", b"two", before=first)

    assert records.read("a") is None
    records.delete("a", before=first)  # gone is gone
    assert records.write("a", b"three", before="")


def test_of_writers_at_once_each_acknowledged_write_counts_once(records: FileRecords) -> None:
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


def test_of_two_who_make_the_same_record_one_does(records: FileRecords) -> None:
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


def test_a_list_names_what_lies_below_a_folder_and_nothing_else(records: FileRecords) -> None:
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
def test_a_name_that_leads_elsewhere_is_refused(records: FileRecords, name: str) -> None:
    """Records: records stay below the data directory."""
    with pytest.raises(BadInput):
        records.write(name, b"", before="")
    with pytest.raises(BadInput):
        records.revisions([name])
