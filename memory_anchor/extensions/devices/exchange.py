"""One exchange with the sync folder: new versions of this device go out, new versions of the others come in.

Order: purges of this device are recorded; new versions in the store get names (`ledger`) and are written as segments
next to the store, which are then copied into the folder; then each device's chain is read as far as it is complete. A
segment is taken whole or waits: when it is partial, out of order, of a device that does not count, or written over
a version that has not arrived. Each memory's versions are put in order (`ordering`) under the writers' lock, one batch
a collection; the ledger is written first, so that after a kill the segment is only read once more. If store and ledger
do not match (a restored backup), the ledger is rebuilt from the segments.

The engine's job runs it and yields to requests; no hook or tool waits for it.

A sync folder may be a Git working copy: it is fetched before an exchange, committed and pushed after it. Files are
never edited and each has one writer, so no merge can conflict. A repository's own hooks, file system monitor and editor
are switched off and nothing is asked on a terminal; remotes and credentials are the user's, who named the folder. An
unreachable remote leaves a note, and the exchange goes on with the local files.
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

from memory_anchor.base.files import make_private, remove_durably, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.extensions.devices import membership, sealing
from memory_anchor.extensions.devices.chains import Chains
from memory_anchor.extensions.devices.exchange_run import (
    ExchangeResult,
    ExchangeRun,
    LedgerMismatch,
    note_purged,
    shared_aliases,
)
from memory_anchor.extensions.devices.folder import SegmentNumber, segment_name
from memory_anchor.extensions.devices.incoming import Incoming
from memory_anchor.extensions.devices.ledger import ChainPosition, Ledger, LedgerRow
from memory_anchor.extensions.devices.membership import Device
from memory_anchor.extensions.devices.segments import LAYERS, about_line, purge_statement, shared_fields, version_line
from memory_anchor.extensions.transfer.transfer import stored_versions
from memory_anchor.identity import keys

if TYPE_CHECKING:
    from memory_anchor.extensions.devices.sync_job import DeviceSync

LAST = "last.json"
NAMED_AT_ONCE = 50
SENT_AT_ONCE = 500
SEGMENT_TEXT = 1 << 20
"""Characters of lines after which a segment is closed."""
MARKS_PAGE = 2_000
GIT_TIMEOUT_S = 60.0
PUSH_TRIES = 3
MESSAGE_CHARS = 200
_GIT_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"),
    *("-c", "user.name=memory-anchor", "-c", "user.email=memory-anchor@localhost", "-c", "core.editor=true"),
    *("-c", "core.autocrlf=false", "-c", "gc.auto=0"),
)
"""Options of every Git command: nothing of the repository runs, nothing asks."""


class Exchange:
    """Exchanges versions with other devices. One exchange at a time."""

    def __init__(self, ports: DeviceSync) -> None:
        self._ports = ports
        self._data_dir = ports.data_dir
        self._home = ports.data_dir / membership.FOLDER
        self._lock = threading.Lock()

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> ExchangeResult | None:
        """Exchange with the folder and return the result; None where sync is not set up.

        Raises NotFound: the folder is not there. Refused: this device was revoked or copied, or the folder cannot be
        written. Problems of single files are in the notes.
        """
        with self._lock, membership.exchange_lock(self._data_dir):
            device = membership.load(self._data_dir)
            if device is None:
                return None
            result = ExchangeResult(self._ports.clock.now().isoformat())
            try:
                if self._ports.is_paused():
                    raise Refused("memory is paused; nothing was exchanged (`memory-anchor pause --off` goes on)")
                device.sync_folder.check_available()
                carrier = GitCarrier(device.sync_folder.root) if device.git else None
                if carrier is not None:
                    carrier.fetch(result.note)
                with contextlib.closing(Ledger(self._home)) as ledger:
                    self._exchange(device, ledger, result, should_stop)
                if carrier is not None:
                    carrier.send(result.note)
            except MemoryAnchorError as error:
                result.note(str(error))
                raise
            finally:
                make_private(self._home)
                content = json.dumps(asdict(result), ensure_ascii=False).encode()
                write_atomic(self._home / LAST, content, durable=False)
            return result

    def _exchange(
        self, device: Device, ledger: Ledger, result: ExchangeResult, should_stop: Callable[[], bool]
    ) -> None:
        if ledger.meta("card") != f"{device.device}/{device.card_number}":
            ledger.clear()
            with ledger.changing():
                ledger.set_meta("card", f"{device.device}/{device.card_number}")
        for is_rebuilt in (False, True):
            try:
                self._run_once(ExchangeRun(self._ports, device, ledger, should_stop, result))
                return
            except LedgerMismatch as error:
                if is_rebuilt:
                    raise Refused(
                        f"the store and what was exchanged do not fit ({error}); run `memory-anchor doctor`, "
                        "then `memory-anchor sync now`"
                    ) from None
                ledger.clear()

    def _run_once(self, run: ExchangeRun) -> None:
        chains, outgoing = Chains(run), Outgoing(run)
        incoming = Incoming(run, chains)
        run.read_folder()
        note_purged(run.ledger, self._ports.upkeep.audit)
        chains.check_own_chain()
        if not run.ledger.meta("learnt"):
            chains.rebuild_ledger()
        incoming.take_over_revoked()
        outgoing.name_new_versions()
        outgoing.send()
        incoming.receive()
        if run.ledger.count_to_send() or run.ledger.purges_to_send():
            outgoing.send()
        run.result.left = run.result.left or run.should_stop()

    def status(self) -> dict[str, Json]:
        """Return the state of sync on this device, without an exchange."""
        device = membership.load(self._data_dir)
        if device is None:
            return {"set_up": False}
        status: dict[str, Json] = {
            "set_up": True,
            **{name: getattr(device, name) for name in ("folder", "name", "device", "everything")},
            "projects": dict(device.projects),
            "last": self._last(),
        }
        with self._lock, contextlib.closing(Ledger(self._home)) as ledger:
            note_purged(ledger, self._ports.upkeep.audit)
            status |= {"versions": ledger.count(), "to_send": ledger.count_to_send(), "unsigned": ledger.unsigned()}
            try:
                device.sync_folder.check_available()
                listing = device.sync_folder.listed()
                members = membership.members_for(device, listing)
            except MemoryAnchorError as error:
                return {**status, "there": False, "notes": [str(error)]}
            notes = [*members.problems, *members.duplicate_names()]
            status |= {"there": True, "foreign_files": listing.foreign, "notes": notes}
            status["devices"] = [
                {
                    "name": card.name,
                    "device": card.device,
                    "here": card.device == device.device,
                    "revoked": card.device in members.revoked,
                    "segments": len(listing.segments.get(card.device, ())),
                    "read": ledger.position(card.device).segment,
                }
                for card in members.cards.values()
            ]
        return status

    def position_of(self, device: str) -> ChainPosition:
        """Return how far a device's chain was read here."""
        with self._lock, contextlib.closing(Ledger(self._home)) as ledger:
            return ledger.position(device)

    def unsigned_purges(self) -> list[str]:
        """Return the ids of memories that were purged here and that no human's signature purges elsewhere yet."""
        with self._lock, contextlib.closing(Ledger(self._home)) as ledger:
            note_purged(ledger, self._ports.upkeep.audit)
            return ledger.unsigned()

    def accept_signature(self, statement: Mapping[str, Json], signature: str, by: str) -> int:
        """Record a human's signature under a purge; return how many memories. Raises Refused, BadInput."""
        device = membership.load(self._data_dir)
        if device is None:
            raise BadInput("sync is not set up here; `memory-anchor sync setup FOLDER` does it")
        ids, at = statement.get("ids"), statement.get("at")
        if not isinstance(ids, list) or dict(statement) != purge_statement(device.folder_id, ids, str(at)):
            raise BadInput("the statement is none about a purge of this folder")
        if not keys.Approver(by, device.human).signed(statement, signature):
            raise Refused("it is not signed by who may")
        with self._lock, contextlib.closing(Ledger(self._home)) as ledger:
            note_purged(ledger, self._ports.upkeep.audit)
            if not set(ids) <= set(ledger.unsigned()):
                raise Refused("only what was purged here is told to other devices; nothing was sent")
            purge = {"kind": "purge", "ids": sorted(ids), "at": at, "by": by}
            with ledger.changing():
                ledger.note_purged(ids, json.dumps({**purge, "human": device.human, "signature": signature}))
        return len(ids)

    def _last(self) -> dict[str, Json]:
        """Return the result of the last exchange as it was written, {} for none."""
        try:
            last = json.loads((self._home / LAST).read_bytes())
            return last if isinstance(last, dict) else {}
        except (OSError, ValueError):
            return {}


