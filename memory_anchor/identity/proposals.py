"""Proposals to change L0: one readable YAML file each under `.ai/proposals/`, made to be reviewed in Git.

Anyone may write such a file; only signatures count. So nothing here trusts a file: a status or a confirmation in it is
a claim, and `approval.valid_confirmations` decides. A file is named after its id, read with a size limit, never through
a link (of the file or its folder), and an unreadable one is reported while the others stay usable.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath

import yaml

from memory_anchor.base import json_values, nofollow
from memory_anchor.base.bounded_yaml import LOADER
from memory_anchor.base.bounded_yaml import check as check_yaml
from memory_anchor.base.files import make_private, read_bounded, write_atomic
from memory_anchor.base.json_values import Json
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import Confirmation, Proposal, ProposalAction, ProposalStatus
from memory_anchor.domain.ports import AuditRecord
from memory_anchor.identity.approval import stamp
from memory_anchor.identity.constitution_text import MAX_BYTES
from memory_anchor.identity.keys import (
    MAX_CONFIRMATIONS_READ,
    REQUIRED_CONFIRMATIONS,
    Approver,
    Signer,
    canonical,
    signer_of,
)
from memory_anchor.identity.statements import Closed
from memory_anchor.language.safe_regex import late

FOLDER = Path(".ai") / "proposals"
PROPOSAL_ID = late(r"p-[0-9a-f]{10}")
MAX_OPEN = 50
"""More open proposals are refused, since nobody reviews a flood. A human with the passphrase has no such limit."""
REJECTED = "constitution.rejected"
"""The kind of the audit record of a rejection, with its signature."""
REJECTED_FILE = "rejected.json"
PARTS = ("id", "at", "signature")
CREDENTIAL = "credential"
"""Of a rejection that an earlier version took over HTTP: the signed record of the approver's access key."""
LOST_SHOWN = 3
MAX_REJECTED = 10_000
MAX_REJECTED_BYTES = 20_000_000
Voter = Callable[[str, str], Approver | None]
MAX_READ = 1_000
IMPORTED = "imported"
"""Folder of the data directory for what an import brought and no folder here takes."""
MAX_LISTED = 10_000
"""Names in the folder that are read."""
MAX_FILE_BYTES = MAX_BYTES + 100_000


@dataclass(frozen=True, slots=True)
class Rejection:
    by: str
    at: datetime
    reason: str
    signature: str


@dataclass(frozen=True, slots=True)
class ProposalFile:
    """What one file claims. before: digest of the text that its confirmations refer to."""

    proposal: Proposal
    before: str = ""
    rejection: Rejection | None = None


def new_id(proposal: Proposal, *, again: int = 0) -> str:
    """Return an id of 12 characters made of content, author and time; `again` gives other ids for the same."""
    statement = canonical(
        {
            "action": proposal.action.value,
            "content": proposal.content,
            "entry_id": proposal.entry_id,
            "by": proposal.proposed_by,
            "at": stamp(proposal.proposed_at),
            "again": again,
        }
    )
    return f"p-{hashlib.sha256(statement).hexdigest()[:10]}"


def as_json(proposal: Proposal) -> dict[str, Json]:
    """Return the proposal as tools and `--json` show it."""
    return {
        "proposal_id": proposal.id,
        "action": proposal.action.value,
        "entry_id": proposal.entry_id,
        "status": proposal.status.value,
        "confirmations": len(proposal.confirmations),
        "required": REQUIRED_CONFIRMATIONS,
        "reason": proposal.reason,
        "proposed_by": proposal.proposed_by,
        "proposed_at": stamp(proposal.proposed_at),
        "how_to_approve": how_to_approve(proposal),
    }


def how_to_approve(proposal: Proposal) -> str:
    left = REQUIRED_CONFIRMATIONS - len(proposal.confirmations)
    if proposal.status is not ProposalStatus.OPEN:
        return f"nothing to do: it is {proposal.status.value}"
    times = f"{left} more time{'s' if left > 1 else ''}"
    return f"a human runs `memory-anchor constitution approve {proposal.id}` on a terminal, {times}"


