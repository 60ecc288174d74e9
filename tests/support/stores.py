"""The store of an installation without its engine: one SQLite file, and a whole memory over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory_anchor.process.wiring import Core
from memory_anchor.store.database import DATABASE_FILE, Sqlite
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ManualClock, ephemeral_core


def file_store(folder: Path) -> SqlStore:
    """Return the store in `folder`, made where it is missing."""
    return SqlStore(Sqlite(folder / "memory.db"))


def records_in(folder: Path) -> SqlRecords:
    """Return the small records kept in `folder`, made where it is missing."""
    return SqlRecords(Sqlite(folder / "records.db"), ManualClock().now)


def core_on_disk(data_dir: Path, **more: Any) -> Core:
    """Return `ephemeral_core` with its database in the data directory, where a process beside it looks for it."""
    return ephemeral_core(data_dir, store=file_store((data_dir / DATABASE_FILE).parent), **more)
