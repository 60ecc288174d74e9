"""What the commands `sync` ask of the process that holds the store, and what they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, cast

from pydantic import JsonValue

from memory_anchor.base.json_values import Record
from memory_anchor.domain.requests.fields import BaseRequest, Name, arg, from_json
from memory_anchor.extensions.devices.sync_job import DeviceSync
from memory_anchor.front.rows import Row, as_is, row
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor


class SyncNow(BaseRequest):
    """Exchange with the user's other devices; the notes say what went wrong with single files."""


class SyncStatus(BaseRequest):
    """Show this device and the others: what arrived and what waits."""


class SyncReached(BaseRequest):
    """Say how far this device has read another one."""

    device: Name = arg()


class SyncUnsigned(BaseRequest):
    """List the ids of memories purged here that a human may purge on every device."""


class SyncSigned(BaseRequest):
    """Keep a human's signature of a purge, after checking it."""

    said: Annotated[dict[str, JsonValue], from_json(dict)] = arg()
    signature: Name = arg()
    by: Name = arg()


def sync_of(core: Core) -> DeviceSync:
    """Return this process's sync."""
    return cast("DeviceSync", core.running["devices"].part)


def _now(anchor: MemoryAnchor, _: SyncNow) -> Record:
    sync = sync_of(anchor.process)
    if not sync.is_set_up:
        return {"set_up": False, "sent": 0, "received": 0, "purged": 0, "disputed": 0, "notes": [], "unsigned": 0}
    done = sync.exchange.run()
    unsigned = len(sync.exchange.unsigned_purges())
    return {"set_up": True, **(asdict(done) if done is not None else {}), "unsigned": unsigned}


def _status(anchor: MemoryAnchor, _: SyncStatus) -> Record:
    sync = sync_of(anchor.process)
    return sync.exchange.status() if sync.is_set_up else {"set_up": False}


def _reached(anchor: MemoryAnchor, request: SyncReached) -> Record:
    return asdict(sync_of(anchor.process).exchange.position_of(request.device))


def _unsigned(anchor: MemoryAnchor, _: SyncUnsigned) -> Record:
    sync = sync_of(anchor.process)
    return {"ids": sync.exchange.unsigned_purges() if sync.is_set_up else []}


def _signed(anchor: MemoryAnchor, request: SyncSigned) -> Record:
    accepted = sync_of(anchor.process).exchange.accept_signature(request.said, request.signature, request.by)
    return {"signed": accepted}


ROWS: Sequence[Row] = (
    row("sync_now", SyncNow, _now, as_is),
    row("sync_status", SyncStatus, _status, as_is),
    row("sync_reached", SyncReached, _reached, as_is),
    row("sync_unsigned", SyncUnsigned, _unsigned, as_is),
    row("sync_signed", SyncSigned, _signed, as_is),
)
