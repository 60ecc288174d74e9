"""Repairs at each start, and `doctor`'s check of stored vectors.

At a start, before anything is read or written, what a kill, a power cut or an older version left is repaired. Audit
trail and store may end at different places: what a killed process announced and stored is recorded, and the ends are
compared (`adapters.audit`). An interrupted purge is finished. Stored audiences of an older form are rewritten, once:
agent memories were readable in every project, and since November 2026 an agent's key names its project. Stores keep the
key with each version, so those of the old form (`g|account|user|agent`) are put again with their new key. Repeating it
finds nothing; after a kill the marker is missing and the next start does the rest.

Vectors are compared with their texts, since the engine keeps no checksum and a flipped bit would go unnoticed. Each row
is made again with the embedder that runs here and compared number by number; an API is not called again, since it costs
money and need not answer the same. Rejected: a checksum with the vector, since the engine stores a row in 16 bits that
are only known when it is read back. Cost: 60 to 130 ms of CPU per memory, in steps that may be interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.admin.purge import finish_purge
from memory_anchor.base.files import write_atomic
from memory_anchor.base.json_values import Record, whole
from memory_anchor.domain.errors import BadInput, retry_on_conflict
from memory_anchor.domain.model import COLLECTIONS, point_id
from memory_anchor.domain.ports import Embedder, MemoryStore, VersionReader
from memory_anchor.domain.where import Between, HasVector, OneOf, Where
from memory_anchor.layers.commits import audit_record
from memory_anchor.layers.records import RECORD_COLLECTIONS
from memory_anchor.recall.embedding import document_rows
from memory_anchor.upkeep.job_kit import pages

if TYPE_CHECKING:
    from memory_anchor.domain.model import Memory
    from memory_anchor.domain.ports import Matrix
    from memory_anchor.upkeep.job_kit import Upkeep

log = logging.getLogger("memory_anchor")
RECONCILE_PAGE = 500
"""Versions read at once to compare with the end of the audit trail."""
MARKER = "audiences"
FORM = b"2\n"
FACET_MAX = 1_000
"""Most values of a facet; a store with more is read completely."""
PAGE = 200
OLD_PARTS = 4


def repair_at_start(upkeep: Upkeep, data_dir: Path, now: datetime) -> None:
    """Repair what can be, and log it."""
    rewrite_audience_keys(upkeep.store, data_dir)
    if finish_purge(upkeep, at=now):
        log.warning("a purge that was cut off was ended; `memory-anchor doctor --audit` tells how")


def compare_trail(store: VersionReader, audit: JsonlAudit, now: datetime) -> None:
    """Record what a kill or a power cut left apart in a store and its trail in a file."""
    recovered = audit.complete(partial(_is_stored, store), now=now)
    if recovered:
        log.warning("%d writes of a process that was killed were recorded in the audit trail", recovered)
    unrecorded, unstored = audit.reconcile(partial(_is_stored, store), partial(_recorded_since, store), now=now)
    if unrecorded or unstored:
        log.warning("audit trail and store were cut apart: %d recorded now, %d not stored", unrecorded, unstored)


def _is_stored(store: VersionReader, written: Record) -> bool:
    """Return whether the version of an audit record is in the store."""
    entries = store.get(str(written["layer"]), [point_id(str(written["id"]), whole(written["version"]))])
    return bool(entries) and entries[0].memory.content_hash == written["content_hash"]


def _recorded_since(store: VersionReader, at: datetime | None) -> Iterator[Record]:
    """Yield the stored versions recorded from `at` on as audit records, read page by page."""
    where = Where((Between("recorded_at", at_least=at),)) if at else Where()
    for collection in RECORD_COLLECTIONS:
        for entry in chain.from_iterable(pages(store, collection, where, size=RECONCILE_PAGE)):
            yield {**audit_record(entry.memory), "author": entry.memory.author}


def rewrite_audience_keys(store: MemoryStore, data_dir: Path) -> int:
    """Return how many versions got an audience key of today's form."""
    marker = data_dir / MARKER
    if marker.exists() and marker.read_bytes() == FORM:
        return 0
    count = sum(_rewrite_keys(store, name) for name in COLLECTIONS)
    write_atomic(marker, FORM)
    return count


