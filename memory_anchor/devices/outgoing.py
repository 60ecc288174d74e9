"""What is new here goes out: named, closed in a segment beside the store, then copied into the folder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from memory_anchor.care.transfer import stored_versions
from memory_anchor.devices import sealing
from memory_anchor.devices.folder import Place, segment_name
from memory_anchor.devices.ledger import KnownVersion
from memory_anchor.devices.round import Parted, Round, aliases_told
from memory_anchor.devices.segments import LAYERS, about_line, line_of, travelling
from memory_anchor.files import make_private, remove_durably, write_whole
from memory_anchor.json_values import Json
from memory_anchor.where import OneOf, Where

NAMED_AT_ONCE = 50
SENT_AT_ONCE = 500
SEGMENT_TEXT = 1 << 20
"""Characters of lines after which a segment is closed."""
MARKS_PAGE = 2_000


class Outgoing:
    def __init__(self, at: Round) -> None:
        self._at = at

    def name_what_is_new(self) -> None:
        """Give names to versions of the store that have none."""
        known = self._at.ledger.points()
        ids: set[str] = set()
        fresh: list[tuple[str, str]] = []
        seen: set[str] = set()
        where = Where((OneOf("project", tuple(sorted(self._at.device.projects))),))
        for layer in LAYERS:
            after: str | None = None
            while self._at.device.projects:
                self._at.ports.upkeep.stand_aside()
                marks, after = self._at.store.marks(layer.value, where, page=MARKS_PAGE, after=after)
                seen |= {mark.point_id for mark in marks}
                fresh += [(layer.value, mark.point_id) for mark in marks if mark.point_id not in known]
                if after is None:
                    break
        if missing := known - seen:
            self._check_missing(missing)
        for layer in LAYERS:
            points = [point for name, point in fresh if name == layer.value]
            for start in range(0, len(points), SENT_AT_ONCE):
                got = self._at.store.get(layer.value, points[start : start + SENT_AT_ONCE])
                ids |= {entry.memory.id for entry in got}
        ordered = sorted(ids - self._at.ledger.gone().keys())
        for start in range(0, len(ordered), NAMED_AT_ONCE):
            self._at.ports.upkeep.stand_aside()
            part = ordered[start : start + NAMED_AT_ONCE]
            stored = stored_versions(self._at.store, part)
            with self._at.ledger.changing():
                for name in part:
                    self._at.ledger.keep(self._at.named(name, stored.get(name, {}), self._at.ledger.of(name))[1])

    def _check_missing(self, points: set[str]) -> None:
        """Raise Parted: versions that were exchanged are not in the store, and nobody purged them."""
        held = {entry.memory.point_id for layer in LAYERS for entry in self._at.store.get(layer.value, sorted(points))}
        if points - held:
            raise Parted(f"{len(points - held)} versions are not in the store")

    def send(self) -> None:
        """Close segments over what was not told yet, then copy what the folder lacks."""
        make_private(self._at.own_folder)
        places = self._at.own_places()
        generation = max([self._at.ledger.generation, *(place[0] for place in places)])
        while not self._at.stop():
            self._at.ports.upkeep.stand_aside()
            versions = self._at.ledger.to_send(SENT_AT_ONCE)
            words = self._at.ledger.gone_to_send()
            begins = bool(places) and generation not in {place[0] for place in places}
            if not versions and not words and not begins:
                break
            lines, names = self._lines(versions)
            about = about_line(self._at.ports.clock.now(), self._shared_projects())
            content = "\n".join([about, *words, *lines]).encode()
            number = max((place[1] for place in places if place[0] == generation), default=0) + 1
            self._close_segment((generation, number), content)
            places.add((generation, number))
            with self._at.ledger.changing():
                self._at.ledger.sent(names)
                self._at.ledger.gone_sent(words)
            self._at.done.sent += len(names)
        self._publish(places, generation)

    def _lines(self, versions: Sequence[KnownVersion]) -> tuple[list[str], list[str]]:
        stored = stored_versions(self._at.store, {one.id for one in versions}) if versions else {}
        lines: list[str] = []
        names: list[str] = []
        size = 0
        for one in versions:
            memory = stored.get(one.id, {}).get(one.number)
            if memory is None:
                raise Parted(f"version {one.number} of {one.id} is not in the store")
            line = line_of(travelling(memory, self._at.device.projects), one.hint, one.parents)
            size += len(line)
            if lines and size > SEGMENT_TEXT:
                break
            lines.append(line)
            names.append(one.name)
        return lines, names

    def _close_segment(self, place: Place, content: bytes) -> None:
        key = self._at.members.key_to_write()
        before = sealing.digest(self._at.own_file((place[0], place[1] - 1))) if place[1] > 1 else ""
        head: dict[str, Json] = {
            **{"kind": "segment", "device": self._at.device.device, "generation": place[0], "number": place[1]},
            **{"before": before, "key": key, "salt": self._at.ports.new_token()},
        }
        file = sealing.sealed_file(head, content, key=self._at.members.keys[key], signer=self._at.device.keys.signer)
        write_whole(self._at.own_path(place), file)

    def _publish(self, places: set[Place], generation: int) -> None:
        there = self._at.listed.segments.setdefault(self._at.device.device, set())
        for place in sorted(place for place in places if place[0] == generation and place not in there):
            self._at.place.write(segment_name(self._at.device.device, place), self._at.own_file(place))
            there.add(place)
        if self._at.ledger.count_to_send():
            return
        for place in sorted(place for place in {*places, *there} if place[0] < generation):
            if place in there:  # the new generation holds all that counts of it
                self._at.place.remove(segment_name(self._at.device.device, place))
                there.discard(place)
            with contextlib.suppress(OSError):
                remove_durably(self._at.own_path(place))

    def _shared_projects(self) -> dict[str, list[str]]:
        known = self._at.ports.projects.all()
        return {shared: aliases_told(known.get(own, ())) for own, shared in self._at.device.projects.items()}