class RejectedProposals:
    """The rejected proposals of one project, recorded outside it: each signed, and recorded twice.

    They are in a list next to the archive and in the audit trail, so neither an editor nor `rm` reopens a proposal, and
    an unsigned claim of rejection closes none. records: the audit trail, read if a proposal looks open. voter: see
    `joint_seals`.
    """

    def __init__(self, home: Path, project: str, records: Callable[[str], Iterable[AuditRecord]], voter: Voter) -> None:
        self._path = home / REJECTED_FILE
        self._project = project
        self._records = records
        self._voter = voter

    def ids(self, known: Sequence[Approver], among: Container[str]) -> frozenset[str]:
        """Return the ids of `among` whose rejection here carries a known approver's signature."""
        return frozenset(
            entry["id"]
            for entry in (*self._listed(), *self._audited())
            if entry["id"] in among
            and signer_of(self._approvers_for(known, entry), self._statement(entry), entry["signature"])
        )

    def sign(self, signer: Signer, proposal_id: str, at: datetime) -> dict[str, str]:
        """Return a signed rejection as the audit trail and the list store it."""
        entry = {"id": proposal_id, "at": stamp(at)}
        return {**entry, "signature": signer.confirm(self._closed(entry))}

    def add(self, entry: Mapping[str, str]) -> None:
        """Store a rejection, and restore those that only the audit trail still has; durable on return."""
        rejections = {str(item): item for item in (*self._audited(), *self._listed(), *_entries([entry]))}
        make_private(self._path.parent)
        newest = [*rejections.values()][-MAX_REJECTED:]
        write_atomic(self._path, (json.dumps({"rejected": newest}, indent=1) + "\n").encode())

    def faults(self) -> Iterator[str]:
        """Yield a sentence if the audit trail has rejections that the list has lost."""
        listed, audited = {entry["id"] for entry in self._listed()}, {entry["id"] for entry in self._audited()}
        if missing := sorted(audited - listed)[:MAX_REJECTED]:
            yield (
                f"{self._path} lacks {len(missing)} of {len(audited)} rejections "
                f"({', '.join(missing[:LOST_SHOWN])}); they stay closed by the audit trail, and the next "
                "`memory-anchor constitution reject` writes them again"
            )

    def _approvers_for(self, known: Sequence[Approver], entry: Mapping[str, str]) -> Sequence[Approver]:
        voter = self._voter(entry[CREDENTIAL], entry["at"]) if CREDENTIAL in entry else None
        return known if voter is None else (voter,)

    def _statement(self, entry: Mapping[str, str]) -> dict[str, Json]:
        return self._closed(entry).record()

    def _closed(self, entry: Mapping[str, str]) -> Closed:
        return Closed(self._project, entry["id"], entry["at"])

    def _audited(self) -> list[dict[str, str]]:
        signed = (
            fields
            for item in self._records(REJECTED)
            if item["kind"] == REJECTED and "signature" in (fields := item["what"])
        )
        return _entries({**item, "id": item.get("proposal")} for item in signed if item.get("archive") == self._project)

    def _listed(self) -> list[dict[str, str]]:
        try:
            return _entries(json.loads(read_bounded(self._path, most_bytes=MAX_REJECTED_BYTES) or b"{}")["rejected"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []


def _entries(listed: Iterable[Json]) -> list[dict[str, str]]:
    entries = []
    for item in listed:
        fields = item if isinstance(item, dict) else {}
        parts = {name: part for name in PARTS if isinstance(part := fields.get(name), str)}
        if len(parts) == len(PARTS):
            credential = fields.get(CREDENTIAL)
            entries.append({**parts, CREDENTIAL: credential} if isinstance(credential, str) else parts)
    return entries


class ProposalFolder:
    """The folder of proposal files of one project."""

    def __init__(self, root: Path) -> None:
        """root: the project. No link below it is followed, for reading or writing."""
        self._root = root
        self.folder = root / FOLDER

    def read(self) -> tuple[list[ProposalFile], list[str]]:
        """Return the parsed files, oldest first, and one sentence for each unreadable file."""
        files: list[ProposalFile] = []
        problems: list[str] = []
        for path in self._paths():
            try:
                files.append(self._parse(path))
            except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
                problems.append(f"{path.name} is not a readable proposal ({type(error).__name__}); mend or delete it")
        return sorted(files, key=lambda file: (file.proposal.proposed_at, file.proposal.id)), problems

    def find(self, proposal_id: str) -> ProposalFile:
        """Return one proposal's file.

        Raises NotFound: no such file. BadInput: it cannot be read.
        """
        path = self.folder / f"{proposal_id}.yaml"
        if not PROPOSAL_ID.fullmatch(proposal_id) or path not in self._paths():
            names = ", ".join(file.stem for file in self._paths()[:MAX_OPEN]) or "none"
            raise NotFound(f"proposal is {proposal_id[:40]!r}; the proposals are {names}")
        try:
            return self._parse(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise BadInput(f"{path.name} is not a readable proposal; mend or delete it") from error

    def write(self, file: ProposalFile) -> None:
        """Replace the proposal's file, durable on return."""
        content = (
            f"# 修改 constitution.yaml 的提议；需要人在终端确认 {REQUIRED_CONFIRMATIONS} 次。改动本文件会清零确认。\n"
            f"# Proposed change of constitution.yaml: `memory-anchor constitution approve {file.proposal.id}`,\n"
            "# by a human on a terminal, three times. Editing this file resets its confirmations.\n"
        ) + yaml.dump(record_of(file), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)
        nofollow.write(self._root, FOLDER / f"{file.proposal.id}.yaml", content.encode())

    def _paths(self) -> list[Path]:
        """Return the proposals' paths, including links (reading one reports it), at most `MAX_READ`."""
        try:
            names = nofollow.walk(self._root, FOLDER, most=MAX_LISTED, depth=1)
            return [self._root / file.ref for file in names if PurePath(file.ref).match("p-*.yaml")][:MAX_READ]
        except OSError:  # the folder is a link, or cannot be listed
            return []

    def _parse(self, path: Path) -> ProposalFile:
        if not PROPOSAL_ID.fullmatch(path.stem):
            raise ValueError("not a proposal's file")
        content = nofollow.read(self._root, FOLDER / path.name, most_bytes=MAX_FILE_BYTES) or b""
        text = content.decode("utf-8")
        check_yaml(text)
        record = yaml.load(text, Loader=LOADER)  # noqa: S506 - strings only, no objects
        if not isinstance(record, Mapping) or record.get("id") != path.stem:
            raise ValueError("not the record of this file's name")
        return proposal_file_of(record)


_ODD_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Line breaks that a literal block would not preserve."""


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block, so that a diff in Git reads well."""


def _represent(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    lines = text_lines(value)
    unusual = any(character in value for character in _ODD_BREAKS) or any(line != line.rstrip() for line in lines)
    literal = len(lines) > 1 and not unusual
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if literal else '"')


_Dumper.add_representer(str, _represent)


def record_of(file: ProposalFile) -> dict[str, Json]:
    """Return the record that a proposal's file contains."""
    proposal = file.proposal
    record: dict[str, Json] = {
        "id": proposal.id,
        "action": proposal.action.value,
        "entry_id": proposal.entry_id or "",
        "content": proposal.content,
        "reason": proposal.reason,
        "from_id": proposal.from_id or "",
        "proposed_by": proposal.proposed_by,
        "proposed_at": stamp(proposal.proposed_at),
        "status": proposal.status.value,
        "before": file.before,
        "confirmations": [
            {
                "number": number,
                "by": confirmation.by,
                "at": stamp(confirmation.at),
                "proposal_hash": confirmation.proposal_hash,
                "signature": confirmation.signature,
                "project": confirmation.project,
                "origin": confirmation.origin,
            }
            for number, confirmation in enumerate(proposal.confirmations, start=1)
        ],
    }
    if file.rejection is not None:
        rejection = file.rejection
        record["rejection"] = {
            "by": rejection.by,
            "at": stamp(rejection.at),
            "reason": rejection.reason,
            "signature": rejection.signature,
        }
    return record


def proposal_file_of(record: Mapping[str, Json]) -> ProposalFile:
    """Return what a record claims. Raises ValueError, KeyError, TypeError: it is no proposal."""
    entries = record.get("confirmations") or []
    if not isinstance(entries, list):
        raise ValueError("confirmations is not a list")
    confirmations = tuple(
        Confirmation(
            _text(entry, "by"),
            _at(entry, "at"),
            _text(entry, "proposal_hash"),
            _text(entry, "signature"),
            _text({"project": "", **entry}, "project"),
            _text({"origin": "", **entry}, "origin"),
        )
        for entry in entries[:MAX_CONFIRMATIONS_READ]
    )
    claimed = json_values.record(record.get("rejection"))
    rejection = None
    if claimed:
        parts = (_text(claimed, "by"), _at(claimed, "at"), _text(claimed, "reason"), _text(claimed, "signature"))
        rejection = Rejection(*parts)
    proposal = Proposal(
        id=_text(record, "id"),
        action=ProposalAction(_text(record, "action")),
        content=_text(record, "content"),
        reason=_text(record, "reason"),
        proposed_by=_text(record, "proposed_by"),
        proposed_at=_at(record, "proposed_at"),
        entry_id=_text(record, "entry_id") or None,
        from_id=_text(record, "from_id") or None,
        status=ProposalStatus(_text(record, "status")),
        confirmations=confirmations,
    )
    return ProposalFile(proposal, _text(record, "before"), rejection)


def _text(record: Mapping[str, Json], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    return value


def _at(record: Mapping[str, Json], name: str) -> datetime:
    at = datetime.fromisoformat(_text(record, name))
    if at.tzinfo is None:
        raise ValueError(f"{name} has no zone")
    return at.astimezone(UTC)


def proposals_of(data_dir: Path, project: str, aliases: tuple[str, ...]) -> dict[str, str]:
    """Return proposal id -> its file's text; the project's own folders win over what an import stored apart."""
    folders = [(data_dir, PurePath(IMPORTED, "proposals", project))]
    folders += [(Path(alias.removeprefix("path:")), FOLDER) for alias in aliases if alias.startswith("path:")]
    proposals: dict[str, str] = {}
    for root, folder in folders:
        with contextlib.suppress(OSError):  # a folder that is gone, or a link, which is not followed
            for file in nofollow.walk(root, folder, most=MAX_LISTED, depth=1):
                name = PurePath(file.ref)
                content = _proposal_text(root, file.ref) if name.suffix == ".yaml" and not file.problem else None
                if content is not None and PROPOSAL_ID.fullmatch(name.stem):
                    proposals[name.stem] = content
    return proposals


def _proposal_text(root: Path, ref: str) -> str | None:
    try:
        return (nofollow.read(root, ref, most_bytes=MAX_FILE_BYTES) or b"").decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
