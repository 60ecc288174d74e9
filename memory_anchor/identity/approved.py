"""The approved texts of one project, stored outside it, and the trail of approvals inside it.

An `Archive` stores every approved text as a numbered file (0600), sealed by the approver's key over project, number and
text. L0 serves the newest valid one; the older ones are its backups. The trail (`.ai/proposals/approved.yaml`, in Git)
is a chain of signed links, each naming its predecessor, by which a colleague's machine recognises that the text it just
pulled was approved by somebody it knows. A link counts only as a continuation of the link that is served now, so
neither an older approval nor another project's can be replayed.

Older texts are signed too, so a signature alone does not prove that a text is the newest. Each sealed text is numbered
and names the previous seal, the newest is also stored next to the store (the head), and the audit trail records every
number: if the newest is removed, that is reported, and older ones are not served.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path

import yaml

from memory_anchor.base import nofollow
from memory_anchor.base.bounded_yaml import LOADER
from memory_anchor.base.bounded_yaml import check as check_yaml
from memory_anchor.base.files import file_lock, make_private, move_aside, read_bounded, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.domain.ports import AuditRecord
from memory_anchor.identity.constitution_text import MAX_BYTES
from memory_anchor.identity.keys import Approver, Signer, digest_of, signer_of
from memory_anchor.identity.statements import Approved, Bound, Sealed, text_digest
from memory_anchor.language.safe_regex import late

TRAIL_FILE = "approved.yaml"
INDEX_FILE = "initialised.json"
HEADS = "constitution-heads"
"""Folder in the data folder with a copy of each project's newest sealed text, away from the archive itself."""
FIRST = "0" * 64
"""The previous id in the first sealed text of a project."""
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
"""Names in the folder that are read; the head has the newest text even if a flood of files hides it."""
JUMP = 16
"""How far a recorded number may exceed the previous one: kills leave small gaps, a forged record a large one."""
REVISION_FILE = late(r"[0-9]{6}\.json")
MAX_NUMBER = 999_999
"""The largest number that fits a file's name; a record with a larger one is no approval."""


@dataclass(frozen=True, slots=True)
class Link:
    """One approval in the trail. digest: of the served content; previous: id of the previous link, "" for the first."""

    digest: str
    previous: str
    proposal: str
    by: str
    at: str
    signature: str

    @property
    def statement(self) -> dict[str, Json]:
        return self.approved().record()

    @property
    def id(self) -> str:
        return digest_of(self.statement)

    def approved(self) -> Approved:
        return Approved(self.digest, self.previous, self.proposal, self.by, self.at)


def sign_link(signer: Signer, *, digest: str, previous: str, proposal: str, by: str, at: str) -> Link:
    """Return a signed link."""
    unsigned = Link(digest, previous, proposal, by, at, "")
    return replace(unsigned, signature=signer.seal(unsigned.approved()))


@dataclass(frozen=True, slots=True)
class SealedRevision:
    """One approved text. applied: ids of all proposals applied so far, newest last.

    previous: hash of the previous seal, `FIRST` for the first, "" in texts of versions without this chain.
    approval: of a text that approvers sealed over HTTP in an earlier version (`joint_seals`), theirs as JSON.
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

    def statement(self, project: str) -> dict[str, Json]:
        return self.sealed(project).record()

    def sealed(self, project: str) -> Sealed:
        return Sealed(self.previous, project, self.number, text_digest(self.text), self.link.id, self.applied)


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The newest text of an archive. sound: its seal is valid. damaged: numbers of newer files whose seal is not.

    missing: whether only the head still has it. why_older: why it may not be the newest, "" if it is.
    """

    revision: SealedRevision | None
    sound: bool = True
    damaged: tuple[int, ...] = ()
    missing: bool = False
    why_older: str = ""

    @property
    def good(self) -> SealedRevision | None:
        """The text that may be served and changed."""
        return self.revision if self.sound and not self.why_older else None


Joint = Callable[[SealedRevision, Sequence[Approver], str], bool]


