"""The HTTP front end: MCP at `/mcp` and `/sse`, and the paths of `/v1`.

One FastAPI app behind one guard (`http_access`). MCP runs on the SDK's own transports over the same server object that
stdio uses. Errors are `{code, message}` with the status of the error table; a bug is reported without details. Bodies
are bounded before they are parsed.
"""

from __future__ import annotations

import secrets
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from socket import socket
from typing import TYPE_CHECKING

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Mount, Route

from memory_anchor.domain.credential import Role
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Refused, report
from memory_anchor.domain.model import point_id
from memory_anchor.domain.requests.checks import sentence
from memory_anchor.domain.rights import Action
from memory_anchor.extensions.prompts import assembly
from memory_anchor.extensions.prompts.requests import PromptOverHttp
from memory_anchor.extensions.service import http_limits
from memory_anchor.extensions.service.admission import Admission
from memory_anchor.extensions.service.batches import Batches
from memory_anchor.extensions.service.http_access import (
    PATH_KEY,
    SECRET_PREFIX,
    Guard,
    error_body,
    is_loopback,
    retry_headers,
)
from memory_anchor.extensions.service.http_ingest import BatchWorker, add_ingest
from memory_anchor.extensions.service.http_v1 import (
    CLAIMS,
    ERRORS,
    V1Handler,
    add_paths,
    add_review,
    document,
)
from memory_anchor.extensions.service.issuer import FETCH_TIMEOUT_S, KEYS_BYTES_MAX, METADATA, JwtIssuer
from memory_anchor.extensions.service.keys import KeyFile
from memory_anchor.extensions.service.limits import Places
from memory_anchor.extensions.service.settings import HttpSettings
from memory_anchor.extensions.service.telemetry import CONTENT_TYPE, Telemetry
from memory_anchor.extensions.service.variants import VariantChoice
from memory_anchor.front import views
from memory_anchor.front.callers import credential_of
from memory_anchor.front.gone import about_path
from memory_anchor.front.mcp_server import build_server
from memory_anchor.runtime.listening import BACKLOG
from memory_anchor.runtime.relay import Relay, error_line
from memory_anchor.runtime.wire import VERSION, WIRE, Preamble

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from starlette.types import Message, Receive, Scope, Send

    from memory_anchor.process.wiring import Core
    from memory_anchor.settings import Settings
    from memory_anchor.use_cases.memory import MemoryAnchor

SECRET_BYTES = 24
SUPPORTED_PROTOCOL_VERSIONS = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
STOP_WAIT_S = 5
MESSAGES_PATH = "/messages/"
SCHEMA = 1
"""Version of stored memories; raised with a change that an older version cannot read."""
PROBE = point_id("ready", 1)
ENTRY_POINTS = """Agents: /mcp, /sse. Programs: /v1, described by /openapi.json.
People: `memory-anchor dashboard` on this machine opens the pages; they are served by a process of your own terminal."""


class ContextAnswer(BaseModel):
    """messages, tools: what to send to the model. text: the context to place before the conversation."""

    messages: list[dict[str, object]]
    tools: list[dict[str, object]]
    text: str
    report: dict[str, object]
    report_id: str = ""
    notes: list[str] = Field(default_factory=list)


class Health(BaseModel):
    status: str


class Version(BaseModel):
    """version: of the package. wire: of the engine's protocol. schema_version: of stored memories. index_version: of
    vectors and words. algo_version: of recall and its settings."""

    version: str
    wire: int
    schema_version: int
    index_version: str
    algo_version: str


class Ready(BaseModel):
    status: str


