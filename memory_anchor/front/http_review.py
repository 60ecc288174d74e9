"""`/v1/review`: what waits for a decision, and decisions of approvers, each signed with the approver's own key.

The access key says that somebody may decide; the decision itself is signed where the passphrase was typed, over this
one call, what was shown and a challenge that is good once (`identity/signed_requests`). So a key in an agent's own
configuration approves nothing. The signing key's public half stands in the access key's record, which the server's
human signed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request

from memory_anchor.errors import Refused
from memory_anchor.front.callers import REVIEWER, credential_of
from memory_anchor.front.http_v1 import ERRORS, Desk, body_schema, request_schema, taken
from memory_anchor.front.table import ROWS
from memory_anchor.identity.approval import Approver
from memory_anchor.identity.signed_requests import Proof, SignedCall
from memory_anchor.json_values import Json, Record, record
from memory_anchor.model import Actor
from memory_anchor.rights import Deed

if TYPE_CHECKING:
    from memory_anchor.memory import MemoryAnchor

LOOKED_AT = {"inbox": Deed.READ, "sides": Deed.READ}
DECIDED = {"accept": Deed.ACCEPT, "reject": Deed.REJECT, "settle": Deed.MERGE}
HUMAN = "human"
PROOF: Record = {"type": "object", "description": "Challenge, its end, account, project and signature."}


def approver_of(request: Request) -> Approver:
    """Return who signs decisions that come with this access key. Raises Refused: it names no signing key."""
    credential = credential_of(request)
    if not credential.public:
        raise Refused(
            "this key has no signing key, and a decision is signed; ask for a key that was made with "
            "`memory-anchor keys create --role approver --signs-with KEY`"
        )
    return Approver(credential.user or credential.key, credential.public)


def add_review(app: FastAPI, desk: Desk) -> None:
    """Add the paths of `/v1/review`."""

    @app.post("/v1/review/challenge", operation_id="review_challenge", responses=ERRORS)
    async def challenge(request: Request) -> dict[str, object]:
        """Hand out what an approver signs with a decision; good once, for a minute."""
        actor = desk.actor(request, taken(await desk.body(request)), deed=Deed.ACCEPT)
        return await desk.run(actor, lambda _: {**desk.core.challenge(actor)})

    def answered(
        name: str, body: Record, proof: Json, actor: Actor, own: Approver | None, anchor: MemoryAnchor
    ) -> Record:
        if own is not None:
            human = desk.core.as_human(actor, SignedCall(name, body, REVIEWER, Proof.of(proof)), approver=own)
            anchor = desk.core.anchor(human)
        row = ROWS[name]
        return row.answer(anchor, row.request.read(body, name))

    def add(name: str) -> None:
        async def asked(request: Request) -> dict[str, object]:
            body = await desk.body(request)
            whose, proof = taken(body), body.pop(HUMAN, None)
            actor = desk.actor(request, whose, deed=DECIDED.get(name) or LOOKED_AT[name])
            own = None
            if name in DECIDED:
                own = approver_of(request)
            return dict(await desk.run(actor, partial(answered, name, body, proof, actor, own)))

        schema = request_schema(name)
        if name in DECIDED:
            schema["properties"] = {**record(schema["properties"]), HUMAN: PROOF}
        app.add_api_route(
            f"/v1/review/{name}",
            asked,
            methods=["POST"],
            operation_id=f"review_{name}",
            summary=(ROWS[name].request.__doc__ or "").split("\n")[0],
            openapi_extra=body_schema(schema),
            responses=ERRORS,
        )

    for name in (*LOOKED_AT, *DECIDED):
        add(name)
