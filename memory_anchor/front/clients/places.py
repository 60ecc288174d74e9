"""Where each client keeps its MCP configuration and hooks, what we add, and an editor of JSON with comments. No I/O.

Such files are written by hand and by programs (VS Code, Cursor, Gemini). Dumping one anew would lose comments and
trailing commas, so `put` and `drop` change the text at the value's place only; callers check the result with `read`.

Each client and scope has a list of `Part`s: a file, its format, and the keys that are ours. The rest of a file is the
user's. Hook commands are recognised by what they run (`OUR_HOOK`), so an older entry of ours is replaced, not doubled.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from memory_anchor.base.json_values import Json, Record, items, record
from memory_anchor.domain.errors import BadInput
from memory_anchor.runtime import wire
from memory_anchor.runtime.wire import HOOK_TOOL

DEPTH_MAX = 100
Steps = tuple[str | int, ...]
_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]++|//[^\n]*+|/\*[\s\S]*?\*/)*")
_STRING = re.compile(r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*+|true|false|null")


@dataclass(slots=True)
class _JsonNode:
    """A value and its position. inner: of an object (key, its start, value), of an array ("", its start, value).

    commas: the position of the comma after each of them, None without one.
    """

    start: int
    end: int
    value: Json
    inner: list[tuple[str, int, _JsonNode]] = field(default_factory=list)
    commas: list[int | None] = field(default_factory=list)


def read(text: str) -> Json:
    """Return the value of a text. Raises ValueError: no JSON, even with comments and trailing commas."""
    return _parsed(text).value


def put(text: str, path: Steps, value: Json) -> str:
    """Return the text with `value` at `path`; missing objects are made, an index after the last one appends.

    Raises ValueError: a value on the path is no container.
    """
    node, depth = _parsed(text), 0
    for depth, step in enumerate(path):
        child = _child(node, step)
        if child is None:
            made: Json = value
            for name in reversed(path[depth + 1 :]):
                made = [made] if isinstance(name, int) else {name: made}
            return _inserted(text, node, step, made, depth + 1)
        node = child
    return text[: node.start] + _dumped(value, text, len(path)) + text[node.end :]


def drop(text: str, path: Steps) -> str:
    """Return the text without the value at `path`; unchanged where there is none."""
    node = _parsed(text)
    for step in path[:-1]:
        child = _child(node, step)
        if child is None:
            return text
        node = child
    place = _place(node, path[-1])
    if place is None:
        return text
    start = node.inner[place][1]
    short = _cut(text, node, place, len(text[:start].rstrip(" \t\r\n")))
    try:
        read(short)
        return short
    except ValueError:  # the line end that goes would end a comment
        return _cut(text, node, place, start)


def _cut(text: str, node: _JsonNode, place: int, start: int) -> str:
    end, comma = node.inner[place][2].end, node.commas[place]
    if comma is not None:
        return text[:start] + text[end:comma] + text[comma + 1 :]
    if place:
        before = node.commas[place - 1]
        if before is not None:  # the comma after the value before
            return text[:before] + text[before + 1 : start] + text[end:]
    rest = text[end : node.end - 1]
    return text[:start] + (rest if rest.strip() else "") + text[node.end - 1 :]


def _inserted(text: str, node: _JsonNode, step: str | int, value: Json, depth: int) -> str:
    if isinstance(step, str) is not isinstance(node.value, dict) or not isinstance(node.value, (dict, list)):
        raise ValueError(f"{step!r} stands in what is no container")
    close = node.end - 1
    inside = text[node.start : close]
    is_line = "\n" not in inside and bool(node.inner)
    head = f"{json.dumps(step, ensure_ascii=False)}: " if isinstance(step, str) else ""
    if is_line:
        return f"{_with_comma(text[:close], node).rstrip()} {head}{json.dumps(value, ensure_ascii=False)}{text[close:]}"
    body = head + _dumped(value, text, depth)
    trails = bool(node.commas) and node.commas[-1] is not None
    blank, line = _indent(text), _line_end(text)
    before = _with_comma(text[:close], node).rstrip(" \t\r\n")
    return f"{before}{line}{blank * depth}{body}{',' * trails}{line}{blank * (depth - 1)}{text[close:]}"


def _with_comma(before: str, node: _JsonNode) -> str:
    """Return the text before a container's end, with a comma after its last value."""
    if not node.inner or node.commas[-1] is not None:
        return before
    end = node.inner[-1][2].end
    return f"{before[:end]},{before[end:]}"


def _dumped(value: Json, text: str, depth: int) -> str:
    """Return a value as JSON, indented as the file is for this depth."""
    blank = _indent(text)
    return json.dumps(value, ensure_ascii=False, indent=blank).replace("\n", f"{_line_end(text)}{blank * depth}")


