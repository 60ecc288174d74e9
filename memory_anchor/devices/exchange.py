"""One exchange with the sync folder: what is new here goes out, what is new there comes in, nothing half-done.

Order: what was purged here is noted; what is new in the store is named (`ledger`); it is written to a segment beside
the store and then copied into the folder; then every device's chain is read as far as it is whole. A segment is taken
whole or waits: when it is torn, out of order, of a device that does not count, or written over something that has not
arrived. Each memory's versions are put in order anew (`ordering`) under the writers' lock, one batch a collection; the
ledger says first where they will stand, so that a kill anywhere only means that the segment is read once more. Should
store and ledger part (a restored backup), the ledger is begun anew from the segments.

Nothing here waits for a hook or a tool: the engine's job runs it, and yields to requests.

A Git working copy as a sync folder: fetched before an exchange, committed and pushed after it.

Files are never edited and each has one writer, so no merge can conflict. A repository's own hooks, file system monitor
and editor are switched off and nothing is asked on a terminal; remotes and credentials are the user's, who named the
folder. A remote that is away leaves a note, and the exchange goes on with what is here.

What is new here goes out: named, closed in a segment beside the store, then copied into the folder.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.care.transfer import stored_versions
from memory_anchor.devices import membership, sealing
from memory_anchor.devices.chains import Chains
from memory_anchor.devices.exchange_run import Exchanged, Parted, Round, aliases_told, note_purged
from memory_anchor.devices.folder import Place, segment_name
from memory_anchor.devices.incoming import Incoming
from memory_anchor.devices.ledger import KnownVersion, Ledger, Reached
from memory_anchor.devices.membership import Device
from memory_anchor.devices.segments import LAYERS, about_line, line_of, purge_said, travelling
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.files import make_private, remove_durably, write_atomic
from memory_anchor.json_values import Json
from memory_anchor.where import OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.devices.sync_job import Devices

LAST = "last.json"


class Exchange:
    """Exchanges versions with other devices. One exchange at a time."""

    def __init__(self, ports: Devices) -> None:
        self._ports = ports
        self._data_dir = ports.data_dir
        self._home = ports.data_dir / membership.FOLDER
        self._alone = threading.Lock()

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Exchanged | None:
        """Exchange with the folder; None where sync was never set up.

        Raises NotFound: the folder is away. Refused: this device was revoked or copied, or the folder cannot be
        written. Other trouble of single files stands in the notes.
        """
        with self._alone, membership.alone(self._data_dir):
            device = membership.load(self._data_dir)
            if device is None:
                return None
            done = Exchanged(self._ports.clock.now().isoformat())
            try:
                if self._ports.paused():
                    raise Refused("memory is paused; nothing was exchanged (`memory-anchor pause --off` goes on)")
                device.place.check_there()
                carrier = GitCarrier(device.place.root) if device.git else None
                if carrier is not None:
                    carrier.fetch(done.note)
                with contextlib.closing(Ledger(self._home)) as ledger:
                    self._exchange(device, ledger, done, should_stop)
                if carrier is not None:
                    carrier.send(done.note)
            except MemoryAnchorError as error:
                done.note(str(error))
                raise
            finally:
                self._keep_last(done)
            return done

    def _exchange(self, device: Device, ledger: Ledger, done: Exchanged, stop: Callable[[], bool]) -> None:
        if ledger.meta("card") != f"{device.device}/{device.card_number}":
            ledger.clear()
            with ledger.changing():
                ledger.set_meta("card", f"{device.device}/{device.card_number}")
        for again in (True, False):
            try:
                self._whole(Round(self._ports, device, ledger, stop, done))
                return
            except Parted as error:
                if not again:
                    raise Refused(
                        f"the store and what was exchanged do not fit ({error}); run `memory-anchor doctor`, "
                        "then `memory-anchor sync now`"
                    ) from None
                ledger.clear()

    def _whole(self, at: Round) -> None:
        chains, outgoing = Chains(at), Outgoing(at)
        incoming = Incoming(at, chains)
        at.look()
        note_purged(at.ledger, self._ports.upkeep.audit)
        chains.own_is_ours()
        if not at.ledger.meta("learnt"):
            chains.learn_names()
        incoming.take_over_revoked()
        outgoing.name_what_is_new()
        outgoing.send()
        incoming.receive()
        if at.ledger.count_to_send() or at.ledger.gone_to_send():
            outgoing.send()
        at.done.left = at.done.left or at.stop()

    def status(self) -> dict[str, Json]:
        """Return what is known of sync here, without exchanging anything."""
        device = membership.load(self._data_dir)
        if device is None:
            return {"set_up": False}
        told: dict[str, Json] = {
            "set_up": True,
            "folder": device.folder,
            "name": device.name,
            "device": device.device,
            "projects": dict(device.projects),
            "everything": device.everything,
            "last": self._last(),
        }
        with self._alone, contextlib.closing(Ledger(self._home)) as ledger:
            note_purged(ledger, self._ports.upkeep.audit)
            told |= {"versions": ledger.count(), "to_send": ledger.count_to_send(), "unsigned": ledger.unsigned()}
            try:
                device.place.check_there()
                listed = device.place.listed()
                members = membership.members(device, listed)
            except MemoryAnchorError as error:
                return {**told, "there": False, "notes": [str(error)]}
            told |= {"there": True, "foreign_files": listed.foreign, "notes": [*members.wrong, *members.share_a_name()]}
            told["devices"] = [
                {
                    "name": card.name,
                    "device": card.device,
                    "here": card.device == device.device,
                    "revoked": card.device in members.revoked,
                    "segments": len(listed.segments.get(card.device, ())),
                    "read": ledger.reached(card.device).segment,
                }
                for card in members.cards.values()
            ]
        return told

    def reached(self, device: str) -> Reached:
        """Return how far a device was read here."""
        with self._alone, contextlib.closing(Ledger(self._home)) as ledger:
            return ledger.reached(device)

    def unsigned(self) -> dict[str, Json]:
        """Return the statement that a human signs so that what was purged here is purged everywhere; {} for none."""
        device = membership.load(self._data_dir)
        if device is None:
            return {}
        with self._alone, contextlib.closing(Ledger(self._home)) as ledger:
            note_purged(ledger, self._ports.upkeep.audit)
            ids = ledger.unsigned()
        return purge_said(device.folder_id, ids, self._ports.clock.now().isoformat()) if ids else {}

    def signed(self, said: Mapping[str, Json], signature: str, by: str) -> int:
        """Keep a human's signed word on what was purged here; return how many memories. Raises Refused, BadInput."""
        device = membership.load(self._data_dir)
        if device is None:
            raise BadInput("sync is not set up here; `memory-anchor sync setup FOLDER` does it")
        ids = said.get("ids")
        if not isinstance(ids, list) or dict(said) != purge_said(device.folder_id, ids, str(said.get("at"))):
            raise BadInput("the statement is none about a purge of this folder")
        sealing.check_signed(device.human, said, signature)
        with self._alone, contextlib.closing(Ledger(self._home)) as ledger:
            unsigned = set(ledger.unsigned())
            if not set(ids) <= unsigned:
                raise Refused("only what was purged here is told to other devices; nothing was sent")
            word = {"kind": "purge", "ids": sorted(ids), "at": said["at"], "by": by}
            with ledger.changing():
                ledger.note_gone(ids, json.dumps({**word, "human": device.human, "signature": signature}))
        return len(ids)

    def _keep_last(self, done: Exchanged) -> None:
        make_private(self._home)
        write_atomic(self._home / LAST, json.dumps(asdict(done), ensure_ascii=False).encode(), durable=False)

    def _last(self) -> dict[str, Json]:
        try:
            told = json.loads((self._home / LAST).read_bytes())
            return told if isinstance(told, dict) else {}
        except (OSError, ValueError):
            return {}


