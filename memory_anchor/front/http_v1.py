"""`/v1`: the table of calls over HTTP, and the decisions that are signed elsewhere.

The paths of `/v1`: one table of path, row of `table`, and the deed that its caller must be allowed.

A body is the row's request, and beside it whose it is (`WHOSE`): read here, checked against the credential in
`callers`, and never handed on. OpenAPI is made from the same table. What a body may not be (no object, a name twice,
NaN, nested without end) is refused before anything is read of it.

`/v1/review`: what waits for a decision, and decisions of approvers, each signed with the approver's own key.

The access key says that somebody may decide; the decision itself is signed where the passphrase was typed, over this
one call, what was shown and a challenge that is good once (`identity/signed_requests`). So a key in an agent's own
configuration approves nothing. The signing key's public half stands in the access key's record, which the server's
human signed.

`/v1/constitution`: proposals for L0 that wait, with their difference, and approvals signed on other machines.

What is shown is made on the approver's machine from what `proposals` answers, and so is every statement that is signed
(`identity/elsewhere`); this only takes signatures. Two must fit: one over this very request and its challenge, which is
good once, and one over the confirmation, which is kept. A refusal is told to the audit trail with the approver's name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi

from memory_anchor import rights
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused
from memory_anchor.fields import BaseRequest, schema_of
from memory_anchor.front.callers import PROJECT_HEADER, REVIEWER, actor_from, credential_of
from memory_anchor.front.mcp_server import project_for
from memory_anchor.front.table import ROWS
from memory_anchor.front.variants import OWN_WAY, VariantChoice
from memory_anchor.hashing import stable_hash
from memory_anchor.identity.elsewhere import Vote, told_of
from memory_anchor.identity.keys import Approver
from memory_anchor.identity.proposals import answer
from memory_anchor.identity.signed_requests import Proof, SignedCall
from memory_anchor.inputs import NAME_MAX, REQUEST_ID_MAX
from memory_anchor.json_values import Json, Record, kind_of, record, text
from memory_anchor.model import Actor, Proposal, ProposalStatus
from memory_anchor.requests import ApproveProposal, DecideProposal, RejectProposal
from memory_anchor.rights import Deed, Who
from memory_anchor.runtime.wire import PREAMBLE
from memory_anchor.team.credential import Role
from memory_anchor.team.keys import KeyFile

if TYPE_CHECKING:
    from memory_anchor.core import Core
    from memory_anchor.identity.identity_schema import IdentitySchema
    from memory_anchor.memory import MemoryAnchor
    from memory_anchor.team.limits import Places

T = TypeVar("T")
WHOSE: Mapping[str, str] = {
    "account_id": "The key's own; another one is refused.",
    "user_id": "The key's own; named where the key is bound to no user.",
    "project_id": "The key's own; named where the key is bound to no project.",
    "conversation_id": "The conversation that asks.",
    "agent_id": "The agent that asks, e.g. `codex`.",
    "zone": "IANA time zone in which times without one are read.",
}
WHOSE_FIELDS: Mapping[str, Json] = {
    name: {"type": "string", "maxLength": NAME_MAX, "description": said} for name, said in WHOSE.items()
}
REQUEST_ID = "request_id"
COLUMN: Mapping[Role, Who] = {
    Role.READER: Who.READER_KEY,
    Role.WRITER: Who.WRITER_KEY,
    Role.APPROVER: Who.APPROVER_KEY,
    Role.ADMIN: Who.ADMIN_KEY,
}
LOGGED = frozenset({"when", "where", "who", "ttl_days"})
"""Names that only an event has: a `store` with one of them logs."""


@dataclass(frozen=True, slots=True)
class V1Path:
    """path: below /v1. row: of the table. deed: what its caller must be allowed. writes: is done once a request_id."""

    path: str
    row: str
    deed: Deed
    writes: bool = False
    method: str = "POST"


PATHS = (
    V1Path("memory/search", "search", Deed.READ),
    V1Path("memory/get", "get", Deed.READ),
    V1Path("memory/history", "history", Deed.READ),
    V1Path("memory/list", "list", Deed.READ),
    V1Path("memory/events", "events", Deed.READ),
    V1Path("memory/store", "add", Deed.SAVE, writes=True),
    V1Path("memory/log", "log", Deed.LOG, writes=True),
    V1Path("memory/promote", "promote", Deed.PROMOTE, writes=True),
    V1Path("memory/forget", "forget", Deed.FORGET, writes=True),
    V1Path("knowledge/search", "knowledge_search", Deed.READ),
    V1Path("knowledge/get", "knowledge_get", Deed.READ),
    V1Path("knowledge/sources", "knowledge_sources", Deed.READ, method="GET"),
    V1Path("knowledge/add", "knowledge_push", Deed.KNOWLEDGE, writes=True),
    V1Path("knowledge/ingest", "knowledge_push", Deed.KNOWLEDGE, writes=True),
    V1Path("knowledge/remove", "knowledge_remove", Deed.KNOWLEDGE, writes=True),
)


class Desk:
    """What every path of /v1 does with a request: who asks, may they, is it whole; then work on a bounded thread."""

    def __init__(self, core: Core, places: Places, variants: VariantChoice) -> None:
        self.core = core
        self.places = places
        self.variants = variants

    async def body(self, request: Request) -> dict[str, Json]:
        """Return the body as an object. Raises BadInput."""
        return body_of(await request.body())

    def actor(self, request: Request, whose: Mapping[str, str], *, deed: Deed) -> Actor:
        """Return who asks. Raises Refused: another one than the credential says, or a role that may not."""
        credential = credential_of(request)
        rights.check(deed, COLUMN[credential.role])
        preamble = PREAMBLE.get()
        return actor_from(
            preamble._replace(zone=whose["zone"] or preamble.zone),
            client_name=whose["agent_id"],
            conversation=whose["conversation_id"],
            account=whose["account_id"],
            user=whose["user_id"],
            project=whose["project_id"] or request.headers.get(PROJECT_HEADER, ""),
            agent=self.core.settings.scope.agent,
            project_dir=project_for(credential.account, self.core),
            read_only=self.core.settings.read_only,
            credential=credential,
        )

    async def run(self, actor: Actor, work: Callable[[MemoryAnchor], T], *, variant: str = OWN_WAY) -> T:
        """Return what `work` makes of the caller's memory. Raises Unavailable: too much is at work."""

        def asked() -> T:
            with self.core.foreground, self.variants.answering(variant):
                return work(self.core.anchor(actor))

        return await self.places.run(asked)

    async def answer(self, request: Request, path: V1Path, body: dict[str, Json]) -> Record:
        """Return what the row of a path says to a body."""
        whose = taken(body)
        row = ROWS[_row_of(path, body)]
        name = "" if REQUEST_ID in row.request.model_fields else text_of(body, REQUEST_ID, REQUEST_ID_MAX)
        wanted = row.request.read(body, path.path.rpartition("/")[2])
        actor = self.actor(request, whose, deed=path.deed)
        scope, sent, turn = actor.scope, name or str(getattr(wanted, REQUEST_ID, "") or ""), ""
        if path.writes and sent:
            own = (scope.account, actor.project, scope.user, scope.agent, scope.conversation, sent)
            turn = stable_hash("http", path.path, *own)
            actor = replace(actor, nonce=turn if name else actor.nonce)
        once = self.core.services.answers.once
        variant = self.variants.chosen(request, actor, actor.scope.conversation)

        def work(anchor: MemoryAnchor) -> Record:
            began = time.monotonic()
            with self.core.services.turn_of(turn):
                told: Record = once(actor.nonce, repr(wanted), partial(row.answer, anchor, wanted))
            if path.row == "search":
                self.variants.searched(variant, actor, told, time.monotonic() - began)
            return told

        return await self.run(actor, work, variant=variant)


