"""The HTTP front end: MCP at `/mcp` and `/sse`, and the paths of `/v1`.

One FastAPI app behind one guard (`http_access`). MCP runs on the SDK's own transports over the same server object that
stdio uses. Errors are `{code, message}` with the status of the one table; a bug says nothing but that it is one.
Bodies are bounded before they are parsed.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from memory_anchor import shapes
from memory_anchor.errors import BadInput, MemoryAnchorError, NotFound, Refused, Unavailable, report
from memory_anchor.fields import sentence
from memory_anchor.front import http_limits
from memory_anchor.front.callers import credential_of
from memory_anchor.front.http_access import SECRET_PREFIX, Guard, error_body, is_loopback, retry_headers
from memory_anchor.front.http_v1 import ERRORS, WHOSE, Desk, add_paths
from memory_anchor.front.mcp_server import build_server
from memory_anchor.model import point_id
from memory_anchor.requests import PromptOverHttp
from memory_anchor.rights import Deed
from memory_anchor.runtime import limits
from memory_anchor.runtime.wire import VERSION, WIRE, Preamble
from memory_anchor.team.admission import Admission
from memory_anchor.team.keys import KeyFile
from memory_anchor.team.limits import Places

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from memory_anchor.core import Core
    from memory_anchor.memory import MemoryAnchor
    from memory_anchor.settings import Settings

SECRET_BYTES = 24
BACKLOG = 32
"""Also how many connections are accepted before the first of them can be closed again."""
STOP_WAIT_S = 5
MESSAGES_PATH = "/messages/"
PROBE = point_id("ready", 1)


class ContextAnswer(BaseModel):
    """messages, tools: what to send to the model. text: the context to place before the conversation."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    text: str
    report: dict[str, Any]
    report_id: str = ""
    notes: list[str] = Field(default_factory=list)


class Health(BaseModel):
    status: str


class Version(BaseModel):
    version: str
    wire: int


class Ready(BaseModel):
    status: str


def build_http(core: Core, settings: Settings, *, secret: str = "", zone: str = "") -> Guard:
    """Return the guarded ASGI app.

    secret: opens `/s/SECRET/...` on loopback. zone: IANA name in which naive times of callers are read, "" for UTC.
    Raises Refused: an address other than loopback, and neither a key nor a token.
    """
    keys = KeyFile.of(core.data_dir, core.audit)
    if not (is_loopback(settings.http.host) or settings.http.tokens or keys.any_open(core.clock.now())):
        raise Refused(
            f"http.host is {settings.http.host!r}, and there is no key and http.tokens is empty; other machines need "
            "one: `memory-anchor keys create`"
        )
    server = build_server(core, profile=settings.profile, read_only=settings.read_only)
    manager = StreamableHTTPSessionManager(app=server)
    events = SseServerTransport(MESSAGES_PATH)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with manager.run():
            yield

    async def sse(scope: Scope, receive: Receive, send: Send) -> None:
        async with events.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    app = FastAPI(title="Memory Anchor", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.routes.append(Route("/mcp", endpoint=_Asgi(manager.handle_request), methods=["GET", "POST", "DELETE"]))
    app.router.routes.append(Route("/sse", endpoint=_Asgi(sse), methods=["GET"]))
    app.router.routes.append(Mount(MESSAGES_PATH, app=events.handle_post_message))
    desk = Desk(core, Places(settings.http.at_once))
    _add_routes(app, desk)
    add_paths(app, desk)
    _add_errors(app)
    admission = Admission(
        keys,
        tokens=settings.http.tokens,
        requests_a_minute=settings.http.requests_per_minute,
        now=core.clock.now,
        monotonic=time.monotonic,
    )
    return Guard(
        app,
        host=settings.http.host,
        admission=admission,
        secret=secret,
        account=settings.scope.account,
        preamble=Preamble(zone=zone),
    )


class _Asgi:
    """Marks a bound method as an ASGI app: the router would take it for a request handler."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _add_routes(app: FastAPI, desk: Desk) -> None:
    core = desk.core

    @app.get("/v1/health")
    async def health() -> Health:
        return Health(status="ok")

    @app.get("/v1/ready", responses={503: ERRORS[503]})
    async def ready() -> Ready:
        """Say whether the store answers."""
        await desk.places.run(lambda: core.services.store.get("verified_fact", [PROBE]))
        return Ready(status="ready")

    @app.get("/v1/version")
    async def version() -> Version:
        return Version(version=VERSION, wire=WIRE)

    @app.post("/v1/context", responses=ERRORS)
    async def context(
        request: Request,
        asked: PromptOverHttp,
        x_km_variant: Annotated[str | None, Header()] = None,
    ) -> ContextAnswer:
        """Return the prompt with what memory knows for its task, within the model's window."""
        if x_km_variant is not None:
            raise BadInput("X-KM-Variant selects nothing yet: there are no variants to choose from; leave it out")
        if not asked.account_id and not credential_of(request).by_name:
            raise BadInput("account_id is missing; see /openapi.json for what is required")
        whose = {name: getattr(asked, name, "") for name in WHOSE}
        actor = desk.actor(request, whose, deed=Deed.CONTEXT)

        def made(anchor: MemoryAnchor) -> ContextAnswer:
            built = anchor.assemble(asked)
            return ContextAnswer(
                messages=[dict(one) for one in built.messages],
                tools=[dict(one) for one in built.tools],
                text=built.text,
                report=shapes.report(built.report, reader=anchor.actor.scope),
                report_id=built.report_id,
                notes=list(built.notes),
            )

        answer: ContextAnswer = await desk.run(actor, made)
        return answer


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(MemoryAnchorError)
    async def ours(_: Request, error: MemoryAnchorError) -> JSONResponse:
        return JSONResponse(error_body(error), status_code=report(error).status, headers=retry_headers(error))

    @app.exception_handler(RequestValidationError)
    async def misshapen(_: Request, error: RequestValidationError) -> JSONResponse:
        wrong = BadInput(_sentence(error.errors()))
        return JSONResponse(error_body(wrong), status_code=report(wrong).status)

    @app.exception_handler(HTTPException)
    async def unrouted(request: Request, error: HTTPException) -> JSONResponse:
        told = (
            NotFound(f"no {request.method} {request.url.path[:80]!r} here") if error.status_code in (404, 405) else None
        )
        body = error_body(told) if told else error_body(error, str(error.detail))
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_body(error, "internal error; the server's log says where"), status_code=500)