def set_up_projects(
    shared: Mapping[str, Sequence[str]], own: Mapping[str, Sequence[str]], wanted: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return (id here -> shared id, shared id -> aliases to tell) for the projects that a person chose.

    own: every project here with its aliases. wanted: id here -> shared id, "" to find it by remote and first commit.
    """
    mapped: dict[str, str] = {}
    for name, chosen in wanted.items():
        told = set(aliases_told(own.get(name, ())))
        known = name if name in shared else next((one for one, aliases in shared.items() if told & set(aliases)), name)
        mapped[name] = chosen or known
    return mapped, {one: aliases_told(own.get(name, ())) for name, one in mapped.items()}


TIMEOUT_S = 60.0
TRIES = 3
SAID_MAX = 200
_SAFE = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *("-c", "user.name=memory-anchor", "-c", "user.email=memory-anchor@localhost", "-c", "core.editor=true"),
    *("-c", "core.autocrlf=false", "-c", "gc.auto=0"),
)


class GitCarrier:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, note: Callable[[str], None]) -> None:
        if self._has_remote():
            wrong = self._pulled()
            if wrong:
                note(f"Git could not fetch ({wrong}); what is here was exchanged: run `git pull` in {self._folder}")

    def send(self, note: Callable[[str], None]) -> None:
        self._git("add", "--all", "--force", "--", ".")
        if self._git("diff", "--cached", "--quiet")[0]:
            self._git("commit", "--quiet", "--no-verify", "-m", "sync")
        if not self._has_remote():
            return
        for _ in range(TRIES):
            code, said = self._git("push", "--quiet", "--no-verify", "origin", "HEAD")
            if code == 0:
                return
            if wrong := self._pulled():
                said = wrong
                break
        note(f"Git could not push ({said}); nothing is lost: run `git push` in {self._folder}, or sync again")

    def _pulled(self) -> str:
        """Merge what the remote has; return what went wrong, "" for nothing."""
        code, said = self._git("fetch", "--quiet", "origin")
        if code:
            return said
        branch = self._git("rev-parse", "--abbrev-ref", "HEAD")[1] or "main"
        if self._git("rev-parse", "--verify", "--quiet", f"origin/{branch}")[0]:
            return ""  # nothing was pushed yet
        code, said = self._git("merge", "--quiet", "--no-edit", "--allow-unrelated-histories", f"origin/{branch}")
        if code:
            self._git("merge", "--abort")
        return said if code else ""

    def _has_remote(self) -> bool:
        return bool(self._git("remote")[1])

    def _git(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the last line of what Git said."""
        try:
            done = subprocess.run(
                ["git", "-C", str(self._folder), *_SAFE, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
                start_new_session=True,  # no terminal to ask on
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, type(error).__name__
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return done.returncode, (said[-1] if said else "")[:SAID_MAX]


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
        write_atomic(self._at.own_path(place), file)

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
