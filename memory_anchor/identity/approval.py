"""What an approver's signature says of a proposal: the statements, and which signatures count.

Every statement is canonical JSON that begins with its purpose, so none can be used as another; it names the
proposal with every word of it, the text it would change, and the place it is for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from memory_anchor.identity.keys import (
    MAX_CONFIRMATIONS_READ,
    REQUIRED_CONFIRMATIONS,
    Approver,
    Signs,
    digest_of,
    signed_by,
    signer_of,
)
from memory_anchor.json_values import Json
from memory_anchor.model import Confirmation, Proposal

if TYPE_CHECKING:
    pass

# --- what is signed --------------------------------------------------------------------------------------------


def proposal_hash(proposal: Proposal, before: str) -> str:
    """Return what a confirmation is about: every word of the proposal and the text it would change.

    before: the digest of what is replaced, "" for an addition; when that moves on, older confirmations no longer count.
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
class KeyPlace:
    """The project a confirmation is for. project: its id on the machine that signs; origin: the id of the first link
    of its trail of approvals, by which a colleague's clone is the same project ("" when the trail does not tell)."""

    project: str
    origin: str


def confirmation_statement(
    *, proposal: Proposal, hashed: str, number: int, by: str, at: datetime, place: KeyPlace
) -> dict[str, Json]:
    """Return what the `number`-th confirmation (1 to 3) of a proposal says: where, which, its whole text, what, when.

    hashed: `proposal_hash`, over every word of it and what it replaces.
    """
    return {
        "what": "memory-anchor confirmation 2",
        "project": place.project,
        "origin": place.origin,
        "id": proposal.id,
        "action": proposal.action.value,
        "text": hashlib.sha256(proposal.content.encode("utf-8", "surrogatepass")).hexdigest(),
        "proposal": hashed,
        "number": number,
        "by": by,
        "at": stamp(at),
    }


def rejection_statement(*, hashed: str, by: str, at: datetime, reason: str) -> dict[str, Json]:
    return {"what": "memory-anchor rejection 1", "proposal": hashed, "by": by, "at": stamp(at), "reason": reason}


def rejected_statement(*, project: str, proposal_id: str, at: str) -> dict[str, Json]:
    """Return what this machine keeps of a rejection, out of an agent's editor: this id is closed in this project."""
    return {"what": "memory-anchor/rejected/1", "project": project, "id": proposal_id, "at": at}


def confirm(
    signer: Signs, *, proposal: Proposal, hashed: str, number: int, by: str, at: datetime, place: KeyPlace
) -> Confirmation:
    said = confirmation_statement(proposal=proposal, hashed=hashed, number=number, by=by, at=at, place=place)
    return Confirmation(by, at, hashed, signer.sign(said), place.project, place.origin)


def counted(
    proposal: Proposal, *, hashed: str, known: Sequence[Approver], own: Approver | None, distinct: bool, place: KeyPlace
) -> tuple[Confirmation, ...]:
    """Return the confirmations of a proposal that count, in their order.

    Each must be signed by a known approver over this very proposal, its own number and this project, so a made-up,
    copied, repeated or moved one does not count. The own key's are for this project's id, a colleague's for the trail
    that both hold, and one's from another machine for both. distinct: each by another key.
    """
    good: list[Confirmation] = []
    seen: set[str | bool] = set()
    for one in proposal.confirmations[:MAX_CONFIRMATIONS_READ]:
        there = KeyPlace(one.project, one.origin)
        said = confirmation_statement(
            proposal=proposal, hashed=hashed, number=len(good) + 1, by=one.by, at=one.at, place=there
        )
        who = signer_of(known, said, one.signature) if one.proposal_hash == hashed else None
        if who is None or ((distinct or who.elsewhere) and {who.public, who.elsewhere and one.by} & seen):
            continue
        is_here, is_ours = one.project == place.project, one.origin == place.origin
        if own is not None and who.public == own.public:
            fits = is_here
        else:
            fits = is_here and is_ours if who.elsewhere else bool(place.origin) and is_ours
        if not fits:
            continue
        seen |= {who.public, one.by} if who.elsewhere else {who.public}
        good.append(one)
    return tuple(good[:REQUIRED_CONFIRMATIONS])


def done_elsewhere(proposal: Proposal, *, hashed: str, known: Sequence[Approver]) -> bool:
    """Return whether known approvers confirmed it as often as needed, wherever: enough to call it closed, not applied.

    Confirmations of before they named their project are read too.
    """
    numbers = set()
    for number, one in enumerate(proposal.confirmations[:REQUIRED_CONFIRMATIONS], start=1):
        place = KeyPlace(one.project, one.origin)
        said = confirmation_statement(
            proposal=proposal, hashed=hashed, number=number, by=one.by, at=one.at, place=place
        )
        old = {
            "what": "memory-anchor confirmation 1",
            **{name: said[name] for name in ("proposal", "number", "by", "at")},
        }
        if one.proposal_hash == hashed and any(signer_of(known, each, one.signature) for each in (said, old)):
            numbers.add(number)
    return len(numbers) >= REQUIRED_CONFIRMATIONS


def has_signed(who: Approver, proposal: Proposal, hashed: str) -> bool:
    """Return whether one of a proposal's confirmations is this approver's."""
    return any(
        signed_by(
            who.public,
            confirmation_statement(
                proposal=proposal,
                hashed=hashed,
                number=n,
                by=one.by,
                at=one.at,
                place=KeyPlace(one.project, one.origin),
            ),
            one.signature,
        )
        for n, one in enumerate(proposal.confirmations, start=1)
    )
