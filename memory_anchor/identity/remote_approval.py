"""Approvals of L0 that are signed on another machine and kept by a server, where no passphrase is typed.

An approver's terminal shows the difference, computes from what it showed every statement that a local confirmation
would sign, and sends the signatures alone. The server makes the same statements from what it holds and takes a
signature where it is over just these: so the chain of a local confirmation runs unchanged (`Received` is its signer).

The server holds no key of the installation's human. What lets an approver's signature count is the record of their
access key, which that human signed together with the public half (or an admin whose record they signed); it lies beside
each confirmation. A text is sealed by the last approver and counts together with the three confirmations alone, which
lie in the same file: one approver's key, and whoever can write files, put nothing in force. Rejected: a key of the
server's own that seals for absent humans, which any process of its user could use.
Whether an access key was revoked is asked whenever approvals of an open proposal are counted (`KeyIsValid`), wherever
the next one comes from; the signed record tells only its end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from memory_anchor.errors import BadInput, Refused
from memory_anchor.identity.approval import (
    KeyPlace,
    confirm,
    counted,
    proposal_hash,
    rejected_statement,
    rejection_statement,
    stamp,
)
from memory_anchor.identity.approved import MAX_APPLIED, SealedRevision, linked
from memory_anchor.identity.changes import apply_proposal, replaced_digest
from memory_anchor.identity.constitution_text import parse
from memory_anchor.identity.keys import REQUIRED_CONFIRMATIONS, Approver, Rules, Signs, signed_by, signer_of
from memory_anchor.identity.proposals import ProposalFile, proposal_file_of, record_of
from memory_anchor.json_values import Json, items, text, whole
from memory_anchor.model import Proposal

KEY_RECORD = "memory-anchor/key/1"
"""How the signed statement of an access key begins."""
APPROVING = ("approver", "admin")
KeyIsValid = Callable[[str], bool]
"""Whether the access key of an id opens now: it was neither revoked nor has it ended."""
SIGNED_WITHIN = timedelta(minutes=5)
"""How far the time in an approval may lie from the server's: two clocks and a slow network."""


@dataclass(frozen=True, slots=True)
class ApprovalBasis:
    """What an approval is signed over beside the proposal.

    installation: fingerprint of the server's first key. project, origin: see `KeyPlace`. text: in force. link, follows:
    the approval and the seal that the next one continues; number: its own. applied: ids of proposals in force.
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
    def of(cls, told: Mapping[str, Json]) -> ApprovalBasis:
        """Return what a server told. Raises BadInput: it told none."""
        try:
            texts = {name: str(told[name]) for name in ("installation", "project", "origin", "text", "link", "follows")}
            return cls(**texts, number=whole(told["number"]), applied=tuple(str(one) for one in items(told["applied"])))
        except (KeyError, TypeError, ValueError):
            raise BadInput("the server's answer tells no ground for an approval; is it of another version?") from None


@dataclass(frozen=True, slots=True)
class Vote:
    """An approval as it came in. by: who the credential says it is. at: when it was signed, by the approver's clock.

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
        """Raise Refused: signed long ago, or by nobody who approves. See `counted` for the rest."""
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
        # All there and not in force: killed between, and the last approver's signature finishes it.
        is_whole = len(proposal.confirmations) >= REQUIRED_CONFIRMATIONS
        if not is_whole and any(one.by == self.by and one.credential for one in proposal.confirmations):
            raise Refused(f"{self.by} confirmed {proposal.id} already; another approver must")


@dataclass(frozen=True, slots=True)
class Received:
    """Signatures that an approver made elsewhere; signs nothing itself."""

    approver: Approver
    signatures: tuple[str, ...]
    rules: Rules = field(default_factory=Rules)

    def sign(self, said: Mapping[str, Json]) -> str:
        """Return the signature over this very statement. Raises Refused: there is none."""
        found = (one for one in self.signatures if signed_by(self.approver.public, said, one))
        if (signature := next(found, None)) is not None:
            return signature
        raise Refused(
            "the approval is not signed by this approver's key over what the server holds now (somebody confirmed "
            "before, or it is another proposal, text or server); look at it again"
        )


def approval_of(
    signer: Signs, proposal: Proposal, ground: ApprovalBasis, *, number: int, by: str, at: datetime
) -> tuple[str, tuple[str, ...]]:
    """Return what was shown (its hash) and what an approver signs: a confirmation, and of the last link and seal too.

    Raises BadInput, NotFound: the proposal does not fit the text.
    """
    hashed = proposal_hash(proposal, replaced_digest(parse(ground.text), proposal))
    place = KeyPlace(ground.project, ground.origin)
    text = apply_proposal(ground.text, proposal)
    said = confirm(signer, proposal=proposal, hashed=hashed, number=number, by=by, at=at, place=place)
    if number < REQUIRED_CONFIRMATIONS:
        return hashed, (said.signature,)
    link = linked(signer, digest=parse(text).digest, previous=ground.link, proposal=proposal.id, by=by, at=stamp(at))
    applied = (*ground.applied, proposal.id)[-MAX_APPLIED:]
    bare = SealedRevision(ground.number, text, link, applied, "", ground.follows)
    return hashed, (said.signature, link.signature, signer.sign(bare.said(ground.project)))


