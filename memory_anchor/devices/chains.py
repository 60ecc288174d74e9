"""Each device's chain, read as far as it is whole: in order, signed by who counts, never going back in time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

from memory_anchor.devices import sealing
from memory_anchor.devices.exchange_run import Round, Waits
from memory_anchor.devices.folder import Place, segment_name
from memory_anchor.devices.ledger import KnownVersion, Reached
from memory_anchor.devices.sealing import Unfit
from memory_anchor.devices.segments import Segment, TravellingVersion, read_segment
from memory_anchor.errors import Refused

CLOCK_SLACK = timedelta(minutes=10)


class Chains:
    def __init__(self, at: Round) -> None:
        self._at = at

    def own_is_ours(self) -> None:
        """Raise Refused where somebody else writes as this device."""
        own = self._at.own_places()
        there = self._at.listed.segments.get(self._at.device.device, set())
        newest = max((place[0] for place in own), default=0)
        strange = sorted(place for place in there if place not in own and place[0] >= newest)
        if not strange and own and (last := max(own)) in there:
            with contextlib.suppress(Unfit):
                strange = (
                    [last] if self._at.place.segment(self._at.device.device, last) != self._at.own_file(last) else []
                )
                if strange and self._is_torn(last):
                    strange = []
        if strange:
            raise Refused(
                "the folder holds segments of this device that it never wrote: its data directory was copied, or "
                "restored from a backup; nothing was exchanged: run `memory-anchor sync setup` with --new-device and "
                "another --name"
            )

    def _is_torn(self, place: Place) -> bool:
        try:
            sealing.head_of(self._at.place.segment(self._at.device.device, place))
        except Unfit as error:
            if error.torn:
                self._at.place.remove(segment_name(self._at.device.device, place))
                self._at.listed.segments[self._at.device.device].discard(place)
                return True
        return False

    def learn_names(self) -> None:
        """Begin the ledger: learn what every segment calls its versions, so that what is here is recognised."""
        gone = self._at.ledger.gone()
        for device in [self._at.device.device, *self._at.others()]:
            last, own = Reached(), device == self._at.device.device
            with contextlib.suppress(Waits):
                for place in self.chain(device, last):
                    segment, last = self.read(device, place, last)
                    wanted = [one for one in segment.versions if one.memory.id not in gone]
                    wanted = [one for one in wanted if self._at.home_of(one, segment)]
                    with self._at.ledger.changing():
                        self._at.ledger.keep(row_of(one, own, device, place) for one in wanted)
        with self._at.ledger.changing():
            self._at.ledger.set_meta("learnt", "yes")

    def chain(self, device: str, last: Reached) -> Iterator[Place]:
        """Yield the places to read next. Raises Waits: the chain is not whole, or went back in time."""
        own = device == self._at.device.device
        there = self._at.own_places() if own else self._at.listed.segments.get(device, set())
        name = self._at.members.names(device)
        begun = [place[0] for place in there if place[1] == 1]
        generation = max([last.generation, *begun])
        if generation == last.generation and last.segment:
            at = (generation, last.segment)
            if at not in there:
                raise Waits(
                    f"the folder went back in time: segment {last.segment} of {name}, which was read here, is gone; "
                    f"nothing is lost here: sync {name}, which writes it again"
                )
            if not own and sealing.digest(self._content(device, at)) != last.hash:
                raise Waits(
                    f"segment {last.segment} of {name} is another one than was read here (an old copy, or two devices "
                    f"that write as one); nothing newer of it is taken: on {name} run `memory-anchor sync setup` with "
                    "--new-device"
                )
        number = last.segment if generation == last.generation else 0
        newest = max((place[1] for place in there if place[0] == generation), default=0)
        limit = self._at.members.revoked.get(device)
        while number < newest:
            number += 1
            if limit is not None and (generation, number) > (limit.generation, limit.segment):
                raise Waits(f"{name} is revoked: what it wrote since {limit.at[:10]} is not taken")
            if (generation, number) not in there:
                raise Waits(
                    f"segment {number} of {name} has not arrived while later ones have; it is read when the sync tool "
                    "brings it"
                )
            yield generation, number

    def _content(self, device: str, place: Place) -> bytes:
        if device == self._at.device.device:
            return self._at.own_file(place)
        try:
            return self._at.place.segment(device, place)
        except Unfit as error:
            raise self._unfit(device, place, error) from None

    def read(self, device: str, place: Place, last: Reached) -> tuple[Segment, Reached]:
        """Return a segment and how far its device is read then. Raises Waits, with the sentence."""
        file = self._content(device, place)
        card = self._at.members.cards[device]
        try:
            head = sealing.head_of(file)
            if (head.get("kind"), head.get("device")) != ("segment", device):
                raise Unfit("it is another device's")
            if (head.get("generation"), head.get("number")) != place:
                raise Unfit("it lies under another number than its own")
            before = last.hash if last.generation == place[0] else ""
            if head.get("before") != before:
                raise Unfit("it does not follow the one before it")
            key = self._at.members.keys.get(str(head.get("key")))
            if key is None:
                raise Unfit(
                    "this device has no key for it (run `memory-anchor sync setup` once more, with the passphrase)"
                )
            segment = read_segment(sealing.opened_file(file, key=key, public=card.signing))
        except Unfit as error:
            raise self._unfit(device, place, error) from None
        ahead = segment.at - self._at.ports.clock.now()
        if ahead > CLOCK_SLACK:
            self._at.done.note(
                f"the clock of {card.name} is {_span(ahead)} ahead of this one: set whichever is wrong (all is taken; "
                "where both changed one memory, the newer by the clock stands, disputed)"
            )
        return segment, Reached(*place, sealing.digest(file))

    def _unfit(self, device: str, place: Place, error: Unfit) -> Waits:
        name = self._at.members.names(device)
        cure = (
            "it is read when the sync tool has brought the rest"
            if error.torn
            else f"delete that file and sync {name}, which writes it again"
        )
        return Waits(f"segment {place[1]} of {name} is not taken, nor what follows it: {error.why}; {cure}")


def row_of(one: TravellingVersion, own: bool, device: str, place: Place) -> KnownVersion:
    return KnownVersion(one.name, one.memory.id, one.said, one.hint, 0, one.parents, own, own, device, *place)


def _span(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} h"
