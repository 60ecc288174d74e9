"""One exchange at work: this device, what lies in the folder, and what the store holds by its names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.projects import DEFAULT, REMOTE, ROOT
from memory_anchor.care.purge import PURGE
from memory_anchor.devices import membership
from memory_anchor.devices.folder import FolderListing, Place
from memory_anchor.devices.ledger import KnownVersion, Ledger
from memory_anchor.devices.membership import Device, Members
from memory_anchor.devices.segments import LAYERS, Segment, TravellingVersion, name_of, said_in, travelling
from memory_anchor.errors import Refused
from memory_anchor.json_values import items
from memory_anchor.json_values import record as record_of
from memory_anchor.model import Memory, Visibility
from memory_anchor.ports import AuditLog

if TYPE_CHECKING:
    from memory_anchor.devices.sync_job import Devices

OWN = "own"


@dataclass(slots=True)
class Exchanged:
    """What one exchange did. sent, received: versions. notes: one sentence each, with its cure."""

    at: str = ""
    sent: int = 0
    received: int = 0
    purged: int = 0
    disputed: int = 0
    left: bool = False
    notes: list[str] = field(default_factory=list)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class Parted(Exception):
    """Store and ledger do not fit; the ledger is to be begun anew."""


class Waits(Exception):
    """A segment cannot be taken yet, or ever; what it waits for is a sentence, "" for what only comes later."""


class Round:
    """What the parts of one exchange share."""

    def __init__(
        self, ports: Devices, device: Device, ledger: Ledger, stop: Callable[[], bool], done: Exchanged
    ) -> None:
        self.ports = ports
        self.store = ports.upkeep.store
        self.device = device
        self.ledger = ledger
        self.stop = stop
        self.done = done
        self.place = device.place
        self.own_folder = ports.data_dir / membership.FOLDER / OWN / device.device
        self.members = Members()
        self.listed = FolderListing()
        self.homes: dict[str, str] = {}
        """Shared project -> the one here."""

    def look(self) -> None:
        device = self.device
        self.listed = self.place.listed()
        head = self.place.head()
        if head is None or (head.id, head.authority) != (device.folder_id, device.authority):
            raise Refused(
                f"{self.place.root} is another sync folder than this device joined; bring the first one back, or run "
                "`memory-anchor sync setup FOLDER` to join this one"
            )
        self.members = membership.members(device, self.listed)
        for sentence in (*self.members.wrong, *self.members.share_a_name()):
            self.done.note(sentence)
        gone = self.members.revoked.get(device.device)
        if gone is not None:
            raise Refused(
                f"this device was revoked on {gone.at[:10]}; nothing was exchanged: `memory-anchor sync setup` with "
                "--new-device joins it again, with the passphrase"
            )
        if device.device not in self.members.cards:
            raise Refused(
                "the sync folder does not know this device any more (it went back in time, or its card was deleted); "
                "nothing was exchanged: run `memory-anchor sync setup` once more"
            )
        if self.members.keys.keys() - device.folder_keys.keys():
            self.device = replace(device, folder_keys={**device.folder_keys, **self.members.keys})
            membership.keep(self.ports.data_dir, self.device)
        if self.device.everything:
            self._sync_new_projects()

    def _sync_new_projects(self) -> None:
        known = {**self.ports.projects.all(), DEFAULT: ()}
        fresh = {name: name for name in known if name not in self.device.projects}
        if fresh:
            self.device = replace(self.device, projects={**self.device.projects, **fresh})
            membership.keep(self.ports.data_dir, self.device)

    def named(
        self, memory_id: str, stored: Mapping[int, Memory], known: Sequence[KnownVersion]
    ) -> tuple[dict[str, Memory], list[KnownVersion]]:
        """Return name -> version of what of a memory is in the store, and what of that the ledger has to learn."""
        bodies: dict[str, Memory] = {}
        learnt: list[KnownVersion] = []
        free = {one.name: one for one in known}
        placed: list[KnownVersion] = []
        for number, memory in sorted(stored.items()):
            if not self.travels(memory):
                continue
            said = said_in(travelling(memory, self.device.projects))
            same = [one for one in free.values() if one.said == said]
            same.sort(key=lambda one: (one.number != number, one.hint))
            if same:
                one = same[0]
                del free[one.name]
                if one.number != number:
                    learnt.append(one := replace(one, number=number))
            else:
                over = {parent for other in placed for parent in other.parents}
                heads = frozenset(other.name for other in placed if other.name not in over)
                name = name_of(memory_id, said, number)
                learnt.append(one := KnownVersion(name, memory_id, said, number, number, heads, own=True))
            placed.append(one)
            bodies[one.name] = memory
        return bodies, learnt

    def travels(self, memory: Memory) -> bool:
        """Return whether a version may leave this device: of a synced project, and of this person where private."""
        own = memory.scope.account == self.device.account and memory.scope.project in self.device.projects
        shared = memory.visibility in (Visibility.PROJECT, Visibility.ACCOUNT)
        return own and memory.layer in LAYERS and (shared or memory.scope.user == self.device.user)

    def home_of(self, one: TravellingVersion, segment: Segment) -> str:
        """Return the project here that a version belongs to, "" where it is not synced here."""
        memory = one.memory
        shared = memory.scope.project
        if memory.scope.account != self.device.account or memory.layer not in LAYERS:
            return ""
        if memory.visibility not in (Visibility.PROJECT, Visibility.ACCOUNT) and memory.scope.user != self.device.user:
            return ""
        if held := self.homes.get(shared):
            return held
        home = next((own for own, name in self.device.projects.items() if name == shared), "")
        told = set(segment.projects.get(shared, ()))
        known = self.ports.projects.all()
        if not home and told:
            home = next((own for own in self.device.projects if told & set(aliases_told(known.get(own, ())))), "")
        if not home and self.device.everything:
            home = self.ports.projects.adopt({shared: sorted(told)}).get(shared, shared)
            projects = {**self.device.projects, home: self.device.projects.get(home, shared)}
            self.device = replace(self.device, projects=projects)
            membership.keep(self.ports.data_dir, self.device)
        if home:
            self.homes[shared] = home
        return home

    def own_path(self, place: Place) -> Path:
        return self.own_folder / f"{place[0]:06d}-{place[1]:08d}.seg"

    def own_file(self, place: Place) -> bytes:
        try:
            return self.own_path(place).read_bytes()
        except OSError:
            raise Refused(
                f"{self.own_path(place)} is gone: this device cannot continue its chain; run `memory-anchor sync "
                "setup` with --new-device and another --name (nothing is lost)"
            ) from None

    def own_places(self) -> set[Place]:
        found = self.own_folder.glob("*.seg") if self.own_folder.is_dir() else ()
        return {(int(path.stem[:6]), int(path.stem[7:])) for path in found if path.stem.replace("-", "").isdigit()}

    def others(self) -> list[str]:
        return sorted(device for device in self.members.cards if device != self.device.device)


def note_purged(ledger: Ledger, audit: AuditLog) -> None:
    """Write down what the audit trail says was purged here."""
    gone = ledger.gone()
    fresh: set[str] = set()
    for record in audit.records(PURGE):
        removed = record_of(record["what"].get("removed")) if record["kind"] == PURGE else {}
        fresh |= {str(one).rpartition("@")[0] for ones in removed.values() for one in items(ones)} - gone.keys()
    forget(ledger, fresh - {""})


def forget(ledger: Ledger, ids: Iterable[str], signed: str = "") -> None:
    """Drop purged memories from the exchange; what this device told of them is told no more."""
    told = list(ids)
    was_sent = any(one.own and one.sent for name in told for one in ledger.of(name))
    with ledger.changing():
        ledger.note_gone(told, signed)
        if was_sent:
            ledger.send_again()


def aliases_told(aliases: Iterable[str]) -> list[str]:
    """Return what of a project's names travels: remotes and first commits, no path of this machine."""
    return [alias for alias in aliases if alias.startswith((REMOTE, ROOT))]
