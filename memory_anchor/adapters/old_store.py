"""What a data directory from before there was a database holds: memories in shards of Qdrant Edge.

    store/<collection>/collection.json    which shard, schema version, who made the vectors
    store/<collection>/shard-3/           the engine's files, and how many points there were (`points.mark`)

Read once, for an upgrade (`admin.upgrade`), under the lock of its directory. The engine opens a truncated log or an
emptied segment without a word (measured: 0 of 20 points, no error) and has no checksums, so points are counted against
the mark, and each version is held against the sum kept with it: what differs is StoreDamaged, and nothing was changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters.edge_engine import translated_errors, vectors_of
from memory_anchor.adapters.payload import checksum_matches, from_payload
from memory_anchor.base.hashing import content_hash
from memory_anchor.base.json_values import parsed, record, text, whole
from memory_anchor.domain.errors import BadInput, Mending, StoreDamaged
from memory_anchor.domain.ports import CollectionSpec, EmbedderIdentity, Entry, SparseVector
from memory_anchor.domain.where import Between, Where

if TYPE_CHECKING:
    from qdrant_edge import EdgeShard
    from qdrant_edge import Record as Point

    from memory_anchor.base.json_values import Record
    from memory_anchor.domain.model import Memory

RECORD_FILE = "collection.json"
COUNT_FILE = "points.mark"
_COUNT_BYTES = 8
FORMAT = 1


@dataclass(frozen=True, slots=True)
class OldCollection:
    """What `collection.json` says. shard: the folder that counts."""

    shard: str
    embedders: Mapping[str, EmbedderIdentity]


class OldStore:
    """The collections of a directory, each opened when it is named. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._shards: dict[str, EdgeShard] = {}
        self._embedders: dict[str, Mapping[str, EmbedderIdentity]] = {}

    def open_collection(self, name: str) -> None:
        """Load a collection; one that was never made has no versions. Raises StoreDamaged, DiskFull, Refused."""
        import qdrant_edge as edge

        home = self.directory / name
        found = read_record(home)
        self._embedders[name] = found.embedders if found is not None else {}
        if found is None:
            return
        with translated_errors(home):
            shard = self._shards[name] = edge.EdgeShard.load(str(home / found.shard))
            readable = int(shard.info().points_count)
        if readable < (written := written_points(home / found.shard)):
            raise StoreDamaged(
                f"{home}: {written} versions were written and {readable} can be read; nothing was changed. Restore a "
                "backup, or run `memory-anchor doctor` to go on with what is left.",
                Mending.SALVAGE,
            )

    def embedders(self, name: str) -> Mapping[str, EmbedderIdentity]:
        return self._embedders[name]

    def count(self, name: str) -> int:
        shard = self._shards.get(name)
        return int(shard.info().points_count) if shard is not None else 0

    def get(self, collection: str, point_ids: Sequence[str], *, with_vectors: bool = False) -> list[Entry]:
        shard = self._shards.get(collection)
        if shard is None or not point_ids:
            return []
        with translated_errors(self.directory / collection):
            points = {str(point.id): point for point in shard.retrieve(list(point_ids), True, with_vectors)}
        return [self._entry(points[name], with_vectors) for name in point_ids if name in points]

    def scan(
        self, collection: str, where: Where, *, page: int = 500, after: str | None = None, with_vectors: bool = False
    ) -> tuple[list[Entry], str | None]:
        """Return a page in point-id order; where: everything, or what was recorded from a time on."""
        import qdrant_edge as edge

        shard = self._shards.get(collection)
        if shard is None:
            return [], None
        with translated_errors(self.directory / collection):
            points, following = shard.scroll(
                edge.ScrollRequest(offset=after, limit=page, with_payload=True, with_vector=with_vectors)
            )
        entries = [self._entry(point, with_vectors) for point in points]
        kept = [entry for entry in entries if _fulfils(entry.memory, where)]
        return kept, None if following is None else str(following)

    def close(self) -> None:
        while self._shards:
            name, shard = self._shards.popitem()
            with translated_errors(self.directory / name):
                shard.close()

    def _entry(self, point: Point, with_vectors: bool) -> Entry:
        memory = self._memory(point)
        if not with_vectors:
            return Entry(memory)
        rows, words = vectors_of(point)
        return Entry(
            memory,
            {name: np.asarray(row, dtype=np.float32) for name, row in rows.items()},
            SparseVector(tuple(words.indices), tuple(words.values)) if words is not None else None,
        )

    def _memory(self, point: Point) -> Memory:
        """Return a point's memory. Raises StoreDamaged: its payload is invalid, or not the one that was written."""
        try:
            payload: Record = point.payload or {}
            memory = from_payload(payload)
            if checksum_matches(payload) and memory.content_hash in ("", content_hash(memory.content)):
                return memory
        except (BadInput, KeyError, TypeError, ValueError, AttributeError):
            pass
        raise StoreDamaged(
            f"{self.directory}: version {point.id} is not as it was written; nothing was changed. "
            "`memory-anchor doctor --salvage` brings back what can be read.",
            Mending.SALVAGE,
        )


def _fulfils(memory: Memory, where: Where) -> bool:
    for condition in where.all_of:
        if not isinstance(condition, Between) or condition.field != "recorded_at" or where.none_of:
            raise ValueError(f"an old directory is not searched by {condition}")
        if condition.at_least is not None and memory.recorded_at < condition.at_least:  # type: ignore[operator]
            return False
    return True


def read_record(home: Path) -> OldCollection | None:
    """Return what a collection's record says, None where the collection was never made.

    Raises StoreDamaged: it cannot be read, is missing beside memories, or is of a version that this one does not read.
    """
    path = home / RECORD_FILE
    try:
        stored = record(parsed(path.read_text("utf-8")))
        form, schema = whole(stored["format"]), whole(stored["schema_version"])
        if form > FORMAT or schema > CollectionSpec({}).schema_version:
            raise StoreDamaged(
                f"{home} was written by a newer memory-anchor (schema {schema}, format {form}); upgrade memory-anchor, "
                "nothing was changed.",
                Mending.UPGRADE,
            )
        if form < FORMAT or schema < CollectionSpec({}).schema_version:
            raise StoreDamaged(
                f"{home} was written by an older memory-anchor (schema {schema}, format {form}); nothing was changed. "
                "Export it with that version and import it here.",
                Mending.OLDER_VERSION,
            )
        made_by = {name: record(value) for name, value in record(stored["embedders"]).items()}
        embedders = {
            name: EmbedderIdentity(text(who["model"]), whole(who["dimensions"]), text(who["roles"]))
            for name, who in made_by.items()
        }
        return OldCollection(text(stored["shard"]), embedders)
    except FileNotFoundError:
        if any(map(written_points, home.glob("shard-*"))):
            raise StoreDamaged(
                f"{path} is missing beside a shard with memories; restore it from a backup, or run "
                "`memory-anchor doctor`.",
                Mending.SALVAGE,
            ) from None
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(
            f"{path} cannot be read; restore it from a backup, or run `memory-anchor doctor`.", Mending.SALVAGE
        ) from error


def written_points(shard: Path) -> int:
    """Return how many points were written to a shard, as far as it says."""
    with contextlib.suppress(OSError):
        return int.from_bytes((shard / COUNT_FILE).read_bytes()[:_COUNT_BYTES], "little")
    return 0
