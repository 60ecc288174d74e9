"""The one place where versions that somebody decided on reach the store, the audit trail and the searches.

Saving, promoting, forgetting, reviewing and undoing (`layers.records`), background jobs (`upkeep.job_kit`), imports and
devices all decide what the next versions are; writing them is the same for all: a note of what is coming in the trail,
one atomic batch a collection, the record, and then searches show it. What moves or mends a store as a whole (purge,
backups, rebuilding, merging projects) and what is derived (vectors, words, use) is no version and has no record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Memory
from memory_anchor.domain.ports import Entry, MemoryStore, Trail

MOVED_EACH = 40
"""Versions of one record of what was moved here: a record has a bound."""


@dataclass(frozen=True, slots=True)
class Commits:
    """told: gets every version that was stored, as stored."""

    store: MemoryStore
    audit: Trail
    told: Callable[[Sequence[Entry]], None]

    def put(
        self,
        entries: Sequence[Entry],
        *,
        records: Sequence[Mapping[str, Json]],
        kind: str,
        by: str,
        at: datetime,
    ) -> None:
        """Write versions, in the order in which their collections must be written. records: what the trail keeps."""
        batches: dict[str, list[Entry]] = {}
        for entry in entries:
            batches.setdefault(entry.memory.layer.value, []).append(entry)
        with self.audit.recording(kind, records, by=by, at=at) if records else nullcontext():
            for collection, batch in batches.items():
                self.store.put(collection, batch)
        self.told(entries)


def audit_of(written: Sequence[Memory]) -> dict[str, Json]:
    """Return the one audit record of versions written together: each record costs a disk sync."""
    records = [audit_record(memory) for memory in written]
    return records[0] if len(records) == 1 else {"memories": records}


def moved_records(moved: Sequence[Memory]) -> list[dict[str, Json]]:
    """Return the audit records of versions that were recorded elsewhere, `MOVED_EACH` in one."""
    parts = (moved[start : start + MOVED_EACH] for start in range(0, len(moved), MOVED_EACH))
    return [{"memories": [audit_record(memory) for memory in part]} for part in parts]


def audit_record(memory: Memory) -> dict[str, Json]:
    """Return what the audit keeps of one written version: never its text."""
    return {
        "id": memory.id,
        "version": memory.version,
        "layer": memory.layer.value,
        "status": memory.status.value,
        "content_hash": memory.content_hash,
        "scope": {name: value for name, value in asdict(memory.scope).items() if name != "across"},
        "reason": memory.reason,
    }
