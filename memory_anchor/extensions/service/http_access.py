"""HTTP access control, before any route: host, origin, bearer token or path secret.

A page in a browser can reach a loopback port, so Host and Origin are checked first (DNS rebinding). Then a credential:
a bearer token bound to an account, or, on loopback only, a secret as the first part of the path, for clients that
cannot send headers. Everything but health and version needs one. The credential travels in the SDK's own
`AuthenticatedUser`, so its transports also refuse a session to any other account.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio.to_thread

from memory_anchor.domain.credential import Credential, Role
from memory_anchor.domain.errors import (
    BadInput,
    MemoryAnchorError,
    NoCredential,
    Refused,
    TooLarge,
    TooMany,
    Unavailable,
    report,
)
from memory_anchor.extensions.service.admission import HOW, Admission
from memory_anchor.extensions.service.issuer import METADATA
from memory_anchor.extensions.service.limits import RETRY_AFTER_S
from memory_anchor.extensions.service.telemetry import Telemetry
from memory_anchor.front.callers import CREDENTIAL, PROJECT_HEADER, VARIANT_HEADER, check_project
from memory_anchor.language.safe_regex import late
from memory_anchor.runtime.cleanlog import log_bug
from memory_anchor.runtime.wire import PREAMBLE, InvalidSetting, Preamble, read_only_of

if TYPE_CHECKING:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECRET_PREFIX = "/s/"  # noqa: S105 - a path, not a secret
PATH_KEY = "path"
"""The key id of a request that came with the path secret."""
VARIANT_PREFIX = "/variants/"
"""Starts the address of a variant, for clients that can only set an address."""
OPEN_PATHS = frozenset({"/v1/health", "/v1/ready", "/v1/version"})
BODY_BYTES_MAX = 16 << 20
"""A prompt of a million tokens is about 4 MB."""
CONTENT_LENGTH_DIGITS = 18
SENT_ONCE = ("host", "origin", "sec-fetch-site", "content-type", "content-length", PROJECT_HEADER, VARIANT_HEADER)
"""Headers by which a request is let in, or which say whose it is and what it holds."""
_PORT = late(r":\d{1,5}$")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine only.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "example.com")]
    [True, True, True, False, False]
    """
    bare = host.strip("[]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


def headers_of(scope: Scope) -> dict[str, str]:
    """Return a request's headers. Raises BadInput: one that decides something comes twice, or its body has two lengths.

    Programs differ in which of two counts, so neither does. Two Authorization headers have an answer of their own.
    """
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    names = [name for name, _ in pairs]
    if twice := next((name for name in SENT_ONCE if names.count(name) > 1), None):
        raise BadInput(f"the request has two {twice} headers; send one")
    if "transfer-encoding" in names and "content-length" in names:
        raise BadInput("the request has both Content-Length and Transfer-Encoding; send one of them")
    return dict(pairs)


def is_open(path: str) -> bool:
    """Return whether a path needs no credential."""
    return path in OPEN_PATHS or path == METADATA or path.startswith(f"{METADATA}/")


class Guard:
    """ASGI middleware around the whole app.

    admission: authenticates bearer tokens. secret: opens `/s/SECRET/...` on loopback for `account`, "" for none.
    preamble: what is known of every caller (its zone).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        admission: Admission,
        secret: str,
        account: str,
        preamble: Preamble,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.api = app
        self._telemetry = telemetry
        self._app = app
        self._local = is_loopback(host)
        self._admission = admission
        self._secret = _digest(secret) if secret and self._local else b""
        self._account = account
        self._preamble = preamble

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":  # there are no websockets
            await self._measured(scope, receive, send)

    async def _measured(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, status = time.monotonic(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message["status"] if message["type"] == "http.response.start" else status
            await send(message)

        try:
            await self._authorised(scope, receive, note_status)
        finally:
            if self._telemetry is not None:
                route = getattr(scope.get("route"), "path", "other")
                self._telemetry.note(route, scope["method"], status, time.monotonic() - began)

    async def _authorised(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = headers_of(scope)
        except BadInput as error:  # whoever is in between may see another request's beginning where this one ends
            await _send_error(scope, receive, send, report(error).status, error, {"Connection": "close"})
            return
        try:
            if refusal := self._wrong_host_or_origin(headers):
                await _send_error(scope, receive, send, *refusal)
                return
            credential = await self._credential(scope, headers)
            if credential is not None:
                check_project(credential, headers.get(PROJECT_HEADER, ""))
                _take_variant(scope, headers)
            receive = await _read_body(receive, headers)
        except MemoryAnchorError as error:
            await _send_error(scope, receive, send, report(error).status, error, self._headers_of(error, headers))
            return
        if credential is not None:
            scope["user"] = _user(credential)
        read_only = _read_only_by_settings() or (credential is not None and credential.role is Role.READER)
        PREAMBLE.set(self._preamble._replace(read_only=read_only))
        try:
            await self._app(scope, receive, send)
        except Exception as bug:
            # Starlette has answered 500 and raises again; the server's own log would quote the message.
            log_bug(f"{scope['method']} {scope['path'].removeprefix(scope.get('root_path', ''))[:80]}", bug)

    def _wrong_host_or_origin(self, headers: Mapping[str, str]) -> tuple[int, Refused] | None:
        host = _PORT.sub("", headers.get("host", ""))
        if self._local and not is_loopback(host):
            return 421, Refused(f"host {host[:80]!r} is not this machine; allowed are localhost and loopback addresses")
        origin = headers.get("origin", "")
        try:
            origin_host = urlsplit(origin).hostname or origin
        except ValueError:  # brackets that hold no address
            origin_host = origin
        if origin and origin_host != host.strip("[]") and not (self._local and is_loopback(origin_host)):
            return 403, Refused(f"origin {origin[:80]!r} is not allowed; a page of another site may not ask")
        return None

    def _headers_of(self, error: MemoryAnchorError, request_headers: Mapping[str, str]) -> dict[str, str]:
        """Return an error's headers; with an issuer they say where to get a token (RFC 9728)."""
        issuer = self._admission.issuer
        if not isinstance(error, NoCredential) or issuer is None:
            return retry_headers(error)
        wrong = 'error="invalid_token", ' if "authorization" in request_headers else ""
        return {"WWW-Authenticate": f'Bearer {wrong}resource_metadata="{issuer.metadata_url()}"'}

    async def _credential(self, scope: Scope, headers: Mapping[str, str]) -> Credential | None:
        """Return the request's credential, None on an open path. Raises NoCredential, TooMany, ..."""
        if sum(name == b"authorization" for name, _ in scope["headers"]) > 1:
            raise NoCredential("the request has two Authorization headers; send one")
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and not is_open(scope["path"]):
            check = partial(self._admission.authenticate, token.strip(), (scope.get("client") or ("",))[0])
            # On a thread where the issuer may be asked; else it takes one stat.
            return await anyio.to_thread.run_sync(check) if self._admission.may_wait(token.strip()) else check()
        if self._secret and scope["path"].startswith(SECRET_PREFIX):
            first = scope["path"].removeprefix(SECRET_PREFIX).partition("/")[0]
            if hmac.compare_digest(self._secret, _digest(first)):
                scope["root_path"] = f"{SECRET_PREFIX}{first}"  # routes match the rest of the path
                return Credential(self._account, key=PATH_KEY)
        if is_open(scope["path"]):
            return None
        raise NoCredential(HOW)


def _take_variant(scope: Scope, headers: Mapping[str, str]) -> None:
    """Turn the variant of an address into the header for it. Raises BadInput: the header names another one."""
    root = scope.get("root_path", "")
    rest = scope["path"].removeprefix(root)
    if not rest.startswith(VARIANT_PREFIX):
        return
    name = rest.removeprefix(VARIANT_PREFIX).partition("/")[0]
    if (also := headers.get(VARIANT_HEADER, name)) != name:
        raise BadInput(
            f"the address names the variant {name[:80]!r}, X-KM-Variant {also[:80]!r}; allowed is one of them"
        )
    scope["root_path"] = f"{root}{VARIANT_PREFIX}{name}"
    scope["headers"] = [*scope["headers"], (VARIANT_HEADER.encode(), name.encode("latin-1", "replace"))]


async def _read_body(receive: Receive, headers: Mapping[str, str]) -> Receive:
    """Read a request's body and return a `receive` that replays it. Raises TooLarge, before or while it is read."""
    length = headers.get("content-length", "")
    if length.isdigit() and (len(length) > CONTENT_LENGTH_DIGITS or int(length) > BODY_BYTES_MAX):
        raise _too_large()
    body = bytearray()
    ended: Message | None = None
    while True:
        message = await receive()
        if message["type"] != "http.request":
            ended = message
            break
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise _too_large()
        if not message.get("more_body", False):
            break
    messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": ended is not None}]
    messages += [ended] if ended is not None else []

    async def replay() -> Message:
        return messages.pop(0) if messages else await receive()

    return replay


def _too_large() -> TooLarge:
    return TooLarge(f"the body is larger than {BODY_BYTES_MAX} bytes; send less at once")


def retry_headers(error: BaseException) -> dict[str, str]:
    """Return the headers that an error's answer needs."""
    if isinstance(error, TooMany):
        return {"Retry-After": str(error.retry_after_s)}
    if isinstance(error, Unavailable):
        return {"Retry-After": str(RETRY_AFTER_S)}
    return {"WWW-Authenticate": "Bearer"} if isinstance(error, NoCredential) else {}


async def _send_error(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    error: MemoryAnchorError,
    headers: Mapping[str, str] | None = None,
) -> None:
    from starlette.responses import JSONResponse

    await JSONResponse(error_body(error), status_code=status, headers=dict(headers or {}))(scope, receive, send)


def error_body(error: BaseException, message: str = "") -> dict[str, str]:
    """Return {code, message}: the code of the error table, the error's own message unless another is given."""
    return {"code": report(error).code, "message": message or str(error)}


def _user(credential: Credential) -> AuthenticatedUser:
    """Return the SDK's user, by which its transports tell sessions apart, with the credential as an attribute."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    principal = credential.principal
    user = AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[], subject=credential.account))
    setattr(user, CREDENTIAL, credential)
    return user


def _read_only_by_settings() -> bool | None:
    # Read for every request, so a change counts at once; a file that cannot be read forbids writing.
    try:
        return read_only_of(os.environ)
    except InvalidSetting:
        return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
