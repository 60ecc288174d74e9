"""`/v1`: use cases over HTTP, and decisions signed on other machines.

`PATHS` has for each path the row of `table` and the right that its caller needs. A body is the row's request and the
claims about the caller (`CLAIMS`), which are checked against the credential in `callers` and not passed on. OpenAPI is
made from the same table. A body that is no object, repeats a name, holds NaN or is nested too deeply is refused.

`/v1/review`: what waits for a decision, and the decisions of approvers. The access key says that its holder may decide;
the decision itself is signed where the passphrase was typed, over this one call, what was shown and a challenge that is
good once (`identity/signed_requests`). So a key in an agent's configuration approves nothing. The public signing key is
part of the access key's record, which the server's human signed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_schema import schema_of
from memory_anchor.base.json_values import Json, Record, kind_of, record
from memory_anchor.domain import rights
from memory_anchor.domain.credential import Role
from memory_anchor.domain.errors import BadInput, Refused
from memory_anchor.domain.model import Actor
from memory_anchor.domain.requests.checks import NAME_MAX, REQUEST_ID_MAX
from memory_anchor.domain.requests.fields import BaseRequest, is_left_out
from memory_anchor.domain.rights import Action, Principal
from memory_anchor.extensions.service.variants import DEFAULT_VARIANT, VariantChoice
from memory_anchor.front.callers import PROJECT_HEADER, REVIEWER, actor_from, credential_of
from memory_anchor.front.mcp_server import project_for
from memory_anchor.front.table import ROWS
from memory_anchor.identity.keys import Approver
from memory_anchor.identity.signed_requests import Proof, SignedCall
from memory_anchor.identity.statements import server_of
from memory_anchor.runtime.wire import PREAMBLE

if TYPE_CHECKING:
    from memory_anchor.extensions.service.limits import Places
    from memory_anchor.process.wiring import Core
    from memory_anchor.use_cases.memory import MemoryAnchor

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[dict[str, object]]]
CLAIMS: Mapping[str, str] = {
    "account_id": "The key's own; another one is refused.",
    "user_id": "The key's own; named where the key is bound to no user.",
    "project_id": "The key's own; named where the key is bound to no project.",
    "conversation_id": "The conversation that asks.",
    "agent_id": "The agent that asks, e.g. `codex`.",
    "zone": "IANA time zone in which times without one are read.",
}
CLAIMS_SCHEMA: Mapping[str, Json] = {
    name: {"type": "string", "maxLength": NAME_MAX, "description": about} for name, about in CLAIMS.items()
}
REQUEST_ID = "request_id"
PRINCIPAL_OF_ROLE: Mapping[Role, Principal] = {
    Role.READER: Principal.READER_KEY,
    Role.WRITER: Principal.WRITER_KEY,
    Role.APPROVER: Principal.APPROVER_KEY,
    Role.ADMIN: Principal.ADMIN_KEY,
}
EVENT_FIELDS = frozenset({"when", "where", "who", "ttl_days"})
"""Fields that only an event has: a `store` with one of them logs an event."""


@dataclass(frozen=True, slots=True)
class V1Path:
    """path: below /v1. row: of the table. action: what its caller must be allowed. writes: once per request_id."""

    path: str
    row: str
    action: Action
    writes: bool = False
    method: str = "POST"


PATHS = (
    V1Path("memory/search", "search", Action.READ),
    V1Path("memory/get", "get", Action.READ),
    V1Path("memory/history", "history", Action.READ),
    V1Path("memory/list", "list", Action.READ),
    V1Path("memory/events", "events", Action.READ),
    V1Path("memory/store", "add", Action.SAVE, writes=True),
    V1Path("memory/log", "log", Action.LOG, writes=True),
    V1Path("memory/promote", "promote", Action.PROMOTE, writes=True),
    V1Path("memory/forget", "forget", Action.FORGET, writes=True),
    V1Path("memory/remember", "remember", Action.LEARN, writes=True),
    V1Path("memory/context", "context", Action.READ),
    V1Path("constitution", "constitution", Action.READ),
    V1Path("knowledge/search", "knowledge_search", Action.READ),
    V1Path("knowledge/get", "knowledge_get", Action.READ),
    V1Path("knowledge/sources", "knowledge_sources", Action.READ, method="GET"),
    V1Path("knowledge/add", "knowledge_push", Action.KNOWLEDGE, writes=True),
    V1Path("knowledge/ingest", "knowledge_push", Action.KNOWLEDGE, writes=True),
    V1Path("knowledge/remove", "knowledge_remove", Action.KNOWLEDGE, writes=True),
)


class V1Handler:
    """What every path of /v1 does: authorise the caller, check the body, run the work on one of a few threads."""

    def __init__(self, core: Core, places: Places, variants: VariantChoice) -> None:
        self.core = core
        self.places = places
        self.variants = variants

    async def body(self, request: Request) -> dict[str, Json]:
        return body_of(await request.body())

    def actor(self, request: Request, claims: Mapping[str, str], *, action: Action) -> Actor:
        """Return the caller. Raises Refused: its claims differ from the credential, or its role lacks the right."""
        credential = credential_of(request)
        rights.check(action, PRINCIPAL_OF_ROLE[credential.role])
        preamble = PREAMBLE.get()
        return actor_from(
            preamble._replace(zone=claims["zone"] or preamble.zone),
            client_name=claims["agent_id"],
            conversation=claims["conversation_id"],
            account=claims["account_id"],
            user=claims["user_id"],
            project=claims["project_id"] or request.headers.get(PROJECT_HEADER, ""),
            agent=self.core.settings.scope.agent,
            project_dir=project_for(credential.account, self.core),
            read_only=self.core.settings.read_only,
            credential=credential,
        )

    async def run(self, actor: Actor, work: Callable[[MemoryAnchor], T], *, variant: str = DEFAULT_VARIANT) -> T:
        """Return `work(anchor)` for the caller, run on a thread. Raises Unavailable: too many requests."""

        def run() -> T:
            with self.core.foreground, self.variants.answering(variant):
                return work(self.core.anchor(actor))

        return await self.places.run(run)

    async def answer(self, request: Request, path: V1Path, body: dict[str, Json]) -> Record:
        """Return the answer of a path's row to a body."""
        claims = pop_claims(body)
        row = ROWS["log" if path.row == "add" and EVENT_FIELDS & body.keys() else path.row]
        name = "" if REQUEST_ID in row.request.model_fields else pop_text(body, REQUEST_ID, REQUEST_ID_MAX)
        checked = row.request.read(body, path.path.rpartition("/")[2])
        actor = self.actor(request, claims, action=path.action)
        scope, request_id, turn = actor.scope, name or str(getattr(checked, REQUEST_ID, "") or ""), ""
        if path.writes and request_id:
            caller = (scope.account, actor.project, scope.user, scope.agent, scope.conversation)
            turn = stable_hash("http", path.path, *caller, request_id)
            actor = replace(actor, nonce=turn if name else actor.nonce)
        once = self.core.services.answers.once
        variant = self.variants.choose(request, actor, scope.conversation)

        def work(anchor: MemoryAnchor) -> Record:
            began = time.monotonic()
            answer: Record = once(actor.nonce, repr(checked), partial(row.answer, anchor, checked))
            if path.row == "search":
                self.variants.count_search(variant, actor, answer, time.monotonic() - began)
            return answer

        return await self.run(actor, work, variant=variant)


