"""Several devices of one person over a shared folder: sealed segments, merged versions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from memory_anchor.extensions.extension import Extension, Running

if TYPE_CHECKING:
    from memory_anchor.identity.keys import Signer
    from memory_anchor.process.wiring import Core

SYNCED_AT = ("SessionStart", "SessionEnd")
"""Events of a client at which an exchange starts, where sync is set up."""


def _purged(signer: Signer, ids: Sequence[str]) -> None:
    from memory_anchor.extensions.devices import commands

    commands.sign_purge(signer, ids)


def _start(core: Core) -> Running:
    from memory_anchor.adapters.system import new_token
    from memory_anchor.extensions.devices.sync_job import JOB, DeviceSync
    from memory_anchor.use_cases.maintenance import purged_elsewhere

    purge = partial(purged_elsewhere, core.services, core)
    sync = DeviceSync(core.upkeep, core.data_dir, core.clock, core.projects, purge, new_token, core.services.paused)

    def on_hook(event: str) -> None:
        if event in SYNCED_AT and sync.is_set_up:
            core.scheduler.queue(JOB)  # in the background: nobody waits for other devices

    return Running(part=sync, jobs=[sync.job()], on_hook=on_hook)


EXTENSION = Extension(name="devices", commands=("sync",), start=_start, purged=_purged)