def _indent(text: str) -> str:
    found = re.search(r"[{\[][^\S\n]{0,80}\n([ \t]{1,40})\S", text)
    return found.group(1) if found else "  "


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _child(node: _JsonNode, step: str | int) -> _JsonNode | None:
    place = _place(node, step)
    return None if place is None else node.inner[place][2]


def _place(node: _JsonNode, step: str | int) -> int | None:
    if isinstance(step, int):
        return step if isinstance(node.value, list) and step < len(node.inner) else None
    if not isinstance(node.value, dict):
        return None
    return next((n for n in reversed(range(len(node.inner))) if node.inner[n][0] == step), None)


def _parsed(text: str) -> _JsonNode:
    at = _BLANK.match(text).end()  # type: ignore[union-attr]
    node = _value(text, at, 0)
    if _skipped(text, node.end) != len(text):
        raise ValueError(f"character {node.end} is after the end")
    return node


def _skipped(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int, depth: int) -> _JsonNode:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
    sign = text[at : at + 1]
    if sign in ("{", "["):
        return _container(text, at, depth)
    found = _STRING.match(text, at) or _SCALAR.match(text, at)
    if found is None:
        raise ValueError(f"character {at} begins no value")
    return _JsonNode(at, found.end(), json.loads(found.group()))


def _container(text: str, at: int, depth: int) -> _JsonNode:
    is_object = text[at] == "{"
    close = "}" if is_object else "]"
    node = _JsonNode(at, at, {} if is_object else [])
    at = _skipped(text, at + 1)
    while text[at : at + 1] != close:
        start, key = at, ""
        if is_object:
            found = _STRING.match(text, at)
            if found is None:
                raise ValueError(f"character {at} begins no name")
            key = json.loads(found.group())
            at = _skipped(text, found.end())
            if text[at : at + 1] != ":":
                raise ValueError(f"character {at} is no colon")
            at = _skipped(text, at + 1)
        inner = _value(text, at, depth + 1)
        node.inner.append((key, start, inner))
        if isinstance(node.value, dict):
            node.value[key] = inner.value
        elif isinstance(node.value, list):
            node.value.append(inner.value)
        at = _skipped(text, inner.end)
        is_comma = text[at : at + 1] == ","
        node.commas.append(at if is_comma else None)
        if is_comma:
            at = _skipped(text, at + 1)
        elif text[at : at + 1] != close:
            raise ValueError(f"character {at} is neither a comma nor {close}")
    node.end = at + 1
    return node


NAME = "memory-anchor"
CODEX_NAME = "memory_anchor"
"""Codex joins server and tool name to an identifier; a hyphen in it is rewritten, so it gets none."""
CLIENTS = (
    *("claude-code", "codex", "gemini", "cursor", "vscode", "claude-desktop", "windsurf", "zed", "opencode"),
    "json",
)
PROGRAMS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini", "cursor": "cursor", "vscode": "code"}
PROGRAMS |= {"claude-desktop": "claude-desktop", "windsurf": "windsurf", "zed": "zed", "opencode": "opencode"}
"""The program of a client, by which it is detected, or else by the folder of its files."""
HOOKED = ("claude-code", "codex")
"""Clients that run our hooks, so that their sessions can be learned from."""
SCOPES = ("user", "project")
START_TIMEOUT_S = 30
OUR_HOOK = re.compile(rf"(?:\b{NAME}(?:\.exe)?|-m memory_anchor) hook [A-Z]")
"""Matches the command of each of our hooks without its quotes, whichever installation wrote it."""
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
"""How long a client may wait (Codex allows a session's end 3 s); our hook ends earlier (`hooks.WAIT_S`)."""
WRITTEN_OUT = ("MEMORY_ANCHOR_DATA_DIR", "MEMORY_ANCHOR_CONFIG_FILE")
"""Variables that say where the memory is; where set while installing, they are written into the entries."""
SERVER_WORDS_MAX = 50
TOOLS = "Bash|Edit|Write|MultiEdit|NotebookEdit|apply_patch"
"""Tools that touch a file or run a command: the others start no hook of ours."""
MATCHERS = {"PreToolUse": TOOLS, "PostToolUse": "Bash", "PostToolUseFailure": "Bash"}
CODEX_EVENTS = tuple(event for event in HOOK_TIMEOUT_S if event != "PostToolUseFailure")
"""Codex has no event for a failure: its transcript has it."""
CLAUDE_EVENTS = tuple(event for event in HOOK_TIMEOUT_S if event != "PostToolUse")
BY_TOOL: Mapping[str, Record] = {
    "PreToolUse": {"tool_input": "${tool_input}"},
    "PostToolUseFailure": {"tool_input": "${tool_input}", "error": "${error}"},
}
"""Hooks that Claude Code sends over its connection to our server, and what of: a tool call starts no process then. Not
a prompt's, which may come before the server is there; not in a project, whose server waits for an approval."""
TOOL_TIMEOUT_S = 2
UNAWAITED = ("Stop", "SessionEnd")
"""Hooks whose answer is nothing, so that Claude Code need not wait for them; Codex asks its user again about a changed
hook."""

