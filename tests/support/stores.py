"""The store of an installation without its engine: one SQLite file."""

from __future__ import annotations

from pathlib import Path

from memory_anchor.store.database import Sqlite
from memory_anchor.store.sql_store import SqlStore


def file_store(folder: Path) -> SqlStore:
    """Return the store in `folder`, made where it is missing."""
    return SqlStore(Sqlite(folder / "memory.db"))
