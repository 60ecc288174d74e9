"""Stored audiences of an older form are written anew, once: agent memories were readable in every project.

The key of a memory that an agent keeps for itself names its project since November 2026. Stores keep the key beside
each version, so those of the old form (`g|account|user|agent`) are put again with their own key. Repeating it finds
nothing; a kill leaves the marker unwritten and the rest for the next start.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from memory_anchor.errors import decided_anew
from memory_anchor.files import write_whole
from memory_anchor.model import COLLECTIONS
from memory_anchor.ports import MemoryStore
from memory_anchor.where import OneOf, Where

MARKER = "audiences"
FORM = b"2\n"
FACET_MAX = 1_000
"""Values a facet tells; a store with more is read through."""
PAGE = 200
OLD_PARTS = 4


def rekeyed(store: MemoryStore, data_dir: Path) -> int:
    """Return how many versions got a key of today's form."""
    marker = data_dir / MARKER
    if marker.exists() and marker.read_bytes() == FORM:
        return 0
    done = sum(_rekeyed(store, name) for name in COLLECTIONS)
    write_whole(marker, FORM)
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
        decided_anew(partial(_put_again, store, collection, page))
    return len(found)


def _put_again(store: MemoryStore, collection: str, points: list[str]) -> None:
    store.put(collection, store.get(collection, points, with_vectors=True))
