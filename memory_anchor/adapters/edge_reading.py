"""Reading a damaged shard point by point, in a process of its own: damage may end it (SIGBUS, abort) and not us.

The engine answers a page with an error when one point of it cannot be read, so a page that fails is read in halves,
down to the point. It opens a copy, never the shard itself: opening replays the log and writes. Where it cannot open
the copy, a second one is tried bare: payloads and ids only, with the configuration written anew and no log.
The child tells on stdout, one JSON line a point, what it is at before it does it; whatever it was at when it ended is
read one by one by the next child, and the one that ends that is unreadable.
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

from memory_anchor.adapters.edge_engine import odd_indexes, vectors_of
from memory_anchor.adapters.sparse_files import copy_tree
from memory_anchor.json_values import Json

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard, PointId

    from memory_anchor.ports import Matrix

CHILDREN_MAX = 200
"""Children a shard; each is there because the one before was ended by a point."""
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
    """points: id -> (payload, dense vectors). unreadable: ids that are listed and cannot be given.

    words: id -> its sparse vector. is_indexed: the indexes say what the payloads say.
    is_complete: every id was listed. without_vectors: how many points gave their payload and not their vectors.
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
    Raises OSError: no room for the copy, or it cannot be read at all.
    """
    content = ShardContent()
    copy = scratch / "shard"
    shutil.rmtree(copy, ignore_errors=True)
    copy_tree(shard, copy)
    if bare:
        _strip(copy)
    _read(copy, scratch / "told", content, indexes=not bare)
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


def _read(copy: Path, output: Path, content: ShardContent, *, indexes: bool) -> None:
    one_by_one: list[str] = []
    for _ in range(CHILDREN_MAX):
        at, finished = _child(copy, output, content, one_by_one, indexes=indexes)
        if finished or not at:
            return
        if len(at) == 1:
            content.unreadable.add(at[0])
        one_by_one = at if len(at) > 1 else []


def _child(
    copy: Path, output: Path, content: ShardContent, one_by_one: list[str], *, indexes: bool
) -> tuple[list[str], bool]:
    """Run one child; return what it was at when it ended, and whether it came to the end of the shard."""
    command = [sys.executable, "-P", "-c", _PROGRAM, str(copy)]
    done = [*content.points, *content.unreadable]
    asked = json.dumps({"done": done, "one_by_one": one_by_one, "indexes": indexes}).encode()
    at: list[str] = []
    with output.open("w+b") as told, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, input=asked, stdout=told, stderr=subprocess.DEVNULL, timeout=CHILD_TIMEOUT_S, check=False
        )
    with output.open("rb") as told:
        for raw in told:
            try:
                line = json.loads(raw)
            except ValueError:  # its last words
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
    return at, content.is_complete


_PROGRAM = f"""
import sys
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
from memory_anchor.adapters.edge_reading import tell
tell(sys.argv[1])
"""


def tell(shard: str) -> None:
    """Write what can be read of the shard to stdout; the child's whole work."""
    asked = json.loads(sys.stdin.buffer.read())
    done = set(asked["done"])
    import qdrant_edge as edge

    try:
        opened = edge.EdgeShard.load(shard)
    except BaseException:  # the engine's panics are BaseExceptions
        return
    for batch in _batches(opened, asked["one_by_one"], done):
        _tell_batch(opened, batch)
    _say(end=True)
    if asked["indexes"]:
        try:
            _say(odd=odd_indexes(opened))
        except BaseException:
            return


def _batches(shard: EdgeShard, one_by_one: list[str], done: set[str]) -> Iterator[list[str]]:
    for point in one_by_one:
        if point not in done:
            yield [point]
    done.update(one_by_one)
    import qdrant_edge as edge

    after: PointId | None = None
    while True:
        request = edge.ScrollRequest(offset=after, limit=PAGE, with_payload=False, with_vector=False)
        records, after = shard.scroll(request)
        if batch := [str(record.id) for record in records if str(record.id) not in done]:
            yield batch
        if after is None:
            return


def _tell_batch(shard: EdgeShard, batch: list[str]) -> None:
    _say(at=batch)
    without = False
    try:
        records = shard.retrieve([*batch], True, True)
    except BaseException:
        if len(batch) > 1:
            _tell_batch(shard, batch[: len(batch) // 2])
            _tell_batch(shard, batch[len(batch) // 2 :])
            return
        try:
            records, without = shard.retrieve([*batch], True, False), True  # vectors can be made anew
        except BaseException:
            _say(bad=batch[0])
            return
    for record in records:
        stored, words = vectors_of(record)
        told = sorted(zip(words.indices, words.values, strict=True)) if words is not None else []
        rows: dict[str, Json] = {name: list(row) for name, row in stored.items()}
        if record.payload:
            _say(id=str(record.id), payload=record.payload, vectors=rows, words=told, without_vectors=without)
        else:
            _say(bad=str(record.id))


def _say(**line: Json) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
