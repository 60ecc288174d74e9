"""How a bridge, a hook and an engine find and greet each other. Standard library only, cheap to import.

An engine writes `run/engine.json` in its data directory: pid, version, state and address (a Unix socket's path, or a
loopback port with a token). Clients read that file rather than compute a path, since TMPDIR and XDG_RUNTIME_DIR differ
from one agent to the next. The first line of every connection is a greeting; a connection of kind "mcp" then carries
JSON-RPC lines both ways, any other kind one request and one answer.
Private lines start with `{"anchor":` and never reach an agent.

`dataclasses` and `typing` stay out: importing them costs the bridge 30 ms and 2 MB. `Preamble` is a named tuple.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import namedtuple
from contextlib import suppress
from contextvars import ContextVar

from memory_anchor.base.json_values import parsed
from memory_anchor.base.lines import text_lines
from memory_anchor.base.switches import parse_switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memory_anchor.base.json_values import Json, Record

WIRE = 1
"""Number of this protocol; greetings with another number are refused."""
VERSION = "0.1.0"
"""Version of the package; an engine older than a bridge that connects drains and hands over."""
MAX_LINE_BYTES = 16 << 20
MAX_SOCKET_PATH_BYTES = 100
"""The kernel allows 107; some platforms 103."""
STATE_FILE = "engine.json"
FAILURE_FILE = "failed.json"
MAX_STATE_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 1.0
QUEUE_FULL_S = 0.02
SILENCE_S = 10.0
"""An answer may take minutes; after this long without one, `alive` is called."""
READ_BYTES = 1 << 16
PROJECT_MARKERS = (".git", "memory-anchor.yaml", ".ai")
MAX_PARENTS = 64
MAX_CONFIG_BYTES = 256 * 1024
MAX_BUDGET_DIGITS = 6
UNTIL = "memory_anchor_until"
"""In a hook's payload: when its client stops waiting, in seconds since 1970. A later answer is not read."""
HOOK_TOOL = "memory_anchor_hook"
"""A tool that is in no list: a client's hook calls it over the connection that its server has anyway."""
ADDS_CONTEXT = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure")
"""Hooks whose text a client adds to what its model reads."""
READ_ONLY = "read_only"
NO_MEMORY_NAME = "MEMORY_ANCHOR_NO_MEMORY"
"""In an agent's environment: hooks print nothing, tools refuse, nothing is stored; other sessions are not affected."""
WITHOUT_MEMORY = (
    "this session runs without memory: nothing is read or kept. Go on without it; the user starts a session "
    f"without {NO_MEMORY_NAME} (or `mcp --no-memory`) to have it again"
)
"""The text for such a session, from its tools and at the handshake."""
READ_ONLY_NAME = "MEMORY_ANCHOR_READ_ONLY"
PRIVATE = b'{"anchor":'
PING = b'{"anchor":"ping"}\n'
PONG = b'{"anchor":"pong"}\n'
BYE = b'{"anchor":"bye"}\n'
"""Sent by an engine that ends in order: a bridge reconnects only for its next request."""

_Fields = namedtuple(
    "_Fields",
    "conversation project_dir cwd client version zone profile read_only budget nonce account project agent user pid "
    "answers memory",
    defaults=("", "", "", "", VERSION, "", "", None, 0, "", "", "", "", "", 0, "", ""),
)


