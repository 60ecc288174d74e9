"""What is new in the folder comes in: a segment whole, or not yet; purges first, then versions.

Versions of other devices go into the store memory by memory, each put in order anew, under the writers' lock.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory_anchor.care.transfer import stored_versions
from memory_anchor.devices.chains import Chains, row_of
from memory_anchor.devices.exchange_run import Parted, Round, Waits, forget, note_purged
from memory_anchor.devices.folder import Place
from memory_anchor.devices.ledger import KnownVersion, Reached
from memory_anchor.devices.ordering import SyncedVersion, heads_of, in_order, joined
from memory_anchor.devices.segments import (
    LAYERS,
    Segment,
    SignedPurge,
    TravellingVersion,
    name_of,
    purge_said,
    said_in,
    travelling,
)
from memory_anchor.identity import keys
from memory_anchor.layers.records import audit_record
from memory_anchor.model import Memory
from memory_anchor.ports import Entry
from memory_anchor.upkeep.upkeep import entry_like, new_entry

AUDIT_KIND = "sync"
MOVED_KIND = "sync_moved"
"""Recorded where versions got another number: what earlier records call by the old one is not looked for any more."""
RECORDS_EACH = 40


class Placing:
    def __init__(self, at: Round) -> None:
        self._at = at

    def put(
        self, device: str, place: Place, groups: Mapping[str, Sequence[TravellingVersion]], homes: Mapping[str, str]
    ) -> None:
        """Put the versions of some memories in order and into the store, one batch a collection."""
        own = device == self._at.device.device
        with self._at.ports.upkeep.lock:
            stored = stored_versions(self._at.store, groups)
            rows: list[KnownVersion] = []
            now: dict[str, list[SyncedVersion]] = {}
            beside: dict[str, Memory] = {}
            here: dict[str, Memory] = {}
            for memory_id, incoming in groups.items():
                known = self._at.ledger.of(memory_id)
                arriving = [row_of(one, own, device, place) for one in incoming]
                by_name = {one.name: one for one in known}
                for one in arriving:
                    before = by_name.get(one.name)
                    by_name[one.name] = replace(before, parents=before.parents | one.parents) if before else one
                bodies, learnt = self._at.named(memory_id, stored.get(memory_id, {}), list(by_name.values()))
                by_name |= {one.name: one for one in learnt}
                here |= bodies
                for travelled in incoming:
                    body = self._as_here(travelled.memory, homes[travelled.name])
                    bodies.setdefault(travelled.name, body)
                if lacking := [name for name, one in by_name.items() if name not in bodies and one.number > 0]:
                    raise Parted(f"{len(lacking)} versions of {memory_id} are not in the store")
                versions = [
                    SyncedVersion(name, by_name[name].hint, by_name[name].parents, body)
                    for name, body in bodies.items()
                ]
                over = {parent for one in by_name.values() for parent in one.parents}
                ordered, made, apart = self._ended(in_order(versions), over)
                rows += [
                    replace(by_name[one.name], number=one.memory.version) for one in ordered if one.name in by_name
                ]
                rows += made
                now[memory_id] = ordered
                beside |= {one.id: one for one in apart}
            rows += self._beside(beside, now, stored)
            entries, moved, fresh = self._entries(now, stored, here)
            with self._at.ledger.changing():
                self._at.ledger.keep(rows)
            self._write(entries, moved, fresh)
            self._at.done.received += len(fresh)
        self._at.ports.upkeep.on_write(entries)

    def _as_here(self, memory: Memory, project: str) -> Memory:
        return replace(memory, scope=replace(memory.scope, project=project))

    def _ended(
        self, ordered: list[SyncedVersion], over: set[str]
    ) -> tuple[list[SyncedVersion], list[KnownVersion], list[Memory]]:
        """Return the versions with the one that ends a disagreement, its row, and the memories that stand beside."""
        ended = joined(ordered, over)
        if ended is None:
            return ordered, [], []
        new, apart = ended
        heads = frozenset(one.name for one in heads_of(ordered, over))
        said = said_in(travelling(new, self._at.device.projects))
        name = name_of(new.id, said, new.version)
        row = KnownVersion(name, new.id, said, new.version, new.version, heads, own=True)
        self._at.done.disputed += bool(apart)
        return in_order([*ordered, SyncedVersion(name, new.version, heads, new)]), [row], apart

    def _beside(
        self,
        beside: Mapping[str, Memory],
        now: dict[str, list[SyncedVersion]],
        stored: dict[str, dict[int, Memory]],
    ) -> list[KnownVersion]:
        """Add memories for texts that would stand nowhere, unless they are there; return their rows."""
        there = stored_versions(self._at.store, beside) if beside else {}
        gone = self._at.ledger.gone() if beside else {}
        rows: list[KnownVersion] = []
        for memory_id, memory in beside.items():
            if memory_id in there or memory_id in now or memory_id in gone or self._at.ledger.of(memory_id):
                continue
            said = said_in(travelling(memory, self._at.device.projects))
            name = name_of(memory_id, said, 1)
            rows.append(KnownVersion(name, memory_id, said, 1, 1, frozenset(), own=True))
            now[memory_id] = [SyncedVersion(name, 1, frozenset(), memory)]
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
            held = (
                {e.memory.point_id: e for e in self._at.store.get(layer, points, with_vectors=True)} if points else {}
            )
            for one in ordered:
                memory = one.memory
                if memory.is_current and current is not None:  # uses and receipts are the memory's, and move on
                    memory = replace(memory, usage=current.usage, receipts=current.receipts)
                same = here.get(one.name)
                if same is None:
                    fresh.append(memory)
                elif same.version != memory.version:
                    moved.append(memory)
                elif same == memory:
                    continue
                there = before.get(memory.version)  # a number moves: what is written over is what stands in that place
                memory = replace(memory, revision=there.revision if there is not None else None)
                source = held.get(same.point_id) if same else held.get(current.point_id) if current else None
                if same and source is not None:
                    entries.append(replace(source, memory=memory))
                else:
                    entries.append(entry_like(memory, source) if source is not None else new_entry(memory))
        return entries, moved, fresh

    def _write(self, entries: Sequence[Entry], moved: Sequence[Memory], fresh: Sequence[Memory]) -> None:
        at, by = self._at.ports.clock.now(), f"sync:{self._at.device.name}"
        told = [*fresh, *moved]
        parts = [told[start : start + RECORDS_EACH] for start in range(0, len(told), RECORDS_EACH)]
        records = [{"memories": [audit_record(one) for one in part]} for part in parts]
        kind = MOVED_KIND if moved else AUDIT_KIND
        recording = (
            self._at.ports.upkeep.audit.recording(kind, records, by=by, at=at) if records else contextlib.nullcontext()
        )
        with recording:
            for layer in LAYERS:
                if batch := [entry for entry in entries if entry.memory.layer is layer]:
                    self._at.store.put(layer.value, batch)


PLACED_AT_ONCE = 50
ROUNDS_MAX = 1_000


class Incoming:
    def __init__(self, at: Round, chains: Chains) -> None:
        self._at = at
        self._chains = chains
        self._placing = Placing(at)

    def take_over_revoked(self) -> None:
        for device, gone in self._at.members.revoked.items():
            with self._at.ledger.changing():
                if self._at.ledger.take_over(device, Reached(gone.generation, gone.segment)):
                    self._at.ledger.send_again()

    def receive(self) -> None:
        waiting: dict[str, str] = {}
        rereads = [] if self._at.ledger.meta("own") == "read" else [self._at.device.device]
        for _ in range(ROUNDS_MAX):
            waiting.clear()
            taken = [self._receive_from(device, waiting) for device in [*rereads, *self._at.others()]]
            if not any(taken) or self._at.stop():
                break
        if rereads and self._at.device.device not in waiting and not self._at.stop():
            with self._at.ledger.changing():
                self._at.ledger.set_meta("own", "read")
        for device, sentence in sorted(waiting.items()):
            self._at.done.note(
                sentence
                or f"a segment of {self._at.members.names(device)} waits for another device's that has not arrived; "
                "sync that device, or wait for the sync tool"
            )
        strangers = sorted(self._at.listed.segments.keys() - self._at.members.cards.keys())
        if strangers:
            self._at.done.note(
                f"{len(strangers)} devices wrote here whose card this device cannot read ({strangers[0][:8]}); nothing "
                "of them was taken: wait for the sync tool, or run `memory-anchor sync setup` once more"
            )

    def _receive_from(self, device: str, waiting: dict[str, str]) -> bool:
        """Take what can be taken of one device's chain; return whether anything was."""
        last, any_taken = self._at.ledger.reached(device), False
        try:
            for place in self._chains.chain(device, last):
                if self._at.stop():
                    self._at.done.left = True
                    break
                self._at.ports.upkeep.stand_aside()
                segment, now = self._chains.read(device, place, last)
                self._take(device, place, segment)
                with self._at.ledger.changing():
                    self._at.ledger.reach(device, now)
                last, any_taken = now, True
        except Waits as why:
            waiting[device] = str(why)
        return any_taken

    def _take(self, device: str, place: Place, segment: Segment) -> None:
        """Take a whole segment. Raises Waits: it was written over what has not arrived; nothing of it was taken."""
        gone = self._at.ledger.gone()
        words = [self._human_word(word, device) for word in segment.purges]
        purged = {one for word in words for one in word["ids"]}
        homes = {one.name: self._at.home_of(one, segment) for one in segment.versions}
        wanted = [one for one in segment.versions if homes[one.name] and one.memory.id not in gone.keys() | purged]
        named = {one.name for one in segment.versions} | {""}
        needed = {parent for one in wanted for parent in one.parents} - named
        if needed - self._at.ledger.knows(needed):
            raise Waits("")
        for word in words:
            self._purge(word, gone)
        with self._at.ledger.changing():
            self._at.ledger.leave_out(one.name for one in segment.versions if not homes[one.name])
        groups: dict[str, list[TravellingVersion]] = {}
        for one in wanted:
            groups.setdefault(one.memory.id, []).append(one)
        ids = sorted(groups)
        for start in range(0, len(ids), PLACED_AT_ONCE):
            self._at.ports.upkeep.stand_aside()
            part = {name: groups[name] for name in ids[start : start + PLACED_AT_ONCE]}
            self._placing.put(device, place, part, homes)

    def _human_word(self, word: SignedPurge, device: str) -> SignedPurge:
        said = purge_said(self._at.device.folder_id, word["ids"], word["at"])
        humans = [card.human for card in self._at.members.cards.values() if card.human]
        if word["human"] not in humans or not keys.signed_by(word["human"], said, word["signature"]):
            raise Waits(
                f"a purge that {self._at.members.names(device)} tells of is not signed by a human of this folder; "
                "nothing of that segment is taken: on that device run `memory-anchor sync now` on a terminal"
            )
        return word

    def _purge(self, word: SignedPurge, gone: Mapping[str, str]) -> None:
        ids = [one for one in word["ids"] if not gone.get(one)]
        if not ids:
            return
        present = sorted(stored_versions(self._at.store, ids))
        if present:
            self._at.ports.purge(present, f"human:{word['by'].removeprefix('human:')}")
            self._at.done.purged += len(present)
        forget(self._at.ledger, ids, json.dumps(word))
        note_purged(self._at.ledger, self._at.ports.upkeep.audit)