GONE = "Memory Anchor does not start: install it again, then run memory-anchor install {}"
"""What a hook's shell says where the command was moved or deleted, or its interpreter upgraded: no hook fails by it."""
TOOLLESS = """\
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -nE 's/.*"id": *("[^"]*"|[0-9]+).*/\\1/p')
  [ -n "$id" ] || continue
  case $line in
    *'"initialize"'*)
      about='"serverInfo":{"name":"memory-anchor","version":"0"},"capabilities":{"tools":{}}'
      result="{\\"protocolVersion\\":\\"2025-06-18\\",$about,\\"instructions\\":\\"$missing\\"}" ;;
    *'"tools/list"'*) result='{"tools":[]}' ;;
    *'"memory_anchor_hook"'*) result='{"content":[]}' ;;
    *'"tools/call"'*) result="{\\"isError\\":true,\\"content\\":[{\\"type\\":\\"text\\",\\"text\\":\\"$missing\\"}]}" ;;
    *'"ping"'*) result='{}' ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\\n' "$id"; continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' "$id" "$result"
done
"""
"""A server for the shell that has no tool, says $missing, and lets each hook pass in silence."""
Kind = Literal["json-server", "json-hooks", "toml-server"]


@dataclass(frozen=True, slots=True)
class Part:
    """One of our entries: `value` in `file`, at the keys `under` (json) or as the table `under` (toml)."""

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
            server = in_lines(_outlasting(server) if user else server)
            return (
                Part(servers, "json-server", ("mcpServers", NAME), {"type": "stdio", **server}),
                Part(settings, "json-hooks", ("hooks",), claude_hooks(command, env, server=NAME if user else "")),
            )
        case "codex":
            folder = Path(env["CODEX_HOME"]) if env.get("CODEX_HOME") else home / ".codex"
            folder = folder if user else project / ".codex"
            # Codex gives its servers a few variables and its hooks all: without these, they would use two memories.
            timed = {**in_lines(server), "env_vars": [*wire.XDG], "startup_timeout_sec": START_TIMEOUT_S}
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
        case "claude-desktop" if user:
            file = _application_folder(home, env, "Claude") / "claude_desktop_config.json"
            return (Part(file, "json-server", ("mcpServers", NAME), server),)
        case "windsurf" if user:
            file = home / ".codeium" / "windsurf" / "mcp_config.json"
            return (Part(file, "json-server", ("mcpServers", NAME), server),)
        case "zed":
            folder = _config_folder(home, env, "zed", "Zed") if user else project / ".zed"
            return (
                Part(
                    folder / "settings.json", "json-server", ("context_servers", NAME), {"source": "custom", **server}
                ),
            )
        case "opencode":
            folder = _config_folder(home, env, "opencode", "opencode") if user else project
            local: Record = {"type": "local", "command": [*command, "mcp"], "enabled": True}
            places = _places_of(env)
            entry: Record = {**local, **({"environment": places} if places else {})}
            return (Part(folder / "opencode.json", "json-server", ("mcp", NAME), entry),)
    return ()


def server_entry(command: tuple[str, ...], env: Mapping[str, str]) -> Record:
    """Return the server entry that every client understands."""
    places = _places_of(env)
    return {"command": command[0], "args": [*command[1:], "mcp"], **({"env": places} if places else {})}


def _outlasting(entry: Record) -> Record:
    """Return the entry of a server that hooks ask: where its program is gone or was killed, the shell answers them."""
    if sys.platform == "win32":
        return entry
    script = f'"$0" "$@" && exit\nmissing=\'{GONE.format("claude-code")}\'\n{TOOLLESS}'
    return {**entry, "command": "/bin/sh", "args": ["-c", script, entry["command"], *items(entry["args"])]}


def program(entry: Record) -> str:
    """Return the program that a server's entry starts, also through a shell."""
    words = items(entry.get("args"))
    return str(words[2] if words[:1] == ["-c"] and len(words) > 2 else entry["command"])


def in_lines(entry: Record) -> Record:
    """Return the entry with answers as lines, for clients that show a model only the structured part of an answer."""
    return {**entry, "env": {**record(entry.get("env")), "MEMORY_ANCHOR_ANSWERS": "lines"}}


