"""Automatic backups: the engine's job `backup`. It keeps the newest few in their own folder and never fills the disk.

Made while serving, as by `backup create`: readers continue, writers wait while memories are read. A damaged store
cannot be read completely, so it makes no backup and deletes none: old ones are deleted only after a new one exists.
"""

from __future__ import annotations

import logging
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.admin import backup
from memory_anchor.admin.backup_list import FOLDER, PREFIX, automatic_backups, remove_known
from memory_anchor.base.files import make_private
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.where import Where
from memory_anchor.upkeep.job_kit import JobReport, Limits, Planned, Upkeep
from memory_anchor.upkeep.jobs import Job

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core

JOB = "backup"
EVERYTHING = Where()
ROOM_FACTOR = 3
"""Free space needed, in sizes of the store: its memories uncompressed, the archive, and a reserve."""
SHARE_MAX = 0.1
"""Largest share of the free space plus their own size that automatic backups take, the newest excepted."""

log = logging.getLogger("memory_anchor.backup")


def register(core: Core) -> None:
    """Add the job that makes automatic backups to a process's scheduler; `backup.every_h` 0 means none."""
    settings = core.settings.backup
    if not settings.every_h:
        return

    def run(up: Upkeep, at: datetime, limits: Limits) -> JobReport:
        folder = core.data_dir / FOLDER
        if limits.dry_run:
            steps = [Planned(JOB, "write", f"a backup into {folder}")]
            old = automatic_backups(core.data_dir)
            steps += [Planned(path.name, "delete", "older than those kept") for path in old]
            return JobReport(JOB, at, dry_run=True, planned=tuple(steps[: max(1, len(steps) - settings.keep + 1)]))
        if why := _why_not(core):
            log.warning("no automatic backup: %s", why)
            return JobReport(JOB, at, notes=(why,))
        make_private(folder)
        up.yield_to_requests()
        made = backup.create(core, folder / f"{PREFIX}{core.clock.now():%Y%m%dT%H%M%S.%fZ}.tar.gz")
        dropped = _drop_oldest(core.data_dir, settings.keep)
        counts = {"versions": made["versions"], "bytes": made["bytes"], "dropped": dropped}
        return JobReport(JOB, at, counts=counts)

    about = f"write a backup into {FOLDER}/ and keep the newest {settings.keep}"
    core.scheduler.add(Job(JOB, about, timedelta(hours=settings.every_h), run))


def _why_not(core: Core) -> str:
    """Return why no backup is made now: nothing to back up, or too little space; "" when one is."""
    if not any(core.services.store.count(name, EVERYTHING) for name in COLLECTIONS):
        return "there is no memory yet"
    needed = (core.settings.store.reserve_mb << 20) + ROOM_FACTOR * core.services.store.size_bytes()
    free = shutil.disk_usage(core.data_dir).free
    if free < needed:
        return f"{free >> 20} MiB are free and {needed >> 20} MiB are wanted; older backups stay"
    return ""


def _drop_oldest(data_dir: Path, keep: int) -> int:
    backups = automatic_backups(data_dir)
    sizes = {path: path.stat().st_size for path in backups}
    room = SHARE_MAX * (shutil.disk_usage(data_dir).free + sum(sizes.values()))
    dropped = 0
    while len(backups) > 1 and (len(backups) > keep or sum(sizes[path] for path in backups) > room):
        oldest = backups.pop(0)
        oldest.unlink(missing_ok=True)
        remove_known(data_dir, oldest)
        dropped += 1
    return dropped