class Preamble(_Fields):
    """What an engine must know about a caller, never from the environment that started it. All are str except:

    read_only: bool, or None when the caller did not say (the settings then decide, as with profile and answers "").
    budget: tokens of events at a session's start, 0 for the settings' own. pid: of the bridge or hook.
    account, project, agent, user: "" for what the settings and the folder say.
    memory: "off" for a session without memory (`NO_MEMORY_NAME`).
    zone: IANA name, "" when unknown. nonce: random id of the process; with a call's id it makes resending harmless.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Json]:
        """Return the version, whose default differs between versions, and the fields that are not at their default."""
        values = self._asdict()
        return {
            name: values[name] for name in values if name == "version" or values[name] != self._field_defaults[name]
        }

    @classmethod
    def from_json(cls, value: Json) -> Preamble:
        """Return the preamble, its types checked; unknown names, of a newer bridge, are left out.

        Raises ValueError: not a mapping, or a field of the wrong type.
        """
        if not isinstance(value, dict):
            raise ValueError("a preamble is a JSON object")
        fields: dict[str, str | int | None] = {}
        for name, default in cls._field_defaults.items():
            field = value.get(name, default)
            kinds: tuple[type, ...] = (bool, type(None)) if name == "read_only" else (type(default),)
            if type(field) not in kinds:
                raise ValueError(f"preamble field {name} has type {type(field).__name__}")
            fields[name] = field
        return cls(**fields)


PREAMBLE: ContextVar[Preamble] = ContextVar("memory_anchor_preamble", default=Preamble())  # noqa: B039 - a tuple
"""The preamble of the connection whose request is being served; the default inside one process."""


def call_nonce(preamble: Preamble, request_id: Json) -> str:
    """Return what identifies a call however often it is resent, "" when the transport cannot tell.

    request_id: the JSON-RPC id as it came; 1 and "1" are two ids.
    """
    return f"{preamble.nonce}/{json.dumps(request_id)}" if preamble.nonce and request_id is not None else ""


def is_newer(version: str, than: str) -> bool:
    """Return whether `version` is later; only the leading numbers of the dotted parts count.

    >>> is_newer("0.10.0", than="0.9.1")
    True
    """
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def hook_output(event: str, text: str) -> str:
    """Return what a client reads of a hook's text: JSON where it takes context, else plain text."""
    if event in ADDS_CONTEXT:
        return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})
    return text


# --- places ----------------------------------------------------------------------------------------------------


XDG = ("XDG_DATA_HOME", "XDG_CONFIG_HOME")


def default_data_dir(env: Mapping[str, str]) -> str:
    """Return the platform's folder for a user's data, `memory-anchor` inside it (as platformdirs would)."""
    return _platform_folder(env, "XDG_DATA_HOME", ".local", "share")


def user_config_file(env: Mapping[str, str]) -> str:
    """Return where the user's own settings file is, whether or not it exists."""
    folder = _platform_folder(env, "XDG_CONFIG_HOME", ".config")
    return env.get("MEMORY_ANCHOR_CONFIG_FILE") or _join(folder, "config.yaml")


def _platform_folder(env: Mapping[str, str], xdg_name: str, *xdg_default: str) -> str:
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - pathlib costs 15 ms
    if sys.platform == "win32":
        return _join(env.get("LOCALAPPDATA") or _join(home, "AppData", "Local"), "memory-anchor")
    if sys.platform == "darwin":
        return _join(home, "Library", "Application Support", "memory-anchor")
    named = env.get(xdg_name)
    if named and is_of_a_snap(env, xdg_name) and not os.path.isdir(_join(named, "memory-anchor")):  # noqa: PTH112
        named = ""
    return _join(named or _join(home, *xdg_default), "memory-anchor")


def is_of_a_snap(env: Mapping[str, str], name: str) -> bool:
    """Return whether a variable names a folder of one revision of a snap, as VS Code's snap lets its terminals have it.

    It goes with the revision: nothing new is kept there.
    """
    home = env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    return env.get(name, "").startswith(_join(home, "snap", ""))


def data_dir(env: Mapping[str, str]) -> str:
    """Return the absolute data directory: the environment's, else the user file's, else the platform's."""
    path = env.get("MEMORY_ANCHOR_DATA_DIR") or _from_user_file(env) or default_data_dir(env)
    return os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111


