"""Which of a prompt's tools are shown: four profiles over groups of tools. Pure.

minimal < coding < web < full. A tool says its own group (`"group": "fs"` beside its name, or `memory-anchor/group` in
its `_meta`); else it is guessed from the words of its name, so that other people's tools need no configuration. Tools
of no known group are shown in `full` only. What the prompt's messages call is always shown: an API refuses a call
whose tool it is not given. Our own marks are taken off before the tools go back: APIs refuse keys they do not know. On
request every tool's argument schema comes back strict (`text.schemas`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memory_anchor.context.schemas import strict_schema
from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json
from memory_anchor.language.tokens import count_tokens

ToolProfile = Literal["minimal", "coding", "web", "full"]
PROFILES: Mapping[ToolProfile, frozenset[str]] = {
    "minimal": frozenset({"memory"}),
    "coding": frozenset({"memory", "fs", "devtools"}),
    "web": frozenset({"memory", "fs", "devtools", "web"}),
}
"""Groups each profile shows; `full` shows everything."""
NARROWER: tuple[ToolProfile, ...] = ("web", "coding", "minimal")
"""The profiles below `full`, widest first."""
GROUPS = ("fs", "memory", "web", "devtools")
TOOLS_MAX = 2_000
META = "memory-anchor/"
MARKS = ("group", "prunable")
SCHEMA_NAMES = ("input_schema", "inputSchema", "parameters")
"""Where Anthropic's, MCP's and OpenAI's forms keep the schema of the arguments."""

_OWN = frozenset(
    {
        "log_event",
        "promote_to_fact",
        "search_events",
        "get_active_context",
        "set_active_context",
        "end_session",
        "find_operations",
        "build_context",
        "remember_conversation",
        "resolve_conflict",
    }
)
_WORDS: Mapping[str, str] = {
    "memory": "memory memories remember recall constitution knowledge",
    "web": "web http https url fetch browser browse browsing crawl scrape internet page pages website navigate",
    "devtools": "bash shell sh exec execute terminal command commands run test tests pytest lint format typecheck "
    "build compile debug debugger git github gitlab docker npm pip process processes diagnostics lsp notebook python "
    "repl code kill",
    "fs": "fs file files filesystem read write edit multiedit patch glob grep ls dir directory directories folder path "
    "open cat find rg tree view replace",
}
"""Words of a name that tell the group, asked in this order: `read_web_page` is web, `git_read_file` devtools."""
_WORD = re.compile(r"(?:[A-Z](?![a-z]))++|[A-Z]?[a-z]++")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of a prompt. shown: what goes back. tokens: of its definition as compact JSON."""

    name: str
    group: str
    prunable: bool
    shown: Mapping[str, Json]
    tokens: int


def read_tools(tools: Json, *, strict: bool = False) -> tuple[Tool, ...]:
    """Return the tools of a prompt (Anthropic's, OpenAI's or MCP's form); None counts as none.

    strict: make each one's argument schema strict. Raises BadInput: not a list, a tool without a name, an unknown
    group, a `prunable` that is no flag, and with `strict` a schema that cannot be followed.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise BadInput(f"tools is a {type(tools).__name__}; allowed is a list of tool definitions")
    if len(tools) > TOOLS_MAX:
        raise BadInput(f"tools has {len(tools)} entries; allowed are at most {TOOLS_MAX}")
    return tuple(_read(tool, f"tools[{index}]", strict=strict) for index, tool in enumerate(tools))


def group_of(name: str) -> str:
    """Return the group that the words of a tool's name tell, "other" when none does.

    >>> group_of("mcp__files__read_text"), group_of("WebSearch"), group_of("send_mail")
    ('fs', 'web', 'other')
    """
    if name.rsplit("__", 1)[-1] in _OWN:
        return "memory"
    words = {word.lower() for word in _WORD.findall(name)}
    return next((group for group, known in _WORDS.items() if not words.isdisjoint(known.split())), "other")


@dataclass(frozen=True, slots=True)
class Shown:
    profile: ToolProfile
    tools: tuple[Tool, ...]
    dropped: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(tool.tokens for tool in self.tools)


def narrow(tools: Sequence[Tool], *, need: int, required: frozenset[str], steps: int = len(NARROWER)) -> Shown:
    """Return the widest profile that saves `need` tokens, else the narrowest, at most `steps` profiles below full that
    show fewer tools. required: names that stay whatever their group."""
    best = Shown("full", tuple(tools))
    before = best.tokens
    for profile in NARROWER:
        kept = tuple(tool for tool in tools if tool.group in PROFILES[profile] or tool.name in required)
        if len(kept) == len(best.tools):
            continue
        staying = {id(tool) for tool in kept}
        best = Shown(profile, kept, tuple(tool.name for tool in tools if id(tool) not in staying))
        steps -= 1
        if before - best.tokens >= need or steps <= 0:
            break
    return best


def _read(tool: Json, where: str, *, strict: bool) -> Tool:
    if not isinstance(tool, Mapping):
        raise BadInput(f"{where} is a {type(tool).__name__}; allowed is a tool definition with a name")
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else tool.get("name", tool.get("type"))
    if not isinstance(name, str) or not name:
        raise BadInput(f"{where} has no name; allowed is a tool definition with a name")
    group = _mark(tool, "group")
    if group is not None and group not in GROUPS:
        raise BadInput(f"{where}.group is {str(group)[:40]!r}; allowed are {', '.join(GROUPS)}")
    prunable = _mark(tool, "prunable")
    if prunable is not None and not isinstance(prunable, bool):
        raise BadInput(f"{where}.prunable is {str(prunable)[:40]!r}; allowed are true and false")
    shown = _strict(_unmarked(tool), where) if strict else _unmarked(tool)
    try:
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"{where} holds what is not JSON or not valid Unicode; allowed is any JSON value") from None
    return Tool(name, group or group_of(name), prunable is not False, shown, count_tokens(text))


def _strict(tool: Mapping[str, Json], where: str) -> Mapping[str, Json]:
    """Return the tool with its argument schema strict, wherever its form keeps it; the very same without a schema."""
    function = tool.get("function")
    if isinstance(function, Mapping):
        inner = _strict(function, where)
        return tool if inner is function else {**tool, "function": inner}
    for name in SCHEMA_NAMES:
        if isinstance(schema := tool.get(name), Mapping):
            try:
                return {**tool, name: strict_schema(schema)}
            except BadInput as error:
                raise BadInput(f"{where}.{name}: {error}") from error
    return tool


def _mark(tool: Mapping[str, Json], name: str) -> Json:
    meta = tool.get("_meta")
    if name in tool:
        return tool[name]
    return meta.get(META + name) if isinstance(meta, Mapping) else None


def _unmarked(tool: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the tool without our marks; the very same mapping when it has none."""
    meta = tool.get("_meta")
    ours = {META + name for name in MARKS}
    marked = isinstance(meta, Mapping) and not ours.isdisjoint(meta)
    if not marked and not any(name in tool for name in MARKS):
        return tool
    plain = {key: value for key, value in tool.items() if key not in MARKS and not (marked and key == "_meta")}
    if marked and isinstance(meta, Mapping) and (kept := {k: v for k, v in meta.items() if k not in ours}):
        plain["_meta"] = kept
    return plain
