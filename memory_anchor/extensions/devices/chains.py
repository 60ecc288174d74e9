"""Reads each device's chain as far as it is complete: in order, signed by a member, never older than before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

from memory_anchor.domain.errors import Refused
from memory_anchor.extensions.devices import sealing
from memory_anchor.extensions.devices.exchange_run import ExchangeRun, SegmentWaits
from memory_anchor.extensions.devices.folder import SegmentNumber, segment_name
from memory_anchor.extensions.devices.ledger import ChainPosition, LedgerRow
from memory_anchor.extensions.devices.sealing import InvalidFile
from memory_anchor.extensions.devices.segments import Segment, SegmentVersion, read_segment

CLOCK_SLACK = timedelta(minutes=10)


class Chains:
    def __init__(self, run: ExchangeRun) -> None:
        self._run = run

    def check_own_chain(self) -> None:
        """Raise Refused where another data directory writes as this device."""
        device = self._run.device.device
        own, in_folder = self._run.own_segments(), self._run.listing.segments.get(device, set())
        newest = max((number[0] for number in own), default=0)
        has_foreign = any(number not in own and number[0] >= newest for number in in_folder)
        if not has_foreign and own and (last := max(own)) in in_folder:
            with contextlib.suppress(InvalidFile):
                content = self._run.folder.segment(device, last)
                has_foreign = content != self._run.own_file(last) and not self._remove_if_partial(last, content)
        if has_foreign:
            raise Refused(
                "the folder holds segments of this device that it never wrote: its data directory was copied, or "
                "restored from a backup; nothing was exchanged: run `memory-anchor sync setup` with --new-device and "
                "another --name"
            )

    def _remove_if_partial(self, number: SegmentNumber, content: bytes) -> bool:
        try:
            sealing.read_head(content)
        except InvalidFile as error:
            if error.is_partial:
                device = self._run.device.device
                self._run.folder.remove(segment_name(device, number))
                self._run.listing.segments[device].discard(number)
                return True
        return False

    def rebuild_ledger(self) -> None:
        """Record the names in every segment in an empty ledger, so that the versions here are recognised."""
        purged = self._run.ledger.purged()
        for device in [self._run.device.device, *self._run.others()]:
            position, is_own = ChainPosition(), device == self._run.device.device
            with contextlib.suppress(SegmentWaits):
                for number in self.chain(device, position):
                    segment, position = self.read(device, number, position)
                    rows = [
                        ledger_row(version, is_own, device, number)
                        for version in segment.versions
                        if version.memory.id not in purged and self._run.local_project(version, segment)
                    ]
                    with self._run.ledger.changing():
                        self._run.ledger.record(rows)
        with self._run.ledger.changing():
            self._run.ledger.set_meta("learnt", "yes")

    def chain(self, device: str, last: ChainPosition) -> Iterator[SegmentNumber]:
        """Yield the segments to read next. Raises SegmentWaits: the chain has a gap, or went back in time."""
        is_own = device == self._run.device.device
        present = self._run.own_segments() if is_own else self._run.listing.segments.get(device, set())
        name = self._run.members.name_of(device)
        generation = max([last.generation, *(number[0] for number in present if number[1] == 1)])
        if generation == last.generation and last.segment:
            last_number = (generation, last.segment)
            if last_number not in present:
                raise SegmentWaits(
                    f"the folder went back in time: segment {last.segment} of {name}, which was read here, is gone; "
                    f"nothing is lost here: sync {name}, which writes it again"
                )
            if not is_own and sealing.digest(self._content(device, last_number)) != last.hash:
                raise SegmentWaits(
                    f"segment {last.segment} of {name} is another one than was read here (an old copy, or two devices "
                    f"that write as one); nothing newer of it is taken: on {name} run `memory-anchor sync setup` with "
                    "--new-device"
                )
        first = last.segment + 1 if generation == last.generation else 1
        newest = max((number[1] for number in present if number[0] == generation), default=0)
        limit = self._run.members.revoked.get(device)
        for number in range(first, newest + 1):
            if limit is not None and (generation, number) > (limit.generation, limit.segment):
                raise SegmentWaits(f"{name} is revoked: what it wrote since {limit.at[:10]} is not taken")
            if (generation, number) not in present:
                raise SegmentWaits(
                    f"segment {number} of {name} has not arrived while later ones have; it is read when the sync tool "
                    "brings it"
                )
            yield generation, number

    def _content(self, device: str, number: SegmentNumber) -> bytes:
        if device == self._run.device.device:
            return self._run.own_file(number)
        try:
            return self._run.folder.segment(device, number)
        except InvalidFile as error:
            raise self._refusal(device, number, error) from None

    def read(self, device: str, number: SegmentNumber, last: ChainPosition) -> tuple[Segment, ChainPosition]:
        """Return a segment and the position after it. Raises SegmentWaits, with a sentence."""
        file = self._content(device, number)
        card = self._run.members.cards[device]
        try:
            head = sealing.read_head(file)
            if (head.get("kind"), head.get("device")) != ("segment", device):
                raise InvalidFile("it is another device's")
            if (head.get("generation"), head.get("number")) != number:
                raise InvalidFile("it lies under another number than its own")
            if head.get("before") != (last.hash if last.generation == number[0] else ""):
                raise InvalidFile("it does not follow the one before it")
            key = self._run.members.keys.get(str(head.get("key")))
            if key is None:
                raise InvalidFile(
                    "this device has no key for it (run `memory-anchor sync setup` once more, with the passphrase)"
                )
            segment = read_segment(sealing.open_file(file, key=key, public=card.signing))
        except InvalidFile as error:
            raise self._refusal(device, number, error) from None
        ahead = segment.at - self._run.ports.clock.now()
        if ahead > CLOCK_SLACK:
            self._run.result.note(
                f"the clock of {card.name} is {_span(ahead)} ahead of this one: set whichever is wrong (all is taken; "
                "where both changed one memory, the newer by the clock stands, disputed)"
            )
        return segment, ChainPosition(*number, sealing.digest(file))

    def _refusal(self, device: str, number: SegmentNumber, error: InvalidFile) -> SegmentWaits:
        name = self._run.members.name_of(device)
        cure = (
            "it is read when the sync tool has brought the rest"
            if error.is_partial
            else f"delete that file and sync {name}, which writes it again"
        )
        return SegmentWaits(f"segment {number[1]} of {name} is not taken, nor what follows it: {error.why}; {cure}")


def ledger_row(version: SegmentVersion, is_own: bool, device: str, number: SegmentNumber) -> LedgerRow:
    """Return the row of a version that is in a segment and not in the store."""
    names = (version.name, version.memory.id, version.digest, version.hint)
    return LedgerRow(*names, 0, version.parents, is_own, is_own, device, *number)


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} h"
