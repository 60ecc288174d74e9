"""What a purge, a salvage and an upgrade leave in a data directory until they, or a human, remove it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_anchor.domain.ports import AuditLog

PURGE_STATE = "purge"
"""The state of a purge that did not come to its end, as a job's: ids of what goes, never a text."""
REPLACED = "replaced-"
ACCOUNT_FILE = "salvage.json"
UPGRADED = "store.upgraded"
"""Audit kind of an upgrade: how many versions, and the folder in which the old side is kept."""


def kept_side(data_dir: Path, trail: AuditLog) -> Path | None:
    """Return the folder with the old side of an upgrade, None where there was none or somebody has removed it."""
    what = trail.latest(UPGRADED)
    folder = data_dir / str(what["kept"]) if what else None
    return folder if folder is not None and folder.is_dir() else None
