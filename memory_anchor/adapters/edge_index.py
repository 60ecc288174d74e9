"""The Edge collections beside a database, written by a child process that lives for one session (`edge_child`).

    <folder>/event_log, <folder>/verified_fact    a shard each, opened by any Qdrant client
    <folder>/lock                                 held by the child, whoever began it, until it is gone

Whatever the child does, and however it ends, the engine waits for nothing but its answer to a frame of 16 points.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters import edge_child
from memory_anchor.adapters.edge_child import HEAD, POINT
from memory_anchor.adapters.sparse_files import keeps_holes
from memory_anchor.base.files import make_private
from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, items, parsed, text, whole
from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.ports import WORDS, Hit, Mark, SparseVector

if TYPE_CHECKING:
    from memory_anchor.domain.ports import EmbedderIdentity, VectorQuery, WholePoint

FRAME = 16
"""Points of a frame: of 64 the pipe was full, and whoever had a question waited .2 s."""
ENDS_WITHIN_S = 60.0
NEW_SHARD_BYTES = 176 << 20
"""A new shard with one vector is 165 MB long, all of it mapped. On a disk it takes half a megabyte; tmpfs gives a page
to every hole that is read, and without one the child ends."""
SHARDS_AT_ONCE = 3
"""Two collections, and one that is made again beside the old one."""
BLOCK_BYTES = 512
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class EdgeIndex:
    """The port `SearchIndex`. One thread at a time; every method but `fingerprint` is for a session."""

    name = "edge"
    keeps_erased = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._number = 0

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and times of its files, and of this start of the machine."""
        lines = [_BOOT.read_bytes().decode("ascii")] if _BOOT.exists() else []
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    status = (Path(folder) / name).lstat()
                    lines.append(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}")
        return stable_hash(*sorted(lines))

    def still_to_allocate(self) -> int:
        """Return what its files may take beyond what they take now, where reading a mapped file fills its holes."""
        there = self.folder
        while not there.exists():
            there = there.parent
        if keeps_holes(there):
            return 0
        taken = 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    taken += getattr((Path(folder) / name).lstat(), "st_blocks", 0) * BLOCK_BYTES
        return max(NEW_SHARD_BYTES, SHARDS_AT_ONCE * NEW_SHARD_BYTES - taken)

    def is_torn(self, error: Exception) -> bool:
        return isinstance(error, Unavailable)

    def check(self, collections: Sequence[str]) -> None:
        """Do nothing: the folder is this store's."""

    def lacks(self, collections: Sequence[str]) -> bool:
        del collections  # nobody searches it
        return False

    def begin(self, collections: Mapping[str, Mapping[str, EmbedderIdentity]], *, anew: bool) -> None:
        make_private(self.folder)
        self.give_up()
        self._child = subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-I",
                edge_child.__file__,
                str(self.folder),
                str(os.getpid()),
                *(["anew"] if anew else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        for name, embedders in collections.items():
            self._ask(b"o", name, _dimensions(embedders))

    def count(self, collection: str) -> int:
        return whole(parsed(self._ask(b"c", collection)))

    def apply(self, collection: str, points: Sequence[WholePoint]) -> None:
        for first in range(0, len(points), FRAME):
            self._ask(b"u", collection, b"".join(map(_packed, points[first : first + FRAME])))

    def erase(self, collection: str, point_ids: Sequence[str]) -> None:
        if point_ids:
            self._ask(b"d", collection, json.dumps(list(point_ids)).encode())

    def marks(self, collection: str) -> Iterator[Mark]:
        after: Json = None
        while True:  # a page at a time: the JSON of all of them is read in a fifth of a second, and nobody else runs
            page, after = items(parsed(self._ask(b"m", collection, json.dumps(after).encode()).decode()))
            yield from (Mark(*map(text, items(mark))) for mark in items(page))
            if after is None:
                return

    def begin_anew(self, collection: str, embedders: Mapping[str, EmbedderIdentity]) -> None:
        self._ask(b"r", collection, _dimensions(embedders))

    def put_in_place(self, collection: str) -> None:
        self._ask(b"x", collection)

    def query_batch(self, collection: str, queries: Sequence[VectorQuery]) -> list[list[Hit]]:
        return [self._hits(collection, query) for query in queries]

    def _hits(self, collection: str, query: VectorQuery) -> list[Hit]:
        vector, operation = query.vector, b"n"
        asked: dict[str, Json] = {"using": query.using, "terms": None, "limit": query.limit}
        if isinstance(vector, SparseVector):
            operation = b"w"
            asked |= {"using": WORDS, "terms": list(vector.indices), "values": list(vector.values)}
        else:
            asked["values"] = vector.tolist()
        hits = items(parsed(self._ask(operation, collection, json.dumps(asked).encode())))
        return [Hit(text(point), float(str(score))) for point, score in map(items, hits)]

    def flush(self) -> None:
        self._ask(b"f", "")

    def end(self) -> None:
        """Let the child end, and wait until it is gone; one that does not end is killed: it has flushed."""
        child, self._child = self._child, None
        if child is None or child.stdin is None or child.stdout is None:
            return
        with contextlib.suppress(OSError):
            child.stdin.close()
        try:
            child.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()

    def give_up(self) -> None:
        """Kill the child: nothing after the last flush counts."""
        if self._child is not None:
            self._child.kill()
        self.end()

    @property
    def pid(self) -> int | None:
        """Return the process of the session, None between two."""
        return self._child.pid if self._child is not None else None

    def _ask(self, operation: bytes, collection: str, body: bytes = b"") -> bytes:
        """Return the child's answer. Raises Unavailable: it is gone, or what was asked failed there."""
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise Unavailable("the process that writes the search collections has ended")
        self._number = (self._number + 1) & 0xFFFFFFFF
        named = collection.encode()
        frame = bytes([len(named)]) + named + body
        try:
            edge_child.written(child.stdin.fileno(), HEAD.pack(len(frame), self._number, operation) + frame)
            length, _, told = HEAD.unpack(edge_child.exactly(child.stdout.fileno(), HEAD.size))
            answer = edge_child.exactly(child.stdout.fileno(), length)
        except (OSError, EOFError, ValueError) as error:
            raise Unavailable(f"{self.folder}: the process that writes it ended ({type(error).__name__})") from error
        if told == b"!":
            raise Unavailable(f"{self.folder} cannot be used as it is ({answer.decode('ascii', 'replace')})")
        return answer


def _dimensions(embedders: Mapping[str, EmbedderIdentity]) -> bytes:
    return json.dumps({vector: identity.dimensions for vector, identity in embedders.items()}).encode()


def _packed(point: WholePoint) -> bytes:
    payload, dense, words, names = point.payload.encode("utf-8", "replace"), point.dense, point.words, point.names
    head = POINT.pack(bytes.fromhex(point.point_id.replace("-", "")), len(payload), len(dense), len(words), len(names))
    return b"".join((head, names.encode(), payload, dense, words))
