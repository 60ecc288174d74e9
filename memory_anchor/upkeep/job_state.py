"""What a job keeps between two runs: a small record each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_anchor.base.json_values import Json, parsed
from memory_anchor.domain.errors import MemoryAnchorError

if TYPE_CHECKING:
    from memory_anchor.domain.ports import SmallRecords

STATES = "jobs"


def state_record(name: str) -> str:
    """Return the name of the record that holds what a job stored under this name."""
    return f"{STATES}/{name}.json"


def load_state(records: SmallRecords, name: str) -> Json:
    """Return what a job stored under this name, None when there is nothing or it is damaged."""
    try:
        stored = records.read(state_record(name))
        return parsed(stored.content) if stored is not None else None
    except (ValueError, MemoryAnchorError):
        return None
