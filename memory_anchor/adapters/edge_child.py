"""The process that writes the Edge collections beside a database: a short life, two pipes, no numpy.

Run as a script: `edge_child.py FOLDER ENGINE [anew]`. It reads numbered frames and answers each in turn. Loading,
flushing and closing a shard hold the interpreter for up to a second at 100,000 memories, and a full disk ends the
process that maps its files: neither happens in the engine here.

It holds `FOLDER/lock` on a bare descriptor until it is gone, whatever becomes of the engine: loading a shard while a
killed engine's child was still ending lost every point that was not flushed yet in 15 of 18 tries. Where the engine is
gone, the pipe ends, and so does this process. One that gets the lock only after its engine is gone does nothing at all:
the next engine's session may be over by then, and this one's frames are older.

Frames: length, then number, operation and body; an answer bears the number of its frame, and the operation `!` for an
error. o: open a collection; c: count; u: put points; d: erase points; m: what may move of a page; n, w: nearest,
matching; r: begin a collection anew beside the old one; x: put the new one in its place; f: flush.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard, Point

HEAD = struct.Struct("<IIc")
"""Bytes after this length, number, operation."""
POINT = struct.Struct("<16sIIIH")
"""Point, then how long its payload, its dense rows and its words are, and the length of the names of its rows."""
NEW, OLD = "half-", "old-"
LISTED = 500
PIECE = 1 << 20


class Asked(TypedDict):
    """A search of the vector `using`; terms: of words, None for a row."""

    using: str
    terms: list[int] | None
    values: list[float]
    limit: int


def exactly(descriptor: int, count: int) -> bytes:
    """Return so many bytes of a pipe. Raises EOFError: it ended before."""
    parts = bytearray()
    while len(parts) < count:
        piece = os.read(descriptor, min(PIECE, count - len(parts)))
        if not piece:
            raise EOFError
        parts += piece
    return bytes(parts)


def written(descriptor: int, content: bytes) -> None:
    """Write all of it."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def point_name(point: bytes) -> str:
    digits = point.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class Shards:
    """The collections of a folder, each a shard that is loaded when it is first named."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.shards: dict[str, EdgeShard] = {}

    def path(self, name: str) -> Path:
        return self.folder / name

    def opened(self, name: str, dimensions: dict[str, int]) -> None:
        """Load a collection, made where there is none."""
        import qdrant_edge as edge

        self.without_remains(name)
        if self.path(name).is_dir():
            self.shards[name] = edge.EdgeShard.load(str(self.path(name)))
        else:
            self.shards[name] = self.made(name, dimensions)

    def count(self, name: str) -> int:
        import qdrant_edge as edge

        return int(self.shards[name].count(edge.CountRequest(exact=True)))

    def without_remains(self, name: str) -> None:
        """Remove what an earlier process began to make or to remove."""
        import shutil

        for start in (NEW, OLD):
            shutil.rmtree(self.path(f"{start}{name}"), ignore_errors=True)

    def made(self, name: str, dimensions: dict[str, int]) -> EdgeShard:
        from memory_anchor.adapters.edge_engine import create_shard
        from memory_anchor.domain.ports import EmbedderIdentity

        embedders = {vector: EmbedderIdentity("", size) for vector, size in dimensions.items()}
        return create_shard(self.path(name), embedders)

    def begun_anew(self, name: str, dimensions: dict[str, int]) -> None:
        if (old := self.shards.pop(name, None)) is not None:
            old.close()
        self.without_remains(name)
        self.shards[name] = self.made(f"{NEW}{name}", dimensions)

    def put_in_place(self, name: str) -> None:
        """Let the new shard take the name of the old one, which goes with every byte of it."""
        import shutil

        import qdrant_edge as edge

        shard = self.shards.pop(name)
        shard.flush()
        shard.close()
        if self.path(name).is_dir():
            self.path(name).rename(self.path(f"{OLD}{name}"))
        self.path(f"{NEW}{name}").rename(self.path(name))
        shutil.rmtree(self.path(f"{OLD}{name}"), ignore_errors=True)
        self.shards[name] = edge.EdgeShard.load(str(self.path(name)))

    def put(self, name: str, body: bytes) -> None:
        import qdrant_edge as edge

        points: list[Point] = []
        at = 0
        while at < len(body):
            point, *lengths, names_length = POINT.unpack_from(body, at)
            at += POINT.size
            parts = []
            for length in (names_length, *lengths):
                parts.append(body[at : at + length])
                at += length
            names, payload, dense, words = parts
            vectors: dict[str, list[float] | edge.SparseVector | list[list[float]]] = {}
            first = 0
            for vector, size in json.loads(names or b"{}").items():
                vectors[vector] = list(struct.unpack_from(f"<{size}f", dense, 4 * first))
                first += size
            if words:
                pairs = list(struct.iter_unpack("<If", words))
                vectors["words"] = edge.SparseVector([term for term, _ in pairs], [weight for _, weight in pairs])
            points.append(edge.Point(point_name(point), vectors, json.loads(payload)))
        self.shards[name].update(edge.UpdateOperation.upsert_points(points))

    def erase(self, name: str, points: list[str]) -> None:
        import qdrant_edge as edge

        self.shards[name].update(edge.UpdateOperation.delete_points(list(points)))

    def marks(self, name: str, first: str | None) -> tuple[list[list[str]], str | None]:
        """Return what may move of a page of points from this one on, and the point that begins the next page."""
        import qdrant_edge as edge

        page, after = self.shards[name].scroll(
            edge.ScrollRequest(
                offset=first,
                limit=LISTED,
                with_payload=edge.PayloadSelector.Include(["state", "audience"]),
                with_vector=False,
            )
        )
        payloads = [(str(record.id), record.payload or {}) for record in page]
        found = [[point, str(payload.get("state")), str(payload.get("audience"))] for point, payload in payloads]
        return found, None if after is None else str(after)

    def best(self, name: str, asked: Asked) -> list[list[str | float]]:
        import qdrant_edge as edge

        using, terms, values = asked["using"], asked["terms"], asked["values"]
        wanted = edge.SparseVector(terms, values) if terms is not None else values
        request = edge.QueryRequest(
            query=edge.Query.Nearest(wanted, using=using),
            limit=asked["limit"],
            with_payload=False,
            params=edge.SearchParams(exact=True),
        )
        return [[str(hit.id), hit.score] for hit in self.shards[name].query(request)]

    def flush(self) -> None:
        for shard in self.shards.values():
            shard.flush()

    def close(self) -> None:
        for shard in self.shards.values():
            shard.flush()
            shard.close()


def answer(shards: Shards, operation: bytes, body: bytes) -> bytes:
    """Do what a frame asks for; return the body of its answer."""
    size = body[0] if body else 0
    name, rest = body[1 : 1 + size].decode(), body[1 + size :]
    match operation:
        case b"o":
            shards.opened(name, json.loads(rest))
        case b"c":
            return json.dumps(shards.count(name)).encode()
        case b"u":
            shards.put(name, rest)
        case b"d":
            shards.erase(name, json.loads(rest))
        case b"m":
            return json.dumps(shards.marks(name, json.loads(rest))).encode()
        case b"n" | b"w":
            return json.dumps(shards.best(name, json.loads(rest))).encode()
        case b"r":
            shards.begun_anew(name, json.loads(rest))
        case b"x":
            shards.put_in_place(name)
        case b"f":
            shards.flush()
        case _:
            raise ValueError(operation)
    return b""


def main(folder: str, engine: int, *, anew: bool) -> None:
    import fcntl
    import shutil
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(10)
    os.umask(0o077)
    fcntl.flock(os.open(Path(folder) / "lock", os.O_CREAT | os.O_RDWR, 0o600), fcntl.LOCK_EX)
    if os.getppid() != engine:
        return
    for entry in os.scandir(folder) if anew else ():
        if entry.is_dir():
            shutil.rmtree(entry.path)
    given, taken = sys.stdin.fileno(), sys.stdout.fileno()
    shards = Shards(folder)
    try:
        while True:
            length, number, operation = HEAD.unpack(exactly(given, HEAD.size))
            body = exactly(given, length)
            try:
                found = answer(shards, operation, body)
            except Exception as error:
                operation, found = b"!", type(error).__name__.encode()
            written(taken, HEAD.pack(len(found), number, operation) + found)
    except (EOFError, BrokenPipeError):
        shards.close()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(sys.argv[1], int(sys.argv[2]), anew="anew" in sys.argv[3:])
