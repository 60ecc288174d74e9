"""Which of a prompt's tools are shown: four profiles over groups of tools. Pure.

minimal < coding < web < full. A tool names its own group (`"group": "fs"` next to its name, or `memory-anchor/group` in
its `_meta`); else it is guessed from the words of its name, so that other people's tools need no configuration. Tools
of no known group are shown in `full` only. What the prompt's messages call is always shown: an API refuses a call
whose tool it is not given. Our own marks are taken off before the tools go back: APIs refuse keys they do not know. On
request every tool's argument schema is made strict, so that a model's arguments fit it more often.

Strict: objects refuse undeclared names, `$ref` is inlined and definitions are dropped, `oneOf` becomes `anyOf` (models
and APIs know only that), and names that are required (always, or with another name) or used by a branch are declared.
The aim is that an argument which was right for the tool stays right; what strict dialects cannot express is therefore
left alone: a declared map (`additionalProperties` with a schema, or `true` without properties) stays a map,
and the branches of an object are not closed one by one, since all of them see the same object and its declared names.

Rejected: requiring every property, as some APIs want it, by default. Tools would get nulls they never asked for;
`require_all` does it on demand. Invariant: strict_schema(strict_schema(s)) == strict_schema(s).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeGuard
from urllib.parse import unquote

from memory_anchor.base.json_values import Json, Record, items, kind_of, record
from memory_anchor.domain.errors import BadInput
from memory_anchor.language.safe_regex import late
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

_OWN = (
    "log_event promote_to_fact search_events get_active_context set_active_context end_session find_operations "
    "build_context remember_conversation resolve_conflict"
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
"""Words of a name that give the group, tried in this order: `read_web_page` is web, `git_read_file` devtools."""
_WORD = late(r"(?:[A-Z](?![a-z]))+|[A-Z]?[a-z]++")


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
        raise BadInput(f"tools is {kind_of(tools)}; allowed is a list of tool definitions")
    if len(tools) > TOOLS_MAX:
        raise BadInput(f"tools has {len(tools)} entries; allowed are at most {TOOLS_MAX}")
    return tuple(_read(tool, f"tools[{index}]", strict=strict) for index, tool in enumerate(tools))


def group_of(name: str) -> str:
    """Return the group that the words of a tool's name give, "other" when none does.

    >>> group_of("mcp__files__read_text"), group_of("WebSearch"), group_of("send_mail")
    ('fs', 'web', 'other')
    """
    if name.rsplit("__", 1)[-1] in _OWN.split():
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
        shown = tuple(tool for tool in tools if tool.group in PROFILES[profile] or tool.name in required)
        if len(shown) == len(best.tools):
            continue
        ids = {id(tool) for tool in shown}
        best = Shown(profile, shown, tuple(tool.name for tool in tools if id(tool) not in ids))
        steps -= 1
        if before - best.tokens >= need or steps <= 0:
            break
    return best


def _read(tool: Json, where: str, *, strict: bool) -> Tool:
    if not isinstance(tool, Mapping):
        raise BadInput(f"{where} is {kind_of(tool)}; allowed is a tool definition with a name")
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
    if marked and isinstance(meta, Mapping) and (others := {k: v for k, v in meta.items() if k not in ours}):
        plain["_meta"] = others
    return plain


REF_LEVELS = 3
"""How often a definition is inlined into itself before its inner copy accepts anything of its kind."""
NODES_MAX = 20_000
DEPTH_MAX = 64

_OBJECT_WORDS = frozenset(
    {
        "properties",
        "required",
        "patternProperties",
        "dependentRequired",
        "dependentSchemas",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "additionalProperties",
    }
)
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("if", "then", "else", "not")
_CHILDREN = ("items", "additionalItems", "additionalProperties", "unevaluatedItems")
_OPEN_CHILDREN = ("contains", "propertyNames", "unevaluatedProperties")
_CHILD_MAPS = ("properties", "patternProperties")
_NOTES = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"})
_DEPENDENT = ("dependentSchemas", "dependencies")
_GONE = frozenset({"$defs", "definitions", "$schema", "$id", "discriminator"})
_ANYTHING_OF: Mapping[str, dict[str, Json]] = {"object": {"type": "object", "additionalProperties": True}}


def strict_schema(schema: Mapping[str, Json], *, require_all: bool = False) -> dict[str, Json]:
    """Return the strict form of a tool's JSON Schema (draft 7 to 2020-12); the given one is not changed.

    require_all: every declared property becomes required, and those that were optional may be null instead.
    Raises BadInput: not a mapping, a reference that leads nowhere in it, or a schema too deep or large once inlined.

    >>> strict_schema({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}})
    {'type': 'object', 'properties': {'a': {'anyOf': [{'type': 'string'}]}}, 'additionalProperties': False}
    """
    if not isinstance(schema, Mapping):
        raise BadInput(f"schema is {kind_of(schema)}; allowed is a JSON Schema as a mapping")
    made = _Normaliser(schema, require_all=require_all).node(schema, _SchemaPath(closed=True))
    return made if isinstance(made, dict) else {}


@dataclass(frozen=True, slots=True)
class _SchemaPath:
    """Where a schema is. closed: may it refuse undeclared names. exact: its outcome is negated or decides a
    branch, so it may not be widened. refs: the references being inlined."""

    closed: bool
    exact: bool = False
    refs: tuple[str, ...] = ()
    depth: int = 0

    def inside(self, *, closed: bool | None = None, exact: bool = False) -> _SchemaPath:
        return replace(
            self, closed=self.closed if closed is None else closed, exact=self.exact or exact, depth=self.depth + 1
        )


class _Normaliser:
    def __init__(self, root: Mapping[str, Json], *, require_all: bool) -> None:
        self._root = root
        self._require_all = require_all
        self._nodes = 0

    def node(self, schema: Json, place: _SchemaPath) -> Json:
        """Return one schema normalised; booleans and what is no schema stay as they are."""
        if not isinstance(schema, Mapping):
            return schema
        self._spend(place.depth)
        _check(schema)
        if "$ref" in schema:
            return self._inlined(schema, place)
        plain = {name: value for name, value in schema.items() if name not in _GONE}
        plain = plain if place.exact else _one_union(plain)
        if (single := _lone_all_of(plain)) is not None:
            return self.node(single, place.inside())
        if _is_object(plain):
            return self._object(plain, place)
        # A union of whole alternatives: each is an object of its own and may be closed.
        return self._parts(plain, place, branches_closed=place.closed, contested=frozenset())

    def _spend(self, depth: int) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX or depth > DEPTH_MAX:
            raise BadInput(f"schema has over {NODES_MAX} parts or {DEPTH_MAX} levels written out; make it smaller")

    def _inlined(self, schema: Record, place: _SchemaPath) -> Json:
        ref = schema["$ref"]
        if not isinstance(ref, str):
            raise BadInput(f"schema has a $ref that is {kind_of(ref)}; allowed is text such as #/$defs/Name")
        target = _resolve(self._root, ref)
        if place.refs.count(ref) >= REF_LEVELS:
            return _anything_like(target)
        siblings = {name: value for name, value in schema.items() if name != "$ref"}
        inner = replace(place, refs=(*place.refs, ref), depth=place.depth + 1)
        if not isinstance(target, Mapping):
            return target
        if set(siblings) <= _NOTES | _GONE:
            return self.node({**target, **siblings}, inner)
        return self.node({**siblings, "allOf": [*items(siblings.get("allOf")), target]}, inner)

    def _object(self, plain: dict[str, Json], place: _SchemaPath) -> dict[str, Json]:
        named = list(dict.fromkeys(self._names(plain, place.refs)))
        branch_names = frozenset(
            name for branch in _branches(plain) for name in self._names(branch, place.refs, with_required=False)
        )
        made = self._parts(plain, place, branches_closed=False, contested=branch_names)
        extra = made.get("additionalProperties")
        is_map = isinstance(extra, dict) or (
            extra is True and not any(self._names(plain, place.refs, with_required=False))
        )
        if not place.closed or is_map:
            return made
        properties = record(made.get("properties"))
        made["properties"] = {**properties, **{name: {} for name in named if name not in properties}}
        made["additionalProperties"] = False
        if self._require_all:
            _require_all(made)
        return made

    def _parts(
        self, plain: Mapping[str, Json], place: _SchemaPath, *, branches_closed: bool, contested: frozenset[str]
    ) -> dict[str, Json]:
        """Return the schema with every schema inside it normalised. contested: properties that a branch describes too,
        which therefore may not be closed on one side only."""
        made: dict[str, Json] = {}
        for name, value in plain.items():
            if name in _IN_PLACE_LISTS and _is_list(value):
                made[name] = [self.node(part, place.inside(closed=branches_closed)) for part in value]
            elif name in _IN_PLACE or name in _OPEN_CHILDREN:
                made[name] = self.node(value, place.inside(closed=False, exact=name in ("not", "if")))
            elif name in ("items", "prefixItems") and _is_list(value):
                made[name] = [self.node(part, place.inside()) for part in value]
            elif name in _CHILDREN:
                made[name] = self.node(value, place.inside())
            elif name in _CHILD_MAPS and isinstance(value, Mapping):
                made[name] = {
                    key: self.node(part, place.inside(closed=place.closed and key not in contested))
                    for key, part in value.items()
                }
            elif name in _DEPENDENT and isinstance(value, Mapping):
                made[name] = {key: self.node(part, place.inside(closed=False)) for key, part in value.items()}
            else:
                made[name] = value
        return made

    def _names(self, schema: Json, refs: tuple[str, ...], *, with_required: bool = True) -> Iterable[str]:
        """Yield the property names that a schema or one of its branches mentions for the same object.

        with_required: also those that it only requires.
        """
        if not isinstance(schema, Mapping):
            return
        self._spend(len(refs))
        properties = schema.get("properties")
        yield from properties if isinstance(properties, Mapping) else ()
        yield from _required_names(schema) if with_required else ()
        ref = schema.get("$ref")
        if isinstance(ref, str) and ref not in refs:
            yield from self._names(_resolve(self._root, ref), (*refs, ref), with_required=with_required)
        for branch in _branches(schema):
            yield from self._names(branch, refs, with_required=with_required)


def _check(schema: Mapping[str, Json]) -> None:
    for name in _CHILD_MAPS:
        if name in schema and not isinstance(schema[name], Mapping):
            raise BadInput(f"schema has {name} that are {kind_of(schema[name])}; allowed is a mapping")


def _required_names(schema: Mapping[str, Json]) -> Iterable[str]:
    """Yield the names that a schema requires: always, or when another name is there, with that other name."""
    lists = [schema.get("required")]
    for word in ("dependentRequired", *_DEPENDENT):
        dependent = schema.get(word)
        if isinstance(dependent, Mapping):
            yield from dependent
            lists.extend(dependent.values())
    for names in lists:
        yield from (name for name in names if isinstance(name, str)) if _is_list(names) else ()


def _branches(schema: Mapping[str, Json]) -> list[Json]:
    """Return the schemas that apply to the same value as this one."""
    branches = [part for name in _IN_PLACE_LISTS if _is_list(parts := schema.get(name)) for part in parts]
    branches.extend(schema[name] for name in _IN_PLACE if name in schema)
    for name in _DEPENDENT:
        dependent = schema.get(name)
        branches.extend(dependent.values() if isinstance(dependent, Mapping) else ())
    return branches


def _is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_object(schema: Mapping[str, Json]) -> bool:
    """Return whether the schema itself describes one object, rather than whole alternatives."""
    kind = schema.get("type")
    if kind == "object" or (_is_list(kind) and "object" in kind):
        return True
    if not _OBJECT_WORDS.isdisjoint(schema):
        return True
    unions = [name for name in ("anyOf", "oneOf") if name in schema]
    # Several conditions on one value: none of them may be closed by itself.
    return ("allOf" in schema or "if" in schema or len(unions) > 1) and any(map(_has_object, _branches(schema)))


def _has_object(schema: Json) -> bool:
    return isinstance(schema, Mapping) and (
        "$ref" in schema or _is_object(schema) or any(map(_has_object, _branches(schema)))
    )


def _one_union(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema with `oneOf` as `anyOf`, in its place; next to another `anyOf` both must hold."""
    if not _is_list(schema.get("oneOf")):
        return schema
    if "anyOf" not in schema:
        return {("anyOf" if name == "oneOf" else name): value for name, value in schema.items()}
    rest = {name: value for name, value in schema.items() if name != "oneOf"}
    return {**rest, "allOf": [*items(rest.get("allOf")), {"anyOf": schema["oneOf"]}]}