def _places_of(env: Mapping[str, str]) -> dict[str, str]:
    return {name: str(Path(env[name]).expanduser().absolute()) for name in WRITTEN_OUT if env.get(name)}


def note_on_env(env: Mapping[str, str]) -> str:
    """Return one sentence on variables of this terminal that nothing here is begun by, "" for none."""
    names = " and ".join(name for name in wire.XDG if wire.is_of_a_snap(env, name))
    return f"{names}: folders that go with a snap's revision; the usual ones are used instead" if names else ""


def hook_entries(command: tuple[str, ...], events: tuple[str, ...], env: Mapping[str, str]) -> Record:
    """Return event -> the matcher groups that are ours, each hook a process."""
    if sys.platform == "win32":
        quoted, failed = " ".join(f'"{word}"' for word in command), ""
    else:
        quoted = " ".join([*(f"{n}={shlex.quote(v)}" for n, v in _places_of(env).items()), shlex.join(command)])
        failed = f" || echo {shlex.quote(GONE.format('claude-code' if events is CLAUDE_EVENTS else 'codex'))} >&2"
    return {
        event: [_group(event, f"{quoted} hook {event}{failed}", waits=events is not CLAUDE_EVENTS)] for event in events
    }


def _group(event: str, command: str, *, waits: bool) -> Record:
    """Return the matcher group of one hook. waits: the client waits for it whatever it answers."""
    hook: Record = {"type": "command", "command": command, "timeout": HOOK_TIMEOUT_S[event]}
    unawaited: Record = {} if waits or event not in UNAWAITED else {"async": True}
    matched: Record = {"matcher": MATCHERS[event]} if event in MATCHERS else {}
    return {**matched, "hooks": [{**hook, **unawaited}]}


def claude_hooks(command: tuple[str, ...], env: Mapping[str, str], *, server: str) -> Record:
    """Return event -> our matcher groups in Claude Code.

    server: what its hooks call our server, "" for hooks that are a process each.
    """
    entries = dict(hook_entries(command, CLAUDE_EVENTS, env))
    for event, given in BY_TOOL.items() if server else ():
        told: Record = {"event": event, "session": "${session_id}", **given}
        call: Record = {
            "type": "mcp_tool",
            "server": server,
            "tool": HOOK_TOOL,
            "input": told,
            "timeout": TOOL_TIMEOUT_S,
        }
        entries[event] = [{"matcher": MATCHERS[event], "hooks": [call]}]
    return entries


def by_process(part: Part, command: tuple[str, ...], env: Mapping[str, str]) -> Part:
    """Return this part with hooks that are a process each, where it is Claude Code's hooks."""
    return replace(part, value=claude_hooks(command, env, server="")) if part.kind == "json-hooks" else part


def starts_us(entry: Json) -> bool:
    """Return whether a server's entry starts this product: by its script, its module, or a runner."""
    if not isinstance(entry, dict):
        return False
    # opencode has command and arguments in one list
    parts = [[part] if isinstance(part, str) else part for part in (entry.get("command"), entry.get("args"))]
    words = [str(word) for part in parts if isinstance(part, list) for word in part]
    names = {re.sub(r"\.exe$", "", word.replace("\\", "/").rpartition("/")[2]) for word in words[:SERVER_WORDS_MAX]}
    return "mcp" in words and bool(names & {NAME, "memory_anchor"})


def is_our_hook(group: object) -> bool:
    """Return whether a matcher group of a hooks file is ours, whichever path it starts us by."""
    inner = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(inner, list) or not inner:
        return False
    return all(isinstance(hook, dict) and _is_ours(hook) for hook in inner)


def _is_ours(hook: Record) -> bool:
    command = str(hook.get("command", "")).replace('"', "").replace("'", "")
    return hook.get("tool") == HOOK_TOOL or OUR_HOOK.search(command) is not None


def _vscode_user(home: Path, env: Mapping[str, str]) -> Path:
    return _application_folder(home, env, "Code") / "User"


def _application_folder(home: Path, env: Mapping[str, str], name: str) -> Path:
    """Return where a desktop program keeps its settings."""
    if sys.platform == "win32":
        return Path(env.get("APPDATA") or home / "AppData" / "Roaming") / name
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / name
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / name


def _config_folder(home: Path, env: Mapping[str, str], name: str, on_windows: str) -> Path:
    """Return where a program keeps its settings that uses `.config` on every Unix."""
    if sys.platform == "win32":
        return Path(env.get("APPDATA") or home / "AppData" / "Roaming") / on_windows
    return Path(env.get("XDG_CONFIG_HOME") or home / ".config") / name
