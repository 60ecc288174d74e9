r"""What can still be read of a damaged Edge store: its log without the engine, its shards point by point.

The log (`read_log`) holds what was written, whatever became of the segments. A log file is `wal\0`, a seed, and
records: length, CBOR of one operation, padding, and a CRC-32C that continues from the record before, so each record is
known to be as it was written. After a damaged one reading continues at the next whose checksum holds, and the log is
not whole: what was changed in between is not known then. The engine drops files whose records are in flushed segments,
so the log is one source among others.

A shard (`read_shard`) is read in a process of its own: damage may end it (SIGBUS, abort) and not us. The engine answers
a page with an error when one point of it cannot be read, so a page that fails is read in halves, down to the point. It
opens a copy, never the shard itself: opening replays the log and writes. Where it cannot open the copy, a second one is
tried bare: payloads and ids only, with the configuration written again and no log. The child prints, one JSON line a
point, what it is going to read before it does; the points it was at when it ended are read one by one by the next
child, and the one that ends that is unreadable.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import numpy as np

from memory_anchor.adapters.edge_engine import inconsistent_indexes, pages, vectors_of
from memory_anchor.adapters.sparse_files import copy_tree
from memory_anchor.base.json_values import Json, Record, items, number, record, records, text

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard

    from memory_anchor.domain.ports import Matrix

_MAGIC = b"wal\0"
_HEAD_BYTES = 8
_ALIGN = 8
_OPERATION = 0xBF
"""An operation is a CBOR map of indefinite length: the first byte of every record."""
_DEPTH_MAX = 32
_BREAK = 0xFF
"""Ends a list or a map of indefinite length, where its next item would be."""
_SIMPLE = {20: False, 21: True, 22: None, 23: None}
_FLOATS = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}


@dataclass(slots=True)
class LoggedPoint:
    """One point as the log leaves it. vectors: dense rows by name; words are left out, they are made again."""

    payload: dict[str, Json]
    vectors: dict[str, Matrix] = field(default_factory=dict)


@dataclass(slots=True)
class Log:
    """points: by id. is_whole: no record was skipped."""

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
            yield record(_item(content[at + 8 : at + 8 + length], 0, 0)[0])
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
    seed = ~int(f"{before:032b}"[::-1], 2) & 0xFFFFFFFF
    return size if _crc32c(seed, content[at : at + size - 4]) == stored else 0


def _next_record(content: bytes, at: int, end: int) -> int:
    while 0 <= at < end:
        operation = content.find(bytes((_OPERATION,)), at + 8, end)
        if operation < 0:
            return end
        at = operation - 8
        if at % _ALIGN == 0 and _record_size(content, at):
            return at
        at += 1
    return end


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
    """Return the CRC-32C (Castagnoli) of `content`, continuing from `seed`."""
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
        for id in items(change["points"]):
            if (known := points.get(str(id))) and not change.get("key"):
                known.payload.update(record(change["payload"]))
    elif "delete_points" in operation:
        for id in items(record(operation["delete_points"])["ids"]):
            points.pop(str(id), None)


def _dense(vectors: Json) -> dict[str, Matrix]:
    rows = {name: row for name, row in record(vectors).items() if isinstance(row, list)}
    return {name: np.asarray([number(value) for value in row], dtype=np.float32) for name, row in rows.items()}


# --- CBOR, as far as the engine writes it ----------------------------------------------------------------------------


def _item(raw: bytes, at: int, depth: int) -> tuple[Json, int]:
    """Return the item at `at` and where the next one begins."""
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    major, short = raw[at] >> 5, raw[at] & 0x1F
    if major == 7:
        if short in _SIMPLE:
            return _SIMPLE[short], at + 1
        if short not in _FLOATS:
            raise ValueError("an unknown simple value")
        code, width = _FLOATS[short]
        (value,) = struct.unpack_from(code, raw, at + 1)
        return float(value), at + 1 + width
    size, at = _size(raw, at + 1, short)
    if major in (0, 1):
        return (size if major == 0 else -1 - size), at
    if major in (2, 3):
        if at + size > len(raw):
            raise ValueError("cut off")
        part = raw[at : at + size]
        return (str(UUID(bytes=part)) if major == 2 else part.decode("utf-8")), at + size  # bytes are a point's id
    if major == 4:
        return _items(raw, at, size, depth)
    if major == 5:
        flat, at = _items(raw, at, max(2 * size, -1), depth)
        return {text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}, at
    raise ValueError("a tag")


def _size(raw: bytes, at: int, short: int) -> tuple[int, int]:
    """Return an item's size, -1 for an indefinite one, and where its content begins."""
    if short < 24:
        return short, at
    if short == 31:
        return -1, at
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(short)
    if size is None or at + size > len(raw):
        raise ValueError("not a valid length")
    return int.from_bytes(raw[at : at + size], "big"), at + size


def _items(raw: bytes, at: int, count: int, depth: int) -> tuple[list[Json], int]:
    """Return `count` items, or with -1 those before the next break, and where the next item begins."""
    values: list[Json] = []
    while count < 0 or len(values) < count:
        if count < 0 and raw[at] == _BREAK:
            return values, at + 1
        value, at = _item(raw, at, depth + 1)
        values.append(value)
    return values, at


# --- reading a shard in another process ------------------------------------------------------------------------------

CHILDREN_MAX = 200
"""Children a shard; each is started because the one before was ended by a point."""
CHILD_TIMEOUT_S = 600.0
PAGE = 200
_BARE_SHARD = {"on_disk_payload": True, "vectors": {}, "sparse_vectors": {}}
_BARE_SEGMENT = {
    "initial_version": None,
    "version": 0,
    "config": {"vector_data": {}, "sparse_vector_data": {}, "payload_storage_type": {"type": "mmap"}},
}


