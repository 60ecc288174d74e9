"""The tools an agent sees: names, arguments, descriptions, profiles, aliases. No behaviour.

Schemas are written by hand: generated ones cost a third more tokens in titles and null unions, and some clients drop
defaults and limits, so those stand in words. The whole standard list stays under `STANDARD_TOKENS_MAX`, which a test
counts. Values are checked by the use cases, in one sentence; only argument names are checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from memory_anchor.errors import BadInput
from memory_anchor.settings import Profile

STANDARD_TOKENS_MAX = 1_500
"""o200k tokens of names, descriptions and schemas in the standard profile."""

Arguments = dict[str, Any]
Schema = dict[str, Any]
Shelf = Literal["minimal", "standard", "full"]
_SHELVES: Mapping[Profile, tuple[Shelf, ...]] = {
    "minimal": ("minimal",),
    "standard": ("minimal", "standard"),
    "full": ("minimal", "standard", "full"),
    "compat": ("minimal", "standard", "full"),
}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool. shelf: the smallest profile that lists it. replay_safe: repeating the call changes nothing more.
    accepts: arguments understood on a call and not listed, to save tokens."""

    name: str
    description: str
    arguments: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    shelf: Shelf = "standard"
    writes: bool = False
    destructive: bool = False
    replay_safe: bool = True
    accepts: tuple[str, ...] = ()

    def schema(self) -> Schema:
        made: Schema = {"type": "object", "properties": dict(self.arguments)}
        if self.required:
            made["required"] = list(self.required)
        return made


@dataclass(frozen=True, slots=True)
class Alias:
    """An older name of a tool. renamed: its argument names -> ours. spread: an argument whose fields are arguments."""

    name: str
    target: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    spread: str = ""


def _text(told: str = "") -> Schema:
    return {"type": "string", "description": told} if told else {"type": "string"}


def _number(told: str) -> Schema:
    return {"type": "number", "description": told}


def _whole(told: str) -> Schema:
    return {"type": "integer", "description": told}


def _flag(told: str = "") -> Schema:
    return {"type": "boolean", "description": told} if told else {"type": "boolean"}


def _texts(told: str = "") -> Schema:
    made: Schema = {"type": "array", "items": {"type": "string"}}
    return made | {"description": told} if told else made


TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "get_constitution",
        "The project's rules (L0), whole. Follow them.",
        {},
        shelf="minimal",
    ),
    ToolSpec(
        "search_memory",
        "Search long-term memory in any language, before you decide, fix or ask what may be known. weak: may be "
        "beside the point.",
        {
            "query": _text(),
            "layers": _texts("event_log, verified_fact"),
            "types": _texts(),
            "tags": _texts(),
            "since": _text("ISO 8601"),
            "until": _text(),
            "as_of": _text("believed at"),
            "limit": _whole("1-50, default 5"),
            "include_pending": _flag(),
            "detail": _flag(),
        },
        required=("query",),
        shelf="minimal",
    ),
    ToolSpec(
        "save_memory",
        "Save what later sessions must know once it is settled: a decision and why, a fix and its cause, a preference, "
        "a rule. One self-contained statement, no secrets. replaces: id it corrects.",
        {
            "content": _text("1-8000 characters"),
            "key": _text("short title"),
            "type": _text(
                "decision, bugfix, refactor, preference, fact (default), instruction, workflow, project_state, bookmark"
            ),
            "layer": _text(),
            "tags": _texts("up to 32"),
            "importance": _number("0-1"),
            "confidence": _number("0-1, default 0.9; below waits for review"),
            "visibility": _text("conversation, agent, project (default), user, account"),
            "files": _texts("path or path:10-20"),
            "replaces": _text(),
            "request_id": _text(),
        },
        required=("content",),
        shelf="minimal",
        writes=True,
        replay_safe=False,
        accepts=("source",),
    ),
    ToolSpec(
        "log_event",
        "Log what happened: work done, failures, findings.",
        {
            "content": _text(),
            "when": _text("ISO 8601, default now"),
            "where": _text(),
            "who": _texts(),
            "ttl_days": _whole("0: for ever"),
            "type": _text("event (default), discovery, note, emotion, episode, summary"),
            "tags": _texts(),
            "files": _texts(),
            "request_id": _text(),
        },
        required=("content",),
        shelf="minimal",
        writes=True,
        replay_safe=False,
        accepts=("source",),
    ),
    ToolSpec(
        "promote_to_fact",
        "Turn a confirmed event into a fact that cites it.",
        {
            "event_id": _text(),
            "content": _text("the general rule"),
            "confidence": {"type": "number"},
        },
        required=("event_id",),
        shelf="minimal",
        writes=True,
    ),
    ToolSpec(
        "propose_constitution_change",
        "Propose a rule change; only humans approve.",
        {
            "content": _text(),
            "reason": _text(),
            "action": _text("add (default), replace, remove"),
            "entry_id": _text(),
            "from_id": _text(),
        },
        required=("content", "reason"),
        writes=True,
    ),
    ToolSpec(
        "search_events",
        "Events of a time range, newest first.",
        {
            "start": _text(),
            "end": _text(),
            "query": _text(),
            "where": _text(),
            "who": _texts(),
            "limit": _whole("1-200, default 20"),
        },
    ),
    ToolSpec(
        "get_memory",
        "One memory whole.",
        {"id": _text(), "history": _flag()},
        required=("id",),
    ),
    ToolSpec(
        "forget_memory",
        "Archive a wrong or unwanted memory; restorable.",
        {"id": _text(), "reason": _text()},
        required=("id",),
        writes=True,
        destructive=True,
    ),
    ToolSpec(
        "get_active_context",
        "What this conversation has noted.",
        {"key": _text()},
    ),
    ToolSpec(
        "set_active_context",
        "Note a passing value for this conversation.",
        {
            "key": _text(),
            "value": {"description": "any JSON"},
            "ttl_s": _whole("1-86400, default 3600"),
        },
        required=("key", "value"),
        writes=True,
    ),
    ToolSpec(
        "end_session",
        "Call when work ends: notes and summary (done, open) become one event.",
        {"summary": _text()},
        writes=True,
        replay_safe=False,
    ),
    ToolSpec(
        "find_operations",
        "How this project does a task (.ai/operations/).",
        {"task": _text(), "limit": _whole("1-20, default 3")},
        required=("task",),
    ),
    ToolSpec(
        "build_context",
        "All layers for a task in one text within a budget.",
        {"task": _text(), "budget_tokens": _whole("1-200000")},
        required=("task",),
    ),
    ToolSpec(
        "remember_conversation",
        "Extract and store what is worth keeping of a conversation.",
        {
            "messages": {
                "type": "array",
                "items": {"type": "object"},
                "description": "{role, content, tool_calls?} in order",
            },
            "mode": _text("first-person, ghostwriter, factual"),
            "only": _text("user_facts: only what concerns the user"),
        },
        required=("messages",),
        shelf="full",
        writes=True,
        replay_safe=False,
    ),
    ToolSpec(
        "resolve_conflict",
        "Settle two memories that contradict each other; some wait for the user.",
        {"id": _text("of either"), "resolution": _text("keep_new, keep_old, merge")},
        required=("id", "resolution"),
        shelf="full",
        writes=True,
        destructive=True,
    ),
)

_STORE = {"text": "content"}
ALIASES: Mapping[str, Alias] = {
    alias.name: alias
    for alias in (
        Alias("add_memory", "save_memory", _STORE, spread="metadata"),
        Alias("memory_store", "save_memory", _STORE, spread="metadata"),
        Alias("memory_search", "search_memory", spread="filter"),
        Alias("memory_get", "get_memory", {"citation": "id"}),
        Alias("memory_forget", "forget_memory"),
        Alias("promote_event_to_fact", "promote_to_fact", _STORE),
    )
}
"""Names of earlier versions and of the seeds, accepted on every call and listed in the profile `compat`."""
FILTER_FIELDS = ("layers", "types", "tags", "since", "until")
"""What `filter` of `memory_search` may hold."""
_SINGULAR = {"layer": "layers", "type": "types", "tag": "tags"}