def map_projects(
    shared: Mapping[str, Sequence[str]], own: Mapping[str, Sequence[str]], chosen: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return (id here -> shared id, shared id -> aliases to publish) for the projects that a person chose.

    own: every project here with its aliases. chosen: id here -> shared id, "" to find it by remote and first commit.
    """
    mapped: dict[str, str] = {}
    for name, shared_id in chosen.items():
        aliases = set(shared_aliases(own.get(name, ())))
        match = name if name in shared else next((id for id, names in shared.items() if aliases & set(names)), name)
        mapped[name] = shared_id or match
    return mapped, {shared_id: shared_aliases(own.get(name, ())) for name, shared_id in mapped.items()}


class GitCarrier:
    """A sync folder that is a Git working copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch(self, note: Callable[[str], None]) -> None:
        if self._has_remote() and (error := self._pull()):
            note(f"Git could not fetch ({error}); what is here was exchanged: run `git pull` in {self._folder}")

    def send(self, note: Callable[[str], None]) -> None:
        self._git("add", "--all", "--force", "--", ".")
        if self._git("diff", "--cached", "--quiet")[0]:
            self._git("commit", "--quiet", "--no-verify", "-m", "sync")
        if not self._has_remote():
            return
        for _ in range(PUSH_TRIES):
            code, message = self._git("push", "--quiet", "--no-verify", "origin", "HEAD")
            if code == 0:
                return
            if error := self._pull():
                message = error
                break
        note(f"Git could not push ({message}); nothing is lost: run `git push` in {self._folder}, or sync again")

    def _pull(self) -> str:
        """Merge the remote's commits; return the error, "" for none."""
        code, message = self._git("fetch", "--quiet", "origin")
        if code:
            return message
        branch = self._git("rev-parse", "--abbrev-ref", "HEAD")[1] or "main"
        if self._git("rev-parse", "--verify", "--quiet", f"origin/{branch}")[0]:
            return ""  # nothing was pushed yet
        code, message = self._git("merge", "--quiet", "--no-edit", "--allow-unrelated-histories", f"origin/{branch}")
        if code:
            self._git("merge", "--abort")
        return message if code else ""

    def _has_remote(self) -> bool:
        return bool(self._git("remote")[1])

    def _git(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the last line of Git's output."""
        try:
            process = subprocess.run(
                ["git", "-C", str(self._folder), *_GIT_OPTIONS, *arguments],
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
                start_new_session=True,  # no terminal to ask on
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, type(error).__name__
        lines = text_lines((process.stdout.strip() or process.stderr.strip()).decode("utf-8", "replace"))
        return process.returncode, (lines[-1] if lines else "")[:MESSAGE_CHARS]


class Outgoing:
    """Names the new versions of the store and sends them in segments."""

    def __init__(self, run: ExchangeRun) -> None:
        self._run = run

    def name_new_versions(self) -> None:
        """Give names to versions of the store that have none."""
        run, upkeep = self._run, self._run.ports.upkeep
        named_points = run.ledger.points()
        stored_points: set[str] = set()
        ids: set[str] = set()
        where = Where((OneOf("project", tuple(sorted(run.device.projects))),))
        for layer in LAYERS if run.device.projects else ():
            new_points: list[str] = []
            after: str | None = ""
            while after is not None:
                upkeep.yield_to_requests()
                marks, after = run.store.marks(layer.value, where, page=MARKS_PAGE, after=after or None)
                stored_points |= {mark.point_id for mark in marks}
                new_points += [mark.point_id for mark in marks if mark.point_id not in named_points]
            for start in range(0, len(new_points), SENT_AT_ONCE):
                ids |= {e.memory.id for e in run.store.get(layer.value, new_points[start : start + SENT_AT_ONCE])}
        if missing := sorted(named_points - stored_points):
            elsewhere = {e.memory.point_id for layer in LAYERS for e in run.store.get(layer.value, missing)}
            if lost := set(missing) - elsewhere:  # exchanged before, and nobody purged them
                raise LedgerMismatch(f"{len(lost)} versions are not in the store")
        ordered = sorted(ids - run.ledger.purged().keys())
        for start in range(0, len(ordered), NAMED_AT_ONCE):
            upkeep.yield_to_requests()
            part = ordered[start : start + NAMED_AT_ONCE]
            versions = stored_versions(run.store, part)
            with run.ledger.changing():
                for id in part:
                    run.ledger.record(run.match_rows(versions.get(id, {}), run.ledger.versions_of(id))[1])

    def send(self) -> None:
        """Write segments of the versions that were not sent yet, then copy missing segments into the folder."""
        run, ledger = self._run, self._run.ledger
        make_private(run.own_folder)
        segments = run.own_segments()
        generation = max([ledger.generation, *(number[0] for number in segments)])
        while not run.should_stop():
            run.ports.upkeep.yield_to_requests()
            versions, purges = ledger.to_send(SENT_AT_ONCE), ledger.purges_to_send()
            begins = bool(segments) and generation not in {number[0] for number in segments}
            if not versions and not purges and not begins:
                break
            lines, names = self._lines(versions)
            own_projects = run.ports.projects.all()
            projects = {shared: shared_aliases(own_projects.get(id, ())) for id, shared in run.device.projects.items()}
            content = "\n".join([about_line(run.ports.clock.now(), projects), *purges, *lines]).encode()
            last = max((number[1] for number in segments if number[0] == generation), default=0)
            self._close_segment((generation, last + 1), content)
            segments.add((generation, last + 1))
            with ledger.changing():
                ledger.mark_sent(names)
                ledger.mark_purges_sent(purges)
            run.result.sent += len(names)
        self._publish(segments, generation)

    def _lines(self, versions: Sequence[LedgerRow]) -> tuple[list[str], list[str]]:
        """Return the lines of the first of these versions that fit a segment, and their names."""
        stored = stored_versions(self._run.store, {version.id for version in versions}) if versions else {}
        lines: list[str] = []
        size = 0
        for version in versions:
            memory = stored.get(version.id, {}).get(version.number)
            if memory is None:
                raise LedgerMismatch(f"version {version.number} of {version.id} is not in the store")
            line = version_line(shared_fields(memory, self._run.device.projects), version.hint, version.parents)
            size += len(line)
            if lines and size > SEGMENT_TEXT:
                break
            lines.append(line)
        return lines, [version.name for version in versions[: len(lines)]]

    def _close_segment(self, number: SegmentNumber, content: bytes) -> None:
        run, key = self._run, self._run.members.key_to_write()
        before = sealing.digest(run.own_file((number[0], number[1] - 1))) if number[1] > 1 else ""
        head: dict[str, Json] = {
            **{"kind": "segment", "device": run.device.device, "generation": number[0], "number": number[1]},
            **{"before": before, "key": key, "salt": run.ports.new_token()},
        }
        file = sealing.seal_file(head, content, key=run.members.keys[key], signer=run.device.keys.signer)
        write_atomic(run.own_path(number), file)

    def _publish(self, segments: set[SegmentNumber], generation: int) -> None:
        """Copy the segments of a generation into the folder; once all is sent, delete those of older generations."""
        run, device = self._run, self._run.device.device
        in_folder = run.listing.segments.setdefault(device, set())
        for number in sorted(number for number in segments if number[0] == generation and number not in in_folder):
            run.folder.write(segment_name(device, number), run.own_file(number))
            in_folder.add(number)
        if run.ledger.count_to_send():
            return
        for number in sorted(number for number in {*segments, *in_folder} if number[0] < generation):
            if number in in_folder:  # the new generation replaces it
                run.folder.remove(segment_name(device, number))
                in_folder.discard(number)
            with contextlib.suppress(OSError):
                remove_durably(run.own_path(number))
