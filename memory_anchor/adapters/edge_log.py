"""Reading the Edge engine's write-ahead log without the engine: what was written, whatever became of the segments.

For salvage only. A log file is `wal\\0`, a seed, and records: length, CBOR of one operation, padding, and a CRC-32C
that goes on from the record before, so each record is known to be as it was written. After a damaged one reading goes
on at the next whose checksum holds, and the log is not whole: what was changed in between is not known then.
The engine drops files whose records are in flushed segments, so the log is one source among others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from memory_anchor.json_values import Json, Record, items, number, record, records, text

if TYPE_CHECKING:
    from memory_anchor.ports import Matrix

_MAGIC = b"wal\0"
_HEAD_BYTES = 8
_ALIGN = 8
_OPERATION = 0xBF
"""An operation is a CBOR map of indefinite length: the first byte of every record."""
_DEPTH_MAX = 32
_BREAK = 0xFF
"""Ends a list or a map of indefinite length, where its next item would be."""


@dataclass(slots=True)
class LoggedPoint:
    """One point as the log leaves it. vectors: dense rows by name; words are left out, they are made anew."""

    payload: dict[str, Json]
    vectors: dict[str, Matrix] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """points: by id. is_whole: no record was passed over."""

    points: dict[str, LoggedPoint] = field(default_factory=dict)
    is_whole: bool = True


def read_log(folder: Path) -> Log:
    """Return what the log files of a shard's `wal` folder hold; an empty, not whole log when there is none."""
    log = Log()
    if not folder.is_dir():
        return Log(is_whole=False)
    for path in sorted(folder.iterdir(), key=_order):
        if not path.name.startswith(("closed-", "open-")):
            continue
        try:
            content = path.read_bytes()
        except OSError:
            log.is_whole = False
            continue
        for operation in _operations(content, log):
            try:
                _apply(log.points, operation)
            except (KeyError, TypeError, ValueError, AttributeError):
                log.is_whole = False
    return log


def _order(path: Path) -> tuple[bool, int, str]:
    kind, _, number = path.name.partition("-")
    return kind == "open", int(number) if number.isdigit() else 0, path.name


def _operations(content: bytes, log: Log) -> Iterator[Record]:
    if len(content) < _HEAD_BYTES or content[:4] != _MAGIC:
        log.is_whole = log.is_whole and not content.strip(b"\0")
        return
    end = len(content.rstrip(b"\0"))
    at = _HEAD_BYTES
    while at < end:
        size = _record_size(content, at)
        if not size:
            log.is_whole = False
            at = _next_record(content, at + _ALIGN, end)
            continue
        (length,) = struct.unpack_from("<Q", content, at)
        try:
            yield _decoded(content[at + 8 : at + 8 + length])
        except (ValueError, IndexError, struct.error, UnicodeDecodeError):
            log.is_whole = False
        at += size


def _record_size(content: bytes, at: int) -> int:
    """Return how long the record at `at` is, its checksum included; 0 when it is none, or not as it was written."""
    if at + 8 >= len(content) or content[at + 8] != _OPERATION:
        return 0
    (length,) = struct.unpack_from("<Q", content, at)
    size = (8 + length + 4 + _ALIGN - 1) // _ALIGN * _ALIGN
    if length == 0 or at + size > len(content):
        return 0
    (before,) = struct.unpack_from("<I", content, at - 4)
    (stored,) = struct.unpack_from("<I", content, at + size - 4)
    return size if _crc32c(~_reversed(before) & 0xFFFFFFFF, content[at : at + size - 4]) == stored else 0


def _next_record(content: bytes, at: int, end: int) -> int:
    while 0 <= at < end:
        sign = content.find(bytes((_OPERATION,)), at + 8, end)
        if sign < 0:
            return end
        at = sign - 8
        if at % _ALIGN == 0 and _record_size(content, at):
            return at
        at += 1
    return end


def _reversed(number: int) -> int:
    return int(f"{number:032b}"[::-1], 2)


@cache
def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


def _crc32c(seed: int, content: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `content`, going on from `seed`."""
    table, value = _table(), seed ^ 0xFFFFFFFF
    for byte in content:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


# --- what an operation does ------------------------------------------------------------------------------------------


def _apply(points: dict[str, LoggedPoint], operation: Record) -> None:
    if "upsert_points" in operation:
        for point in records(record(operation["upsert_points"])["points"]):
            points[str(point["id"])] = LoggedPoint(dict(record(point["payload"])), _dense(point["vector"]))
    elif "update_vectors" in operation:
        for point in records(record(operation["update_vectors"])["points"]):
            if known := points.get(str(point["id"])):
                known.vectors.update(_dense(point["vector"]))
    elif "set_payload" in operation:
        change = record(operation["set_payload"])
        for changed in items(change["points"]):
            if (known := points.get(str(changed))) and not change.get("key"):
                known.payload.update(record(change["payload"]))
    elif "delete_points" in operation:
        for gone in items(record(operation["delete_points"])["ids"]):
            points.pop(str(gone), None)


def _dense(vectors: Json) -> dict[str, Matrix]:
    rows = {name: row for name, row in record(vectors).items() if isinstance(row, list)}
    return {name: np.asarray([number(one) for one in row], dtype=np.float32) for name, row in rows.items()}


# --- CBOR, as far as the engine writes it ----------------------------------------------------------------------------


def _decoded(content: bytes) -> Record:
    return record(_item(content, 0, 0)[0])


def _item(raw: bytes, at: int, depth: int) -> tuple[Json, int]:
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    major, short = raw[at] >> 5, raw[at] & 0x1F
    if major == 7:
        return _simple(raw, at, short)
    size, at = _size(raw, at + 1, short)
    if major in (0, 1):
        return (size if major == 0 else -1 - size), at
    if major in (2, 3):
        if at + size > len(raw):
            raise ValueError("cut off")
        part = raw[at : at + size]
        return (str(UUID(bytes=part)) if major == 2 else part.decode("utf-8")), at + size  # bytes are a point's id
    if major == 4:
        return _list(raw, at, size, depth)
    if major == 5:
        return _map(raw, at, size, depth)
    raise ValueError("a tag")


def _simple(raw: bytes, at: int, short: int) -> tuple[bool | float | None, int]:
    if short in (20, 21, 22, 23):
        return {20: False, 21: True}.get(short), at + 1
    code, size = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}[short] if short in (25, 26, 27) else ("", 0)
    if not code:
        raise ValueError("an unknown simple value")
    (value,) = struct.unpack_from(code, raw, at + 1)
    return float(value), at + 1 + size


def _size(raw: bytes, at: int, short: int) -> tuple[int, int]:
    if short < 24:
        return short, at
    if short == 31:
        return -1, at
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(short)
    if size is None or at + size > len(raw):
        raise ValueError("a length that is none")
    return int.from_bytes(raw[at : at + size], "big"), at + size


def _list(raw: bytes, at: int, size: int, depth: int) -> tuple[list[Json], int]:
    values: list[Json] = []
    while size < 0 or len(values) < size:
        if size < 0 and raw[at] == _BREAK:
            return values, at + 1
        value, at = _item(raw, at, depth + 1)
        values.append(value)
    return values, at


def _map(raw: bytes, at: int, size: int, depth: int) -> tuple[dict[str, Json], int]:
    values: dict[str, Json] = {}
    pairs = 0
    while size < 0 or pairs < size:
        if size < 0 and raw[at] == _BREAK:
            return values, at + 1
        name, at = _item(raw, at, depth + 1)
        values[text(name)], at = _item(raw, at, depth + 1)
        pairs += 1
    return values, at
