"""The tools an agent sees, by profile and by their older names; each is part of its row (`rows.ToolSpec`).

The whole standard list stays under `STANDARD_TOKENS_MAX`, which a test counts; `tool_schema` keeps it small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from memory_anchor.base.json_values import Json, Record, kind_of, record, texts
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.requests.fields import BaseRequest, Schema, is_left_out, tool_schema, unquoted
from memory_anchor.front.rows import Shelf, ToolSpec
from memory_anchor.front.table import ROWS
from memory_anchor.settings import Profile

STANDARD_TOKENS_MAX, MINIMAL_TOKENS_MAX = 1_400, 700
"""o200k tokens of what is listed in these profiles, as it is sent, annotations included."""

Arguments = dict[str, Json]
_SHELVES: Mapping[Profile, tuple[Shelf, ...]] = {
    "minimal": ("minimal",),
    "standard": ("minimal", "standard"),
    "full": ("minimal", "standard", "full"),
    "compat": ("minimal", "standard", "full"),
}


@dataclass(frozen=True, slots=True)
class Alias:
    """An older name of a tool. renamed: its argument names -> ours. spread: an object whose fields are arguments."""

    name: str
    target: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    spread: str = ""


TOOLS: tuple[ToolSpec, ...] = tuple(one.tool for one in ROWS.values() if one.tool is not None)

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
"""Names of earlier versions and of other memory servers: always accepted, listed in the profile `compat`."""
FILTER_FIELDS = ("layers", "types", "tags", "since", "until")
"""What `filter` of `memory_search` may hold."""
_SINGULAR = {"layer": "layers", "type": "types", "tag": "tags"}


def schema_of(tool: ToolSpec) -> Schema:
    """Return the arguments as a client is shown them."""
    schema = tool_schema(tool.request)
    alias = ALIASES.get(tool.name)
    return schema if alias is None else _under_older_names(schema, alias)


def listed_tools(profile: Profile, *, read_only: bool, available: Iterable[str]) -> list[ToolSpec]:
    """Return the tools a client is shown, aliases last.

    available: names of the tools whose use case exists. Write tools do not exist in read-only mode.
    """
    known = callable_tools(read_only=read_only, available=available)
    shown = [spec for spec in known.values() if spec.shelf in _SHELVES[profile]]
    if profile == "compat":
        for alias in (alias for alias in ALIASES.values() if alias.target in known):
            described = f"Older name of {alias.target}. {known[alias.target].description}"
            shown.append(replace(known[alias.target], name=alias.name, description=described, shelf="full"))
    return shown


def callable_tools(*, read_only: bool, available: Iterable[str]) -> dict[str, ToolSpec]:
    """Return every tool that may be called, whatever the profile lists: a profile saves tokens, it protects nothing."""
    names = set(available)
    return {spec.name: spec for spec in TOOLS if spec.name in names and not (read_only and spec.effect != "reads")}


def resolve(name: str, given: Record | None, tools: Mapping[str, ToolSpec]) -> tuple[str, BaseRequest]:
    """Return the tool's own name and the checked request; a null argument counts as not given.

    Raises BadInput: no such tool, or one sentence about its arguments.
    """
    alias = ALIASES.get(name)
    target = alias.target if alias else name
    if (spec := tools.get(target)) is None:
        is_write = any(tool.name == target and tool.effect != "reads" for tool in TOOLS)
        why = "memory is read-only here; there are" if is_write else "there are"
        raise BadInput(f"no tool {name[:80]!r}; {why} {', '.join(tools)}")
    arguments = dict(given or {})
    return spec.name, spec.request.read(_translated(alias, arguments) if alias else arguments, name)


def _translated(alias: Alias, given: Arguments) -> Arguments:
    """Return the arguments of a call by an older name, under our names."""
    fields: Json = unquoted(given.pop(alias.spread, None), dict) if alias.spread else None
    fields = None if is_left_out(fields) else fields
    if fields is not None and not isinstance(fields, Mapping):
        raise BadInput(f"{alias.name} got {alias.spread} as {kind_of(fields)}; allowed is an object")
    inner: Arguments = dict(fields or {})
    if alias.spread == "filter":
        inner = {_SINGULAR.get(name, name): value for name, value in inner.items()}
        if unknown := [name for name in inner if name not in FILTER_FIELDS]:
            raise BadInput(
                f"{alias.name} got the unknown filter {str(unknown[0])[:80]!r}; allowed are {', '.join(FILTER_FIELDS)}"
            )
    # An argument of its own wins over the same field of the spread object.
    arguments: Arguments = {alias.renamed.get(name, name): value for name, value in (inner | given).items()}
    if isinstance(citation := unquoted(arguments.get("id"), dict), Mapping):  # memory_get takes a whole citation
        arguments["id"] = citation.get("ref")
    return arguments


def _under_older_names(schema: Schema, alias: Alias) -> Schema:
    back = {ours: theirs for theirs, ours in alias.renamed.items() if theirs != "citation"}
    required = texts(schema.get("required"))
    arguments: Schema = {back.get(name, name): inner for name, inner in record(schema["properties"]).items()}
    if alias.spread:
        own = record(schema["properties"])
        arguments = {name: arguments[name] for name in arguments if name in ("text", "query", "limit")}
        inner = FILTER_FIELDS if alias.spread == "filter" else [name for name in own if name not in required]
        arguments[alias.spread] = {"type": "object", "description": ", ".join(inner)}
    return {**schema, "properties": arguments, "required": [back.get(name, name) for name in required]}