def _sentence(errors: Sequence[Any]) -> str:
    """Return the first complaint about a body in one sentence, without the value: it may be a prompt."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON (see its character {first['loc'][-1]}); allowed is a JSON object"
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    if first["type"] == "missing":
        return f"{where} is missing; see /openapi.json for what is required"
    if first["type"] == "extra_forbidden":
        return f"{where} is unknown; allowed are {', '.join(PromptOverHttp.model_fields)}"
    own: Any = {**first, "loc": tuple(part for part in first["loc"] if part != "body")}
    return sentence(own, PromptOverHttp, "the body")


def say(line: str) -> None:
    """Print a line at once, so that whoever reads through a pipe is told too."""
    print(line, flush=True)


def serve(
    core: Core,
    settings: Settings,
    *,
    zone: str = "",
    announce: Callable[[str], None] = say,
) -> None:
    """Serve until interrupted. announce: is told where, and on loopback the address with its secret.

    Raises Unavailable: the port is taken. Refused: an address other than loopback, and no tokens.
    """
    import uvicorn

    host = settings.http.host
    secret = secrets.token_urlsafe(SECRET_BYTES) if is_loopback(host) else ""
    app = build_http(core, settings, secret=secret, zone=zone)
    bound = _bound(host, settings.http.port)
    base = f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}"
    announce(f"Memory Anchor serves MCP at {base}/mcp and {base}/sse (bearer token: http.tokens)")
    if secret:
        announce(f"without a token, on this machine only: {base}{SECRET_PREFIX}{secret}/mcp")
    config = uvicorn.Config(
        app,
        http=http_limits.protocol(limits.connections()),
        ws="none",
        backlog=BACKLOG,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_WAIT_S,
    )
    limits.throttle_logs()
    uvicorn.Server(config).run(sockets=[bound])


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError as error:
        raise Unavailable(
            f"{host}:{port} cannot be served ({error.strerror or error}); choose another http.port, 0 for any free one"
        ) from error
    return bound
