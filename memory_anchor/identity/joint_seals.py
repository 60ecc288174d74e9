"""Reads what approvers of a team once signed for a served memory from their own machines; nothing makes it any more.

Earlier versions let three approvers approve L0 over HTTP. A text that they sealed together goes on being served and
a proposal that one of them rejected stays closed. A text counts only with the three confirmations in its own file, each
by another approver, the last of whom sealed it; an approver's signature counts because of the record of their access
key, which the installation's human signed (or an admin did whose record that human signed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from memory_anchor.base.json_values import Json, items, text
from memory_anchor.identity.approval import ProjectRef, confirmation, proposal_hash
from memory_anchor.identity.approved import SealedRevision
from memory_anchor.identity.keys import REQUIRED_CONFIRMATIONS, Approver, signed_by, signer_of
from memory_anchor.identity.proposals import proposal_file_of
from memory_anchor.identity.statements import Admitted

APPROVING = ("approver", "admin")


def jointly_sealed(revision: SealedRevision, sealing: Sequence[Approver], project: str, *, account: str) -> bool:
    """Return whether a text was sealed by the last of enough approvers and carries their confirmations."""
    try:
        approval = json.loads(revision.approval)
        file, credentials = proposal_file_of(approval), [entry.get("credential", "") for entry in _entries(approval)]
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return False
    proposal, hashed = file.proposal, proposal_hash(file.proposal, file.before)
    confirmations = proposal.confirmations[:REQUIRED_CONFIRMATIONS]
    if len(confirmations) < REQUIRED_CONFIRMATIONS or revision.link.proposal != proposal.id:
        return False
    origin, seen = confirmations[0].origin, set[str]()
    for number, (claimed, credential) in enumerate(zip(confirmations, credentials, strict=False), start=1):
        made = confirmation(
            proposal=proposal,
            hashed=hashed,
            number=number,
            by=claimed.by,
            at=claimed.at,
            project=ProjectRef(project, origin),
        )
        approver = voter(credential, sealing, claimed.at, account=account) if credential else None
        signer = signer_of(sealing if approver is None else (approver,), made.record(), claimed.signature)
        if signer is None or (claimed.project, claimed.origin) != (project, origin):
            return False
        names = {signer.public, claimed.by} if approver is not None else set()
        if names & seen:
            return False
        seen |= names
    return approver is not None and all(
        signed_by(approver.public, statement, signature)
        for statement, signature in (
            (revision.statement(project), revision.seal),
            (revision.link.statement, revision.link.signature),
        )
    )


def voter(credential: str, sealing: Sequence[Approver], at: datetime | str, *, account: str) -> Approver | None:
    """Return the approver whom the signed record of an access key allowed at that time for this account."""
    try:
        signed_at = datetime.fromisoformat(at) if isinstance(at, str) else at
        record = json.loads(credential)
        key, maker = record["said"], record.get("maker")
        if key["account"] != account:
            return None
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
            return None
        return Approver(key["user"] or key["id"], key["public"])
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None


def _entries(approval: Mapping[str, Json]) -> list[Mapping[str, str]]:
    return [entry for entry in items(approval["confirmations"]) if isinstance(entry, dict)]


def _allows(key: Mapping[str, Json], roles: Sequence[str], at: datetime) -> bool:
    ends_at = key["expires_at"]
    return (
        key["what"] == Admitted.WHAT
        and key["role"] in roles
        and bool(key["public"])
        and datetime.fromisoformat(text(key["created_at"])) <= at
        and not (ends_at and at >= datetime.fromisoformat(text(ends_at)))
    )
