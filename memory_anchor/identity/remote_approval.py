"""Approvals of L0 that are signed on another machine and stored by a server, where no passphrase is typed.

An approver's terminal shows the diff, computes from it every statement that a local confirmation would sign, and sends
only the signatures. The server makes the same statements from its own data and accepts a signature only over exactly
these, so the chain of a local confirmation runs unchanged (`Received` is its signer).

The server has no key of the installation's human. An approver's signature counts because of the record of their access
key, which that human signed together with the public half (or an admin did whose record they signed); it is stored with
each confirmation. A text is sealed by the last approver and counts only together with the three confirmations, which
are in the same file: neither one approver's key nor write access to files can put a text in force. Rejected: a key of
the server's own that seals for absent humans, since any process of its user could use it. Whether an access key was
revoked is checked whenever approvals of an open proposal are counted (`KeyIsValid`), wherever the next one comes from;
the signed record has only its expiry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from memory_anchor.base.json_values import Json, items, text, whole
from memory_anchor.errors import BadInput, Refused
from memory_anchor.identity.approval import (
    ProjectRef,
    confirm,
    proposal_hash,
    rejected_statement,
    rejection_statement,
    stamp,
    valid_confirmations,
)
from memory_anchor.identity.approved import MAX_APPLIED, SealedRevision, sign_link
from memory_anchor.identity.changes import apply_proposal, replaced_digest
from memory_anchor.identity.constitution_text import parse
from memory_anchor.identity.keys import REQUIRED_CONFIRMATIONS, Approver, Rules, Signs, signed_by, signer_of
from memory_anchor.identity.proposals import ProposalFile, proposal_file_of, record_of
from memory_anchor.model import Proposal

KEY_RECORD = "memory-anchor/key/1"
"""The purpose in the signed statement of an access key."""
APPROVING = ("approver", "admin")
KeyIsValid = Callable[[str], bool]
"""Whether the access key of an id is valid now: neither revoked nor expired."""
SIGNED_WITHIN = timedelta(minutes=5)
"""How far the time in an approval may differ from the server's: two clocks and a slow network."""


@dataclass(frozen=True, slots=True)
class ApprovalBasis:
    """What an approval is signed over, besides the proposal.

    installation: fingerprint of the server's first key. project, origin: see `ProjectRef`. text: in force. link,
    follows: the approval and the seal that the next one continues; number: its own. applied: ids of proposals in force.
    """

    installation: str
    project: str
    origin: str
    text: str
    link: str
    follows: str
    number: int
    applied: tuple[str, ...]

    @classmethod
    def of(cls, record: Mapping[str, Json]) -> ApprovalBasis:
        """Return the basis in a server's answer. Raises BadInput: it has none."""
        try:
            names = ("installation", "project", "origin", "text", "link", "follows")
            texts = {name: str(record[name]) for name in names}
            return cls(**texts, number=whole(record["number"]), applied=tuple(map(str, items(record["applied"]))))
        except (KeyError, TypeError, ValueError):
            raise BadInput("the server's answer tells no ground for an approval; is it of another version?") from None


@dataclass(frozen=True, slots=True)
class Vote:
    """A received approval. by: the approver named by the credential. at: when it was signed, by the approver's clock.

    key: id of the access key. credential: its signed record.
    """

    by: str
    public: str
    at: datetime
    key: str
    credential: str
    signatures: tuple[str, ...]

    @property
    def signer(self) -> Received:
        return Received(Approver(self.by, self.public, elsewhere=True), self.signatures)

    def check(self, electorate: Electorate, now: datetime) -> None:
        """Raise Refused: signed too long ago, or by nobody who may approve; `valid_confirmations` checks the rest."""
        if abs(now - self.at) > SIGNED_WITHIN:
            raise Refused(
                f"the approval was signed at {stamp(self.at)} and it is {stamp(now)} here; allowed are "
                f"{SIGNED_WITHIN.seconds // 60} minutes: look at the proposal again, or set the clock"
            )
        if not voter(self.credential, electorate, self.at):
            raise Refused(
                f"the access key {self.key} let nobody approve at {stamp(self.at)}; set the clock, or ask anew"
            )

    def check_new(self, proposal: Proposal) -> None:
        """Raise Refused: this approver confirmed it already."""
        # Complete and not in force: killed in between, and the last approver's signature finishes it.
        is_complete = len(proposal.confirmations) >= REQUIRED_CONFIRMATIONS
        if not is_complete and any(
            confirmation.by == self.by and confirmation.credential for confirmation in proposal.confirmations
        ):
            raise Refused(f"{self.by} confirmed {proposal.id} already; another approver must")


