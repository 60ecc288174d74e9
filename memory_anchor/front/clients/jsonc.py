"""JSON with comments and trailing commas, edited in place: every sign that is not part of the change stays.

Such files are written by hand and by program (VS Code, Cursor, Gemini). Reading one and dumping it anew would lose
its comments, so a change is made at the place in the text where the value stands. Whoever edits checks the result by
reading it again (`read`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from memory_anchor.json_values import Json

DEPTH_MAX = 100
Steps = tuple[str | int, ...]
_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*+|true|false|null")


@dataclass(slots=True)
class _JsonNode:
    """A value and where it stands. inner: of an object (key, its start, value), of an array ("", its start, value).

    commas: where the comma behind each of them is, None without one.
    """

    start: int
    end: int
    value: Json
    inner: list[tuple[str, int, _JsonNode]] = field(default_factory=list)
    commas: list[int | None] = field(default_factory=list)


def read(text: str) -> Json:
    """Return the value that a text holds. Raises ValueError: it is not JSON, comments and trailing commas allowed."""
    return _parsed(text).value


def put(text: str, path: Steps, value: Json) -> str:
    """Return the text with `value` at `path`; objects on the way are made, an index behind the last one appends.

    Raises ValueError: what is on the way is no container.
    """
    node, depth = _parsed(text), 0
    for depth, step in enumerate(path):
        found = _child(node, step)
        if found is None:
            made: Json = value
            for name in reversed(path[depth + 1 :]):
                made = [made] if isinstance(name, int) else {name: made}
            return _inserted(text, node, step, made, depth + 1)
        node = found
    return text[: node.start] + _dumped(value, text, len(path)) + text[node.end :]


def drop(text: str, path: Steps) -> str:
    """Return the text without what stands at `path`; unchanged where nothing does."""
    node = _parsed(text)
    for step in path[:-1]:
        found = _child(node, step)
        if found is None:
            return text
        node = found
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
        if before is not None:  # the comma that parted it from the one before
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
    """Return the text before a container's end with a comma behind its last value."""
    if not node.inner or node.commas[-1] is not None:
        return before
    end = node.inner[-1][2].end
    return f"{before[:end]},{before[end:]}"


def _dumped(value: Json, text: str, depth: int) -> str:
    """Return a value indented as the file is, for a place so deep."""
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
        raise ValueError(f"character {node.end} is behind the end")
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
