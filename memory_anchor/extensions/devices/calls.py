"""What the commands `sync` ask of the process that holds the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from memory_anchor.base.json_values import Json, Record, kind_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests import checks
from memory_anchor.extensions.devices.sync_job import DeviceSync
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Call


def sync_of(core: Core) -> DeviceSync:
    """Return this process's sync."""
    return cast("DeviceSync", core.running["devices"].part)


def now(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Exchange with the user's other devices; the notes say what went wrong with single files."""
    if not sync_of(core).is_set_up:
        return {"set_up": False, "sent": 0, "received": 0, "purged": 0, "disputed": 0, "notes": [], "unsigned": 0}
    done = sync_of(core).exchange.run()
    unsigned = len(sync_of(core).exchange.unsigned_purges())
    return {"set_up": True, **(asdict(done) if done is not None else {}), "unsigned": unsigned}


def status(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    return sync_of(core).exchange.status() if sync_of(core).is_set_up else {"set_up": False}


def reached(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    return asdict(sync_of(core).exchange.position_of(str(given.get("device"))))


def unsigned(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Return the ids of memories purged here that a human may purge on every device."""
    return {"ids": sync_of(core).exchange.unsigned_purges() if sync_of(core).is_set_up else []}


def signed(core: Core, anchor: MemoryAnchor, given: dict[str, Json]) -> Record:
    """Keep that signature after checking it against this device's human."""
    statement = given.get("said")
    if not isinstance(statement, Mapping):
        raise BadInput(f"the signed statement is {kind_of(statement)}; allowed is an object")
    by = checks.text("by", given.get("by"), most=200)
    return {"signed": sync_of(core).exchange.accept_signature(statement, str(given.get("signature")), by)}


CALLS: Mapping[str, Call] = {
    "sync_now": now,
    "sync_status": status,
    "sync_reached": reached,
    "sync_unsigned": unsigned,
    "sync_signed": signed,
}
