"""A store held against what it was made from: at each start, and where `doctor` is asked.

What a start puts right before anything is read or written: what a kill, a power cut or an older version left.

Audit trail and store may end at different places: what a killed process noted and stored is recorded, and the end of
each is held against the other (`adapters.audit`). A purge that was cut off is ended. Stored audiences of an older form
are written anew, once: agent memories were readable in every project, and the key of one names its project since
November 2026. Stores keep the key beside each version, so those of the old form (`g|account|user|agent`) are put again
with their own key. Repeating it finds nothing; a kill leaves the marker unwritten and the rest for the next start.

Vectors held against the texts they were made of: the engine keeps no checksum, and a flipped bit moves one unseen.

Each row is made anew with the embedder that runs here and compared number by number; one behind an API is not asked
again, since it costs money and need not answer alike. Rejected: a checksum beside the vector, since the engine keeps a
row in 16 bits that nobody sees before it is read back. Cost: 60 to 130 ms of CPU a memory, in steps that may be left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.care.purge import finish_purge
from memory_anchor.errors import retry_on_conflict
from memory_anchor.files import write_atomic
from memory_anchor.json_values import Record, whole
from memory_anchor.layers.records import RECORD_COLLECTIONS, audit_record
from memory_anchor.model import COLLECTIONS, point_id
from memory_anchor.ports import Embedder, MemoryStore
from memory_anchor.recall.embedding import document_rows
from memory_anchor.where import Between, HasVector, OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.adapters.audit import JsonlAudit
    from memory_anchor.model import Memory
    from memory_anchor.ports import Matrix
    from memory_anchor.upkeep.upkeep import Upkeep

log = logging.getLogger("memory_anchor")
RECONCILE_PAGE = 500
"""Versions read at once that a start holds against the end of the audit trail."""
MARKER = "audiences"
FORM = b"2\n"
FACET_MAX = 1_000
"""Values a facet tells; a store with more is read through."""
PAGE = 200
OLD_PARTS = 4


def mend_at_start(upkeep: Upkeep, audit: JsonlAudit, data_dir: Path, now: datetime, *, alone: bool) -> None:
    """Put right what can be, and log what was. alone: no other process writes what this trail does not tell of."""
    store = upkeep.store
    rekeyed(store, data_dir)
    recovered = audit.complete(partial(_is_stored, store), now=now)
    if recovered:
        log.warning("%d writes of a process that was killed were recorded in the audit trail", recovered)
    if alone:
        unrecorded, unstored = audit.reconcile(partial(_is_stored, store), partial(_recorded_since, store), now=now)
        if unrecorded or unstored:
            log.warning("audit trail and store were cut apart: %d recorded now, %d not stored", unrecorded, unstored)
    if finish_purge(upkeep, at=now):
        log.warning("a purge that was cut off was ended; `memory-anchor doctor --audit` tells how")


def _is_stored(store: MemoryStore, written: Record) -> bool:
    """Return whether the version that an audit record tells of is in the store."""
    found = store.get(str(written["layer"]), [point_id(str(written["id"]), whole(written["version"]))])
    return bool(found) and found[0].memory.content_hash == written["content_hash"]


def _recorded_since(store: MemoryStore, at: datetime | None) -> Iterator[Record]:
    """Yield what the store holds of versions recorded from `at` on, as audit records; read page by page."""
    where = Where((Between("recorded_at", at_least=at),)) if at else Where()
    for collection in RECORD_COLLECTIONS:
        after: str | None = None
        while True:
            entries, after = store.scan(collection, where, page=RECONCILE_PAGE, after=after)
            for entry in entries:
                yield {**audit_record(entry.memory), "author": entry.memory.author}
            if after is None:
                break


def rekeyed(store: MemoryStore, data_dir: Path) -> int:
    """Return how many versions got a key of today's form."""
    marker = data_dir / MARKER
    if marker.exists() and marker.read_bytes() == FORM:
        return 0
    done = sum(_rekeyed(store, name) for name in COLLECTIONS)
    write_atomic(marker, FORM)
    return done


def _rekeyed(store: MemoryStore, collection: str) -> int:
    known = store.facet(collection, "audience", Where(), limit=FACET_MAX)
    old = [key for key in known if key.startswith("g|") and len(key.split("|")) == OLD_PARTS]
    if not old and len(known) < FACET_MAX:
        return 0
    where = Where((OneOf("audience", tuple(old)),)) if len(known) < FACET_MAX else Where()
    found: list[str] = []
    after: str | None = None
    while True:
        entries, after = store.scan(collection, where, page=PAGE, after=after)
        found += [entry.memory.point_id for entry in entries if entry.memory.audience.startswith("g|")]
        if after is None:
            break
    for start in range(0, len(found), PAGE):
        page = found[start : start + PAGE]
        retry_on_conflict(partial(_put_again, store, collection, page))
    return len(found)


def _put_again(store: MemoryStore, collection: str, points: list[str]) -> None:
    store.put(collection, store.get(collection, points, with_vectors=True))


TOLERANCE = 3e-5
"""Most that one of 384 numbers differs: storing in 16 bits changes it by 6e-6, a flipped bit by 5e-5 to 1. Flips below
move no cosine by more than 1e-6."""
COMPARED_AT_ONCE = 16


@dataclass(slots=True)
class Looked:
    """What was found. odd: version ids. left: (vector's name, collection, after) to go on with, None at the end."""

    count: int = 0
    odd: list[str] = field(default_factory=list)
    left: tuple[str, str, str | None] | None = None


def look(
    store: MemoryStore,
    embedders: Mapping[str, Embedder],
    *,
    start: Sequence[str | None] = (),
    enough: Callable[[], bool],
) -> Looked:
    """Return what vectors are not those of their texts, from `start` on, until `enough` or the end.

    embedders: vector's name -> who makes it here. start: what `left` said. Raises Unavailable: an embedder cannot run.
    """
    looked = Looked()
    places = [(name, collection) for name in sorted(embedders) for collection in COLLECTIONS]
    places = [one for one in places if store.embedders(one[1]).get(one[0]) == embedders[one[0]].identity]
    after: str | None = None
    if start:
        name, collection, after = start
        places = places[places.index((str(name), str(collection))) :]
    for name, collection in places:
        while True:
            if enough():
                looked.left = (name, collection, after)
                return looked
            page, after = store.scan(
                collection, Where((HasVector(name),)), page=COMPARED_AT_ONCE, after=after, with_vectors=True
            )
            rows = {entry.memory.version_id: entry.vectors[name] for entry in page}
            looked.odd += _odd(embedders[name], [entry.memory for entry in page], rows)
            looked.count += len(page)
            if after is None:
                break
    return looked


def _odd(embedder: Embedder, memories: Sequence[Memory], stored: Mapping[str, Matrix]) -> list[str]:
    """Return the version ids whose row is neither the whole text's nor the one of what a write waits for."""
    left = list(memories)
    for entire in (True, False):
        if left:
            rows = document_rows(embedder, left, whole=entire)
            near = [np.abs(stored[m.version_id] - row).max() <= TOLERANCE for m, row in zip(left, rows, strict=True)]
            left = [memory for memory, is_near in zip(left, near, strict=True) if not is_near]
    return [memory.version_id for memory in left]
