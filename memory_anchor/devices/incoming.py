"""What is new in the folder comes in: a segment whole, or not yet; purges first, then versions (`placing`)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from memory_anchor.care.transfer import stored_versions
from memory_anchor.devices.chains import Chains
from memory_anchor.devices.folder import Place
from memory_anchor.devices.ledger import Reached
from memory_anchor.devices.placing import Placing
from memory_anchor.devices.round import Json, Round, Waits, forget, note_purged
from memory_anchor.devices.segments import Segment, TravellingVersion, purge_said
from memory_anchor.identity import approval

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

    def _human_word(self, word: Json, device: str) -> Json:
        said = purge_said(self._at.device.folder_id, word["ids"], word["at"])
        humans = [card.human for card in self._at.members.cards.values() if card.human]
        if word["human"] not in humans or not approval.signed_by(word["human"], said, word["signature"]):
            raise Waits(
                f"a purge that {self._at.members.names(device)} tells of is not signed by a human of this folder; "
                "nothing of that segment is taken: on that device run `memory-anchor sync now` on a terminal"
            )
        return word

    def _purge(self, word: Json, gone: Mapping[str, str]) -> None:
        ids = [one for one in word["ids"] if not gone.get(one)]
        if not ids:
            return
        present = sorted(stored_versions(self._at.store, ids))
        if present:
            self._at.ports.purge(present, f"human:{word['by'].removeprefix('human:')}")
            self._at.done.purged += len(present)
        forget(self._at.ledger, ids, json.dumps(word))
        note_purged(self._at.ledger, self._at.ports.upkeep.audit)