def rejection_of(
    signer: Signs, proposal: Proposal, ground: ApprovalBasis, *, by: str, at: datetime, reason: str
) -> tuple[str, tuple[str, str]]:
    """Return what was shown (its hash) and what an approver signs to reject it: why, and that its id is closed."""
    said = rejection_statement(hashed=proposal_hash(proposal, ""), by=by, at=at, reason=reason)
    closed = rejected_statement(project=ground.project, proposal_id=proposal.id, at=stamp(at))
    seen = proposal_hash(proposal, replaced_digest(parse(ground.text), proposal))
    return seen, (signer.sign(said), signer.sign(closed))


def credential_of(said: Mapping[str, Json], signature: str, maker: tuple[Mapping[str, Json], str] | None) -> str:
    """Return the signed record of an access key as a confirmation keeps it. maker: the record of who made it."""
    made: dict[str, Json] = {"said": dict(said), "signature": signature}
    if maker is not None:
        made["maker"] = {"said": dict(maker[0]), "signature": maker[1]}
    return json.dumps(made, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Electorate:
    """Whose decisions count from elsewhere. sealing: the installation's keys. account: whose L0 it is."""

    sealing: Sequence[Approver]
    account: str


def voters(proposal: Proposal, electorate: Electorate) -> tuple[Approver, ...]:
    """Return who confirmed a proposal with an access key that was good then and that this installation signed."""
    return tuple(one for given in proposal.confirmations for one in voter(given.credential, electorate, given.at))


def voter(credential: str, electorate: Electorate, at: datetime | str) -> tuple[Approver, ...]:
    """Return whom the signed record of an access key let decide at that time, nobody when it does not count."""
    try:
        found = _voter(credential, electorate, datetime.fromisoformat(at) if isinstance(at, str) else at)
    except ValueError:
        return ()
    return (found,) if credential and found is not None else ()


def no_key_is_valid(key: str) -> bool:
    """Return that no access key opens: where nobody says which do, what came with one does not count."""
    del key
    return False


def up_to_ended(proposal: Proposal, is_open: KeyIsValid) -> Proposal:
    """Return the proposal with its confirmations before the first whose access key opens nothing any more."""
    kept = []
    for one in proposal.confirmations:
        if one.credential and not is_open(_key_id(one.credential)):
            break
        kept.append(one)
    return replace(proposal, confirmations=tuple(kept))


def jointly_sealed(revision: SealedRevision, sealing: Sequence[Approver], project: str, *, account: str) -> bool:
    """Return whether a text was sealed by the last of enough approvers, whose confirmations it carries."""
    try:
        filed = proposal_file_of(json.loads(revision.approval))
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return False
    proposal = filed.proposal
    if not sealing or not proposal.confirmations or revision.link.proposal != proposal.id:
        return False
    electorate = Electorate(sealing, account)
    known = (*sealing, *voters(proposal, electorate))
    place = KeyPlace(project, proposal.confirmations[0].origin)
    hashed = proposal_hash(proposal, filed.before)
    good = counted(proposal, hashed=hashed, known=known, own=sealing[0], distinct=False, place=place)
    last = voter(good[-1].credential, electorate, good[-1].at) if len(good) == REQUIRED_CONFIRMATIONS else ()
    return any(
        signed_by(one.public, revision.said(project), revision.seal)
        and signed_by(one.public, revision.link.said, revision.link.signature)
        for one in last
    )


def origin_in(revision: SealedRevision) -> str:
    """Return the place's origin that the approvers elsewhere signed with a text, "" where none did."""
    if not revision.approval:
        return ""
    try:
        confirmations = proposal_file_of(json.loads(revision.approval)).proposal.confirmations
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return ""
    return confirmations[0].origin if confirmations else ""


def kept_approval(judged: Proposal, before: str) -> str:
    """Return what a sealed text keeps of its approval."""
    return json.dumps(record_of(ProposalFile(judged, before)), ensure_ascii=False)


def basis_record(ground: ApprovalBasis) -> dict[str, Json]:
    return {**asdict(ground), "applied": list(ground.applied)}


def _voter(credential: str, electorate: Electorate, at: datetime) -> Approver | None:
    """Return whom the signed record of an access key lets approve at that time, None when it does not count."""
    try:
        record, sealing = json.loads(credential), electorate.sealing
        said, maker = record["said"], record.get("maker")
        if said["account"] != electorate.account:
            return None
        if maker is None:
            made = signer_of(sealing, said, record["signature"]) is not None
        else:
            by = maker["said"]
            made = _is_of(by, ("admin",), datetime.fromisoformat(said["created_at"])) and (
                (by["id"], by["account"]) == (said["made_with"], said["account"])
                and signer_of(sealing, by, maker["signature"]) is not None
                and signed_by(by["public"], said, record["signature"])
            )
        if not made or not _is_of(said, APPROVING, at):
            return None
        return Approver(said["user"] or said["id"], said["public"], elsewhere=True)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None


def _is_of(said: Mapping[str, Json], roles: Sequence[str], at: datetime) -> bool:
    ends = said["expires_at"]
    return (
        said["what"] == KEY_RECORD
        and said["role"] in roles
        and bool(said["public"])
        and datetime.fromisoformat(text(said["created_at"])) <= at
        and not (ends and at >= datetime.fromisoformat(text(ends)))
    )


def _key_id(credential: str) -> str:
    try:
        return str(json.loads(credential)["said"]["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