def listed(profile: Profile, *, read_only: bool, available: Iterable[str]) -> list[ToolSpec]:
    """Return the tools a client is shown, aliases last.

    available: names of the tools whose use case exists. Write tools do not exist in read-only mode.
    """
    known = callable_tools(read_only=read_only, available=available)
    shown = [spec for spec in known.values() if spec.shelf in _SHELVES[profile]]
    if profile == "compat":
        shown += [_as_tool(alias, known[alias.target]) for alias in ALIASES.values() if alias.target in known]
    return shown


def callable_tools(*, read_only: bool, available: Iterable[str]) -> dict[str, ToolSpec]:
    """Return every tool that may be called, whatever the profile lists: a profile saves tokens, it guards nothing."""
    names = set(available)
    return {spec.name: spec for spec in TOOLS if spec.name in names and not (read_only and spec.writes)}


def resolve(name: str, given: Mapping[str, Any] | None, tools: Mapping[str, ToolSpec]) -> tuple[str, Arguments]:
    """Return the tool's own name and the call's arguments under our names; a null stands for not given.

    Raises BadInput: no such tool, an unknown or a missing argument.
    """
    alias = ALIASES.get(name)
    spec = tools.get(alias.target if alias else name)
    if spec is None:
        written = next((one for one in TOOLS if one.name == (alias.target if alias else name)), None)
        why = "memory is read-only here; there are" if written is not None and written.writes else "there are"
        raise BadInput(f"no tool {name[:80]!r}; {why} {', '.join(tools)}")
    arguments = _translated(alias, dict(given or {})) if alias else dict(given or {})
    unknown = [one for one in arguments if one not in spec.arguments and one not in spec.accepts]
    if unknown:
        allowed = ", ".join(spec.arguments) or "no arguments"
        raise BadInput(f"{name} got the unknown argument {unknown[0][:80]!r}; allowed are {allowed}")
    missing = [one for one in spec.required if one not in arguments]
    if missing:
        raise BadInput(f"{name} lacks the argument {missing[0]!r}; required are {', '.join(spec.required)}")
    return spec.name, {one: value for one, value in arguments.items() if value is not None or one in spec.required}


def _translated(alias: Alias, given: Arguments) -> Arguments:
    fields = given.pop(alias.spread, None) if alias.spread else None
    if fields is not None and not isinstance(fields, Mapping):
        raise BadInput(f"{alias.name} got {alias.spread} as {type(fields).__name__}; allowed is an object")
    inner = dict(fields or {})
    if alias.spread == "filter":
        inner = {_SINGULAR.get(name, name): value for name, value in inner.items()}
        if unknown := [one for one in inner if one not in FILTER_FIELDS]:
            raise BadInput(
                f"{alias.name} got the unknown filter {str(unknown[0])[:80]!r}; allowed are {', '.join(FILTER_FIELDS)}"
            )
    found: Arguments = {}
    for name, value in [*inner.items(), *given.items()]:  # an argument of its own wins over the same field
        found[alias.renamed.get(name, name)] = value
    if isinstance(found.get("id"), Mapping):  # memory_get takes a citation whole
        found["id"] = found["id"].get("ref")
    return found


def _as_tool(alias: Alias, spec: ToolSpec) -> ToolSpec:
    back = {ours: theirs for theirs, ours in alias.renamed.items() if theirs != "citation"}
    arguments: dict[str, Schema] = {back.get(name, name): schema for name, schema in spec.arguments.items()}
    if alias.spread:
        arguments = {name: arguments[name] for name in arguments if name in ("text", "query", "limit")}
        inner = FILTER_FIELDS if alias.spread == "filter" else [n for n in spec.arguments if n not in spec.required]
        arguments[alias.spread] = {"type": "object", "description": ", ".join(inner)}
    return ToolSpec(
        alias.name,
        f"Older name of {alias.target}. {spec.description}",
        arguments,
        required=tuple(back.get(name, name) for name in spec.required),
        shelf="full",
        writes=spec.writes,
        destructive=spec.destructive,
        replay_safe=spec.replay_safe,
    )