def add_paths(app: FastAPI, desk: Desk) -> None:
    """Add every path of the table."""

    def add(path: V1Path) -> None:
        async def asked(request: Request) -> dict[str, object]:
            body = await desk.body(request) if path.method == "POST" else dict[str, Json](request.query_params)
            return dict(await desk.answer(request, path, body))

        row = ROWS[path.row].request
        app.add_api_route(
            f"/v1/{path.path}",
            asked,
            methods=[path.method],
            name=path.path,
            operation_id=path.path.replace("/", "_"),
            summary=(row.__doc__ or "").split("\n")[0],
            openapi_extra=body_schema(_schema(path)) if path.method == "POST" else None,
            responses=ERRORS,
        )

    for path in PATHS:
        add(path)


# --- bodies ------------------------------------------------------------------------------------------------------


def body_of(raw: bytes) -> dict[str, Json]:
    """Return a JSON object. Raises BadInput: it is none, or one that could be read in two ways."""
    try:
        body: Json = json.loads(raw or b"{}", object_pairs_hook=_each_once, parse_constant=_no_constant)
    except RecursionError:
        raise BadInput("the body is nested too deeply; allowed is a JSON object of some levels") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"the body is no JSON (see its character {error.pos}); allowed is a JSON object") from None
    except ValueError:  # no UTF-8, or a number of thousands of digits
        raise BadInput("the body is no JSON; allowed is a JSON object in UTF-8") from None
    if not isinstance(body, dict):
        raise BadInput(f"the body is {kind_of(body)}; allowed is a JSON object")
    return body