def add_paths(app: FastAPI, v1: V1Handler) -> None:
    def add(path: V1Path) -> None:
        async def handle(request: Request) -> dict[str, object]:
            body = await v1.body(request) if path.method == "POST" else dict[str, Json](request.query_params)
            return dict(await v1.answer(request, path, body))

        schema = _schema(path) if path.method == "POST" else None
        add_route(app, path.path, handle, summary_of(ROWS[path.row].request), schema)

    for path in PATHS:
        add(path)


def add_route(app: FastAPI, path: str, handle: Handler, summary: str, schema: Record | None) -> None:
    """Add a path of `/v1`. schema: of its body; None for a GET."""
    app.add_api_route(
        f"/v1/{path}",
        handle,
        methods=["GET" if schema is None else "POST"],
        operation_id=path.replace("/", "_"),
        summary=summary,
        openapi_extra=None if schema is None else body_schema(schema),
        responses=ERRORS,
    )


# --- bodies ------------------------------------------------------------------------------------------------------


def body_of(raw: bytes) -> dict[str, Json]:
    """Return a body's JSON object. Raises BadInput: it is none, or ambiguous."""
    try:
        body: Json = json.loads(raw or b"{}", object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except RecursionError:
        raise BadInput("the body is nested too deeply; allowed is a JSON object of some levels") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"the body is no JSON (see its character {error.pos}); allowed is a JSON object") from None
    except ValueError:  # no UTF-8, or a number of thousands of digits
        raise BadInput("the body is no JSON; allowed is a JSON object in UTF-8") from None
    if not isinstance(body, dict):
        raise BadInput(f"the body is {kind_of(body)}; allowed is a JSON object")
    return body


def pop_claims(body: dict[str, Json]) -> dict[str, str]:
    """Remove the claims about the caller from a body and return them. Raises BadInput: one is no name."""
    return {name: pop_text(body, name, NAME_MAX) for name in CLAIMS}


def pop_text(body: dict[str, Json], name: str, most: int) -> str:
    """Remove a text from a body and return it, "" where it is not given. Raises BadInput."""
    value = body.pop(name, None)
    if is_left_out(value):
        return ""
    if not isinstance(value, str) or len(value) > most or any(not (c.isprintable()) for c in value):
        raise BadInput(f"{name} cannot be taken; allowed is text of up to {most} printable characters")
    return value


