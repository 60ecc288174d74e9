"""What was cut off the audit trail stays visible for ever, whatever is written afterwards."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.audit_chain import GAP
from memory_anchor.domain.errors import BadInput, MemoryAnchorError
from memory_anchor.front import doctor
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import IN_MEMORY, Sqlite

AT = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)


def filled(path: Path, count: int = 5) -> JsonlAudit:
    audit = JsonlAudit(path)
    for n in range(count):
        audit.append("memory.added", {"id": f"m{n}"}, by="agent", at=AT)
    return audit


def lines(audit: JsonlAudit) -> list[bytes]:
    return audit.path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("again", [True, False], ids=["same process", "another process"])
@pytest.mark.parametrize("left", [0, 1, 3, 4])
def test_records_cut_off_stay_missed_after_later_writes(tmp_path: Path, left: int, again: bool) -> None:
    """Rule audit.gap: a record tells of the gap, numbers go on from the head, and every verification names it."""
    audit = filled(tmp_path / "audit.jsonl")
    audit.path.write_bytes(b"".join(lines(audit)[:left]))

    writer = audit if again else JsonlAudit(audit.path)
    for n in range(3):
        writer.append("memory.added", {"id": f"later{n}"}, by="agent", at=AT)

    found = list(audit.records())
    assert [record["n"] for record in found] == [*range(1, left + 1), 6, 7, 8, 9]
    assert [record["what"] for record in found if record["kind"] == GAP] == [{"expected": 5, "found": left}]
    for _ in range(2):
        broken = JsonlAudit(audit.path).verify()
        assert broken is not None and broken.line == left + 1
        assert "5 records were acknowledged and" in broken.why


def test_a_file_that_is_gone_is_missed_before_and_after_the_next_write(tmp_path: Path) -> None:
    """Rule audit.gap: the head alone says that there was a trail; doctor reads it."""
    audit = filled(tmp_path / "audit" / "audit.jsonl")
    audit.path.unlink()
    assert doctor._audit(tmp_path).state == "failed"

    audit.append("memory.added", {"id": "later"}, by="agent", at=AT)

    assert doctor._audit(tmp_path).state == "failed"
    assert doctor._audit(tmp_path / "new").finding == "nothing was written yet"


def test_a_head_that_is_gone_is_missed_too(tmp_path: Path) -> None:
    """Rule audit.gap: without it nobody knows how far the trail went; a first record alone may lack it."""
    audit = filled(tmp_path / "audit.jsonl")
    head = tmp_path / "audit.jsonl.head"
    head.unlink()
    assert "is missing" in str(audit.verify())

    JsonlAudit(audit.path).append("memory.added", {"id": "later"}, by="agent", at=AT)
    assert "the head was missing" in str(audit.verify())

    first = filled(tmp_path / "other.jsonl", 1)
    (tmp_path / "other.jsonl.head").unlink()
    assert first.verify() is None


def test_another_record_in_the_last_ones_place_stays_missed(tmp_path: Path) -> None:
    """Rule audit.gap: as many records as acknowledged, but not those."""
    audit = filled(tmp_path / "audit.jsonl")
    head = (tmp_path / "audit.jsonl.head").read_bytes()
    audit.path.write_bytes(b"".join(lines(audit)[:4]))
    (tmp_path / "audit.jsonl.head").unlink()
    filled(audit.path, 1)
    audit.path.write_bytes(b"".join(line for line in lines(audit) if b'"gap"' not in line))
    (tmp_path / "audit.jsonl.head").write_bytes(head)
    assert audit.verify() is not None

    JsonlAudit(audit.path).append("memory.added", {"id": "later"}, by="agent", at=AT)

    assert audit.verify() is not None


def test_a_cut_in_the_middle_of_a_record_is_one_gap_with_its_torn_line(tmp_path: Path) -> None:
    """Rule audit.torn: the gap's record carries the torn bytes' hash."""
    audit = filled(tmp_path / "audit.jsonl")
    audit.path.write_bytes(audit.path.read_bytes()[:-200])
    JsonlAudit(audit.path).append("memory.added", {"id": "later"}, by="agent", at=AT)

    (gap,) = [record for record in audit.records() if record["kind"] == GAP]
    assert gap["n"] == 6 and {"bytes", "sha256"} <= set(gap["what"])
    broken = audit.verify()
    assert broken is not None and "were acknowledged" in broken.why and "; line" not in broken.why


def test_a_last_line_that_lost_its_break_is_no_gap(tmp_path: Path) -> None:
    """Rule audit.torn: the record is whole."""
    audit = filled(tmp_path / "audit.jsonl")
    audit.path.write_bytes(audit.path.read_bytes()[:-1])
    JsonlAudit(audit.path).append("memory.added", {"id": "later"}, by="agent", at=AT)

    assert JsonlAudit(audit.path).verify() is None


def test_a_recorded_gap_does_not_hide_what_breaks_later(tmp_path: Path) -> None:
    """Rule audit.gap: both are told."""
    audit = filled(tmp_path / "audit.jsonl")
    audit.path.write_bytes(b"".join(lines(audit)[:3]))
    filled(audit.path, 3)
    audit.path.write_bytes(audit.path.read_bytes().replace(b'"m1"', b'"mX"').replace(b'"mX"', b'"m1"', 1))

    broken = audit.verify()

    assert broken is not None and broken.line == 4
    assert "line 6: its content does not match its hash" in broken.why


def test_a_copy_of_the_same_trail_gives_back_what_was_cut_off() -> None:
    """Rule audit.gap: an import that reaches the acknowledged record mends it; one that parts before is refused."""
    trail, other = SqlAudit(Sqlite(IN_MEMORY)), SqlAudit(Sqlite(IN_MEMORY))
    for number in range(5):
        trail.append("memory.added", {"id": f"m{number}"}, by="agent", at=AT)
        other.append("memory.added", {"id": f"m{number}" if number < 3 else "elsewhere"}, by="agent", at=AT)
    trail.close()
    whole, kept = list(trail.records()), list(trail.lines())[:3]
    with trail.database.unit() as link:
        link.run("delete from audit where line > 3", ())
    with pytest.raises(BadInput, match="another trail"):
        trail.adopt(list(other.records()))
    assert list(trail.lines()) == kept

    assert trail.adopt(whole[:4]) == 1
    assert trail.verify() is not None
    assert trail.adopt(whole) == 1
    assert trail.verify() is None


def test_a_trail_with_a_gap_can_be_taken_over_whole(tmp_path: Path) -> None:
    """Rule audit.gap: the gap comes along and stays visible."""
    audit, clone = filled(tmp_path / "audit.jsonl"), SqlAudit(Sqlite(IN_MEMORY))
    audit.path.write_bytes(b"".join(lines(audit)[:3]))
    filled(audit.path, 2)

    assert clone.adopt(list(audit.records())) == 6

    broken = audit.verify()
    assert broken is not None and clone.verify() == broken


def test_a_head_that_cannot_be_read_is_no_gap(tmp_path: Path) -> None:
    """Bad input: one of our errors, and nothing is written that would say there was a gap."""
    audit = filled(tmp_path / "audit" / "audit.jsonl")
    head, before = tmp_path / "audit" / "audit.jsonl.head", audit.path.read_bytes()
    head.unlink()
    head.mkdir()

    with pytest.raises(MemoryAnchorError, match="cannot be used"):
        JsonlAudit(audit.path).append("memory.added", {"id": "later"}, by="agent", at=AT)

    assert audit.path.read_bytes() == before
    assert doctor._audit(tmp_path).state == "failed"