def _rewrite_keys(store: MemoryStore, collection: str) -> int:
    keys = store.facet(collection, "audience", Where(), limit=FACET_MAX)
    old = [key for key in keys if key.startswith("g|") and len(key.split("|")) == OLD_PARTS]
    if not old and len(keys) < FACET_MAX:
        return 0
    where = Where((OneOf("audience", tuple(old)),)) if len(keys) < FACET_MAX else Where()
    memories = (entry.memory for page in pages(store, collection, where, size=PAGE) for entry in page)
    points = [memory.point_id for memory in memories if memory.audience.startswith("g|")]
    for start in range(0, len(points), PAGE):
        retry_on_conflict(partial(_put_again, store, collection, points[start : start + PAGE]))
    return len(points)


def _put_again(store: MemoryStore, collection: str, points: list[str]) -> None:
    store.put(collection, store.get(collection, points, with_vectors=True))


TOLERANCE = 3e-5
"""Largest difference of one of 384 numbers: storing in 16 bits changes it by 6e-6, a flipped bit by 5e-5 to 1. Smaller
flips move no cosine by more than 1e-6."""
COMPARED_AT_ONCE = 16


@dataclass(slots=True)
class VectorComparison:
    """count: vectors compared. odd: version ids whose vector is not their text's.

    left: (vector's name, collection, after) to continue with, None at the end.
    """

    count: int = 0
    odd: list[str] = field(default_factory=list)
    left: tuple[str, str, str | None] | None = None


def compare_vectors(
    store: MemoryStore,
    embedders: Mapping[str, Embedder],
    *,
    start: Sequence[str | None] = (),
    enough: Callable[[], bool],
) -> VectorComparison:
    """Return which vectors are not those of their texts, from `start` on, until `enough` or the end.

    embedders: vector's name -> its embedder here. start: an earlier `left`. Raises Unavailable: an embedder cannot run.
    BadInput: `start` is none of them.
    """
    result = VectorComparison()
    shares = [
        (name, collection)
        for name in sorted(embedders)
        for collection in COLLECTIONS
        if store.embedders(collection).get(name) == embedders[name].identity
    ]
    after: str | None = None
    if start:
        if tuple(start[:2]) not in shares or len(start) != len(("vector", "collection", "after")):
            raise BadInput(f"vectors_from is {str(list(start))[:60]}; allowed is what the answer before gave as `left`")
        name, collection, after = start
        shares = shares[shares.index((str(name), str(collection))) :]
    for name, collection in shares:
        while True:
            if enough():
                result.left = (name, collection, after)
                return result
            where = Where((HasVector(name),))
            page, after = store.scan(collection, where, page=COMPARED_AT_ONCE, after=after, with_vectors=True)
            rows = {entry.memory.version_id: entry.vectors[name] for entry in page}
            result.odd += _odd(embedders[name], [entry.memory for entry in page], rows)
            result.count += len(page)
            if after is None:
                break
    return result


def _odd(embedder: Embedder, memories: Sequence[Memory], stored: Mapping[str, Matrix]) -> list[str]:
    """Return the version ids whose row is neither the complete text's nor that of the part a write waits for."""
    odd = list(memories)
    for entire in (True, False):
        if odd:
            rows = document_rows(embedder, odd, whole=entire)
            near = [np.abs(stored[m.version_id] - row).max() <= TOLERANCE for m, row in zip(odd, rows, strict=True)]
            odd = [memory for memory, is_near in zip(odd, near, strict=True) if not is_near]
    return [memory.version_id for memory in odd]