def working_folder() -> str:
    """Return the folder that this process works in, the user's home where that was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return os.path.expanduser("~")  # noqa: PTH111


def _from_user_file(env: Mapping[str, str]) -> str:
    # One top-level `data_dir: value` line is all the bridge needs; a YAML parser would cost it 40 ms.
    try:
        with open(user_config_file(env), encoding="utf-8", newline="\n") as file:  # noqa: PTH123
            text = file.read(MAX_CONFIG_BYTES)
    except (OSError, UnicodeDecodeError):
        return ""
    for line in text_lines(text):
        if line.startswith("data_dir:"):
            return line[len("data_dir:") :].split(" #")[0].strip().strip("'\"")
    return ""


def run_dir(data: str) -> str:
    """Return the folder of sockets and state files, made 0700 when it is missing."""
    path = _join(data, "run")
    os.makedirs(data, mode=0o700, exist_ok=True)  # noqa: PTH103
    os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
    return path


def project_of(env: Mapping[str, str], cwd: str) -> str:
    """Return the caller's project: from its environment, else the nearest folder with a marker, else its cwd.

    The home folder and the root are no projects: "" for those. A marker in a parent folder counts when its owner is
    this user or the owner of the cwd, so that another user cannot turn a shared folder into a project.
    """
    for name in ("MEMORY_ANCHOR_PROJECT_DIR", "CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR"):
        if value := env.get(name):
            return os.path.abspath(os.path.expanduser(value))  # noqa: PTH100, PTH111
    home = os.path.abspath(env.get("HOME") or os.path.expanduser("~"))  # noqa: PTH100, PTH111
    folder, owners = cwd, {_owner(cwd), os.getuid() if hasattr(os, "getuid") else 0}
    for _ in range(MAX_PARENTS):
        parent = os.path.dirname(folder)  # noqa: PTH120
        if parent == folder or folder == home:
            break
        if any(_is_marked(_join(folder, marker), owners) for marker in PROJECT_MARKERS):
            return folder
        folder = parent
    return "" if cwd == home or os.path.dirname(cwd) == cwd else cwd  # noqa: PTH120


def _is_marked(path: str, owners: set[int]) -> bool:
    """Return whether a marker exists and has one of these owners; of a link, its owner counts."""
    return os.path.exists(path) and _owner(path) in owners  # noqa: PTH110


def _owner(path: str) -> int:
    try:
        return os.lstat(path).st_uid
    except OSError:
        return -1


def local_zone(env: Mapping[str, str]) -> str:
    """Return the IANA name of the local zone, "" when the system does not tell."""
    name = env.get("TZ", "").lstrip(":")
    if name == "UTC" or "/" in name.strip("/"):
        return name.partition("zoneinfo/")[2] or name
    try:
        return os.readlink("/etc/localtime").partition("zoneinfo/")[2]  # noqa: PTH115
    except OSError:
        return ""


class InvalidSetting(ValueError):
    """An invalid setting of a caller, in one sentence; no request may be made for it."""


def read_only_of(env: Mapping[str, str]) -> bool | None:
    """Return whether the caller may only read, by its environment, else by the user's file as it is now.

    None when neither says so; the engine's settings then decide. Raises InvalidSetting: an invalid word.
    """
    words = [value for name, value in env.items() if name.upper() == READ_ONLY_NAME]  # settings take any case
    if not words:
        return True if _file_is_read_only(env) else None
    try:
        return True in [parse_switch(word) for word in words]
    except ValueError as error:
        raise InvalidSetting(f"setting {READ_ONLY!r} in environment is {words[-1][:80]!r}; {error}") from None


def _file_is_read_only(env: Mapping[str, str]) -> bool:
    # An engine read the file when it started; a caller that connects now follows what it says now.
    path = user_config_file(env)
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            raw = file.read(MAX_CONFIG_BYTES)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    except OSError as error:
        raise InvalidSetting(
            f"settings file {path} cannot be read ({error.strerror}); it may say {READ_ONLY}"
        ) from None
    lines = text_lines(raw.decode("utf-8", "replace")) if READ_ONLY.encode() in raw else []
    settings = [line for line in lines if READ_ONLY in line and not line.lstrip().startswith("#")]
    if not settings and len(raw) < MAX_CONFIG_BYTES:
        return False
    name, _, word = settings[0].split(" #")[0].partition(":") if len(settings) == 1 else ("", "", "")
    if name == READ_ONLY:
        try:
            return parse_switch(word.strip().strip("'\""))
        except ValueError:
            pass
    # Not one plain line: the settings are loaded, which takes 150 ms more.
    from pathlib import Path

    from memory_anchor.domain.errors import BadInput
    from memory_anchor.settings import load_settings

    try:
        return load_settings(env={}, user_file=Path(path)).settings.read_only
    except BadInput as error:
        raise InvalidSetting(str(error)) from None


def process_preamble(env: Mapping[str, str], *, cwd: str, pid: int, nonce: str) -> Preamble:
    """Return the preamble of this process from its environment: what real clients set, ours first.

    Raises InvalidSetting: see `read_only_of`.
    """
    client = "claude-code" if env.get("CLAUDE_CODE_SESSION_ID") or env.get("CLAUDECODE") else ""
    if not client and (env.get("CODEX_THREAD_ID") or env.get("CODEX_SANDBOX")):
        client = "codex"
    budget = env.get("MEMORY_ANCHOR_BUDGET__EVENTS", "").strip()[:MAX_BUDGET_DIGITS]
    return Preamble(
        conversation=env.get("CLAUDE_CODE_SESSION_ID") or env.get("CODEX_THREAD_ID") or f"bridge-{nonce}",
        project_dir=project_of(env, cwd),
        cwd=cwd,
        client=client,
        zone=local_zone(env),
        profile=env.get("MEMORY_ANCHOR_PROFILE", ""),
        read_only=read_only_of(env),
        budget=int(budget) if budget.isascii() and budget.isdigit() else 0,
        account=env.get("MEMORY_ANCHOR_SCOPE__ACCOUNT", ""),
        project=env.get("MEMORY_ANCHOR_SCOPE__PROJECT", ""),
        agent=env.get("MEMORY_ANCHOR_SCOPE__AGENT", ""),
        user=env.get("MEMORY_ANCHOR_SCOPE__USER", ""),
        nonce=nonce,
        pid=pid,
        answers=env.get("MEMORY_ANCHOR_ANSWERS", ""),
        memory="off" if is_without_memory(env) else "",
    )


def is_without_memory(env: Mapping[str, str]) -> bool:
    """Return whether this session goes without memory. Raises InvalidSetting: an invalid word."""
    word = env.get(NO_MEMORY_NAME, "").strip()
    try:
        return bool(word) and parse_switch(word)
    except ValueError as error:
        raise InvalidSetting(f"{NO_MEMORY_NAME} is {word[:80]!r}; {error}") from None


# --- files that say where the engine is --------------------------------------------------------------------------


def read_json(path: str) -> Record | None:
    """Return the object in a small JSON file, None when it is missing, unreadable or no object."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            value = parsed(file.read(MAX_STATE_BYTES))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_private(path: str, text: str) -> None:
    """Write a 0600 file in one step: readers see the old text or the new, never half. A power cut may lose it."""
    beside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(fd, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            file.write(text)
        os.replace(beside, path)  # noqa: PTH105
    except BaseException:
        os.unlink(beside)  # noqa: PTH108
        raise


def read_state(data: str) -> Record | None:
    """Return the last engine's state: pid, version, state, address; it may be dead by now.

    None for the state file in a copied folder: its address is that of the original's engine.
    """
    state = read_json(_join(data, "run", STATE_FILE))
    home = (state or {}).get("data")
    try:
        copied = isinstance(home, str) and not os.path.samefile(home, data)  # noqa: PTH121
    except (OSError, ValueError):  # the folder was moved: nothing listens where it was
        return state
    return None if copied else state


def read_failure(data: str, *, after: float) -> tuple[str, bool]:
    """Return why an engine could not start later than `after` (epoch seconds), else "", and whether it may pass."""
    failure = read_json(_join(data, "run", FAILURE_FILE)) or {}
    at = failure.get("at", 0.0)
    if not isinstance(at, int | float) or at < after:
        return "", True
    return str(failure.get("message", "")), failure.get("code") == "store_busy"


# --- connections -------------------------------------------------------------------------------------------------


def connect(data: str, *, timeout_s: float = CONNECT_TIMEOUT_S) -> tuple[socket.socket, Record]:
    """Return a connection to the engine of this data directory, and its state.

    Raises OSError: no engine listens; BlockingIOError among them: its queue of connections stays full.
    """
    state = read_state(data)
    if state is None:
        raise ConnectionRefusedError("no engine has run here")
    address = address_in(state)
    path, port = address.get("unix"), address.get("tcp")
    target: str | tuple[str, int]
    if isinstance(path, str) and hasattr(socket, "AF_UNIX"):
        link, target = socket.socket(socket.AF_UNIX), path
    elif isinstance(port, int):
        link, target = socket.socket(socket.AF_INET), ("127.0.0.1", port)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # no line waits for another's answer
    else:
        raise ConnectionRefusedError("the engine's address is of a kind this platform lacks")
    try:
        link.settimeout(timeout_s)
        until = time.monotonic() + timeout_s
        while True:
            try:
                link.connect(target)
                break
            except BlockingIOError:  # a Unix socket whose queue is full: the kernel does not wait
                if time.monotonic() >= until:
                    raise
                time.sleep(QUEUE_FULL_S)
    except BaseException:
        link.close()
        raise
    return link, state


def address_in(state: Record) -> Record:
    """Return the address in an engine's state; {} where there is none."""
    address = state.get("address")
    return address if isinstance(address, dict) else {}


def greeting(kind: str, preamble: Preamble, state: Record, **more: Json) -> bytes:
    """Return the first line of a connection. kind: mcp, ping, status, stop or hook."""
    line: dict[str, Json] = {"anchor": WIRE, "kind": kind, "preamble": preamble.to_json(), **more}
    if token := address_in(state).get("token"):
        line["token"] = token
    return line_of(line)


def line_of(message: Record) -> bytes:
    """Return a message as one line of UTF-8; lone surrogates are escaped."""
    try:
        return json.dumps(message, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message).encode() + b"\n"


def ask(
    data: str,
    kind: str,
    preamble: Preamble,
    *,
    timeout_s: float,
    alive: Callable[[], object] | None = None,
    **more: Json,
) -> Record:
    """Return the engine's answer to one private request, sent on a connection of its own.

    alive: called after each `SILENCE_S` without a word; what it raises ends the wait.

    Raises OSError: no engine, no answer in time (TimeoutError), or an invalid answer (ConnectionError).
    """
    link, state = connect(data, timeout_s=min(timeout_s, CONNECT_TIMEOUT_S))
    with link:
        link.settimeout(timeout_s if alive is None else min(timeout_s, SILENCE_S))
        link.sendall(greeting(kind, preamble, state, **more))
        received = bytearray()
        until = time.monotonic() + timeout_s
        while b"\n" not in received:
            try:
                chunk = link.recv(READ_BYTES)
            except TimeoutError:
                if alive is None or time.monotonic() > until:
                    raise
                alive()
                continue
            if not chunk or len(received) > MAX_LINE_BYTES:
                raise ConnectionResetError("the engine closed the connection before it answered")
            received += chunk
    try:
        answer = parsed(received.partition(b"\n")[0])
    except ValueError:
        raise ConnectionAbortedError("the engine's answer is not JSON") from None
    if not isinstance(answer, dict):
        raise ConnectionAbortedError("the engine's answer is no object")
    return answer


def peer_pid(link: socket.socket) -> int:
    """Return the pid of the process that listens at the other end, 0 where the kernel does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or link.family != getattr(socket, "AF_UNIX", None):
        return 0
    return int.from_bytes(link.getsockopt(socket.SOL_SOCKET, option, 12)[:4], sys.byteorder)


def peer_uid(link: socket.socket) -> int | None:
    """Return the user at the other end of a Unix socket, None where the kernel does not tell."""
    if link.family != getattr(socket, "AF_UNIX", None):
        return None
    if (option := getattr(socket, "SO_PEERCRED", None)) is not None:
        return int.from_bytes(link.getsockopt(socket.SOL_SOCKET, option, 12)[4:8], sys.byteorder)
    if sys.platform == "darwin":  # struct xucred: version, uid, ... by LOCAL_PEERCRED at level SOL_LOCAL
        return int.from_bytes(link.getsockopt(0, 1, 76)[4:8], sys.byteorder)
    return None


def split_lines(buffer: bytearray) -> Iterator[bytes]:
    """Yield the complete lines in `buffer`, each with its newline, and take them out of it."""
    start = 0
    try:
        while (end := buffer.find(b"\n", start)) >= 0:
            line = bytes(buffer[start : end + 1])
            start = end + 1
            yield line
    finally:
        del buffer[:start]


def _join(*parts: str) -> str:
    return os.path.join(*parts)  # noqa: PTH118 - pathlib costs the bridge 15 ms
