"""Access control of the dashboard, before any route: a one-time link, a session cookie, and a token for each form.

The command prints a link into its own terminal. Its secret works once, within minutes, and starts a session: a random
cookie (HttpOnly, SameSite=Strict) that only this process knows, so an old or forged one, or one of another data folder,
does nothing. Host and Origin must equal the served address, port included. A session may read; changing a memory also
needs the passphrase (`actions.signer`), and a session ends after too many wrong ones. Rejected: a cookie signed with a
key on disk, which would outlive the terminal that showed the link.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, BinaryIO

from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.service.http_access import headers_of
from memory_anchor.runtime.cleanlog import log_bug

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer a browser sends `Origin: null` with our own forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
SECRET_BYTES = 24
LINK_S = 15 * 60.0
LINKS_MAX = 8
IDLE_S = 8 * 3600.0
LASTS_S = 3 * 24 * 3600.0
SESSIONS_MAX = 16
REFUSALS_MAX = 5
"""Wrong passphrases after which a session ends and a new link is needed."""
OPEN, STATIC = "/open/", "/static/"
SESSION = "memory_anchor.session"


@dataclass(slots=True)
class Upload:
    """A file that was shown and waits to be imported. lines: of JSON. project: whose page it was given to."""

    name: str
    project: str
    digest: str
    lines: BinaryIO


@dataclass(slots=True)
class Session:
    """One browser's session. notices: shown on the next page. project: id and folder, both "" for the command's own.

    last: by project, the action that can be undone.
    """

    key: bytes
    began: float
    used: float
    refused: int = 0
    notices: list[Record] = field(default_factory=list)
    project: tuple[str, str] = ("", "")
    last: dict[str, Record] = field(default_factory=dict)
    upload: Upload | None = None

    def token(self, action: str, project: str) -> str:
        """Return the token of a form of a project's page that posts to `action`."""
        return hmac.new(self.key, f"{project} {action}".encode(), hashlib.sha256).hexdigest()

    def knows(self, action: str, project: str, token: str) -> bool:
        return hmac.compare_digest(self.token(action, project).encode(), token.encode("utf-8", "replace"))


class Sessions:
    """The links and sessions of one process. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._links: dict[bytes, float] = {}
        self._sessions: dict[bytes, Session] = {}

    def new_link(self) -> str:
        """Return the secret part of a one-time link."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with self._lock:
            self._links[_digest(secret)] = self._monotonic()
            while len(self._links) > LINKS_MAX:
                del self._links[next(iter(self._links))]
        return secret

    def enter(self, secret: str) -> str:
        """Use up a link and return the cookie of a new session, "" where there is no such link."""
        now = self._monotonic()
        with self._lock:
            made = self._links.pop(_digest(secret), None)
            if made is None or now - made > LINK_S:
                return ""
            cookie = secrets.token_urlsafe(SECRET_BYTES)
            self._sessions[_digest(cookie)] = Session(secrets.token_bytes(32), now, now)
            while len(self._sessions) > SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            return cookie

    def get(self, cookie: str) -> Session | None:
        """Return the session of a cookie, None where it is old or unknown."""
        now, name = self._monotonic(), _digest(cookie)
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                return None
            if now - session.used > IDLE_S or now - session.began > LASTS_S or session.refused >= REFUSALS_MAX:
                del self._sessions[name]
                return None
            session.used = now
            return session


class SessionGuard:
    """ASGI middleware around all pages. hosts: allowed Host headers, port included.

    locked: answers requests without a session. lost: answers a link that does not work.
    """

    def __init__(
        self, app: ASGIApp, *, sessions: Sessions, hosts: Iterable[str], cookie: str, locked: ASGIApp, lost: ASGIApp
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._hosts = frozenset(hosts)
        self._cookie = cookie
        self._locked = locked
        self._lost = lost

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        path: str = scope["path"]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                caching = "max-age=86400" if path.startswith(STATIC) else "no-store"
                added = {**HEADERS, "cache-control": caching}
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.encode(), value.encode()) for name, value in added.items()),
                ]
            await send(message)

        try:
            headers = headers_of(scope)
            wrong = self._wrong_origin(scope["method"], headers)
        except BadInput as error:
            wrong = 400, str(error)
        if wrong is not None:
            await _plain(guarded, *wrong)
            return
        scope[SESSION] = self._sessions.get(cookie_of(headers.get("cookie", ""), self._cookie))
        try:
            await self._answer(scope, receive, guarded)
        except Exception as bug:  # the page says so; a server's own log would quote the request
            log_bug(f"dashboard {scope['method']} {path[:80]}", bug)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, session = scope["path"], scope[SESSION]
        app = self._app
        if session is None and path.startswith(OPEN) and scope["method"] == "GET":
            if cookie := self._sessions.enter(path.removeprefix(OPEN)):
                scope["memory_anchor.cookie"] = f"{self._cookie}={cookie}; Path=/; HttpOnly; SameSite=Strict"
            else:
                app = self._lost
        elif session is None and not path.startswith(STATIC):
            app = self._locked
        await app(scope, receive, send)

    def _wrong_origin(self, method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if host not in self._hosts:
            return 421, "This address is not the dashboard's; open the link that the terminal shows."
        if method not in ("GET", "HEAD", "POST"):
            return 405, "Pages are read with GET and changed with POST."
        if method == "POST" and origin != f"http://{host}":
            return 403, "A form of another page may not ask this one."
        if headers.get("sec-fetch-site", "none") == "cross-site" and (method == "POST" or origin):
            return 403, "Another page may not ask this one."
        return None


def cookie_of(header: str, name: str) -> str:
    """Return the value of one cookie, "" for none.

    >>> cookie_of("a=1; b=2", "b")
    '2'
    """
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return cookie.value if cookie is not None else ""


async def _plain(send: Send, status: int, sentence: str) -> None:
    body = sentence.encode()
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
