"""One run of an exchange: this device, the files in the folder, and the names of the versions in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.adapters.projects import DEFAULT, REMOTE, ROOT
from memory_anchor.admin.purge import PURGE
from memory_anchor.base.json_values import items
from memory_anchor.base.json_values import record as record_of
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Memory, Visibility
from memory_anchor.domain.ports import AuditLog
from memory_anchor.extensions.devices import membership
from memory_anchor.extensions.devices.folder import FolderListing, SegmentNumber
from memory_anchor.extensions.devices.ledger import Ledger, LedgerRow
from memory_anchor.extensions.devices.membership import Device, Members
from memory_anchor.extensions.devices.segments import (
    LAYERS,
    Segment,
    SegmentVersion,
    content_digest,
    shared_fields,
    version_name,
)

if TYPE_CHECKING:
    from memory_anchor.extensions.devices.sync_job import DeviceSync

OWN = "own"


@dataclass(slots=True)
class ExchangeResult:
    """The result of one exchange. sent, received: versions. left: it was stopped early. notes: sentences with cures."""

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


class LedgerMismatch(Exception):
    """Store and ledger do not match; the ledger has to be rebuilt."""


class SegmentWaits(Exception):
    """A segment cannot be taken yet, or ever. The sentence says why, "" if it only waits for another segment."""


class ExchangeRun:
    """The state that the steps of one exchange share."""

    def __init__(
        self, ports: DeviceSync, device: Device, ledger: Ledger, should_stop: Callable[[], bool], result: ExchangeResult
    ) -> None:
        self.ports = ports
        self.store = ports.upkeep.store
        self.device = device
        self.ledger = ledger
        self.should_stop = should_stop
        self.result = result
        self.folder = device.sync_folder
        self.own_folder = ports.data_dir / membership.FOLDER / OWN / device.device
        self.members = Members()
        self.listing = FolderListing()
        self._local_projects: dict[str, str] = {}
        """Shared project -> project here."""

    def read_folder(self) -> None:
        """Read the folder's files and members. Raises Refused: this device may not exchange there."""
        device = self.device
        self.listing = self.folder.listed()
        head = self.folder.head()
        if head is None or (head.id, head.authority) != (device.folder_id, device.authority):
            raise Refused(
                f"{self.folder.root} is another sync folder than this device joined; bring the first one back, or run "
                "`memory-anchor sync setup FOLDER` to join this one"
            )
        self.members = membership.members_for(device, self.listing)
        for sentence in (*self.members.problems, *self.members.duplicate_names()):
            self.result.note(sentence)
        revocation = self.members.revoked.get(device.device)
        if revocation is not None:
            raise Refused(
                f"this device was revoked on {revocation.at[:10]}; nothing was exchanged: `memory-anchor sync setup` "
                "with --new-device joins it again, with the passphrase"
            )
        if device.device not in self.members.cards:
            raise Refused(
                "the sync folder does not know this device any more (it went back in time, or its card was deleted); "
                "nothing was exchanged: run `memory-anchor sync setup` once more"
            )
        if self.members.keys.keys() - device.folder_keys.keys():
            self._save(replace(device, folder_keys={**device.folder_keys, **self.members.keys}))
        if self.device.everything:
            own_projects = {**self.ports.projects.all(), DEFAULT: ()}
            if added := {project: project for project in own_projects if project not in self.device.projects}:
                self._save(replace(self.device, projects={**self.device.projects, **added}))

    def _save(self, device: Device) -> None:
        self.device = device
        membership.save(self.ports.data_dir, device)

    def match_rows(
        self, stored: Mapping[int, Memory], ledger_rows: Sequence[LedgerRow]
    ) -> tuple[dict[str, Memory], list[LedgerRow]]:
        """Return name -> version for the stored versions of a memory, and new or changed rows for the ledger."""
        named: dict[str, Memory] = {}
        new_rows: list[LedgerRow] = []
        unmatched = {row.name: row for row in ledger_rows}
        rows: list[LedgerRow] = []
        for number, memory in sorted(stored.items()):
            if not self.travels(memory):
                continue
            digest = content_digest(shared_fields(memory, self.device.projects))
            if same_content := [row for row in unmatched.values() if row.digest == digest]:
                row = min(same_content, key=lambda row: (row.number != number, row.hint))
                del unmatched[row.name]
                if row.number != number:
                    new_rows.append(row := replace(row, number=number))
            else:
                parents = {parent for earlier in rows for parent in earlier.parents}
                heads = frozenset(earlier.name for earlier in rows if earlier.name not in parents)
                new_rows.append(row := self.new_row(memory, number, heads))
            rows.append(row)
            named[row.name] = memory
        return named, new_rows

    def new_row(self, memory: Memory, number: int, parents: frozenset[str] = frozenset()) -> LedgerRow:
        """Return the row of a version that this device writes."""
        digest = content_digest(shared_fields(memory, self.device.projects))
        name = version_name(memory.id, digest, number)
        return LedgerRow(name, memory.id, digest, number, number, parents, own=True)

    def travels(self, memory: Memory) -> bool:
        """Return whether a version is exchanged: its project is synced, and a private one is this person's."""
        return memory.scope.project in self.device.projects and self._is_ours(memory)

    def _is_ours(self, memory: Memory) -> bool:
        scope, device = memory.scope, self.device
        is_shared = memory.visibility in (Visibility.PROJECT, Visibility.ACCOUNT)
        return scope.account == device.account and memory.layer in LAYERS and (is_shared or scope.user == device.user)

    def local_project(self, version: SegmentVersion, segment: Segment) -> str:
        """Return the project here that a version belongs to, "" where it is not synced here."""
        shared = version.memory.scope.project
        if not self._is_ours(version.memory):
            return ""
        if cached := self._local_projects.get(shared):
            return cached
        local = next((own for own, name in self.device.projects.items() if name == shared), "")
        aliases = set(segment.projects.get(shared, ()))
        projects = self.ports.projects.all()
        if not local and aliases:
            own_aliases = ((own, shared_aliases(projects.get(own, ()))) for own in self.device.projects)
            local = next((own for own, names in own_aliases if aliases & set(names)), "")
        if not local and self.device.everything:
            local = self.ports.projects.adopt({shared: sorted(aliases)}).get(shared, shared)
            mapped = {**self.device.projects, local: self.device.projects.get(local, shared)}
            self._save(replace(self.device, projects=mapped))
        if local:
            self._local_projects[shared] = local
        return local

    def own_path(self, number: SegmentNumber) -> Path:
        return self.own_folder / f"{number[0]:06d}-{number[1]:08d}.seg"

    def own_file(self, number: SegmentNumber) -> bytes:
        try:
            return self.own_path(number).read_bytes()
        except OSError:
            raise Refused(
                f"{self.own_path(number)} is gone: this device cannot continue its chain; run `memory-anchor sync "
                "setup` with --new-device and another --name (nothing is lost)"
            ) from None

    def own_segments(self) -> set[SegmentNumber]:
        paths = self.own_folder.glob("*.seg") if self.own_folder.is_dir() else ()
        return {(int(path.stem[:6]), int(path.stem[7:])) for path in paths if path.stem.replace("-", "").isdigit()}

    def others(self) -> list[str]:
        return sorted(device for device in self.members.cards if device != self.device.device)


