"""The approved texts of one project, outside it, and the trail of approvals inside it.

Two things with two jobs. An `Archive` keeps every approved text as a numbered file (0600), sealed by the approver's key
over project, number and text; the newest sound one is what L0 serves, the older ones are its backups. The trail
(`.ai/proposals/approved.yaml`, in Git) is a chain of signed links, each naming its predecessor, by which a colleague's
machine recognises that the text it just pulled was approved by somebody it knows. A link counts only as a continuation
of the link one serves now, so neither an older approval nor another project's can be replayed.

An older text is signed as well, so a signature alone does not say that it is the last one. Each sealed text is numbered
and names the seal before it, a copy of the newest lies beside the store (the head), and the audit trail records every
number: whoever takes the newest away is named, and what is left is not served.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

import yaml

from memory_anchor import beneath
from memory_anchor.bounded_yaml import LOADER
from memory_anchor.bounded_yaml import check as check_yaml
from memory_anchor.errors import Refused
from memory_anchor.files import file_lock, make_private, move_aside, read_bounded, write_atomic
from memory_anchor.identity.constitution_text import MAX_BYTES
from memory_anchor.identity.keys import Approver, Signs, digest_of, signed_by, signer_of
from memory_anchor.json_values import Json
from memory_anchor.ports import AuditRecord

TRAIL_FILE = "approved.yaml"
INDEX_FILE = "initialised.json"
HEADS = "constitution-heads"
"""Folder of the data folder with a copy of each project's newest sealed text, away from the archive itself."""
FIRST = "0" * 64
"""What the first sealed text of a project names as the one before it."""
MAX_LINKS = 200
NODES_A_LINK = 20
MAX_APPLIED = 1_000
MAX_REVISION_BYTES = 8 * MAX_BYTES
"""JSON may escape a character into six bytes."""
MAX_TRAIL_BYTES = 400_000
MAX_INDEX_BYTES = 4_000_000
REVISIONS_TRIED = 20
"""How many older texts are tried when newer ones are damaged."""
FAULTS_SHOWN = 20
MAX_LISTED = 20_000
"""Names in the folder that are looked at; the head holds the newest text whatever a flood hides."""
JUMP = 16
"""How far a recorded number may lie above the one before: kills leave small gaps, a forged record a large one."""
REVISION_FILE = re.compile(r"[0-9]{6}\.json")
MAX_NUMBER = 999_999
"""The last number a file's name can hold; what claims more is no approval."""


@dataclass(frozen=True, slots=True)
class Link:
    """One approval in the trail. digest: of what is served by it; previous: id of the link before, "" for the first."""

    digest: str
    previous: str
    proposal: str
    by: str
    at: str
    signature: str

    @property
    def said(self) -> dict[str, Json]:
        parts = {name: value for name, value in asdict(self).items() if name != "signature"}
        return {"what": "memory-anchor approved 1", **parts}

    @property
    def id(self) -> str:
        return digest_of(self.said)


def linked(signer: Signs, *, digest: str, previous: str, proposal: str, by: str, at: str) -> Link:
    """Return a signed link."""
    link = Link(digest, previous, proposal, by, at, "")
    return Link(digest, previous, proposal, by, at, signer.sign(link.said))


