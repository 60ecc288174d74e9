"""Automatic backups: the engine's job `backup`, a folder of its own, the newest few kept, never a full disk.

Made while serving, as `backup create` makes them: readers go on, writers wait while memories are read. A damaged store
cannot be read whole, so it makes no backup and takes none away: older ones are dropped only after a new one is there.
"""

from __future__ import annotations

import logging
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.care import backup
from memory_anchor.files import make_private
from memory_anchor.model import COLLECTIONS
from memory_anchor.upkeep.jobs import Job
from memory_anchor.upkeep.upkeep import JobReport, Limits, Planned, Upkeep
from memory_anchor.where import Where

if TYPE_CHECKING:
    from memory_anchor.core import Core

JOB = "backup"
EVERYTHING = Where()
FOLDER = "backups"
PREFIX = "nightly-"
ROOM_FACTOR = 3
"""Free space wanted, in sizes of the store: its memories uncompressed, the archive, and as much again to spare."""
SHARE_MAX = 0.1
"""Of what is free and what they take, automatic backups take at most this much, the newest excepted."""
LATE_FACTOR = 3
"""A newest backup older than this many intervals is worth a word: engines also run only now and then."""

log = logging.getLogger("memory_anchor.backup")


def register(core: Core) -> None:
    """Give a process's scheduler the job that makes automatic backups; `backup.every_h` 0 means none."""
    chosen = core.settings.backup
    if not chosen.every_h:
        return

    def run(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        folder = core.data_dir / FOLDER
        if limits.dry_run:
            steps = [Planned(JOB, "write", f"a backup into {folder}")]
            steps += [Planned(path.name, "delete", "older than those kept") for path in automatic(core.data_dir)]
            return JobReport(JOB, at, dry_run=True, planned=tuple(steps[: max(1, len(steps) - chosen.keep + 1)]))
        if why := _why_not(core):
            log.warning("no automatic backup: %s", why)
            return JobReport(JOB, at, notes=(why,))
        make_private(folder)
        up.yield_to_requests()
        made = backup.create(core, folder / f"{PREFIX}{core.clock.now():%Y%m%dT%H%M%S.%fZ}.tar.gz")
        dropped = _drop_oldest(core.data_dir, chosen.keep)
        counts = {"versions": made["versions"], "bytes": made["bytes"], "dropped": dropped}
        return JobReport(JOB, at, counts=counts)

    about = f"write a backup into {FOLDER}/ and keep the newest {chosen.keep}"
    core.scheduler.add(Job(JOB, about, timedelta(hours=chosen.every_h), run))


def automatic(data_dir: Path) -> list[Path]:
    """Return the automatic backups that are there, oldest first."""
    return sorted((data_dir / FOLDER).glob(f"{PREFIX}*.tar.gz"))


class ListedBackup(backup.KnownBackup):
    bytes: int
    automatic: bool


def listed(data_dir: Path) -> list[ListedBackup]:
    """Return every known backup that is there, oldest first."""
    own = {str(path) for path in automatic(data_dir)}
    there = [one for one in backup.known(data_dir) if Path(one["file"]).is_file()]
    return [{**one, "bytes": Path(one["file"]).stat().st_size, "automatic": one["file"] in own} for one in there]


def _why_not(core: Core) -> str:
    """Return why none is made now: nothing to keep, or too little room; "" to go on."""
    if not any(core.services.store.count(name, EVERYTHING) for name in COLLECTIONS):
        return "there is no memory yet"
    needed = (core.settings.store.reserve_mb << 20) + ROOM_FACTOR * core.services.store.size_bytes()
    free = shutil.disk_usage(core.data_dir).free
    if free < needed:
        return f"{free >> 20} MiB are free and {needed >> 20} MiB are wanted; older backups stay"
    return ""


def _drop_oldest(data_dir: Path, keep: int) -> int:
    there = automatic(data_dir)
    sizes = {path: path.stat().st_size for path in there}
    room = SHARE_MAX * (shutil.disk_usage(data_dir).free + sum(sizes.values()))
    dropped = 0
    while len(there) > 1 and (len(there) > keep or sum(sizes[path] for path in there) > room):
        oldest = there.pop(0)
        oldest.unlink(missing_ok=True)
        backup.forget_known(data_dir, oldest)
        dropped += 1
    return dropped