@dataclass(frozen=True, slots=True)
class Received:
    """Signatures that an approver made on another machine; signs nothing itself."""

    approver: Approver
    signatures: tuple[str, ...]
    rules: Rules = field(default_factory=Rules)

    def sign(self, statement: Mapping[str, Json]) -> str:
        """Return the signature over this statement. Raises Refused: there is none."""
        for signature in self.signatures:
            if signed_by(self.approver.public, statement, signature):
                return signature
        raise Refused(
            "the approval is not signed by this approver's key over what the server holds now (somebody confirmed "
            "before, or it is another proposal, text or server); look at it again"
        )


def sign_approval(
    signer: Signs, proposal: Proposal, basis: ApprovalBasis, *, number: int, by: str, at: datetime
) -> tuple[str, tuple[str, ...]]:
    """Return the hash of what was shown, and the signatures: of a confirmation, for the last also of link and seal.

    Raises BadInput, NotFound: the proposal does not fit the text.
    """
    hashed = proposal_hash(proposal, replaced_digest(parse(basis.text), proposal))
    project = ProjectRef(basis.project, basis.origin)
    text = apply_proposal(basis.text, proposal)
    confirmation = confirm(signer, proposal=proposal, hashed=hashed, number=number, by=by, at=at, project=project)
    if number < REQUIRED_CONFIRMATIONS:
        return hashed, (confirmation.signature,)
    signed_link = sign_link(
        signer, digest=parse(text).digest, previous=basis.link, proposal=proposal.id, by=by, at=stamp(at)
    )
    applied = (*basis.applied, proposal.id)[-MAX_APPLIED:]
    unsealed = SealedRevision(basis.number, text, signed_link, applied, "", basis.follows)
    return hashed, (confirmation.signature, signed_link.signature, signer.sign(unsealed.statement(basis.project)))


def sign_rejection(
    signer: Signs, proposal: Proposal, basis: ApprovalBasis, *, by: str, at: datetime, reason: str
) -> tuple[str, tuple[str, str]]:
    """Return the hash of what was shown, and the signatures of a rejection: of its reason, and of the closed id."""
    statement = rejection_statement(hashed=proposal_hash(proposal, ""), by=by, at=at, reason=reason)
    closing_statement = rejected_statement(project=basis.project, proposal_id=proposal.id, at=stamp(at))
    seen = proposal_hash(proposal, replaced_digest(parse(basis.text), proposal))
    return seen, (signer.sign(statement), signer.sign(closing_statement))