@dataclass(frozen=True, slots=True)
class SealedRevision:
    """One approved text. applied: ids of the proposals that made it and those before it, newest last.

    previous: hash of the seal before, `FIRST` for the first, "" in texts of versions that had no such chain.
    approval: where approvers elsewhere sealed it, the proposal with their confirmations, as JSON.
    """

    number: int
    text: str
    link: Link
    applied: tuple[str, ...]
    seal: str
    previous: str = ""
    approval: str = ""

    @property
    def id(self) -> str:
        return hashlib.sha256(self.seal.encode()).hexdigest()

    def said(self, project: str) -> dict[str, Json]:
        chained = {"what": "memory-anchor sealed text 2", "previous": self.previous}
        return {
            **(chained if self.previous else {"what": "memory-anchor sealed text 1"}),
            "project": project,
            "number": self.number,
            "text": hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest(),
            "link": self.link.id,
            "applied": list(self.applied),
        }


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What the archive has. sound: the seal of `revision` is good. damaged: numbers of newer files that are not.

    missing: whether only the head still holds it. behind: why it may not be the newest, "" when it is.
    """

    revision: SealedRevision | None
    sound: bool = True
    damaged: tuple[int, ...] = ()
    missing: bool = False
    behind: str = ""

    @property
    def good(self) -> SealedRevision | None:
        """The text that may be served and built on."""
        return self.revision if self.sound and not self.behind else None


Joint = Callable[[SealedRevision, Sequence[Approver], str], bool]


class Archive:
    """The sealed texts of one project: files `NNNNNN.json` in `<home>/approved`, the newest once more in `HEADS`.

    recorded: the numbers of this archive that the audit trail knows; asked when the files changed. joint: whether
    enough approvers elsewhere sealed a text together, by the installation's keys and the archive's name.
    """

    def __init__(
        self, home: Path, recorded: Callable[[], Sequence[int]] = tuple, *, joint: Joint = lambda *_: False
    ) -> None:
        self.home = home
        self._joint = joint
        self.head_path = home.parent.parent / HEADS / f"{home.name}.json"
        self._recorded = recorded
        self._folder = home / "approved"
        self._cached: tuple[tuple[object, ...], ArchiveState] | None = None

    def exists(self) -> bool:
        """Return whether anything was ever approved here."""
        return bool(self._names()) or self.head_path.exists()

    def current(self, keys: Sequence[Approver]) -> ArchiveState:
        """Return the newest sound text; where none is, the newest that can be read at all, marked unsound.

        keys: those of this installation, which alone seal here: the one in place and the first.
        """
        head = self._bytes(self.head_path)
        names = self._tried(_revision(head))
        stamps = tuple((name, _stamp(self._path(name))) for name in names)
        key = (stamps, head, tuple(keys))
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._weigh(names, _revision(head), keys))
        return self._cached[1]

    def _tried(self, head: SealedRevision | None) -> list[str]:
        """Return the names that are looked at: the newest ones, and those around the head's number.

        So files with higher numbers, which anybody may plant, hide none of ours.
        """
        names = self._names()
        upto = [one for one in names if head is not None and int(one) <= head.number + 1]
        return sorted({*names[-REVISIONS_TRIED:], *upto[-REVISIONS_TRIED:]})

    def put(
        self,
        signer: Signs,
        *,
        text: str,
        link: Link,
        applied: Sequence[str],
        keys: Sequence[Approver] = (),
        approval: str = "",
    ) -> SealedRevision:
        """Seal and keep a text as the newest, durable on return. keys: the installation's, as for `current`.

        approval: see `SealedRevision`. Raises Refused: the seal would not count here; nothing was kept.
        """
        keys = keys if approval else (signer.approver, *keys)
        before = self.current(keys)
        sealed = self.sealed(signer, text=text, link=link, applied=applied, keys=keys, approval=approval)
        for folder in (self.home, self._folder, self.head_path.parent):
            move_aside(folder, folder=True)
            make_private(folder)
        move_aside(self.head_path)
        self.mend(before)
        # The head first: a kill between the two leaves the newest in it, and none looks taken away.
        write_atomic(self.head_path, _content(sealed))
        write_atomic(self._path(f"{sealed.number:06d}"), _content(sealed))
        return sealed

    def sealed(
        self, signer: Signs, *, text: str, link: Link, applied: Sequence[str], keys: Sequence[Approver], approval: str
    ) -> SealedRevision:
        """Return a text as it would be sealed next. Raises Refused: the seal would not count here."""
        number, previous = self.coming(keys)
        bare = SealedRevision(number, text, link, tuple(applied)[-MAX_APPLIED:], "", previous, approval)
        sealed = replace(bare, seal=signer.sign(bare.said(self.home.name)))
        if self._is_sealed(sealed, keys):
            return sealed
        raise Refused(
            "the approvals so far do not seal this text together; a human confirms it on the server: "
            "`memory-anchor constitution approve`"
        )

    def coming(self, keys: Sequence[Approver]) -> tuple[int, str]:
        """Return the number of the next text and what it names as the one before it."""
        before = self.current(keys)
        sealed_last = before.revision.number if before.revision and before.sound else 0
        number = max(sealed_last, last_of(self._recorded(), after=sealed_last)) + 1
        while os.path.lexists(self._path(f"{number:06d}")):  # planted, damaged or of a kill: kept for who looks
            number += 1
        return number, before.revision.id if before.revision and before.sound else FIRST

    def mend(self, standing: ArchiveState) -> None:
        """Put the newest text, which only the head still holds, back into the archive."""
        if standing.missing and standing.revision is not None:
            move_aside(self._path(f"{standing.revision.number:06d}"))
            write_atomic(self._path(f"{standing.revision.number:06d}"), _content(standing.revision))

    def faults(self, known: Sequence[Approver]) -> Iterator[str]:
        """Yield a sentence for everything that is not as the approvals left it: gaps, seals, chain, head, numbers."""
        revisions: dict[int, SealedRevision] = {}
        names, wrong = self._names(), 0
        for name in names:
            revision = self._read(name)
            if revision is None or not self._is_sealed(revision, known):
                wrong += 1
                if wrong <= FAULTS_SHOWN:
                    yield f"approved text {int(name)} is damaged or carries no known approver's seal"
            else:
                revisions[revision.number] = revision
        if wrong > FAULTS_SHOWN:
            yield f"{wrong} files of {self._folder} are damaged or carry no known approver's seal; delete them"
        if odd := [one for one in (self.home, self._folder, self.head_path.parent) if one.is_symlink()]:
            yield f"{odd[0]} is a link; the approved texts lie in folders of their own"
        head = _revision(self._bytes(self.head_path))
        if head is None and os.path.lexists(self.head_path):
            yield f"the head {self.head_path} cannot be read as an approved text"
        sealed = head is not None and self._is_sealed(head, known)
        if head is not None and not sealed:
            yield f"the head {self.head_path} carries no known approver's seal"
        newest = max((0, *revisions, head.number if head is not None and sealed else 0))
        newest = max(newest, last_of(self._recorded(), after=newest))
        there = set(map(int, names)) | _never_there(revisions)
        for number in islice((one for one in range(1, newest + 1) if one not in there), FAULTS_SHOWN):
            yield f"approved text {number} of {newest} is gone"
        for number, revision in sorted(revisions.items()):
            before = revisions.get(number - 1)
            if revision.previous and before is not None and revision.previous not in (before.id, FIRST):
                yield f"approved text {number} does not follow on approved text {number - 1}"
        if sealed and head is not None and head.number < newest:
            yield f"the head {self.head_path} holds approved text {head.number}, the newest is {newest}"
        if not sealed and any(one.previous for one in revisions.values()):
            yield f"the head {self.head_path}, which holds the newest approved text, is gone or unreadable"

    def _weigh(self, names: Sequence[str], head: SealedRevision | None, keys: Sequence[Approver]) -> ArchiveState:
        readable: SealedRevision | None = head
        found: SealedRevision | None = None
        damaged: list[int] = []
        for name in reversed(names):
            revision = self._read(name)
            if revision and self._is_sealed(revision, keys):
                found = revision
                break
            readable = readable or revision
            damaged.append(int(name))
        noted = head if head and self._is_sealed(head, keys) else None
        newest = max((one for one in (found, noted) if one), key=lambda one: one.number, default=None)
        if newest is None:
            return ArchiveState(readable, False, tuple(damaged))
        behind = ""
        # A text of a version without heads has none until the next approval; any other was sealed together with it.
        if noted is None and newest.previous and max(self._recorded(), default=0) != newest.number:
            behind = (
                f"the head {self.head_path}, which holds the newest approved text, is gone or does not carry the seal"
            )
        told = last_of(self._recorded(), after=newest.number)
        if newest.previous and told > newest.number:
            behind = f"the audit trail tells of approved text {told}, the newest that is left is {newest.number}"
        damaged = [number for number in damaged if number >= newest.number]
        return ArchiveState(newest, True, tuple(damaged), newest is noted and newest != found, behind)

    def _is_sealed(self, revision: SealedRevision, keys: Sequence[Approver]) -> bool:
        if signer_of(keys, revision.said(self.home.name), revision.seal) is not None:
            return True
        return bool(revision.approval) and self._joint(revision, keys, self.home.name)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._folder) as found:
                return sorted(one.name[:-5] for one in islice(found, MAX_LISTED) if REVISION_FILE.fullmatch(one.name))
        except OSError:
            return []

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _bytes(self, path: Path) -> bytes:
        try:
            return read_bounded(path, most_bytes=MAX_REVISION_BYTES) or b""
        except OSError:
            return b""

    def _read(self, name: str) -> SealedRevision | None:
        revision = _revision(self._bytes(self._path(name)))
        return revision if revision is not None and revision.number == int(name) else None


def _never_there(revisions: Mapping[int, SealedRevision]) -> set[int]:
    """Return the numbers between two texts of which the later one was sealed as the next after the earlier.

    A number that somebody made up in the audit trail is passed over like this when a human approves anew.
    """
    joined = [(one, two) for one, two in pairwise(sorted(revisions)) if revisions[two].previous == revisions[one].id]
    return {number for one, two in joined for number in range(one + 1, two)}


def numbers_of(records: Iterable[AuditRecord], archive: str) -> list[int]:
    """Return the numbers of approved texts that audit records tell of one archive."""
    found = []
    for told in records:
        what = told["what"] if str(told["kind"]).startswith("constitution.") else {}
        number = what.get("approved")
        if what.get("archive", what.get("project")) == archive and type(number) is int and 0 < number <= MAX_NUMBER:
            found.append(number)
    return found


def last_of(numbers: Iterable[int], *, after: int) -> int:
    """Return the highest recorded number that the ones before lead up to: a record is no seal, and anybody appends."""
    last = after
    for number in sorted(set(numbers)):
        if number <= last + JUMP:
            last = max(last, number)
    return last


def made_elsewhere(records: Iterable[AuditRecord], *, proposal: str, archive: str) -> bool:
    """Return whether the audit trail has a proposal take effect in other projects of this machine, and not in this."""
    taken = [one["what"] for one in records if one["kind"] in ("constitution.effective", "constitution.accepted")]
    places = {one.get("archive", one.get("project")) for one in taken if one.get("proposal") == proposal}
    return bool(places) and archive not in places


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _revision(content: bytes) -> SealedRevision | None:
    """Return what a sealed text's file claims, None when it is no such file."""
    try:
        said = json.loads(content)
        link = Link(**{part: str(value) for part, value in said["link"].items()})
        applied = tuple(str(one) for one in said["applied"])
        more = str(said.get("previous", "")), str(said.get("approval", ""))
        return SealedRevision(int(said["number"]), str(said["text"]), link, applied, str(said["seal"]), *more)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _content(revision: SealedRevision) -> bytes:
    return json.dumps(asdict(revision), ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")


class SealedIndex:
    """Which folders were ever initialised, so that a project cannot become new by losing its id or its file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX_FILE

    def home_of(self, path: str, keys: Sequence[Approver]) -> str | None:
        """Return the project whose texts were sealed for `path`; a bare name, which anybody writes, leads nowhere."""
        name, signature = self._read().get(path, ("", ""))
        return name if name and signer_of(keys, _bound(path, name), signature) else None

    def holds(self, name: str, path: str) -> bool:
        """Return whether the project or the path was ever initialised, by anybody's word."""
        found = self._read()
        return path in found or any(name == one for one, _ in found.values())

    def add(self, path: str, name: str, signer: Signs | None) -> None:
        """Remember that `path` belongs to the project `name`. signer: without, it only counts as initialised."""
        there, signature = self._read().get(path, ("", ""))
        if there == name and (signer is None or signed_by(signer.approver.public, _bound(path, name), signature)):
            return
        with file_lock(self._path.with_suffix(".lock")):
            found = self._read() | {path: (name, signer.sign(_bound(path, name)) if signer else "")}
            said = {at: {"project": one, "signature": by} if by else one for at, (one, by) in found.items()}
            write_atomic(self._path, (json.dumps(said, indent=1, ensure_ascii=False) + "\n").encode())

    def _read(self) -> dict[str, tuple[str, str]]:
        try:
            found = json.loads(read_bounded(self._path, most_bytes=MAX_INDEX_BYTES) or b"{}")
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        listed = {at: one if isinstance(one, dict) else {"project": one} for at, one in found.items()}
        return {at: (str(one.get("project") or ""), str(one.get("signature") or "")) for at, one in listed.items()}


def _bound(path: str, name: str) -> dict[str, Json]:
    return {"what": "memory-anchor/folder of a project/1", "path": path, "project": name}


# --- the trail in the project ----------------------------------------------------------------------------------


def read_trail(folder: Path) -> list[Link]:
    """Return the links that can be read, in order; a broken or conflicted file is an empty trail."""
    try:
        content = beneath.read(*_below_project(folder), most_bytes=MAX_TRAIL_BYTES) or b""
        text = content.decode("utf-8")
        check_yaml(text, most_nodes=MAX_LINKS * NODES_A_LINK)
        listed = yaml.load(text, Loader=LOADER)  # noqa: S506 - strings only, no objects
        return [Link(**{part: _plain(value) for part, value in one.items()}) for one in listed["links"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return []


def write_trail(folder: Path, *, head: Link | None, new: Link) -> None:
    """Append `new` behind `head`; links behind `head` that are not ours to continue are dropped.

    head: None for a first approval, which starts a chain of its own behind whatever is there.
    """
    trail = read_trail(folder)
    ids = [one.id for one in trail]
    if new.id in ids:
        return
    if head is None:
        kept = trail
    elif head.id in ids:
        kept = trail[: ids.index(head.id) + 1]
    else:
        kept = [head]
    said: Mapping[str, Json] = {"links": [asdict(one) for one in [*kept, new][-MAX_LINKS:]]}
    text = "# 每次生效的批准，由批准者签名；随 constitution.yaml 一起提交。\n"
    text += "# Every approval that took effect, signed by its approver; commit it with constitution.yaml.\n"
    text += yaml.safe_dump(said, allow_unicode=True, sort_keys=False)
    beneath.write(*_below_project(folder), text.encode())


def _below_project(folder: Path) -> tuple[Path, str]:
    """Return the project and the trail's path in it: links below the project are not followed."""
    root = folder.parent.parent
    return root, (folder / TRAIL_FILE).relative_to(root).as_posix()


def continuation(trail: Sequence[Link], *, after: Link, digest: str, known: Sequence[Approver]) -> Link | None:
    """Return the last link that leads from `after` to a text with `digest`, every step signed by a known approver."""
    previous, found = after.id, None
    behind = [one.id for one in trail].index(after.id) + 1 if after.id in {one.id for one in trail} else 0
    for link in trail[behind:]:
        if link.previous != previous or signer_of(known, link.said, link.signature) is None:
            break
        previous = link.id
        if link.digest == digest:
            found = link
    return found


def advanced(trail: Sequence[Link], *, after: Link, keys: Sequence[Approver]) -> Link | None:
    """Return the trail's approval of our own keys behind `after`, which only a later text can have."""
    behind = (one for one in trail if one.previous == after.id)
    return next((one for one in behind if signer_of(keys, one.said, one.signature)), None)


def origin_of(trail: Sequence[Link], *, link: Link, known: Sequence[Approver]) -> str:
    """Return the id of the first link that leads to `link`, every step signed by a known approver, "" when none does.

    So a trail that was copied over from another project, which does not lead to the text in force here, names nothing.
    """
    links = {one.id: one for one in trail}
    at = links.get(link.id)
    for _ in trail:
        if at is None or signer_of(known, at.said, at.signature) is None:
            break
        if not at.previous:
            return at.id
        at = links.get(at.previous)
    return ""


def _plain(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("a link's part is not text")
    return value
