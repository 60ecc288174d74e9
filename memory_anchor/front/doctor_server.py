"""`memory-anchor doctor --server URL`: what is wrong with a served memory, as a client sees it.

Each step needs the one before it: the address, the connection, who answers, its store, our key, MCP. Nothing is written
there, and the key is in no finding.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memory_anchor.front.doctor_machine import Check
from memory_anchor.runtime.wire import VERSION, newer

if TYPE_CHECKING:
    from httpx2 import Client, Response

TIMEOUT_S = 10.0
SKEW_S = 60.0
"""Between two clocks, above which ends of keys and times of memories are off."""
LOCAL = ("127.0.0.1", "localhost", "::1")
UNREACHED, BAD, REFUSED = 5, 2, 4
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "memory-anchor-doctor", "version": VERSION},
    },
}


def look_at(url: str, key: str) -> Iterator[Check]:
    """Yield what is found, the first failure last. key: "" for none."""
    import httpx2

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield Check(
            "address", "failed", f"{url[:80]!r} is no address", "give one such as https://memory.example.org", BAD
        )
        return
    plain = parts.scheme == "http" and parts.hostname not in LOCAL
    if plain:
        yield Check("address", "warning", "keys travel in the clear", "put TLS in front: docs/team.md")
    else:
        yield Check("address", "ok", f"{parts.scheme}://{parts.netloc}")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with httpx2.Client(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S) as client:
        try:
            health = client.get("/v1/health")
        except httpx2.TimeoutException:
            yield _unreached(f"nothing within {TIMEOUT_S:.0f} s", "is it a firewall? `curl -v` says how far it comes")
            return
        except httpx2.HTTPError as error:
            yield _unreached(_cause(error), "does the server run, under this name and port?")
            return
        if not _is_ours(health):
            told = f"what answers is no memory-anchor ({health.status_code} {health.headers.get('server', '')!r})"
            yield Check("server", "failed", told, "name the address that clients use, without /mcp", BAD)
            return
        yield from _known(client, health)
        if not (yield from _let_in(client, bool(key))):
            return
        yield _mcp(client)


def _known(client: Client, health: Response) -> Iterator[Check]:
    version = client.get("/v1/version").json()
    told = (
        f"version {version.get('version')}, index {version.get('index_version')}, recall {version.get('algo_version')}"
    )
    other = str(version.get("version"))
    if newer(other, VERSION) or newer(VERSION, other):
        yield Check("server", "warning", f"{told}; this is {VERSION}", "install the same version on both sides")
    else:
        yield Check("server", "ok", told)
    if (skew := _skew(health.headers.get("date", ""))) > SKEW_S:
        yield Check("clock", "warning", f"the two clocks differ by {skew:.0f} s", "set both by NTP")
    ready = client.get("/v1/ready")
    if ready.status_code == 200:
        yield Check("store", "ok", "answers")
    else:
        yield Check("store", "failed", _message(ready), "on the server: memory-anchor doctor", UNREACHED)


def _let_in(client: Client, has_key: bool) -> Generator[Check, None, bool]:
    """Yield what a key opens, and return whether it opens anything."""
    if not has_key:
        yield Check("key", "warning", "none was given", "give one: --key-file FILE, or - for standard input")
        return False
    answer = client.get("/v1/knowledge/sources")
    if answer.status_code == 200:
        yield Check("key", "ok", "opens")
        return True
    fix = {
        401: "ask whoever runs the server: memory-anchor keys create",
        429: f"wait {answer.headers.get('retry-after', 'a minute')} s",
        503: "the server cannot tell now whether the key is good; wait, and look at its log",
    }.get(answer.status_code, "on the server: memory-anchor keys list")
    code = UNREACHED if answer.status_code in (429, 503) else REFUSED
    yield Check("key", "failed", _message(answer), fix, code)
    return False


def _mcp(client: Client) -> Check:
    accepted = {"Accept": "application/json, text/event-stream"}
    answer = client.post("/mcp", json=GREETING, headers=accepted)
    if answer.status_code == 200 and "serverInfo" in answer.text:
        return Check("mcp", "ok", "greets")
    return Check(
        "mcp", "failed", f"{answer.status_code} at /mcp", "does the proxy pass /mcp on, unbuffered?", UNREACHED
    )


def _unreached(told: str, fix: str) -> Check:
    return Check("connection", "failed", told, fix, UNREACHED)


def _cause(error: BaseException) -> str:
    """Return the innermost reason in one line."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted here ({error.verify_message})"
    return " ".join(str(error).split())[:200] or type(error).__name__


def _is_ours(health: Response) -> bool:
    try:
        return bool(health.status_code == 200 and health.json().get("status") == "ok")
    except (ValueError, AttributeError):
        return False


def _message(answer: Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _skew(date: str) -> float:
    try:
        return abs((parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