def build_http(core: Core, settings: Settings, *, secret: str = "", zone: str = "") -> Guard:
    """Return the guarded ASGI app.

    secret: opens `/s/SECRET/...` on loopback. zone: IANA name in which naive times of callers are read, "" for UTC.
    Raises Refused: an address other than loopback, and neither a key nor a token.
    """
    # FastAPI gives each body its parameter's name as an alias, which pydantic warns about for a model built late.
    warnings.filterwarnings("ignore", "The 'alias' attribute with value 'prompt'", UnsupportedFieldAttributeWarning)
    keys = KeyFile.of(core.data_dir, core.audit)
    check_credentials(settings, keys, core.clock.now())
    http = settings.group(HttpSettings)
    jwt, issuer = http.jwt, None
    if jwt.issuer or jwt.audience or jwt.jwks_url:
        issuer = JwtIssuer(jwt, account=settings.scope.account, fetch=fetch_keys, monotonic=time.monotonic)
    variants = VariantChoice(core)
    server = build_server(core, profile=settings.profile, read_only=settings.read_only, variants=variants)
    manager = StreamableHTTPSessionManager(app=server)
    events = SseServerTransport(MESSAGES_PATH)
    worker = BatchWorker(core, Batches(core.records), variants)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        try:
            async with manager.run():
                yield
        finally:
            await anyio.to_thread.run_sync(worker.stop)
            keys.save_use()
            variants.use.keep()

    async def sse(scope: Scope, receive: Receive, send: Send) -> None:
        async with events.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    app = FastAPI(title="Memory Anchor", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.router.routes.append(
        Route("/mcp", endpoint=_Checked(manager.handle_request), methods=["GET", "POST", "DELETE"])
    )
    app.router.routes.append(Route("/sse", endpoint=_Asgi(sse), methods=["GET"]))
    app.router.routes.append(Mount(MESSAGES_PATH, app=events.handle_post_message))
    v1 = V1Handler(core, Places(http.at_once), variants)
    telemetry = Telemetry(
        {
            "batches_waiting": ("Batches of /v1/ingest that wait.", lambda: float(worker.batches.count())),
            "unembedded": (
                "Memories that have no vector yet.",
                lambda: float(core.services.searcher.index.unembedded()),
            ),
        }
    )
    _add_routes(app, v1)
    _add_metrics(app, telemetry)
    if issuer is not None:
        _add_metadata(app, issuer)
    add_paths(app, v1)
    add_ingest(app, v1, worker)
    add_review(app, v1)
    _add_errors(app)
    app.openapi = lambda: document(app)  # type: ignore[method-assign]
    admission = Admission(
        keys,
        tokens=http.tokens,
        requests_a_minute=http.requests_per_minute,
        now=core.clock.now,
        monotonic=time.monotonic,
        issuer=issuer,
    )
    return Guard(
        app,
        host=http.host,
        admission=admission,
        secret=secret,
        account=settings.scope.account,
        preamble=Preamble(zone=zone),
        telemetry=telemetry,
    )


class _Asgi:
    """Marks a bound method as an ASGI app: the router would take it for a request handler."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _Checked(_Asgi):
    """Refuses in our words what the SDK refuses in pydantic's, or with a bug of its own.

    A message is checked as a bridge checks a line. Events are not stored: a stream that a client resumes begins anew.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        version = headers.get("mcp-protocol-version", SUPPORTED_PROTOCOL_VERSIONS[0])
        wrong, replay = None, receive
        if scope["method"] == "POST":
            message = await receive()  # whole: the guard read it
            wrong = Relay().from_client(message.get("body", b""))[1]
            waiting = [message]

            async def replay() -> Message:
                return waiting.pop() if waiting else await receive()

        if version not in SUPPORTED_PROTOCOL_VERSIONS:
            allowed = ", ".join(SUPPORTED_PROTOCOL_VERSIONS)
            sentence = f"unsupported MCP-Protocol-Version {version[:40]!r}; allowed are {allowed}"
            wrong = error_line(None, UNSUPPORTED_PROTOCOL_VERSION, sentence)
        if wrong is not None:
            await Response(wrong, status_code=400, media_type="application/json")(scope, receive, send)
            return
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"last-event-id"]
        await super().__call__(scope, replay, send)


def _add_routes(app: FastAPI, v1: V1Handler) -> None:
    core = v1.core

    @app.get("/", include_in_schema=False)
    async def root() -> PlainTextResponse:
        return PlainTextResponse(f"Memory Anchor {VERSION}\n{ENTRY_POINTS}\n")

    @app.get("/v1/health")
    async def health() -> Health:
        return Health(status="ok")

    @app.get("/v1/ready", responses={503: ERRORS[503]})
    async def ready() -> Ready:
        """Say whether the store answers."""
        await v1.places.run(lambda: core.services.store.get("verified_fact", [PROBE]))
        return Ready(status="ready")

    @app.get("/v1/version")
    async def version() -> Version:
        versions = v1.variants.versions()
        return Version(
            version=VERSION,
            wire=WIRE,
            schema_version=SCHEMA,
            index_version=versions["index_version"],
            algo_version=versions["algo_version"],
        )

    @app.post("/v1/context", responses=ERRORS)
    async def context(request: Request, prompt: PromptOverHttp) -> ContextAnswer:
        """Return the prompt with what memory knows for its task, within the model's window."""
        if not prompt.account_id and not credential_of(request).by_name:
            raise BadInput("account_id is missing; see /openapi.json for what is required")
        actor = v1.actor(request, {name: getattr(prompt, name, "") for name in CLAIMS}, action=Action.CONTEXT)

        def assemble(anchor: MemoryAnchor) -> ContextAnswer:
            built = assembly.assemble(anchor, prompt)
            return ContextAnswer(
                messages=[dict(message) for message in built.messages],
                tools=[dict(tool) for tool in built.tools],
                text=built.text,
                report=views.report(built.report, reader=anchor.actor.scope),
                report_id=built.report_id,
                notes=list(built.notes),
            )

        variant = v1.variants.choose(request, actor, actor.scope.conversation)
        return await v1.run(actor, assemble, variant=variant)


