"""A served memory: HTTP and `/v1`, access keys, limits, batches, metrics; asking one first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_anchor.extensions.extension import Extension, Running

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core


def _start(core: Core) -> Running:
    """Ask the served memory that the settings name. Raises BadInput: its address or key is none."""
    from memory_anchor.extensions.service.settings import RemoteSettings

    settings = core.settings.group(RemoteSettings)
    if not settings.url:
        return Running()
    from memory_anchor.adapters.system import new_token
    from memory_anchor.extensions.service.remote import RemoteMemory

    remote = RemoteMemory(settings, core.data_dir, new_token=new_token, monotonic=core.services.monotonic)
    return Running(remote=remote, close=remote.close)


EXTENSION = Extension(name="service", commands=("serve", "keys"), has_settings=True, start=_start)
