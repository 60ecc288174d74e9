"""The chain of the audit trail: how a record becomes a line, and what shows that a line was changed or is missing.

Each line is JSON with the hash of the line before. The trail in a file (`adapters.audit`) and the one in a database
(`store.audit_rows`) are made of the same lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeGuard

from memory_anchor.base.json_values import Json, Record, parsed, whole
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.ports import AuditRecord

MAX_RECORD_BYTES = 64_000
START = "0" * 64
"""The "hash before" of the first record."""
GAP = "gap"
"""A record of a gap: `expected` records were acknowledged (None: the head was gone) and `found` were there."""
NEEDS_HEAD = 2
"""Records of a trail that must have a head: a kill after the very first one may leave none."""


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """The first line (from 1) at which the chain does not hold, and why."""

    line: int
    why: str


def chained_line(
    number: int, before: str, kind: str, what: Mapping[str, Json], *, by: str, at: datetime
) -> tuple[bytes, str]:
    """Return the line of the record that follows `number` records, and its hash. Raises BadInput: it is too long."""
    record: dict[str, Json] = {
        "n": number + 1,
        "at": at.isoformat().replace("+00:00", "Z"),
        "kind": kind,
        "by": by,
        "what": dict(what),
        "before": before,
    }
    body = chain_body(record)
    hashed = hashlib.sha256(body).hexdigest()
    line = b'%s,"hash":"%s"}\n' % (body[:-1], hashed.encode())
    if len(line) > MAX_RECORD_BYTES:
        raise BadInput(f"an audit record is {len(line)} bytes; allowed are {MAX_RECORD_BYTES}")
    return line, hashed


def broken_link(lines: Iterable[tuple[int, bytes]], head: tuple[int, str] | None, head_name: str) -> BrokenLink | None:
    """Return the first broken link of a trail, None when the whole chain holds.

    lines: numbered, each with its line break. head: how far the trail was acknowledged.
    """
    line, number, previous, torn = 0, 0, START, b""
    gap: BrokenLink | None = None
    for line, raw in lines:
        if not raw.endswith(b"\n"):
            torn = raw
            break
        record = chain_record(raw)
        why = "it is not a record" if record is None else link_fault(record, raw, number=number, previous=previous)
        if record is None or why:
            return first_of_both(gap, BrokenLink(line, why))
        if record["kind"] == GAP:
            gap = gap or BrokenLink(line, gap_text(record["what"]))
        number, previous = record["n"], record["hash"]
        if head is not None and head[0] == number and head[1] != previous:
            return first_of_both(gap, BrokenLink(line, "it is not the record that was acknowledged"))
    end, broken = line - bool(torn), None
    if head is not None and head[0] > number:
        broken = BrokenLink(end + 1, f"record {number + 1} of {head[0]} acknowledged ones is missing")
    elif head is None and number >= NEEDS_HEAD:
        broken = BrokenLink(end, f"{head_name}, which says how far it was acknowledged, is missing")
    return first_of_both(gap, broken)


def continuing(
    stored: Iterable[AuditRecord], end: tuple[int, str], head: tuple[int, str], records: Sequence[Record], place: str
) -> list[AuditRecord]:
    """Return the records that come after a chain's end. stored: the chain's own; end: its last number and hash.

    Raises BadInput: they are not of this chain, which `place` names.
    """
    hashes = {record.get("n"): record.get("hash") for record in records if whole(record.get("n"), 0) <= end[0]}
    if hashes:
        own = ((record["n"], record["hash"]) for record in stored if record["n"] <= end[0])
        hashes |= {number: hash for number, hash in own if number in hashes}
    number, previous = end
    fresh = []
    for record in records:
        if whole(record.get("n"), 0) <= end[0] and hashes.get(record.get("n")) == record.get("hash"):
            continue
        raw = chain_body(record) + b"\n"
        is_foreign = record.get("n") == head[0] and record.get("hash") != head[1]
        next_record = None if is_foreign else chain_record(raw)
        if next_record is None or link_fault(next_record, raw, number=number, previous=previous):
            raise BadInput(f"{place} is another trail than the one imported; both are kept apart")
        number, previous = next_record["n"], next_record["hash"]
        fresh.append(next_record)
    return fresh


def chain_body(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def chain_record(raw: bytes) -> AuditRecord | None:
    try:
        value = parsed(raw)
    except (ValueError, RecursionError):
        return None
    return value if _is_record(value) else None


def _is_record(value: Json) -> TypeGuard[AuditRecord]:
    fields = {"n": int, "at": str, "kind": str, "by": str, "what": dict, "before": str, "hash": str}
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in fields.items())


def made_here(raw: bytes, kind: str, imported: Sequence[tuple[int, int]]) -> AuditRecord | None:
    """Return a line's record where it is of this kind and not imported; other kinds are not even parsed."""
    record = chain_record(raw) if b'"kind":"%s"' % kind.encode() in raw else None
    if record is None or record["kind"] != kind or any(first <= record["n"] <= last for first, last in imported):
        return None
    return record


def link_fault(record: AuditRecord, raw: bytes, *, number: int, previous: str) -> str:
    """Return why a record does not continue a chain of `number` records, "" when it does."""
    acknowledged = record["what"].get("expected") if record["kind"] == GAP else None
    expected = max(number, acknowledged if isinstance(acknowledged, int) else 0) + 1
    if record["n"] != expected:
        return f"record {record['n']} where {expected} was due"
    if record["before"] != previous:
        return "it does not name the record before"
    unhashed = {name: value for name, value in record.items() if name != "hash"}
    if hashlib.sha256(chain_body(unhashed)).hexdigest() != record["hash"]:
        return "its content does not match its hash"
    if raw != chain_body(record) + b"\n":
        return "its bytes are not those that were written"
    return ""


def gap_text(what: Mapping[str, Json]) -> str:
    expected, found = what.get("expected"), what.get("found")
    if expected is None:
        return f"after record {found} the head was missing, so that nothing says how many were"
    if expected == found:
        return f"record {found} was not the one acknowledged when this was written"
    return f"{expected} records were acknowledged and {found} were there when this was written"


def first_of_both(gap: BrokenLink | None, broken: BrokenLink | None) -> BrokenLink | None:
    """Return the first of the two; a gap that was recorded does not hide what broke since."""
    if gap is None or broken is None:
        return gap or broken
    return BrokenLink(gap.line, f"{gap.why}; line {broken.line}: {broken.why}")