class Archive:
    """The sealed texts of one project: files `NNNNNN.json` in `<home>/approved`, the newest also in `HEADS`.

    recorded: returns the numbers of this archive in the audit trail; called when the files changed. joint: see
    `joint_seals.jointly_sealed`.
    """

    def __init__(self, home: Path, recorded: Callable[[], Sequence[int]], *, joint: Joint) -> None:
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
        """Return the newest validly sealed text; if there is none, the newest readable one, marked unsound.

        keys: the installation's (the one in place and the first), the only ones that seal here.
        """
        head = self._bytes(self.head_path)
        names = self._names_to_read(_revision(head))
        stamps = tuple((name, _stamp(self._path(name))) for name in names)
        key = (stamps, head, tuple(keys))
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._assess(names, _revision(head), keys))
        return self._cached[1]

    def _names_to_read(self, head: SealedRevision | None) -> list[str]:
        """Return the names to read: the newest ones, and those up to the head's number.

        So planted files with higher numbers hide none of ours.
        """
        names = self._names()
        up_to_head = [name for name in names if head is not None and int(name) <= head.number + 1]
        return sorted({*names[-REVISIONS_TRIED:], *up_to_head[-REVISIONS_TRIED:]})

    def put(
        self, signer: Signer, *, text: str, link: Link, applied: Sequence[str], keys: Sequence[Approver] = ()
    ) -> SealedRevision:
        """Seal and store a text as the newest, durable on return. keys: the installation's, as for `current`."""
        keys = (signer.approver, *keys)
        state = self.current(keys)
        number, previous = self._next_number(state)
        bare = SealedRevision(number, text, link, tuple(applied)[-MAX_APPLIED:], "", previous)
        sealed = replace(bare, seal=signer.seal(bare.sealed(self.home.name)))
        for folder in (self.home, self._folder, self.head_path.parent):
            move_aside(folder, folder=True)
            make_private(folder)
        move_aside(self.head_path)
        self.restore_missing(state)
        # The head first: after a kill between the two it has the newest, and none looks removed.
        write_atomic(self.head_path, _content(sealed))
        write_atomic(self._path(f"{sealed.number:06d}"), _content(sealed))
        return sealed

    def _next_number(self, state: ArchiveState) -> tuple[int, str]:
        """Return the number of the next text and the id of its predecessor."""
        sealed_last = state.revision.number if state.revision and state.sound else 0
        number = max(sealed_last, last_plausible(self._recorded(), after=sealed_last)) + 1
        while os.path.lexists(self._path(f"{number:06d}")):  # planted, damaged or left by a kill: kept as evidence
            number += 1
        return number, state.revision.id if state.revision and state.sound else FIRST

    def restore_missing(self, state: ArchiveState) -> None:
        """Restore the newest text, which only the head still has, in the archive."""
        if state.missing and state.revision is not None:
            move_aside(self._path(f"{state.revision.number:06d}"))
            write_atomic(self._path(f"{state.revision.number:06d}"), _content(state.revision))

    def faults(self, known: Sequence[Approver]) -> Iterator[str]:
        """Yield a sentence for every deviation from what was approved: gaps, seals, chain, head, numbers."""
        revisions: dict[int, SealedRevision] = {}
        names, unsealed = self._names(), 0
        for name in names:
            revision = self._read(name)
            if revision is None or not self._is_sealed(revision, known):
                unsealed += 1
                if unsealed <= FAULTS_SHOWN:
                    yield f"approved text {int(name)} is damaged or carries no known approver's seal"
            else:
                revisions[revision.number] = revision
        if unsealed > FAULTS_SHOWN:
            yield f"{unsealed} files of {self._folder} are damaged or carry no known approver's seal; delete them"
        if links := [path for path in (self.home, self._folder, self.head_path.parent) if path.is_symlink()]:
            yield f"{links[0]} is a link; the approved texts lie in folders of their own"
        head = _revision(self._bytes(self.head_path))
        if head is None and os.path.lexists(self.head_path):
            yield f"the head {self.head_path} cannot be read as an approved text"
        sealed = head is not None and self._is_sealed(head, known)
        if head is not None and not sealed:
            yield f"the head {self.head_path} carries no known approver's seal"
        newest = max((0, *revisions, head.number if head is not None and sealed else 0))
        newest = max(newest, last_plausible(self._recorded(), after=newest))
        accounted_for = set(map(int, names)) | _skipped_numbers(revisions)
        for number in islice((n for n in range(1, newest + 1) if n not in accounted_for), FAULTS_SHOWN):
            yield f"approved text {number} of {newest} is gone"
        for number, revision in sorted(revisions.items()):
            earlier = revisions.get(number - 1)
            if revision.previous and earlier is not None and revision.previous not in (earlier.id, FIRST):
                yield f"approved text {number} does not follow on approved text {number - 1}"
        if sealed and head is not None and head.number < newest:
            yield f"the head {self.head_path} holds approved text {head.number}, the newest is {newest}"
        if not sealed and any(revision.previous for revision in revisions.values()):
            yield f"the head {self.head_path}, which holds the newest approved text, is gone or unreadable"

    def _assess(self, names: Sequence[str], head: SealedRevision | None, keys: Sequence[Approver]) -> ArchiveState:
        readable: SealedRevision | None = head
        newest_file: SealedRevision | None = None
        damaged: list[int] = []
        for name in reversed(names):
            revision = self._read(name)
            if revision and self._is_sealed(revision, keys):
                newest_file = revision
                break
            readable = readable or revision
            damaged.append(int(name))
        sealed_head = head if head and self._is_sealed(head, keys) else None
        newest = max(filter(None, (newest_file, sealed_head)), key=lambda revision: revision.number, default=None)
        if newest is None:
            return ArchiveState(readable, False, tuple(damaged))
        why_older = ""
        # A text of a version without heads gets one at the next approval; all others were sealed with their head.
        if sealed_head is None and newest.previous and max(self._recorded(), default=0) != newest.number:
            why_older = (
                f"the head {self.head_path}, which holds the newest approved text, is gone or does not carry the seal"
            )
        recorded = last_plausible(self._recorded(), after=newest.number)
        if newest.previous and recorded > newest.number:
            why_older = f"the audit trail tells of approved text {recorded}, the newest that is left is {newest.number}"
        damaged = [number for number in damaged if number >= newest.number]
        return ArchiveState(newest, True, tuple(damaged), newest is sealed_head and newest != newest_file, why_older)

    def _is_sealed(self, revision: SealedRevision, keys: Sequence[Approver]) -> bool:
        if signer_of(keys, revision.statement(self.home.name), revision.seal) is not None:
            return True
        return bool(revision.approval) and self._joint(revision, keys, self.home.name)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._folder) as files:
                names = [file.name for file in islice(files, MAX_LISTED)]
        except OSError:
            return []
        return sorted(name.removesuffix(".json") for name in names if REVISION_FILE.fullmatch(name))

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


