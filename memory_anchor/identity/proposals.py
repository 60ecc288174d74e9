"""Proposals to change L0: one readable YAML file each under `.ai/proposals/`, made to be reviewed in Git.

Anyone may write such a file; what it takes to count is a signature. So nothing here trusts a file: a status or a
confirmation that is written down is a claim, and `approval.counted` decides. A file is named after its id, read with a
bound, never through a link (not the folder's either), and one that cannot be read is reported while the others stay
usable.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePath

import yaml

from memory_anchor import beneath, json_values
from memory_anchor.bounded_yaml import LOADER
from memory_anchor.bounded_yaml import check as check_yaml
from memory_anchor.errors import BadInput, NotFound
from memory_anchor.files import make_private, read_bounded, write_atomic
from memory_anchor.identity.approval import rejected_statement, stamp
from memory_anchor.identity.constitution_text import MAX_BYTES
from memory_anchor.identity.keys import (
    MAX_CONFIRMATIONS_READ,
    REQUIRED_CONFIRMATIONS,
    Approver,
    Signs,
    canonical,
    signer_of,
)
from memory_anchor.json_values import Json
from memory_anchor.model import Confirmation, Proposal, ProposalAction, ProposalStatus
from memory_anchor.ports import AuditRecord

FOLDER = Path(".ai") / "proposals"
PROPOSAL_ID = re.compile(r"p-[0-9a-f]{10}")
MAX_OPEN = 50
"""More open proposals than this are refused: nobody reviews a flood. A human with the passphrase has no such bound."""
REJECTED = "constitution.rejected"
"""The kind of the audit record of a rejection, with its signature."""
REJECTED_FILE = "rejected.json"
PARTS = ("id", "at", "signature")
CREDENTIAL = "credential"
LOST_SHOWN = 3
MAX_REJECTED = 10_000
MAX_REJECTED_BYTES = 20_000_000
Voters = Callable[[str, str], Sequence[Approver]]
MAX_READ = 1_000
MAX_LISTED = 10_000
"""Names in the folder that are looked at."""
MAX_FILE_BYTES = MAX_BYTES + 100_000


@dataclass(frozen=True, slots=True)
class Rejection:
    """credential: the signed record of the access key of who rejected it elsewhere, "" for here."""

    by: str
    at: datetime
    reason: str
    signature: str
    credential: str = ""


@dataclass(frozen=True, slots=True)
class ProposalFile:
    """What one file claims. before: digest of the text that its confirmations were given against."""

    proposal: Proposal
    before: str = ""
    rejection: Rejection | None = None


def new_id(proposal: Proposal, *, again: int = 0) -> str:
    """Return an id of 12 characters from what is proposed, by whom and when; `again` gives others for the same."""
    said = canonical(
        {
            "action": proposal.action.value,
            "content": proposal.content,
            "entry_id": proposal.entry_id,
            "by": proposal.proposed_by,
            "at": stamp(proposal.proposed_at),
            "again": again,
        }
    )
    return f"p-{hashlib.sha256(said).hexdigest()[:10]}"


def answer(proposal: Proposal) -> dict[str, Json]:
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
    """The proposals that were rejected in one project, outside it: each signed, and told twice.

    Once in a list beside the archive and once in the audit trail: neither an editor nor `rm` reopens a proposal, and
    what only says that it was rejected closes none. records: the audit trail, read where a proposal looks open.
    voters: whom the record of an access key, and a time, let reject elsewhere.
    """

    def __init__(
        self, home: Path, project: str, records: Callable[[str], Iterable[AuditRecord]], voters: Voters
    ) -> None:
        self._path = home / REJECTED_FILE
        self._project = project
        self._records = records
        self._voters = voters

    def ids(self, known: Sequence[Approver], among: Container[str]) -> frozenset[str]:
        """Return those of `among` whose rejection here carries a known approver's signature."""
        return frozenset(
            one["id"]
            for one in (*self._listed(), *self._told())
            if one["id"] in among and signer_of(self._knowing(known, one), self._said(one), one["signature"])
        )

    def sealed(self, signer: Signs, proposal_id: str, at: datetime, credential: str) -> dict[str, str]:
        """Return a rejection as the audit trail and the list keep it."""
        entry = {"id": proposal_id, "at": stamp(at)}
        more = {"credential": credential} if credential else {}
        return {**entry, "signature": signer.sign(self._said(entry)), **more}

    def add(self, entry: Mapping[str, str]) -> None:
        """Remember a rejection, and again all that only the audit trail still tells of; durable on return."""
        listed = {str(one): one for one in (*self._told(), *self._listed(), *_entries([entry]))}
        make_private(self._path.parent)
        kept = [*listed.values()][-MAX_REJECTED:]
        write_atomic(self._path, (json.dumps({"rejected": kept}, indent=1) + "\n").encode())

    def faults(self) -> Iterator[str]:
        """Yield a sentence when the audit trail tells of rejections that the list has lost."""
        listed, told = {one["id"] for one in self._listed()}, {one["id"] for one in self._told()}
        if lost := sorted(told - listed)[:MAX_REJECTED]:
            yield (
                f"{self._path} lacks {len(lost)} of {len(told)} rejections ({', '.join(lost[:LOST_SHOWN])}); they stay "
                "closed by the audit trail, and the next `memory-anchor constitution reject` writes them again"
            )

    def _knowing(self, known: Sequence[Approver], one: Mapping[str, str]) -> Sequence[Approver]:
        return (*known, *self._voters(one.get(CREDENTIAL, ""), one["at"]))

    def _said(self, one: Mapping[str, str]) -> dict[str, Json]:
        return rejected_statement(project=self._project, proposal_id=one["id"], at=one["at"])

    def _told(self) -> list[dict[str, str]]:
        told = (
            what for one in self._records(REJECTED) if one["kind"] == REJECTED and "signature" in (what := one["what"])
        )
        return _entries({**one, "id": one.get("proposal")} for one in told if one.get("archive") == self._project)

    def _listed(self) -> list[dict[str, str]]:
        try:
            return _entries(json.loads(read_bounded(self._path, most_bytes=MAX_REJECTED_BYTES) or b"{}")["rejected"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return []


def _entries(listed: Iterable[Json]) -> list[dict[str, str]]:
    entries = []
    for one in listed:
        given = one if isinstance(one, dict) else {}
        parts = {name: part for name in PARTS if isinstance(part := given.get(name), str)}
        if len(parts) == len(PARTS):
            more = given.get(CREDENTIAL)
            entries.append({**parts, CREDENTIAL: more} if isinstance(more, str) else parts)
    return entries


class ProposalFolder:
    """The folder of proposal files of one project."""

    def __init__(self, root: Path) -> None:
        """root: the project. No link below it is followed, for reading or writing."""
        self._root = root
        self.folder = root / FOLDER

    def read(self) -> tuple[list[ProposalFile], list[str]]:
        """Return what the files claim, oldest first, and one sentence for each file that cannot be read."""
        found: list[ProposalFile] = []
        wrong: list[str] = []
        for path in self._paths():
            try:
                found.append(self._parse(path))
            except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
                wrong.append(f"{path.name} is not a readable proposal ({type(error).__name__}); mend or delete it")
        return sorted(found, key=lambda one: (one.proposal.proposed_at, one.proposal.id)), wrong

    def find(self, proposal_id: str) -> ProposalFile:
        """Return one.

        Raises NotFound: no such file. BadInput: it cannot be read.
        """
        path = self.folder / f"{proposal_id}.yaml"
        if not PROPOSAL_ID.fullmatch(proposal_id) or path not in self._paths():
            there = ", ".join(one.stem for one in self._paths()[:MAX_OPEN]) or "none"
            raise NotFound(f"proposal is {proposal_id[:40]!r}; the proposals are {there}")
        try:
            return self._parse(path)
        except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as error:
            raise BadInput(f"{path.name} is not a readable proposal; mend or delete it") from error

    def write(self, filed: ProposalFile) -> None:
        """Replace the proposal's file, durable on return."""
        said = (
            f"# 修改 constitution.yaml 的提议；需要人在终端确认 {REQUIRED_CONFIRMATIONS} 次。改动本文件会清零确认。\n"
            f"# Proposed change of constitution.yaml: `memory-anchor constitution approve {filed.proposal.id}`,\n"
            "# by a human on a terminal, three times. Editing this file resets its confirmations.\n"
        ) + yaml.dump(record_of(filed), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100)
        beneath.write(self._root, FOLDER / f"{filed.proposal.id}.yaml", said.encode())

    def _paths(self) -> list[Path]:
        """Return the proposals' files, links among them (reading one says what it is), at most `MAX_READ`."""
        try:
            names = beneath.walk(self._root, FOLDER, most=MAX_LISTED, depth=1)
            return [self._root / one.ref for one in names if PurePath(one.ref).match("p-*.yaml")][:MAX_READ]
        except OSError:  # the folder is a link, or cannot be listed
            return []

    def _parse(self, path: Path) -> ProposalFile:
        if not PROPOSAL_ID.fullmatch(path.stem):
            raise ValueError("not a proposal's file")
        content = beneath.read(self._root, FOLDER / path.name, most_bytes=MAX_FILE_BYTES) or b""
        text = content.decode("utf-8")
        check_yaml(text)
        record = yaml.load(text, Loader=LOADER)  # noqa: S506 - strings only, no objects
        if not isinstance(record, Mapping) or record.get("id") != path.stem:
            raise ValueError("not the record of this file's name")
        return proposal_file_of(record)


_ODD_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Line breaks that a literal block would not give back as they were."""


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block, so that a diff in Git reads well."""


def _represent(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    lines = value.splitlines()
    odd = any(sign in value for sign in _ODD_BREAKS) or any(line != line.rstrip() for line in lines)
    literal = len(lines) > 1 and not odd
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if literal else '"')


_Dumper.add_representer(str, _represent)


def record_of(filed: ProposalFile) -> dict[str, Json]:
    """Return what a file says of a proposal."""
    proposal = filed.proposal
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
        "before": filed.before,
        "confirmations": [
            {
                "number": number,
                "by": one.by,
                "at": stamp(one.at),
                "proposal_hash": one.proposal_hash,
                "signature": one.signature,
                "project": one.project,
                "origin": one.origin,
                **({"credential": one.credential} if one.credential else {}),
            }
            for number, one in enumerate(proposal.confirmations, start=1)
        ],
    }
    if filed.rejection is not None:
        no = filed.rejection
        said = {"by": no.by, "at": stamp(no.at), "reason": no.reason, "signature": no.signature}
        record["rejection"] = {**said, CREDENTIAL: no.credential} if no.credential else said
    return record


def proposal_file_of(record: Mapping[str, Json]) -> ProposalFile:
    """Return what a record claims. Raises ValueError, KeyError, TypeError: it is none."""
    listed = record.get("confirmations") or []
    if not isinstance(listed, list):
        raise ValueError("confirmations is not a list")
    confirmations = tuple(
        Confirmation(
            _text(one, "by"),
            _at(one, "at"),
            _text(one, "proposal_hash"),
            _text(one, "signature"),
            _text({"project": "", **one}, "project"),
            _text({"origin": "", **one}, "origin"),
            _text({"credential": "", **one}, "credential"),
        )
        for one in listed[:MAX_CONFIRMATIONS_READ]
    )
    no = json_values.record(record.get("rejection"))
    rejection = None
    if no:
        said = (_text(no, "by"), _at(no, "at"), _text(no, "reason"), _text(no, "signature"))
        rejection = Rejection(*said, _text({CREDENTIAL: "", **no}, CREDENTIAL))
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
