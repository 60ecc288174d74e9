"""The audit trail holds on any change, survives kills, and takes writers from several processes."""

from __future__ import annotations

import json
import multiprocessing
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from figures import figure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_anchor.adapters import audit as audit_module
from memory_anchor.adapters.audit import NOTES, JsonlAudit
from memory_anchor.adapters.audit_chain import MAX_RECORD_BYTES
from memory_anchor.domain.errors import BadInput, MemoryAnchorError

AT = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)


def filled(path: Path, count: int = 3) -> JsonlAudit:
    audit = JsonlAudit(path)
    for n in range(count):
        audit.append("memory.added", {"id": f"m{n}", "标签": ["甲"]}, by="agent", at=AT)
    return audit


def test_a_chain_of_records_verifies_and_reads_back_in_order(tmp_path: Path) -> None:
    """Rule audit.chain: every record names the one before; an untouched chain holds."""
    audit = filled(tmp_path / "audit.jsonl")

    assert audit.verify() is None
    assert [record["what"]["id"] for record in audit.records()] == ["m0", "m1", "m2"]
    assert [record["n"] for record in audit.records()] == [1, 2, 3]


def test_a_trail_that_was_never_written_holds(tmp_path: Path) -> None:
    """Rule audit.chain: nothing recorded is nothing broken."""
    assert JsonlAudit(tmp_path / "none" / "audit.jsonl").verify() is None


def test_the_trail_is_private(tmp_path: Path) -> None:
    """Rule audit.private: file and head 0600, folder 0700."""
    audit = filled(tmp_path / "deep" / "audit.jsonl", 1)

    for path in (audit.path, audit.path.with_name("audit.jsonl.head")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(audit.path.parent.stat().st_mode) == 0o700


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("written") / "audit.jsonl").path


@settings(max_examples=figure(60, 200), deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), other=st.integers(1, 255))
def test_any_changed_byte_breaks_the_chain(written: Path, where: float, other: int) -> None:
    """Rule audit.chain: the chain breaks on any changed byte, and the line is named."""
    whole = written.read_bytes()
    at = int(where * len(whole))
    try:
        written.write_bytes(whole[:at] + bytes([whole[at] ^ other]) + whole[at + 1 :])

        broken = JsonlAudit(written).verify()

        assert broken is not None
        assert broken.line <= whole.count(b"\n", 0, at) + 1
    finally:
        written.write_bytes(whole)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_records_cut_off_the_end_are_missed(tmp_path: Path, left: int) -> None:
    """Rule audit.head: acknowledged records cannot be cut off silently."""
    audit = filled(tmp_path / "audit.jsonl")
    lines = audit.path.read_bytes().splitlines(keepends=True)
    audit.path.write_bytes(b"".join(lines[:left]))

    broken = audit.verify()

    assert broken is not None and broken.line == left + 1
    assert "missing" in broken.why


def test_removing_or_swapping_a_record_names_its_line(tmp_path: Path) -> None:
    """Rule audit.chain: the first link that does not hold is the one named."""
    audit = filled(tmp_path / "audit.jsonl", 4)
    one, two, three, four = audit.path.read_bytes().splitlines(keepends=True)

    audit.path.write_bytes(one + three + four)
    removed = audit.verify()
    audit.path.write_bytes(one + three + two + four)
    swapped = audit.verify()

    assert removed is not None and removed.line == 2
    assert swapped is not None and swapped.line == 2


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(1, 10_000), times=st.integers(1, 3))
def test_a_torn_last_line_loses_nothing_and_appending_goes_on(tmp_path: Path, cut: int, times: int) -> None:
    """Rule audit.torn: an unfinished record was never acknowledged; the chain holds before and after going on."""
    audit = filled(tmp_path / "audit.jsonl", 2)
    head = audit.path.with_name("audit.jsonl.head")
    try:
        for n in range(times):
            acknowledged, head_then = audit.path.read_bytes(), head.read_bytes()
            audit.append("memory.added", {"id": "killed"}, by="agent", at=AT)
            record = audit.path.read_bytes()[len(acknowledged) :]
            audit.path.write_bytes(acknowledged + record[: cut % len(record)])
            head.write_bytes(head_then)  # as a kill in the middle of the write leaves both

            again = JsonlAudit(audit.path)
            assert again.verify() is None
            again.append("memory.added", {"id": f"after{n}"}, by="agent", at=AT)
            audit = JsonlAudit(audit.path)
            assert audit.verify() is None

        kept = [record["what"].get("id") for record in audit.records()]
        assert [one for one in kept if one and one != "killed"] == ["m0", "m1", *(f"after{n}" for n in range(times))]
    finally:
        audit.path.unlink()
        head.unlink()


def test_a_torn_line_that_was_closed_cannot_be_changed_either(tmp_path: Path) -> None:
    """Rule audit.torn: the next record carries the torn bytes' hash."""
    audit = filled(tmp_path / "audit.jsonl", 1)
    with audit.path.open("ab") as file:
        file.write(b'{"n":2,"at"')
    filled(audit.path, 1)
    assert audit.verify() is None

    audit.path.write_bytes(audit.path.read_bytes().replace(b'{"n":2,"at"\n', b'{"n":2,"aT"\n'))

    broken = audit.verify()
    assert broken is not None and broken.line == 2


def test_an_oversized_record_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """Bad input: one sentence, nothing lost."""
    audit = filled(tmp_path / "audit.jsonl", 1)
    before = audit.path.read_bytes()

    with pytest.raises(BadInput, match="bytes; allowed are 64000"):
        audit.append("memory.added", {"id": "x" * MAX_RECORD_BYTES}, by="agent", at=AT)

    assert audit.path.read_bytes() == before
    assert audit.verify() is None


def test_a_folder_that_cannot_be_written_refuses(tmp_path: Path) -> None:
    """Bad input: a path that is no folder gives one of our errors."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(MemoryAnchorError, match="cannot be"):
        JsonlAudit(tmp_path / "file" / "audit.jsonl").append("a", {}, by="x", at=AT)


def _append_many(path: str, name: str, count: int) -> None:
    audit = JsonlAudit(Path(path))
    for n in range(count):
        audit.append("memory.added", {"id": f"{name}{n}"}, by=name, at=AT)


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    """Rule audit.shared: the engine and a terminal write one chain; nothing is lost or doubled."""
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(str(path), name, 40)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)

    audit = JsonlAudit(path)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert audit.verify() is None
    assert len({record["what"]["id"] for record in audit.records()}) == 120


def test_a_note_goes_only_after_its_record_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: a power cut after a recovery leaves the note or the record, never neither."""
    memory = {"id": "a", "version": 1, "layer": "event_log", "content_hash": "0" * 64}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    (tmp_path / NOTES).mkdir()
    note = {"kind": "import", "by": "user", "at": at.isoformat(), "whats": [{"memories": [memory]}]}
    (tmp_path / NOTES / "a.json").write_text(json.dumps(note))
    steps: list[str] = []
    unlink, sync = Path.unlink, audit_module.sync_handle

    def logged_unlink(path: Path, missing_ok: bool = False) -> None:
        steps.append("unlink" if path.parent.name == NOTES else "")
        unlink(path, missing_ok=missing_ok)

    def logged_sync(handle: int) -> None:
        steps.append("sync")
        sync(handle)

    monkeypatch.setattr(audit_module, "sync_handle", logged_sync)
    monkeypatch.setattr(Path, "unlink", logged_unlink)
    assert JsonlAudit(tmp_path / "audit.jsonl").complete(lambda _: True, now=at) == 1
    assert [step for step in steps if step] == ["sync", "unlink"]