def credential_of(record: Mapping[str, Json], signature: str, maker: tuple[Mapping[str, Json], str] | None) -> str:
    """Return the signed record of an access key as a confirmation stores it. maker: the record of the key's creator."""
    credential: dict[str, Json] = {"said": dict(record), "signature": signature}
    if maker is not None:
        credential["maker"] = {"said": dict(maker[0]), "signature": maker[1]}
    return json.dumps(credential, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Electorate:
    """Whose remote decisions count. sealing: the installation's keys. account: whose L0 it is."""

    sealing: Sequence[Approver]
    account: str


def voters(proposal: Proposal, electorate: Electorate) -> tuple[Approver, ...]:
    """Return who confirmed a proposal with an access key that was valid then and that this installation signed."""
    return tuple(
        approver
        for confirmation in proposal.confirmations
        for approver in voter(confirmation.credential, electorate, confirmation.at)
    )


def voter(credential: str, electorate: Electorate, at: datetime | str) -> tuple[Approver, ...]:
    """Return the approver whom the signed record of an access key allowed at that time, if any."""
    try:
        signed_at = datetime.fromisoformat(at) if isinstance(at, str) else at
        record, sealing = json.loads(credential), electorate.sealing
        key, maker = record["said"], record.get("maker")
        if key["account"] != electorate.account:
            return ()
        if maker is None:
            is_signed = signer_of(sealing, key, record["signature"]) is not None
        else:
            maker_key = maker["said"]
            is_signed = _allows(maker_key, ("admin",), datetime.fromisoformat(key["created_at"])) and (
                (maker_key["id"], maker_key["account"]) == (key["made_with"], key["account"])
                and signer_of(sealing, maker_key, maker["signature"]) is not None
                and signed_by(maker_key["public"], key, record["signature"])
            )
        if not is_signed or not _allows(key, APPROVING, signed_at):
            return ()
        return (Approver(key["user"] or key["id"], key["public"], elsewhere=True),)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return ()


def no_key_is_valid(key: str) -> bool:
    """Return False: without a source of valid access keys, nothing signed with one counts."""
    del key
    return False


def without_ended_keys(proposal: Proposal, is_open: KeyIsValid) -> Proposal:
    """Return the proposal with only its confirmations before the first whose access key is no longer valid."""
    valid = []
    for confirmation in proposal.confirmations:
        if confirmation.credential and not is_open(_key_id(confirmation.credential)):
            break
        valid.append(confirmation)
    return replace(proposal, confirmations=tuple(valid))


def jointly_sealed(revision: SealedRevision, sealing: Sequence[Approver], project: str, *, account: str) -> bool:
    """Return whether a text was sealed by the last of enough approvers and carries their confirmations."""
    approval = _approval_in(revision)
    if approval is None:
        return False
    proposal = approval.proposal
    if not sealing or not proposal.confirmations or revision.link.proposal != proposal.id:
        return False
    electorate = Electorate(sealing, account)
    known = (*sealing, *voters(proposal, electorate))
    project_ref = ProjectRef(project, proposal.confirmations[0].origin)
    hashed = proposal_hash(proposal, approval.before)
    valid = valid_confirmations(
        proposal, hashed=hashed, known=known, own=sealing[0], distinct=False, project=project_ref
    )
    last = voter(valid[-1].credential, electorate, valid[-1].at) if len(valid) == REQUIRED_CONFIRMATIONS else ()
    return any(
        signed_by(approver.public, revision.statement(project), revision.seal)
        and signed_by(approver.public, revision.link.statement, revision.link.signature)
        for approver in last
    )


def origin_in(revision: SealedRevision) -> str:
    """Return the origin that remote approvers signed with a text, "" if none did."""
    approval = _approval_in(revision)
    return approval.proposal.confirmations[0].origin if approval and approval.proposal.confirmations else ""


def _approval_in(revision: SealedRevision) -> ProposalFile | None:
    """Return the approval that a sealed text stores, None if it has no readable one."""
    try:
        return proposal_file_of(json.loads(revision.approval))
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None


def approval_json(proposal: Proposal, before: str) -> str:
    """Return the approval as a sealed text stores it."""
    return json.dumps(record_of(ProposalFile(proposal, before)), ensure_ascii=False)


def basis_record(basis: ApprovalBasis) -> dict[str, Json]:
    return {**asdict(basis), "applied": list(basis.applied)}


def _allows(key: Mapping[str, Json], roles: Sequence[str], at: datetime) -> bool:
    ends_at = key["expires_at"]
    return (
        key["what"] == KEY_RECORD
        and key["role"] in roles
        and bool(key["public"])
        and datetime.fromisoformat(text(key["created_at"])) <= at
        and not (ends_at and at >= datetime.fromisoformat(text(ends_at)))
    )


def _key_id(credential: str) -> str:
    try:
        return str(json.loads(credential)["said"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