def _skipped_numbers(revisions: Mapping[int, SealedRevision]) -> set[int]:
    """Return the numbers between two texts of which the later names the earlier as its predecessor.

    An invented number in the audit trail is skipped in this way at the next approval.
    """
    joined = [
        (earlier, later)
        for earlier, later in pairwise(sorted(revisions))
        if revisions[later].previous == revisions[earlier].id
    ]
    return {number for earlier, later in joined for number in range(earlier + 1, later)}


def numbers_of(records: Iterable[AuditRecord], archive: str) -> list[int]:
    """Return the numbers of one archive's approved texts in the audit records."""
    numbers = []
    for record in records:
        fields = record["what"] if str(record["kind"]).startswith("constitution.") else {}
        number = fields.get("approved")
        if fields.get("archive", fields.get("project")) == archive and type(number) is int and 0 < number <= MAX_NUMBER:
            numbers.append(number)
    return numbers


def last_plausible(numbers: Iterable[int], *, after: int) -> int:
    """Return the highest number reached from `after` without a large jump: anybody could append a false record."""
    last = after
    for number in sorted(set(numbers)):
        if number <= last + JUMP:
            last = max(last, number)
    return last


def took_effect_elsewhere(records: Iterable[AuditRecord], *, proposal: str, archive: str) -> bool:
    """Return whether, by the audit trail, a proposal took effect only in other projects of this machine."""
    kinds = ("constitution.effective", "constitution.accepted")
    effective = [record["what"] for record in records if record["kind"] in kinds]
    archives = {
        fields.get("archive", fields.get("project")) for fields in effective if fields.get("proposal") == proposal
    }
    return bool(archives) and archive not in archives


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_mode, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _revision(content: bytes) -> SealedRevision | None:
    """Return the sealed text that a file claims to be, None if it is no such file."""
    try:
        fields = json.loads(content)
        link = Link(**{part: str(value) for part, value in fields["link"].items()})
        applied = tuple(str(proposal_id) for proposal_id in fields["applied"])
        optional = str(fields.get("previous", "")), str(fields.get("approval", ""))
        return SealedRevision(int(fields["number"]), str(fields["text"]), link, applied, str(fields["seal"]), *optional)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _content(revision: SealedRevision) -> bytes:
    return json.dumps(asdict(revision), ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")


class SealedIndex:
    """The folders that were ever initialised, so that a project cannot become new by losing its id or its file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX_FILE

    def home_of(self, path: str, keys: Sequence[Approver]) -> str | None:
        """Return the project whose texts were sealed for `path`, by a valid signature; None without one."""
        name, signature = self._read().get(path, ("", ""))
        return name if name and signer_of(keys, Bound(path, name).record(), signature) else None

    def holds(self, name: str, path: str) -> bool:
        """Return whether the project or the path was ever initialised, signed or not."""
        entries = self._read()
        return path in entries or any(name == project for project, _ in entries.values())

    def add(self, path: str, name: str, signer: Signer | None) -> None:
        """Remember that `path` belongs to the project `name`. signer: if None, it only counts as initialised."""
        known_name, signature = self._read().get(path, ("", ""))
        if known_name == name and (signer is None or signer.approver.signed(Bound(path, name).record(), signature)):
            return
        with file_lock(self._path.with_suffix(".lock")):
            entries = self._read() | {path: (name, signer.seal(Bound(path, name)) if signer else "")}
            record = {
                folder: {"project": project, "signature": by} if by else project
                for folder, (project, by) in entries.items()
            }
            write_atomic(self._path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())

    def _read(self) -> dict[str, tuple[str, str]]:
        try:
            stored = json.loads(read_bounded(self._path, most_bytes=MAX_INDEX_BYTES) or b"{}")
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(stored, dict):
            return {}
        entries = {folder: entry if isinstance(entry, dict) else {"project": entry} for folder, entry in stored.items()}
        return {
            folder: (str(entry.get("project") or ""), str(entry.get("signature") or ""))
            for folder, entry in entries.items()
        }


# --- the trail in the project ----------------------------------------------------------------------------------


def read_trail(folder: Path) -> list[Link]:
    """Return the links that can be read, in order; a broken or conflicted file is an empty trail."""
    try:
        content = nofollow.read(*_below_project(folder), most_bytes=MAX_TRAIL_BYTES) or b""
        text = content.decode("utf-8")
        check_yaml(text, most_nodes=MAX_LINKS * NODES_A_LINK)
        record = yaml.load(text, Loader=LOADER)  # noqa: S506 - strings only, no objects
        return [Link(**{part: _plain(value) for part, value in link.items()}) for link in record["links"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return []


def write_trail(folder: Path, *, head: Link | None, new: Link) -> None:
    """Append `new` after `head`; other links after `head` are dropped.

    head: None for a first approval, which starts its own chain after the existing links.
    """
    trail = read_trail(folder)
    ids = [link.id for link in trail]
    if new.id in ids:
        return
    if head is None:
        kept = trail
    elif head.id in ids:
        kept = trail[: ids.index(head.id) + 1]
    else:
        kept = [head]
    record: Mapping[str, Json] = {"links": [asdict(link) for link in [*kept, new][-MAX_LINKS:]]}
    text = "# 每次生效的批准，由批准者签名；随 constitution.yaml 一起提交。\n"
    text += "# Every approval that took effect, signed by its approver; commit it with constitution.yaml.\n"
    text += yaml.safe_dump(record, allow_unicode=True, sort_keys=False)
    nofollow.write(*_below_project(folder), text.encode())


def _below_project(folder: Path) -> tuple[Path, str]:
    """Return the project and the trail's path in it: links below the project are not followed."""
    root = folder.parent.parent
    return root, (folder / TRAIL_FILE).relative_to(root).as_posix()


def continuation(trail: Sequence[Link], *, after: Link, digest: str, known: Sequence[Approver]) -> Link | None:
    """Return the last link that leads from `after` to a text with `digest`, every step signed by a known approver."""
    previous, last = after.id, None
    ids = [link.id for link in trail]
    start = ids.index(after.id) + 1 if after.id in ids else 0
    for link in trail[start:]:
        if link.previous != previous or signer_of(known, link.statement, link.signature) is None:
            break
        previous = link.id
        if link.digest == digest:
            last = link
    return last


def later_own_link(trail: Sequence[Link], *, after: Link, keys: Sequence[Approver]) -> Link | None:
    """Return the link after `after` that our own keys signed: a later text was approved."""
    next_links = (link for link in trail if link.previous == after.id)
    return next((link for link in next_links if signer_of(keys, link.statement, link.signature)), None)


def origin_of(trail: Sequence[Link], *, link: Link, known: Sequence[Approver]) -> str:
    """Return the id of the first link that leads to `link`, every step signed by a known approver, "" when none does.

    So a trail that was copied over from another project, which does not lead to the text in force here, names nothing.
    """
    links = {step.id: step for step in trail}
    current = links.get(link.id)
    for _ in trail:
        if current is None or signer_of(known, current.statement, current.signature) is None:
            break
        if not current.previous:
            return current.id
        current = links.get(current.previous)
    return ""


def _plain(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("a link's part is not text")
    return value