def note_purged(ledger: Ledger, audit: AuditLog) -> None:
    """Record in the ledger the purges of the audit trail. What a purge rewrote gets new names, as on every device."""
    purged, last = ledger.purged(), int(ledger.meta("purges_read") or 0)
    new: set[str] = set()
    rewritten: set[str] = set()
    newest = last
    for record in audit.records(PURGE):
        if record["kind"] != PURGE:
            continue
        removed = record_of(record["what"].get("removed"))
        new |= {str(name).rpartition("@")[0] for names in removed.values() for name in items(names)} - purged.keys()
        if record["n"] > last:
            rewritten |= {str(name).rpartition("@")[0] for name in items(record["what"].get("rewritten", []))}
            newest = max(newest, record["n"])
    drop_purged(ledger, new - {""})
    if newest > last:
        was_sent = any(row.own and row.sent for id in rewritten for row in ledger.versions_of(id))
        with ledger.changing():
            ledger.drop_names(rewritten)
            ledger.set_meta("purges_read", str(newest))
            if was_sent:
                ledger.send_again()


def drop_purged(ledger: Ledger, ids: Iterable[str], signed: str = "") -> None:
    """Drop purged memories from the exchange; this device sends its chain again without them."""
    listed = list(ids)
    was_sent = any(version.own and version.sent for id in listed for version in ledger.versions_of(id))
    with ledger.changing():
        ledger.note_purged(listed, signed)
        if was_sent:
            ledger.send_again()


def shared_aliases(aliases: Iterable[str]) -> list[str]:
    """Return the aliases of a project that other devices may see: remotes and first commits, no local paths."""
    return [alias for alias in aliases if alias.startswith((REMOTE, ROOT))]