@dataclass(slots=True)
class ShardContent:
    """points: id -> (payload, dense vectors). unreadable: ids that are listed and cannot be read.

    words: id -> its sparse vector. is_indexed: the indexes agree with the payloads.
    is_complete: every id was listed. without_vectors: how many points could be read only without their vectors.
    """

    points: dict[str, tuple[dict[str, Json], dict[str, Matrix]]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    is_complete: bool = False
    without_vectors: int = 0
    words: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    is_indexed: bool = False

    @property
    def is_whole(self) -> bool:
        return self.is_complete and self.is_indexed and not self.unreadable and not self.without_vectors


def read_shard(shard: Path, scratch: Path, *, bare: bool) -> ShardContent:
    """Return what the engine can read of a shard that no process has open. scratch: a folder that may be filled.

    bare: payloads and ids as the segments hold them, without vectors, indexes and what only the log holds.
    Raises OSError: no space for the copy, or it cannot be read at all.
    """
    content = ShardContent()
    copy = scratch / "shard"
    shutil.rmtree(copy, ignore_errors=True)
    copy_tree(shard, copy)
    if bare:
        _strip(copy)
    one_by_one: list[str] = []
    for _ in range(CHILDREN_MAX):
        unfinished = _run_child(copy, scratch / "told", content, one_by_one, indexes=not bare)
        if content.is_complete or not unfinished:
            break
        if len(unfinished) == 1:
            content.unreadable.add(unfinished[0])
        one_by_one = unfinished if len(unfinished) > 1 else []
    shutil.rmtree(copy, ignore_errors=True)
    return content


def _strip(copy: Path) -> None:
    """Leave payloads and ids; everything else is made of them."""
    shutil.rmtree(copy / "wal", ignore_errors=True)
    (copy / "edge_config.json").write_text(json.dumps(_BARE_SHARD))
    for segment in (copy / "segments").iterdir() if (copy / "segments").is_dir() else ():
        if not segment.is_dir():
            continue
        for part in segment.iterdir():
            if part.is_dir() and part.name != "payload_storage":
                shutil.rmtree(part)
        (segment / "segment.json").write_text(json.dumps(_BARE_SEGMENT))


def _run_child(copy: Path, output: Path, content: ShardContent, one_by_one: list[str], *, indexes: bool) -> list[str]:
    """Run one child and add what it read to `content`; return the ids it was reading when it ended."""
    command = [sys.executable, "-P", "-c", _PROGRAM, str(copy)]
    read_ids = [*content.points, *content.unreadable]
    request = json.dumps({"done": read_ids, "one_by_one": one_by_one, "indexes": indexes}).encode()
    at: list[str] = []
    with output.open("w+b") as stdout, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, input=request, stdout=stdout, stderr=subprocess.DEVNULL, timeout=CHILD_TIMEOUT_S, check=False
        )
    with output.open("rb") as lines:
        for raw in lines:
            try:
                line = json.loads(raw)
            except ValueError:  # the child ended in the middle of it
                continue
            if "at" in line:
                at = line["at"]
            elif "bad" in line:
                content.unreadable.add(line["bad"])
            elif "id" in line:
                rows = {name: np.asarray(row, dtype=np.float32) for name, row in line["vectors"].items()}
                content.points.setdefault(line["id"], (line["payload"], rows))
                content.without_vectors += line["without_vectors"]
                content.words[line["id"]] = line["words"]
            elif "odd" in line:
                content.is_indexed = not line["odd"]
            elif "end" in line:
                content.is_complete = True
    output.unlink()
    return at


_PROGRAM = f"""
import sys
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
from memory_anchor.adapters.edge_damage import print_points
print_points(sys.argv[1])
"""


def print_points(shard: str) -> None:
    """Print what can be read of the shard; the child's whole work."""
    request = json.loads(sys.stdin.buffer.read())
    import qdrant_edge as edge

    try:
        opened = edge.EdgeShard.load(shard)
    except BaseException:  # the engine's panics are BaseExceptions
        return
    for batch in _batches(opened, request["one_by_one"], set(request["done"])):
        _print_batch(opened, batch)
    _print_line(end=True)
    if request["indexes"]:
        with contextlib.suppress(BaseException):
            _print_line(odd=inconsistent_indexes(opened))


def _batches(shard: EdgeShard, one_by_one: list[str], done: set[str]) -> Iterator[list[str]]:
    for point in one_by_one:
        if point not in done:
            yield [point]
    done.update(one_by_one)
    for page in pages(shard, with_payload=False, size=PAGE):
        if batch := [str(record.id) for record in page if str(record.id) not in done]:
            yield batch


def _print_batch(shard: EdgeShard, batch: list[str]) -> None:
    _print_line(at=batch)
    without_vectors = False
    try:
        points = shard.retrieve([*batch], True, True)
    except BaseException:
        if len(batch) > 1:
            _print_batch(shard, batch[: len(batch) // 2])
            _print_batch(shard, batch[len(batch) // 2 :])
            return
        try:
            points, without_vectors = shard.retrieve([*batch], True, False), True  # vectors can be made again
        except BaseException:
            _print_line(bad=batch[0])
            return
    for point in points:
        if not point.payload:
            _print_line(bad=str(point.id))
            continue
        stored, sparse = vectors_of(point)
        words = sorted(zip(sparse.indices, sparse.values, strict=True)) if sparse is not None else []
        rows: dict[str, Json] = {name: list(row) for name, row in stored.items()}
        _print_line(id=str(point.id), payload=point.payload, vectors=rows, words=words, without_vectors=without_vectors)


def _print_line(**line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
