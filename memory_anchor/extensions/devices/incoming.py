"""Receives new segments of the folder, each whole or not yet; purges first, then versions.

Versions of other devices go into the store memory by memory, each memory's versions put in order under the writers'
lock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_anchor.admin.traces import PurgeTraces
from memory_anchor.domain.model import Memory
from memory_anchor.domain.ports import Entry
from memory_anchor.extensions.devices.chains import Chains, ledger_row
from memory_anchor.extensions.devices.exchange_run import (
    ExchangeRun,
    LedgerMismatch,
    SegmentWaits,
    drop_purged,
    note_purged,
)
from memory_anchor.extensions.devices.folder import SegmentNumber
from memory_anchor.extensions.devices.ledger import ChainPosition, LedgerRow
from memory_anchor.extensions.devices.ordering import SyncedVersion, heads_of, in_order, merged
from memory_anchor.extensions.devices.segments import LAYERS, Segment, SegmentVersion, SignedPurge, purge_statement
from memory_anchor.extensions.transfer.transfer import stored_versions
from memory_anchor.identity import keys
from memory_anchor.layers.commits import moved_records
from memory_anchor.upkeep.job_kit import entry_like, new_entry

AUDIT_KIND = "sync"
MOVED_KIND = "sync_moved"
"""Recorded where versions got another number: checks then ignore the old numbers in earlier records."""
WRITTEN_AT_ONCE = 50
ROUNDS_MAX = 1_000


class VersionWriter:
    """Writes versions of other devices into the store."""

    def __init__(self, run: ExchangeRun) -> None:
        self._run = run

    def put(
        self,
        device: str,
        number: SegmentNumber,
        groups: Mapping[str, Sequence[SegmentVersion]],
        local_projects: Mapping[str, str],
    ) -> None:
        """Put the versions of some memories in order and into the store, one batch a collection.

        groups: by memory. local_projects: name of a version -> its project here.
        """
        is_own = device == self._run.device.device
        with self._run.ports.upkeep.lock:
            stored = stored_versions(self._run.store, groups)
            rows: list[LedgerRow] = []
            merged_versions: dict[str, list[SyncedVersion]] = {}
            separate: dict[str, Memory] = {}
            stored_by_name: dict[str, Memory] = {}
            for memory_id, incoming in groups.items():
                by_name = {row.name: row for row in self._run.ledger.versions_of(memory_id)}
                for row in (ledger_row(version, is_own, device, number) for version in incoming):
                    before = by_name.get(row.name)
                    by_name[row.name] = replace(before, parents=before.parents | row.parents) if before else row
                memories, changed = self._run.match_rows(stored.get(memory_id, {}), list(by_name.values()))
                by_name |= {row.name: row for row in changed}
                stored_by_name |= memories
                for version in incoming:
                    scope = replace(version.memory.scope, project=local_projects[version.name])
                    memories.setdefault(version.name, replace(version.memory, scope=scope))
                if missing := [name for name, row in by_name.items() if name not in memories and row.number > 0]:
                    raise LedgerMismatch(f"{len(missing)} versions of {memory_id} are not in the store")
                versions = [
                    SyncedVersion(name, by_name[name].hint, by_name[name].parents, memory)
                    for name, memory in memories.items()
                ]
                overwritten = {parent for row in by_name.values() for parent in row.parents}
                ordered, new_rows, extra = self._with_merge(in_order(versions), overwritten)
                rows += [replace(by_name[v.name], number=v.memory.version) for v in ordered if v.name in by_name]
                rows += new_rows
                merged_versions[memory_id] = ordered
                separate |= {memory.id: memory for memory in extra}
            rows += self._add_separate(separate, merged_versions, stored)
            entries, renumbered, new = self._entries(merged_versions, stored, stored_by_name)
            with self._run.ledger.changing():
                self._run.ledger.record(rows)
            self._write(entries, renumbered, new)
            self._run.result.received += len(new)

    def _with_merge(
        self, ordered: list[SyncedVersion], overwritten: set[str]
    ) -> tuple[list[SyncedVersion], list[LedgerRow], list[Memory]]:
        """Return the versions with the one that merges heads, its row, and the memories that become separate."""
        merge = merged(ordered, overwritten)
        if merge is None:
            return ordered, [], []
        new, separate = merge
        heads = frozenset(head.name for head in heads_of(ordered, overwritten))
        row = self._run.new_row(new, new.version, heads)
        self._run.result.disputed += bool(separate)
        return in_order([*ordered, SyncedVersion(row.name, new.version, heads, new)]), [row], separate

    def _add_separate(
        self,
        separate: Mapping[str, Memory],
        versions: dict[str, list[SyncedVersion]],
        stored: dict[str, dict[int, Memory]],
    ) -> list[LedgerRow]:
        """Add the separate memories that do not exist yet to `versions`; return their rows."""
        existing = stored_versions(self._run.store, separate) if separate else {}
        purged = self._run.ledger.purged() if separate else {}
        rows: list[LedgerRow] = []
        for memory_id, memory in separate.items():
            if memory_id in existing or memory_id in versions or memory_id in purged:
                continue
            if self._run.ledger.versions_of(memory_id):
                continue
            row = self._run.new_row(memory, 1)
            rows.append(row)
            versions[memory_id] = [SyncedVersion(row.name, 1, frozenset(), memory)]
            stored[memory_id] = {}
        return rows

    def _entries(
        self,
        versions: Mapping[str, Sequence[SyncedVersion]],
        stored: Mapping[str, Mapping[int, Memory]],
        stored_by_name: Mapping[str, Memory],
    ) -> tuple[list[Entry], list[Memory], list[Memory]]:
        """Return the entries to write, the stored versions that get another number, and the new versions."""
        entries: list[Entry] = []
        renumbered: list[Memory] = []
        new: list[Memory] = []
        for memory_id, ordered in versions.items():
            before = stored.get(memory_id, {})
            current = next((memory for memory in before.values() if memory.is_current), None)
            points = [memory.point_id for memory in before.values()]
            layer = ordered[0].memory.layer.value
            stored_entries = self._run.store.get(layer, points, with_vectors=True) if points else []
            by_point = {entry.memory.point_id: entry for entry in stored_entries}
            for version in ordered:
                memory = version.memory
                if memory.is_current and current is not None:  # uses and receipts are of the memory
                    memory = replace(memory, usage=current.usage, receipts=current.receipts)
                stored_version = stored_by_name.get(version.name)
                if stored_version is None:
                    new.append(memory)
                elif stored_version.version != memory.version:
                    renumbered.append(memory)
                elif stored_version == memory:
                    continue
                replaced = before.get(memory.version)  # the write has to name the revision of this point
                memory = replace(memory, revision=replaced.revision if replaced is not None else None)
                like = stored_version or current
                source = by_point.get(like.point_id) if like else None
                if stored_version and source is not None:
                    entries.append(replace(source, memory=memory))
                else:
                    entries.append(entry_like(memory, source) if source is not None else new_entry(memory))
        return entries, renumbered, new

    def _write(self, entries: Sequence[Entry], renumbered: Sequence[Memory], new: Sequence[Memory]) -> None:
        self._run.ports.upkeep.commits.put(
            sorted(entries, key=lambda entry: LAYERS.index(entry.memory.layer)),
            records=moved_records([*new, *renumbered]),
            kind=MOVED_KIND if renumbered else AUDIT_KIND,
            by=f"sync:{self._run.device.name}",
            at=self._run.ports.clock.now(),
        )


class Incoming:
    """Reads the segments of other devices and takes them into the store."""

    def __init__(self, run: ExchangeRun, chains: Chains) -> None:
        self._run = run
        self._chains = chains
        self._writer = VersionWriter(run)

    def take_over_revoked(self) -> None:
        """Take over as ours what revoked devices wrote after their last counted segment, so that it is sent again."""
        for device, revocation in self._run.members.revoked.items():
            with self._run.ledger.changing():
                last = ChainPosition(revocation.generation, revocation.segment)
                if self._run.ledger.take_over(device, last):
                    self._run.ledger.send_again()

    def receive(self) -> None:
        """Take every complete segment of each device; note the others."""
        waiting: dict[str, str] = {}
        own = self._run.device.device
        rereads = [] if self._run.ledger.meta("own") == "read" else [own]
        for _ in range(ROUNDS_MAX):
            waiting.clear()
            received = [self._receive_from(device, waiting) for device in [*rereads, *self._run.others()]]
            if not any(received) or self._run.should_stop():
                break
        if rereads and own not in waiting and not self._run.should_stop():
            with self._run.ledger.changing():
                self._run.ledger.set_meta("own", "read")
        for device, sentence in sorted(waiting.items()):
            self._run.result.note(
                sentence
                or f"a segment of {self._run.members.name_of(device)} waits for another device's that has not arrived; "
                "sync that device, or wait for the sync tool"
            )
        strangers = sorted(self._run.listing.segments.keys() - self._run.members.cards.keys())
        if strangers:
            self._run.result.note(
                f"{len(strangers)} devices wrote here whose card this device cannot read ({strangers[0][:8]}); nothing "
                "of them was taken: wait for the sync tool, or run `memory-anchor sync setup` once more"
            )

    def _receive_from(self, device: str, waiting: dict[str, str]) -> bool:
        """Take the next segments of one device's chain; return whether there were any."""
        position, has_received = self._run.ledger.position(device), False
        try:
            for number in self._chains.chain(device, position):
                if self._run.should_stop():
                    self._run.result.left = True
                    break
                self._run.ports.upkeep.yield_to_requests()
                segment, position = self._chains.read(device, number, position)
                self._take(device, number, segment)
                with self._run.ledger.changing():
                    self._run.ledger.set_position(device, position)
                has_received = True
        except SegmentWaits as why:
            waiting[device] = str(why)
        return has_received

    def _take(self, device: str, number: SegmentNumber, segment: Segment) -> None:
        """Take a whole segment. Raises SegmentWaits: it needs one that has not arrived; nothing was taken."""
        purged = self._run.ledger.purged()
        for purge in segment.purges:
            self._check_purge(purge, device)
        purged_ids = purged.keys() | {id for purge in segment.purges for id in purge["ids"]}
        projects = {version.name: self._run.local_project(version, segment) for version in segment.versions}
        traces = PurgeTraces.of((), purged_ids)
        retold = {v.name for v in segment.versions if traces.retold_in(v.memory)}  # by a job that had them still
        wanted = [v for v in segment.versions if projects[v.name] and v.name not in retold]
        versions = [v for v in wanted if v.memory.id not in purged_ids]
        needed = {parent for version in versions for parent in version.parents} - projects.keys() - {""}
        if needed - self._run.ledger.known_names(needed):
            raise SegmentWaits("")
        for purge in segment.purges:
            self._purge(purge, purged)
        with self._run.ledger.changing():
            self._run.ledger.leave_out(name for name, project in projects.items() if not project or name in retold)
        groups: dict[str, list[SegmentVersion]] = {}
        for version in versions:
            groups.setdefault(version.memory.id, []).append(version)
        ids = sorted(groups)
        for start in range(0, len(ids), WRITTEN_AT_ONCE):
            self._run.ports.upkeep.yield_to_requests()
            part = {id: groups[id] for id in ids[start : start + WRITTEN_AT_ONCE]}
            self._writer.put(device, number, part, projects)

    def _check_purge(self, purge: SignedPurge, device: str) -> None:
        statement = purge_statement(self._run.device.folder_id, purge["ids"], purge["at"])
        humans = [card.human for card in self._run.members.cards.values() if card.human]
        human = keys.Approver(purge["by"], purge["human"])
        if human.public not in humans or not human.signed(statement, purge["signature"]):
            raise SegmentWaits(
                f"a purge that {self._run.members.name_of(device)} tells of is not signed by a human of this folder; "
                "nothing of that segment is taken: on that device run `memory-anchor sync now` on a terminal"
            )

    def _purge(self, purge: SignedPurge, purged: Mapping[str, str]) -> None:
        ids = [id for id in purge["ids"] if not purged.get(id)]
        if not ids:
            return
        present = sorted(stored_versions(self._run.store, ids))
        if present:
            self._run.ports.purge(present, f"human:{purge['by'].removeprefix('human:')}")
            self._run.result.purged += len(present)
        drop_purged(self._run.ledger, ids, json.dumps(purge))
        note_purged(self._run.ledger, self._run.ports.upkeep.audit)
