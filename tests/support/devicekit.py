"""Several devices of one person over one sync folder, each a memory of its own, and how their states are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from memory_anchor.adapters.system import new_token
from memory_anchor.admin.purge import purge_ids
from memory_anchor.domain.model import Actor, Caller, Memory, Scope
from memory_anchor.domain.ports import MemoryStore
from memory_anchor.domain.where import Where
from memory_anchor.extensions.devices import membership
from memory_anchor.extensions.devices.exchange import map_projects
from memory_anchor.extensions.devices.folder import SyncFolder
from memory_anchor.extensions.devices.membership import Device
from memory_anchor.extensions.devices.rows import sync_of
from memory_anchor.extensions.devices.segments import content_digest, shared_fields
from memory_anchor.extensions.transfer.transfer import stored_versions
from memory_anchor.identity.statements import Purged
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock, cheap_keys, ephemeral_core, human_of
from memory_anchor.use_cases.memory import MemoryAnchor

WORDS = "lantern orchard seven quiet rivers"


class Laptop:
    """One device: its memory, its human, its way to the folder."""

    def __init__(self, home: Path, clock: ManualClock, *, store: MemoryStore | None = None, core: Core | None = None):
        self.home = home
        self.clock = clock
        self.core = core or ephemeral_core(home, clock=clock, store=store)
        self.human = human_of(self.core.data_dir)
        self.anchor: MemoryAnchor = self.core.anchor(Actor(Caller.AGENT, Scope(agent="claude-code"), client="test"))

    def join(self, folder: Path, name: str, **more: Any) -> Device:
        given: dict[str, Any] = {
            **{
                "passphrase": WORDS,
                "account": "local",
                "user": "me",
                "everything": False,
                "git": False,
                "as_new_device": False,
            },
            **more,
        }
        wanted = given.pop("projects", {"default": ""})
        own = self.core.projects.all()
        with cheap_keys():
            return membership.join(
                self.core.data_dir,
                SyncFolder.below(folder),
                name=name,
                human=self.human.approver.public,
                projects=lambda shared: map_projects(shared, own, wanted),
                now=self.clock.now(),
                new_token=new_token,
                **given,
            )

    def sync(self) -> Any:
        return sync_of(self.core).exchange.run()

    def purge(self, *ids: str, signs: bool = True) -> None:
        """Purge as a human does, and sign it for the other devices."""
        up, at = self.core.upkeep, self.clock.now()
        purge_ids(up, ids, caller=Caller.HUMAN, at=at, by="human:me")
        if signs:
            self.sign()

    def sign(self) -> None:
        exchange = sync_of(self.core).exchange
        if ids := exchange.unsigned_purges():
            device = membership.load(self.core.data_dir)
            assert device is not None
            purged = Purged(device.folder_id, tuple(ids), self.clock.now().isoformat())
            exchange.accept_signature(purged.record(), self.human.purge(purged), "human:me")

    def state(self) -> dict[str, list[tuple[Any, ...]]]:
        return state_of(self.core)

    def close(self) -> None:
        self.core.close()


def every_version(core: Core) -> dict[str, dict[int, Memory]]:
    ids: set[str] = set()
    for name in ("event_log", "verified_fact"):
        after = None
        while True:
            entries, after = core.services.store.scan(name, Where(), page=500, after=after)
            ids |= {entry.memory.id for entry in entries}
            if after is None:
                break
    return stored_versions(core.services.store, ids) if ids else {}


def state_of(core: Core) -> dict[str, list[tuple[Any, ...]]]:
    """Return what every device has to agree on: id -> (number, what it says, status, whether it stands)."""
    projects = dict.fromkeys((*core.projects.all(), "default"), "shared")
    return {
        name: [
            (number, content_digest(shared_fields(one, projects)), one.status.value, one.is_current)
            for number, one in sorted(versions.items())
        ]
        for name, versions in every_version(core).items()
    }


def texts_of(core: Core) -> dict[str, set[str]]:
    """Return id -> every text any of its versions holds."""
    return {name: {version.content for version in versions.values()} for name, versions in every_version(core).items()}


def settled(devices: Iterable[Laptop], rounds: int = 4) -> None:
    """Sync everybody until nobody has anything new."""
    devices = list(devices)
    for _ in range(rounds):
        for one in devices:
            one.sync()


def differences(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    names = {name for state in states.values() for name in state}
    return [
        f"{name}: " + " | ".join(f"{device}={state.get(name)}" for device, state in states.items())
        for name in sorted(names)
        if len({repr(state.get(name)) for state in states.values()}) > 1
    ]
