"""Who may come in over HTTP, decided before any route: host, origin, bearer token or path secret.

A page in a browser can reach a loopback port, so Host and Origin are checked first (DNS rebinding). Then a credential:
a bearer token bound to an account, or, on loopback only, a secret as the first part of the path, for clients that
cannot send headers. Everything needs one but health and version. What a request is let in as is the SDK's own
`AuthenticatedUser`, so its transports also refuse a session to any other account.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from memory_anchor.errors import MemoryAnchorError, Refused, report
from memory_anchor.runtime.cleanlog import log_bug
from memory_anchor.runtime.wire import PREAMBLE, Misread, Preamble, read_only_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

SECRET_PREFIX = "/s/"  # noqa: S105 - a path, not a secret
OPEN_PATHS = frozenset({"/v1/health", "/v1/version"})
_PORT = re.compile(r":\d{1,5}$")


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


class Guard:
    """ASGI middleware around the whole app.

    tokens: bearer token -> account. secret: opens `/s/SECRET/...` on loopback, "" for none. account: whose it is then.
    preamble: what is known of every caller (its zone).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        tokens: Mapping[str, str],
        secret: str,
        account: str,
        preamble: Preamble,
    ) -> None:
        self._app = app
        self._local = is_loopback(host)
        self._accounts = {_digest(token): owner for token, owner in tokens.items()}
        self._secret = _digest(secret) if secret and self._local else b""
        self._account = account
        self._preamble = preamble

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # lifespan; there are no websockets
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self._wrong_place(headers):
            await answer(scope, receive, send, *refusal)
            return
        account = self._account_of(scope, headers)
        if account is None and scope["path"] not in OPEN_PATHS:
            told = "no valid bearer token or path secret; `memory-anchor serve` prints how to come in"
            await answer(scope, receive, send, 401, Refused(told), {"WWW-Authenticate": "Bearer"})
            return
        if account is not None:
            scope["user"] = _user(account)
        PREAMBLE.set(self._preamble._replace(read_only=_may_only_read()))
        try:
            await self._app(scope, receive, send)
        except Exception as bug:
            # Starlette has answered 500 and raises again for its server, whose log would quote the message.
            log_bug(f"{scope['method']} {scope['path'].removeprefix(scope.get('root_path', ''))[:80]}", bug)

    def _wrong_place(self, headers: Mapping[str, str]) -> tuple[int, Refused] | None:
        host = _PORT.sub("", headers.get("host", ""))
        if self._local and not is_loopback(host):
            return 421, Refused(f"host {host[:80]!r} is not this machine; allowed are localhost and loopback addresses")
        origin = headers.get("origin", "")
        try:
            came_from = urlsplit(origin).hostname or origin
        except ValueError:  # brackets that hold no address
            came_from = origin
        if origin and came_from != host.strip("[]") and not (self._local and is_loopback(came_from)):
            return 403, Refused(f"origin {origin[:80]!r} is not allowed; a page of another site may not ask")
        return None

    def _account_of(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            given = _digest(token.strip())
            return next((owner for known, owner in self._accounts.items() if hmac.compare_digest(known, given)), None)
        if not self._secret or not scope["path"].startswith(SECRET_PREFIX):
            return None
        first = scope["path"].removeprefix(SECRET_PREFIX).partition("/")[0]
        if not hmac.compare_digest(self._secret, _digest(first)):
            return None
        scope["root_path"] = f"{SECRET_PREFIX}{first}"  # routes match the rest of the path
        return self._account


async def answer(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    error: MemoryAnchorError,
    headers: Mapping[str, str] | None = None,
) -> None:
    from starlette.responses import JSONResponse

    body = error_body(error)
    await JSONResponse(body, status_code=status, headers=dict(headers or {}))(scope, receive, send)


def error_body(error: BaseException, message: str = "") -> dict[str, Any]:
    """Return {code, message}: the code of the one table, the error's own sentence unless another is given."""
    return {"code": report(error).code, "message": message or str(error)}


def _user(account: str) -> Any:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="", client_id=account, scopes=[], subject=account))


def _may_only_read() -> bool | None:
    # Asked of every request: what the user's file says now holds for it, and what cannot be read forbids writing.
    try:
        return read_only_of(os.environ)
    except Misread:
        return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