def taken(body: dict[str, Json]) -> dict[str, str]:
    """Take whose the request is out of its body. Raises BadInput: a name that is none."""
    return {name: text_of(body, name, NAME_MAX) for name in WHOSE}


def text_of(body: dict[str, Json], name: str, most: int) -> str:
    """Take a text out of a body, "" where it is not given. Raises BadInput."""
    value = body.pop(name, None)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > most or any(not (c.isprintable()) for c in value):
        raise BadInput(f"{name} cannot be taken; allowed is text of up to {most} printable characters")
    return value


def _row_of(path: V1Path, body: Record) -> str:
    return "log" if path.row == "add" and LOGGED & body.keys() else path.row


def _each_once(pairs: list[tuple[str, Json]]) -> Record:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise BadInput("the body says one name twice; keep one")
    return whole


def _no_constant(said: str) -> NoReturn:
    raise BadInput(f"the body holds {said}, which is no JSON; allowed are numbers")


# --- OpenAPI -----------------------------------------------------------------------------------------------------


FAILURE: Record = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string", "description": "One sentence."}},
}


def _error(what: str) -> dict[str, object]:
    schema = {"$ref": "#/components/schemas/Failure"}
    return {"description": what, "content": {"application/json": {"schema": schema}}}


ERRORS: dict[int | str, dict[str, object]] = {
    400: _error("The body cannot be taken."),
    401: _error("No credential, or one that is cut, expired, revoked or another server's."),
    403: _error("The credential may not do this, or is another account's."),
    404: _error("Nothing of this name that the caller may read."),
    409: _error("Somebody else changed it first."),
    413: _error("The body is too large."),
    429: _error("Asked too often; Retry-After says when to come again."),
    503: _error("The store or an issuer is away, or too much is at work."),
}


def body_schema(schema: Record) -> dict[str, object]:
    """Return what OpenAPI is told of a path's body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def request_schema(row: str) -> dict[str, Json]:
    """Return the schema of a row's request with whose it is."""
    whole = plain_schema(ROWS[row].request)
    return {**whole, "properties": {**record(whole["properties"]), **WHOSE_FIELDS}}


def plain_schema(model: type[BaseRequest]) -> Record:
    """Return the schema of a request without what only tools and options read of it."""
    whole = schema_of(model)
    shown = {
        name: {key: value for key, value in record(field).items() if key not in ("tool", "option")}
        for name, field in record(whole["properties"]).items()
    }
    return {**whole, "properties": shown}


def _schema(path: V1Path) -> Record:
    schema = request_schema(path.row)
    properties = dict(record(schema["properties"]))
    if path.writes and REQUEST_ID not in properties:
        told: Record = {
            "type": "string",
            "maxLength": REQUEST_ID_MAX,
            "description": "The same id with the same words is one.",
        }
        properties[REQUEST_ID] = told
    if path.row == "add":
        events = record(request_schema("log")["properties"])
        properties |= {name: events[name] for name in sorted(LOGGED)}
    return {**schema, "properties": properties}


def document(app: FastAPI) -> dict[str, object]:
    """Return the OpenAPI document: what FastAPI makes of the routes, with what all of them share."""
    told = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="One memory for a team.")
    told["components"]["schemas"] = {
        name: schema
        for name, schema in told["components"]["schemas"].items()
        if name not in ("HTTPValidationError", "ValidationError")
    } | {"Failure": FAILURE}
    told["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    told["security"] = [{"key": []}]
    for methods in told["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    return told


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


APPROVE, REJECT = "constitution_approve", "constitution_reject"
"""The calls' names in what an approver signs."""
PROPOSALS_DECIDED: Mapping[str, type[DecideProposal]] = {APPROVE: ApproveProposal, REJECT: RejectProposal}
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
            wanted = PROPOSALS_DECIDED[name].read(body, name.replace("_", "/")).asked()
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
