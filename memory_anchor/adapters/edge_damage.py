"""What can still be read of a damaged shard of Qdrant Edge, point by point: an old store's, or one beside a database.

A shard is read in a process of its own: damage may end it (SIGBUS, abort) and not us. The engine answers a page with an
error when one point of it cannot be read, so a page that fails is read in halves, down to the point. It opens a copy,
never the shard itself: opening replays the log and writes. Where it cannot open the copy, a second one is tried bare:
payloads and ids only, with the configuration written again and no log. The child prints, one JSON line a point, what it
is going to read before it does; the points it was at when it ended are read one by one by the next child, and the one
that ends that is unreadable.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters.edge_engine import pages, vectors_of
from memory_anchor.adapters.sparse_files import copy_tree

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard

    from memory_anchor.base.json_values import Json
    from memory_anchor.domain.ports import Matrix

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

    is_complete: every id was listed. without_vectors: how many points could be read only without their vectors.
    """

    points: dict[str, tuple[dict[str, Json], dict[str, Matrix]]] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    is_complete: bool = False
    without_vectors: int = 0

    @property
    def is_whole(self) -> bool:
        return self.is_complete and not self.unreadable and not self.without_vectors


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
        unfinished = _run_child(copy, scratch / "told", content, one_by_one)
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


def _run_child(copy: Path, output: Path, content: ShardContent, one_by_one: list[str]) -> list[str]:
    """Run one child and add what it read to `content`; return the ids it was reading when it ended."""
    command = [sys.executable, "-P", "-c", _PROGRAM, str(copy)]
    read_ids = [*content.points, *content.unreadable]
    request = json.dumps({"done": read_ids, "one_by_one": one_by_one}).encode()
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
        stored, _ = vectors_of(point)
        rows: dict[str, Json] = {name: list(row) for name, row in stored.items()}
        _print_line(id=str(point.id), payload=point.payload, vectors=rows, without_vectors=without_vectors)


def _print_line(**line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