def _without_repeats(pairs: list[tuple[str, Json]]) -> Record:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise BadInput("the body says one name twice; keep one")
    return fields


def _no_constant(constant: str) -> NoReturn:
    raise BadInput(f"the body holds {constant}, which is no JSON; allowed are numbers")


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


def summary_of(model: type[BaseRequest]) -> str:
    """Return the first line of a request's docstring."""
    return (model.__doc__ or "").split("\n")[0]


def body_schema(schema: Record) -> dict[str, object]:
    """Return the OpenAPI description of a path's body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def request_schema(row: str) -> dict[str, Json]:
    """Return the schema of a row's request with `CLAIMS`."""
    schema = plain_schema(ROWS[row].request)
    return {**schema, "properties": {**record(schema["properties"]), **CLAIMS_SCHEMA}}


def plain_schema(model: type[BaseRequest]) -> Record:
    """Return the schema of a request without the parts for tools and options."""
    schema = schema_of(model)
    properties = {
        name: {key: value for key, value in record(field).items() if key not in ("tool", "option")}
        for name, field in record(schema["properties"]).items()
    }
    return {**schema, "properties": properties}


def _schema(path: V1Path) -> Record:
    schema = request_schema(path.row)
    properties = dict(record(schema["properties"]))
    if path.writes and REQUEST_ID not in properties:
        about = "The same id with the same words is one."
        properties[REQUEST_ID] = {"type": "string", "maxLength": REQUEST_ID_MAX, "description": about}
    if path.row == "add":
        events = record(request_schema("log")["properties"])
        properties |= {name: events[name] for name in sorted(EVENT_FIELDS)}
    return {**schema, "properties": properties}


def document(app: FastAPI) -> dict[str, object]:
    """Return the OpenAPI document that FastAPI makes of the routes, with our errors and credentials."""
    openapi = get_openapi(title=app.title, version=app.version, routes=app.routes, summary="One memory for a team.")
    components = openapi["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["schemas"]["Failure"] = FAILURE
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    openapi["security"] = [{"key": []}]
    for methods in openapi["paths"].values():
        for operation in methods.values():
            operation["responses"].pop("422", None)
    return openapi


REVIEW_READS = {"inbox": Action.READ, "sides": Action.READ}
DECISIONS = {"accept": Action.ACCEPT, "reject": Action.REJECT, "settle": Action.MERGE}
HUMAN = "human"
PROOF: Record = {"type": "object", "description": "Challenge and signature."}


def approver_of(request: Request) -> Approver:
    """Return the approver of this access key. Raises Refused: it names no signing key."""
    credential = credential_of(request)
    if not credential.public:
        raise Refused(
            "this key has no signing key, and a decision is signed; ask for a key that was made with "
            "`memory-anchor keys create --role approver --signs-with KEY`"
        )
    return Approver(credential.user or credential.key, credential.public, (server_of(credential.digest),))


def add_review(app: FastAPI, v1: V1Handler) -> None:
    @app.post("/v1/review/challenge", operation_id="review_challenge", responses=ERRORS)
    async def challenge(request: Request) -> dict[str, object]:
        """Hand out what an approver signs with a decision; good once, for a minute."""
        actor = v1.actor(request, pop_claims(await v1.body(request)), action=Action.ACCEPT)
        return await v1.run(actor, lambda _: {**v1.core.challenge(actor)})

    def answer(
        name: str,
        body: Record,
        proof: Json,
        asks: Record,
        actor: Actor,
        approver: Approver | None,
        anchor: MemoryAnchor,
    ) -> Record:
        if approver is not None:
            human = v1.core.as_human(actor, SignedCall(name, body, asks, Proof.of(proof)), approver=approver)
            anchor = v1.core.anchor(human)
        row = ROWS[name]
        return row.answer(anchor, row.request.read(body, name))

    def add(name: str) -> None:
        async def handle(request: Request) -> dict[str, object]:
            body = await v1.body(request)
            claims, proof = pop_claims(body), body.pop(HUMAN, None)
            actor = v1.actor(request, claims, action=DECISIONS.get(name) or REVIEW_READS[name])
            approver = approver_of(request) if name in DECISIONS else None
            project = claims["project_id"] or request.headers.get(PROJECT_HEADER, "")
            asks: Record = {**REVIEWER, **({"project": project} if project else {})}
            return dict(await v1.run(actor, partial(answer, name, body, proof, asks, actor, approver)))

        schema = request_schema(name)
        if name in DECISIONS:
            schema["properties"] = {**record(schema["properties"]), HUMAN: PROOF}
        add_route(app, f"review/{name}", handle, summary_of(ROWS[name].request), schema)

    for name in (*REVIEW_READS, *DECISIONS):
        add(name)
