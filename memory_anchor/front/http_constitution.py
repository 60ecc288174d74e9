"""`/v1/constitution`: proposals for L0 that wait, with their difference, and approvals signed on other machines.

What is shown is made on the approver's machine from what `proposals` answers, and so is every statement that is signed
(`identity/elsewhere`); this only takes signatures. Two must fit: one over this very request and its challenge, which is
good once, and one over the confirmation, which is kept. A refusal is told to the audit trail with the approver's name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request

from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.front.callers import REVIEWER, credential_of
from memory_anchor.front.http_review import HUMAN, PROOF, approver_of
from memory_anchor.front.http_v1 import ERRORS, WHOSE_FIELDS, Desk, body_schema, plain_schema, taken
from memory_anchor.identity.elsewhere import Vote, told_of
from memory_anchor.identity.proposals import answer
from memory_anchor.identity.signed_requests import Proof, SignedCall
from memory_anchor.json_values import Json, Record, record, text
from memory_anchor.model import Actor, Proposal, ProposalStatus
from memory_anchor.requests import ApproveProposal, DecideProposal, RejectProposal
from memory_anchor.rights import Deed
from memory_anchor.team.keys import KeyFile

if TYPE_CHECKING:
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.memory import MemoryAnchor

APPROVE, REJECT = "constitution_approve", "constitution_reject"
"""The calls' names in what an approver signs."""
DECIDED: Mapping[str, type[DecideProposal]] = {APPROVE: ApproveProposal, REJECT: RejectProposal}
REFUSED = "constitution.elsewhere_refused"
"""The kind of the audit record of a decision that was not taken."""


def add_constitution(app: FastAPI, desk: Desk, keys: KeyFile) -> None:
    """Add the paths of `/v1/constitution`."""
    core = desk.core

    def listed(by: str, anchor: MemoryAnchor) -> Record:
        schema = anchor.room.identity
        ground = told_of(schema.ground())
        waiting = [one for one in schema.proposals() if one.status is ProposalStatus.OPEN]
        rows = [_row(schema, one) for one in waiting]
        return {"proposals": rows, "ground": ground, "by": by, "notes": schema.unreadable_proposals()}

    def decided(name: str, body: Record, proof: Json, actor: Actor, request: Request, _: MemoryAnchor) -> Record:
        own, credential = approver_of(request), credential_of(request)
        try:
            human = core.as_human(actor, SignedCall(name, body, REVIEWER, Proof.of(proof)), approver=own)
            wanted = DECIDED[name].read(body, name.replace("_", "/")).asked()
            schema = core.anchor(human).room.identity
            if wanted["installation"] != schema.key_fingerprint():
                raise Refused("the decision is for another server; nothing was changed")
            if not core.key_opens(credential.key):
                raise Refused(f"the key {credential.key} has ended; nothing was changed")
            proposal, seen = text(wanted["id"]), text(wanted["seen"])
            vote = Vote(
                by=own.name,
                public=own.public,
                at=_instant(text(wanted["at"])),
                key=credential.key,
                credential=keys.record(credential.key),
                signatures=tuple(text(one) for one in map(wanted.get, ("signature", "link", "seal", "closing")) if one),
            )
            if name == REJECT:
                why = text(wanted["reason"])
                return dict(answer(schema.reject_elsewhere(proposal, vote, reason=why, seen=seen)))
            return dict(answer(schema.confirm_elsewhere(proposal, vote, seen=seen)))
        except MemoryAnchorError as error:
            told = {"proposal": str(body.get("id", ""))[:20], "why": str(error)[:200], "key": credential.key}
            core.audit.append(REFUSED, told, by=f"human:{own.name}", at=core.clock.now())
            raise

    async def proposals(request: Request) -> dict[str, object]:
        """List the proposals that wait, with their differences and what an approval is signed over."""
        actor = desk.actor(request, taken(await desk.body(request)), deed=Deed.READ)
        credential = credential_of(request)
        return dict(await desk.run(actor, partial(listed, credential.user or credential.key)))

    async def decide(request: Request, *, name: str, deed: Deed) -> dict[str, object]:
        body = await desk.body(request)
        whose, proof = taken(body), body.pop(HUMAN, None)
        actor = desk.actor(request, whose, deed=deed)
        approver_of(request)
        if core.settings.read_only:
            raise Refused("this memory is read-only; nothing was changed")
        return dict(await desk.run(actor, partial(decided, name, body, proof, actor, request)))

    async def approve(request: Request) -> dict[str, object]:
        return await decide(request, name=APPROVE, deed=Deed.APPROVE)

    async def reject(request: Request) -> dict[str, object]:
        return await decide(request, name=REJECT, deed=Deed.CLOSE)

    def add(name: str, work: Callable[[Request], Awaitable[dict[str, object]]], summary: str, schema: Record) -> None:
        fields = {**record(schema["properties"]), **WHOSE_FIELDS}
        app.add_api_route(
            f"/v1/constitution/{name}",
            work,
            methods=["POST"],
            operation_id=f"constitution_{name}",
            summary=summary,
            openapi_extra=body_schema({**schema, "properties": fields}),
            responses=ERRORS,
        )

    nothing: Record = {"type": "object", "properties": {}, "additionalProperties": False}
    add("proposals", proposals, "List the proposals for the constitution that wait, with their differences.", nothing)
    for name, work, request_type in (("approve", approve, ApproveProposal), ("reject", reject, RejectProposal)):
        whole = plain_schema(request_type)
        signed: Record = {**whole, "properties": {**record(whole["properties"]), HUMAN: PROOF}}
        add(name, work, (request_type.__doc__ or "").split("\n")[0], signed)


def _row(schema: IdentitySchema, proposal: Proposal) -> Record:
    """Return a proposal whole, so that who approves it can make its hash and its difference anew."""
    told = dict(answer(proposal))
    told["confirmed_by"] = [one.by for one in proposal.confirmations]
    told["content"], told["from_id"] = proposal.content, proposal.from_id
    try:
        return {**told, "diff": schema.diff(proposal)}
    except MemoryAnchorError as error:
        return {**told, "diff": "", "note": str(error)}


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadInput(f"at is {text[:40]!r}; allowed is an instant in ISO 8601 with a zone")
    return at.astimezone(UTC)
