"""The list of backups, by hand and automatic: a small file, so that who asks for it waits for nothing else."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from typing import TypedDict

from memory_anchor.base.files import write_atomic

KNOWN_FILE = "backups.json"
KNOWN_MAX = 1_000
FOLDER = "backups"
PREFIX = "nightly-"
"""Where automatic backups are, and how their files' names begin."""
LATE_FACTOR = 3
"""A newest backup older than this many intervals is reported: engines may run only now and then."""


class KnownBackup(TypedDict):
    file: str
    made_at: str


def known_backups(data_dir: Path) -> list[KnownBackup]:
    """Return the backups made of this directory, oldest first: [{file, made_at}]."""
    try:
        backups = json.loads((data_dir / KNOWN_FILE).read_text(encoding="utf-8"))["backups"]
        return [{"file": str(backup["file"]), "made_at": str(backup["made_at"])} for backup in backups]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def add_known(data_dir: Path, target: Path, made_at: str) -> None:
    remove_left(data_dir)
    backups = [
        backup for backup in known_backups(data_dir) if backup["file"] != str(target) and Path(backup["file"]).exists()
    ]
    new: KnownBackup = {"file": str(target), "made_at": made_at}
    _save_known(data_dir, [*backups, new][-KNOWN_MAX:])


def remove_left(data_dir: Path) -> None:
    """Remove what killed processes left beside the known backups: every text in the clear."""
    for file in (Path(backup["file"]) for backup in known_backups(data_dir)):
        for left in file.parent.glob(f".{glob.escape(file.name)}.[0-9]*.*"):
            if left.suffix in (".parts", ".tmp") and left.suffixes[-2] != f".{os.getpid()}":
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def remove_known(data_dir: Path, target: Path) -> None:
    """Remove a deleted backup from the list, so that a purge does not report it."""
    _save_known(data_dir, [backup for backup in known_backups(data_dir) if backup["file"] != str(target)])


def _save_known(data_dir: Path, backups: list[KnownBackup]) -> None:
    write_atomic(data_dir / KNOWN_FILE, json.dumps({"backups": backups}, indent=1).encode())


def automatic_backups(data_dir: Path) -> list[Path]:
    """Return the automatic backups, oldest first."""
    return sorted((data_dir / FOLDER).glob(f"{PREFIX}*.tar.gz"))


class ListedBackup(KnownBackup):
    bytes: int
    automatic: bool


def listed(data_dir: Path) -> list[ListedBackup]:
    """Return every known backup that still exists, oldest first."""
    nightly = {str(path) for path in automatic_backups(data_dir)}
    backups = [entry for entry in known_backups(data_dir) if Path(entry["file"]).is_file()]
    return [
        {**entry, "bytes": Path(entry["file"]).stat().st_size, "automatic": entry["file"] in nightly}
        for entry in backups
    ]
