"""Confirmations of proposals: what they cover (every word, the text it would change, the project), and which count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_anchor.base.json_values import Json
from memory_anchor.domain.model import Confirmation, Proposal
from memory_anchor.identity.keys import (
    MAX_CONFIRMATIONS_READ,
    REQUIRED_CONFIRMATIONS,
    Approver,
    Signer,
    digest_of,
    signer_of,
)
from memory_anchor.identity.statements import Confirmed, text_digest

# --- what is signed --------------------------------------------------------------------------------------------


def proposal_hash(proposal: Proposal, before: str) -> str:
    """Return the hash that a confirmation covers: every word of the proposal and the text it would change.

    before: digest of what is replaced, "" for an addition; once that text changes, older confirmations do not count.
    """
    return digest_of(
        {
            "what": "memory-anchor proposal 1",
            "id": proposal.id,
            "action": proposal.action.value,
            "content": proposal.content,
            "reason": proposal.reason,
            "entry_id": proposal.entry_id,
            "from_id": proposal.from_id,
            "proposed_by": proposal.proposed_by,
            "proposed_at": stamp(proposal.proposed_at),
            "before": before,
        }
    )


def stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class ProjectRef:
    """The project a confirmation is for. id: on the machine that signs; origin: the id of the first link of its trail
    of approvals, which a colleague's clone has too ("" if the trail has none)."""

    id: str
    origin: str


def confirmation(
    *, proposal: Proposal, hashed: str, number: int, by: str, at: datetime, project: ProjectRef
) -> Confirmed:
    """Return the `number`-th confirmation (1 to 3) of a proposal. hashed: `proposal_hash`, of all that was shown."""
    return Confirmed(
        project=project.id,
        origin=project.origin,
        id=proposal.id,
        action=proposal.action.value,
        text=text_digest(proposal.content),
        proposal=hashed,
        number=number,
        by=by,
        at=stamp(at),
    )


def confirm(
    signer: Signer, *, proposal: Proposal, hashed: str, number: int, by: str, at: datetime, project: ProjectRef
) -> Confirmation:
    made = confirmation(proposal=proposal, hashed=hashed, number=number, by=by, at=at, project=project)
    return Confirmation(by, at, hashed, signer.confirm(made), project.id, project.origin)


def _statement_of(proposal: Proposal, signed: Confirmation, *, hashed: str, number: int) -> dict[str, Json]:
    """Return what this confirmation must have signed to be the `number`-th, for the project that it names."""
    project = ProjectRef(signed.project, signed.origin)
    return confirmation(
        proposal=proposal, hashed=hashed, number=number, by=signed.by, at=signed.at, project=project
    ).record()


def valid_confirmations(
    proposal: Proposal,
    *,
    hashed: str,
    known: Sequence[Approver],
    own: Approver | None,
    distinct: bool,
    project: ProjectRef,
) -> tuple[Confirmation, ...]:
    """Return the confirmations of a proposal that count, in order.

    Each must be signed by a known approver over this very proposal, its own number and this project, so an invented,
    copied, repeated or moved one does not count. A confirmation by the own key must name this project's id, one by a
    colleague's key the trail that both have. distinct: each by another key.
    """
    valid: list[Confirmation] = []
    seen: set[str] = set()
    for claimed in proposal.confirmations[:MAX_CONFIRMATIONS_READ]:
        if claimed.proposal_hash != hashed:
            continue
        statement = _statement_of(proposal, claimed, hashed=hashed, number=len(valid) + 1)
        approver = signer_of(known, statement, claimed.signature)
        if approver is None or (distinct and approver.public in seen):
            continue
        if own is not None and approver.public == own.public:
            fits = claimed.project == project.id
        else:
            fits = bool(project.origin) and claimed.origin == project.origin
        if not fits:
            continue
        seen.add(approver.public)
        valid.append(claimed)
    return tuple(valid[:REQUIRED_CONFIRMATIONS])


def confirmed_elsewhere(proposal: Proposal, *, hashed: str, known: Sequence[Approver]) -> bool:
    """Return whether known approvers confirmed it often enough in any project: then it is closed, but not applied.

    Confirmations of older versions, which did not name their project, are read too.
    """
    numbers = set()
    for number, claimed in enumerate(proposal.confirmations[:REQUIRED_CONFIRMATIONS], start=1):
        statement = _statement_of(proposal, claimed, hashed=hashed, number=number)
        older = {name: statement[name] for name in ("proposal", "number", "by", "at")}
        forms = (statement, {"what": "memory-anchor confirmation 1", **older})
        is_signed = any(signer_of(known, form, claimed.signature) for form in forms)
        if is_signed and claimed.proposal_hash == hashed:
            numbers.add(number)
    return len(numbers) >= REQUIRED_CONFIRMATIONS


def has_signed(approver: Approver, proposal: Proposal, hashed: str) -> bool:
    """Return whether one of a proposal's confirmations is this approver's."""
    return any(
        approver.signed(_statement_of(proposal, earlier, hashed=hashed, number=number), earlier.signature)
        for number, earlier in enumerate(proposal.confirmations, start=1)
    )