def _lone_all_of(schema: Mapping[str, Json]) -> dict[str, Json] | None:
    """Return the one schema of an `allOf` that has only notes as siblings, with these; None where there is more."""
    parts = schema.get("allOf")
    if not _is_list(parts) or len(parts) != 1 or not isinstance(lone := parts[0], Mapping):
        return None
    siblings = {name: value for name, value in schema.items() if name != "allOf"}
    return {**lone, **siblings} if set(siblings) <= _NOTES else None


def _resolve(root: Record, ref: str) -> Json:
    """Return what a local JSON pointer leads to (RFC 6901, in a URI fragment)."""
    at: Json = root
    if ref != "#":
        for part in unquote(ref[2:]).split("/") if ref.startswith("#/") else [ref]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping) and key in at:
                at = at[key]
            elif _is_list(at) and key.isdecimal() and int(key) < len(at):
                at = at[int(key)]
            else:
                raise BadInput(f"schema has a $ref {ref[:80]!r} that leads nowhere in it; allowed is #/$defs/Name")
    return at


def _anything_like(target: Json) -> dict[str, Json]:
    """Return what stands for one more copy of a definition that contains itself: any object, or anything."""
    kind = target.get("type") if isinstance(target, Mapping) else None
    return dict(_ANYTHING_OF.get(kind, {})) if isinstance(kind, str) else {}


def _require_all(made: dict[str, Json]) -> None:
    """Make every property required; one that was optional may be null instead of missing."""
    required, properties = items(made.get("required")), record(made["properties"])
    made["properties"] = {
        name: schema if name in required or _takes_null(schema) else {"anyOf": [schema, {"type": "null"}]}
        for name, schema in properties.items()
    }
    made["required"] = list(properties)


def _takes_null(schema: Json) -> bool:
    if not isinstance(schema, Mapping):
        return schema is not False
    kind = schema.get("type")
    if kind == "null" or (_is_list(kind) and "null" in kind) or not schema:
        return True
    options = schema.get("anyOf")
    return _is_list(options) and any(map(_takes_null, options))
