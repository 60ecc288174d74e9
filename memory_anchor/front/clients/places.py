"""Where each client keeps its MCP configuration and hooks, and what we put there. Pure: paths and values, no I/O.

One table of `Part`s a client and scope: a file, its format, and the keys that are ours. Whatever else a file holds is
the user's and stays. Hook commands are recognised by what they run (`OUR_HOOK`), so an older entry of ours is
replaced rather than doubled.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, Record

NAME = "memory-anchor"
CODEX_NAME = "memory_anchor"
"""Codex joins server and tool name to an identifier; a hyphen in it is rewritten, so it gets none."""
CLIENTS = ("claude-code", "codex", "gemini", "cursor", "vscode", "json")
PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini", "cursor": "cursor", "vscode": "code"}
"""What starts a client: by it one is found on a machine, or by the folder it keeps its files in."""
HOOKED = ("claude-code", "codex")
"""Clients that tell us of their sessions, so that these can be learned from."""
SCOPES = ("user", "project")
START_TIMEOUT_S = 30
OUR_HOOK = re.compile(rf"(?:\b{NAME}(?:\.exe)?|-m memory_anchor) hook [A-Z]")
"""What every command of our hooks holds once its quotes are gone, whichever installation wrote it."""
HOOK_TIMEOUT_S = {
    "SessionStart": 15,
    "UserPromptSubmit": 5,
    "PreToolUse": 5,
    "PostToolUse": 5,
    "PostToolUseFailure": 5,
    "PreCompact": 10,
    "PostCompact": 10,
    "Stop": 5,
    "SessionEnd": 3,
}
"""What a client may wait at most (Codex allows a session's end 3 s); ours ends by itself before (`hooks.WAIT_S`)."""
WRITTEN_OUT = ("MEMORY_ANCHOR_DATA_DIR", "MEMORY_ANCHOR_CONFIG_FILE")
"""Variables set while installing that say where the memory is: written into what is installed."""
SERVER_WORDS_MAX = 50
TOOLS = "Bash|Edit|Write|MultiEdit|NotebookEdit|apply_patch"
"""Tools that touch a file or run a command: the others start no hook of ours."""
MATCHERS = {"PreToolUse": TOOLS, "PostToolUse": "Bash", "PostToolUseFailure": "Bash"}
CODEX_EVENTS = tuple(event for event in HOOK_TIMEOUT_S if event != "PostToolUseFailure")
"""Codex has no event of its own for a failure: what failed stands in its transcript."""

Kind = Literal["json-server", "json-hooks", "toml-server"]


@dataclass(frozen=True, slots=True)
class Part:
    """One of our entries: in `file`, under `under` (json) or as the table `under` (toml). value: what stands there."""

    file: Path
    kind: Kind
    under: tuple[str, ...]
    value: Record


def parts_of(
    client: str, *, scope: str, command: tuple[str, ...], home: Path, project: Path, env: Mapping[str, str]
) -> tuple[Part, ...]:
    """Return what installing into this client writes; empty for `json`, which is only shown.

    command: what starts us, e.g. ("/usr/bin/memory-anchor",). Raises BadInput: an unknown client or scope, or a scope
    the client does not have.
    """
    if client not in CLIENTS:
        raise BadInput(f"client {client!r} is unknown; allowed are {', '.join(CLIENTS)}")
    if scope not in SCOPES:
        raise BadInput(f"scope {scope!r} is unknown; allowed are {', '.join(SCOPES)}")
    user = scope == "user"
    server = server_entry(command, env)
    match client:
        case "claude-code":
            folder = Path(env["CLAUDE_CONFIG_DIR"]) if env.get("CLAUDE_CONFIG_DIR") else home / ".claude"
            own = folder / ".claude.json" if env.get("CLAUDE_CONFIG_DIR") else home / ".claude.json"
            settings = folder / "settings.json" if user else project / ".claude" / "settings.json"
            servers = own if user else project / ".mcp.json"
            return (
                Part(servers, "json-server", ("mcpServers", NAME), {"type": "stdio", **server}),
                Part(settings, "json-hooks", ("hooks",), hook_entries(command, tuple(HOOK_TIMEOUT_S), env)),
            )
        case "codex":
            folder = Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"
            folder = folder if user else project / ".codex"
            timed = {**server, "startup_timeout_sec": START_TIMEOUT_S}
            return (
                Part(folder / "config.toml", "toml-server", ("mcp_servers", CODEX_NAME), timed),
                Part(folder / "hooks.json", "json-hooks", ("hooks",), hook_entries(command, CODEX_EVENTS, env)),
            )
        case "gemini":
            folder = (home if user else project) / ".gemini"
            return (Part(folder / "settings.json", "json-server", ("mcpServers", NAME), server),)
        case "cursor":
            folder = (home if user else project) / ".cursor"
            return (Part(folder / "mcp.json", "json-server", ("mcpServers", NAME), server),)
        case "vscode":
            file = _vscode_user(home, env) / "mcp.json" if user else project / ".vscode" / "mcp.json"
            return (Part(file, "json-server", ("servers", NAME), {"type": "stdio", **server}),)
    return ()


def server_entry(command: tuple[str, ...], env: Mapping[str, str]) -> Record:
    """Return the server entry that every client understands."""
    places = _places_of(env)
    return {"command": command[0], "args": [*command[1:], "mcp"], **({"env": places} if places else {})}


def _places_of(env: Mapping[str, str]) -> dict[str, str]:
    # Codex hands its servers a fixed set of variables and its hooks all of them: unnamed, the two would serve two
    # memories.
    return {name: str(Path(env[name]).expanduser().absolute()) for name in WRITTEN_OUT if env.get(name)}


def hook_entries(command: tuple[str, ...], events: tuple[str, ...], env: Mapping[str, str]) -> Record:
    """Return event -> the matcher groups that are ours."""
    if sys.platform == "win32":
        quoted = " ".join(f'"{word}"' for word in command)
    else:
        quoted = " ".join([*(f"{n}={shlex.quote(v)}" for n, v in _places_of(env).items()), shlex.join(command)])
    return {
        event: [
            ({"matcher": MATCHERS[event]} if event in MATCHERS else {})
            | {"hooks": [{"type": "command", "command": f"{quoted} hook {event}", "timeout": HOOK_TIMEOUT_S[event]}]}
        ]
        for event in events
    }


def starts_us(entry: Json) -> bool:
    """Return whether a server's entry starts this product, whoever wrote it: by its script, its module, or a runner."""
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        return False
    args = entry.get("args")
    words = [entry["command"], *(str(one) for one in args)] if isinstance(args, list) else [entry["command"]]
    names = {re.sub(r"\.exe$", "", word.replace("\\", "/").rpartition("/")[2]) for word in words[:SERVER_WORDS_MAX]}
    return "mcp" in words and bool(names & {NAME, "memory_anchor"})


def is_our_hook(group: object) -> bool:
    """Return whether a matcher group of a hooks file is one of ours, whichever path it starts us by."""
    inner = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(inner, list) or not inner:
        return False
    commands = [str(one.get("command", "")) if isinstance(one, dict) else "" for one in inner]
    return all(OUR_HOOK.search(command.replace('"', "").replace("'", "")) for command in commands)


def _vscode_user(home: Path, env: Mapping[str, str]) -> Path:
    if sys.platform == "win32":
        return Path(env.get("APPDATA") or home / "AppData" / "Roaming") / "Code" / "User"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Code" / "User"
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "Code" / "User"