def _add_metrics(app: FastAPI, telemetry: Telemetry) -> None:
    @app.get("/metrics", responses={403: ERRORS[403], 503: ERRORS[503]})
    async def metrics(request: Request) -> PlainTextResponse:
        """Tell what was counted, as Prometheus reads it: for an admin's key, and by the path secret."""
        credential = credential_of(request)
        if credential.role is not Role.ADMIN and credential.key != PATH_KEY:
            raise Refused("/metrics is for an admin's key, or the path secret on this machine")
        return PlainTextResponse(await anyio.to_thread.run_sync(telemetry.text), media_type=CONTENT_TYPE)


def _add_metadata(app: FastAPI, issuer: JwtIssuer) -> None:
    async def metadata() -> JSONResponse:
        return JSONResponse(issuer.metadata(), headers={"Cache-Control": "max-age=3600"})

    for path in (METADATA, f"{METADATA}/{{rest:path}}"):
        app.add_api_route(path, metadata, methods=["GET"], include_in_schema=False)


def fetch_keys(url: str) -> bytes:
    """Return the bytes of an issuer's keys. Raises OSError: unreachable, slow, too large, or a status but 200."""
    import httpx2

    try:
        with httpx2.stream("GET", url, timeout=FETCH_TIMEOUT_S, follow_redirects=False) as answer:
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > KEYS_BYTES_MAX:
                    raise OSError(f"more than {KEYS_BYTES_MAX} bytes")
            if answer.status_code != 200:
                raise OSError(f"status {answer.status_code}")
            return bytes(body)
    except httpx2.HTTPError as error:
        raise OSError(str(error)) from error


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
        body = error_body(error, str(error.detail))
        if error.status_code in (404, 405):
            gone = about_path(request.url.path)
            body = error_body(NotFound(gone or f"no {request.method} {request.url.path[:80]!r} here"))
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return JSONResponse(error_body(error, "internal error; the server's log says where"), status_code=500)


def _sentence(errors: Sequence[ErrorDetails]) -> str:
    """Return the first error of a body in one sentence, without the value: it may be a prompt."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is no JSON (see its character {first['loc'][-1]}); allowed is a JSON object"
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    if first["type"] == "missing":
        return f"{where} is missing; see /openapi.json for what is required"
    if first["type"] == "extra_forbidden":
        return f"{where} is unknown; allowed are {', '.join(PromptOverHttp.model_fields)}"
    within = tuple(part for part in first["loc"] if part != "body")
    return sentence({**first, "loc": within}, PromptOverHttp, "the body")


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def open_listener(settings: Settings, keys: KeyFile, now: datetime) -> socket:
    """Return the socket to serve on, once all else is checked too: before a running engine is asked to hand over.

    Raises Unavailable: the address cannot be had. Refused: other machines may reach it, and no tokens. BadInput.
    """
    http = settings.group(HttpSettings)
    check_tls(http.tls_cert, http.tls_key)
    check_credentials(settings, keys, now)
    return http_limits.listen(http.host, http.port, "http.port")


def check_credentials(settings: Settings, keys: KeyFile, now: datetime) -> None:
    """Raise Refused: an address other than loopback, and nothing that opens it."""
    http = settings.group(HttpSettings)
    if not (is_loopback(http.host) or http.tokens or http.jwt.issuer or keys.any_open(now)):
        raise Refused(
            f"http.host is {http.host!r}, and there is no key and http.tokens is empty; other machines need "
            "one: `memory-anchor keys create`"
        )


def serve(
    core: Core, settings: Settings, listener: socket, *, zone: str = "", announce: Callable[[str], None] = say
) -> None:
    """Serve until interrupted. announce: gets the addresses, on loopback one with its secret."""
    http = settings.group(HttpSettings)
    host = http.host
    secret = secrets.token_urlsafe(SECRET_BYTES) if is_loopback(host) else ""
    app = build_http(core, settings, secret=secret, zone=zone)
    scheme = "https" if http.tls_cert else "http"
    base = f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    announce(f"Memory Anchor serves MCP at {base}/mcp and {base}/sse (bearer token: a key or one of http.tokens)")
    if secret:
        announce(f"without a token, on this machine only: {base}{SECRET_PREFIX}{secret}/mcp")
    http_limits.run_server(
        app,
        listener,
        backlog=BACKLOG,
        stop_wait_s=STOP_WAIT_S,
        tls_cert=http.tls_cert,
        tls_key=http.tls_key,
    )


def check_tls(cert: str, key: str) -> None:
    """Raise BadInput unless both files are there and belong together, or neither is named."""
    if not cert and not key:
        return
    if not cert or not key:
        raise BadInput("http.tls_cert and http.tls_key go together; give both, or neither behind a proxy with TLS")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # an SSLError is one
        reason = getattr(error, "reason", None) or error.strerror or "not PEM"
        raise BadInput(
            f"http.tls_cert {cert} with http.tls_key {key} cannot be used ({reason}); allowed are PEM files"
        ) from None
