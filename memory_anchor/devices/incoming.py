"""Receives what is new in the folder: a segment whole, or not yet; purges first, then versions.

Versions of other devices go into the store memory by memory, each memory put in order anew, under the writers' lock.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_anchor.care.transfer import stored_versions
from memory_anchor.devices.chains import Chains, known_version
from memory_anchor.devices.exchange_run import ExchangeRun, LedgerMismatch, SegmentWaits, drop_purged, note_purged
from memory_anchor.devices.folder import SegmentNumber
from memory_anchor.devices.ledger import ChainPosition, KnownVersion
from memory_anchor.devices.ordering import SyncedVersion, heads_of, in_order, merged
from memory_anchor.devices.segments import (
    LAYERS,
    Segment,
    SignedPurge,
    TravellingVersion,
    name_of,
    purge_statement,
    travelling,
    version_digest,
)
from memory_anchor.identity import keys
from memory_anchor.layers.records import audit_record
from memory_anchor.model import Memory
from memory_anchor.ports import Entry
from memory_anchor.upkeep.upkeep import entry_like, new_entry

AUDIT_KIND = "sync"
MOVED_KIND = "sync_moved"
"""Recorded where versions got another number: checks no longer look for the old ones that earlier records name."""
RECORDS_EACH = 40


class Placing:
    def __init__(self, run: ExchangeRun) -> None:
        self._run = run

    def put(
        self,
        device: str,
        number: SegmentNumber,
        groups: Mapping[str, Sequence[TravellingVersion]],
        local_projects: Mapping[str, str],
    ) -> None:
        """Put the versions of some memories in order and into the store, one batch a collection.

        groups: by memory. local_projects: name of a version -> its project here.
        """
        own = device == self._run.device.device
        with self._run.ports.upkeep.lock:
            stored = stored_versions(self._run.store, groups)
            rows: list[KnownVersion] = []
            now: dict[str, list[SyncedVersion]] = {}
            separate: dict[str, Memory] = {}
            here: dict[str, Memory] = {}
            for memory_id, incoming in groups.items():
                by_name = {row.name: row for row in self._run.ledger.versions_of(memory_id)}
                for row in (known_version(version, own, device, number) for version in incoming):
                    before = by_name.get(row.name)
                    by_name[row.name] = replace(before, parents=before.parents | row.parents) if before else row
                bodies, learnt = self._run.named(memory_id, stored.get(memory_id, {}), list(by_name.values()))
                by_name |= {row.name: row for row in learnt}
                here |= bodies
                for version in incoming:
                    scope = replace(version.memory.scope, project=local_projects[version.name])
                    bodies.setdefault(version.name, replace(version.memory, scope=scope))
                if lacking := [name for name, row in by_name.items() if name not in bodies and row.number > 0]:
                    raise LedgerMismatch(f"{len(lacking)} versions of {memory_id} are not in the store")
                versions = [
                    SyncedVersion(name, by_name[name].hint, by_name[name].parents, body)
                    for name, body in bodies.items()
                ]
                over = {parent for row in by_name.values() for parent in row.parents}
                ordered, new_rows, apart = self._with_merge(in_order(versions), over)
                rows += [replace(by_name[v.name], number=v.memory.version) for v in ordered if v.name in by_name]
                rows += new_rows
                now[memory_id] = ordered
                separate |= {memory.id: memory for memory in apart}
            rows += self._add_separate(separate, now, stored)
            entries, moved, fresh = self._entries(now, stored, here)
            with self._run.ledger.changing():
                self._run.ledger.record(rows)
            self._write(entries, moved, fresh)
            self._run.result.received += len(fresh)
        self._run.ports.upkeep.on_write(entries)

    def _with_merge(
        self, ordered: list[SyncedVersion], over: set[str]
    ) -> tuple[list[SyncedVersion], list[KnownVersion], list[Memory]]:
        """Return the versions with the one that merges heads, its row, and the memories that become separate."""
        merge = merged(ordered, over)
        if merge is None:
            return ordered, [], []
        new, apart = merge
        heads = frozenset(head.name for head in heads_of(ordered, over))
        row = self._new_row(new, new.version, heads)
        self._run.result.disputed += bool(apart)
        return in_order([*ordered, SyncedVersion(row.name, new.version, heads, new)]), [row], apart

    def _new_row(self, memory: Memory, number: int, parents: frozenset[str] = frozenset()) -> KnownVersion:
        digest = version_digest(travelling(memory, self._run.device.projects))
        return KnownVersion(name_of(memory.id, digest, number), memory.id, digest, number, number, parents, own=True)

    def _add_separate(
        self, separate: Mapping[str, Memory], now: dict[str, list[SyncedVersion]], stored: dict[str, dict[int, Memory]]
    ) -> list[KnownVersion]:
        """Add separate memories for texts that would be nowhere, unless they are there; return their rows."""
        there = stored_versions(self._run.store, separate) if separate else {}
        purged = self._run.ledger.purged() if separate else {}
        rows: list[KnownVersion] = []
        for memory_id, memory in separate.items():
            if memory_id in there or memory_id in now or memory_id in purged:
                continue
            if self._run.ledger.versions_of(memory_id):
                continue
            row = self._new_row(memory, 1)
            rows.append(row)
            now[memory_id] = [SyncedVersion(row.name, 1, frozenset(), memory)]
            stored[memory_id] = {}
        return rows

    def _entries(
        self,
        now: Mapping[str, Sequence[SyncedVersion]],
        stored: Mapping[str, Mapping[int, Memory]],
        here: Mapping[str, Memory],
    ) -> tuple[list[Entry], list[Memory], list[Memory]]:
        """Return what is to be written, which stored versions get another number, and which are new here.

        here: name -> version as it is stored now.
        """
        entries: list[Entry] = []
        moved: list[Memory] = []
        fresh: list[Memory] = []
        for memory_id, ordered in now.items():
            before = stored.get(memory_id, {})
            current = next((memory for memory in before.values() if memory.is_current), None)
            points = [memory.point_id for memory in before.values()]
            layer = ordered[0].memory.layer.value
            entries_now = self._run.store.get(layer, points, with_vectors=True) if points else []
            by_point = {entry.memory.point_id: entry for entry in entries_now}
            for version in ordered:
                memory = version.memory
                if memory.is_current and current is not None:  # uses and receipts are the memory's, and move on
                    memory = replace(memory, usage=current.usage, receipts=current.receipts)
                same = here.get(version.name)
                if same is None:
                    fresh.append(memory)
                elif same.version != memory.version:
                    moved.append(memory)
                elif same == memory:
                    continue
                # written over whatever has this number now, so with its revision
                there = before.get(memory.version)
                memory = replace(memory, revision=there.revision if there is not None else None)
                like = same or current
                source = by_point.get(like.point_id) if like else None
                if same and source is not None:
                    entries.append(replace(source, memory=memory))
                else:
                    entries.append(entry_like(memory, source) if source is not None else new_entry(memory))
        return entries, moved, fresh

    def _write(self, entries: Sequence[Entry], moved: Sequence[Memory], fresh: Sequence[Memory]) -> None:
        now, by = self._run.ports.clock.now(), f"sync:{self._run.device.name}"
        changed = [*fresh, *moved]
        records = [
            {"memories": [audit_record(memory) for memory in changed[start : start + RECORDS_EACH]]}
            for start in range(0, len(changed), RECORDS_EACH)
        ]
        kind = MOVED_KIND if moved else AUDIT_KIND
        audit = self._run.ports.upkeep.audit
        with audit.recording(kind, records, by=by, at=now) if records else contextlib.nullcontext():
            for layer in LAYERS:
                if batch := [entry for entry in entries if entry.memory.layer is layer]:
                    self._run.store.put(layer.value, batch)


PLACED_AT_ONCE = 50
ROUNDS_MAX = 1_000


class Incoming:
    def __init__(self, run: ExchangeRun, chains: Chains) -> None:
        self._run = run
        self._chains = chains
        self._placing = Placing(run)

    def take_over_revoked(self) -> None:
        """Send what revoked devices wrote beyond their last counted segment as our own."""
        for device, revocation in self._run.members.revoked.items():
            with self._run.ledger.changing():
                last = ChainPosition(revocation.generation, revocation.segment)
                if self._run.ledger.take_over(device, last):
                    self._run.ledger.send_again()

    def receive(self) -> None:
        """Take every segment that is complete, of each device; note the others."""
        waiting: dict[str, str] = {}
        own = self._run.device.device
        rereads = [] if self._run.ledger.meta("own") == "read" else [own]
        for _ in range(ROUNDS_MAX):
            waiting.clear()
            taken = [self._receive_from(device, waiting) for device in [*rereads, *self._run.others()]]
            if not any(taken) or self._run.stop():
                break
        if rereads and own not in waiting and not self._run.stop():
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
        """Take what can be taken of one device's chain; return whether anything was."""
        last, any_taken = self._run.ledger.position(device), False
        try:
            for number in self._chains.chain(device, last):
                if self._run.stop():
                    self._run.result.left = True
                    break
                self._run.ports.upkeep.yield_to_requests()
                segment, last = self._chains.read(device, number, last)
                self._take(device, number, segment)
                with self._run.ledger.changing():
                    self._run.ledger.set_position(device, last)
                any_taken = True
        except SegmentWaits as why:
            waiting[device] = str(why)
        return any_taken

    def _take(self, device: str, number: SegmentNumber, segment: Segment) -> None:
        """Take a whole segment. Raises SegmentWaits: it needs one that has not arrived; nothing of it was taken."""
        purged = self._run.ledger.purged()
        for purge in segment.purges:
            self._check_purge(purge, device)
        gone = purged.keys() | {id for purge in segment.purges for id in purge["ids"]}
        projects = {version.name: self._run.local_project(version, segment) for version in segment.versions}
        wanted = [version for version in segment.versions if projects[version.name] and version.memory.id not in gone]
        needed = {parent for version in wanted for parent in version.parents} - projects.keys() - {""}
        if needed - self._run.ledger.knows(needed):
            raise SegmentWaits("")
        for purge in segment.purges:
            self._purge(purge, purged)
        with self._run.ledger.changing():
            self._run.ledger.leave_out(name for name, project in projects.items() if not project)
        groups: dict[str, list[TravellingVersion]] = {}
        for version in wanted:
            groups.setdefault(version.memory.id, []).append(version)
        ids = sorted(groups)
        for start in range(0, len(ids), PLACED_AT_ONCE):
            self._run.ports.upkeep.yield_to_requests()
            part = {id: groups[id] for id in ids[start : start + PLACED_AT_ONCE]}
            self._placing.put(device, number, part, projects)

    def _check_purge(self, purge: SignedPurge, device: str) -> None:
        statement = purge_statement(self._run.device.folder_id, purge["ids"], purge["at"])
        humans = [card.human for card in self._run.members.cards.values() if card.human]
        if purge["human"] not in humans or not keys.signed_by(purge["human"], statement, purge["signature"]):
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
