"""The definitions of a source file and their lines, by tree-sitter with grammars from wheels (the extra `[code]`).

Nothing is downloaded at run time: each grammar is a package, and without it a file is split at blank lines. A
definition is a named node of a defining kind (`function_declaration`, `struct_item`) that has a name; comments right
above it belong to it. Only what may contain definitions is searched, so that a function's helpers stay with it.
Rejected: a query file for each language (forty of them, each with other names for the same things).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from memory_anchor.language.safe_regex import late

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

PARSED_BYTES_MAX = 1024 * 1024
NODES_MAX = 100_000
DEPTH_MAX = 24
NAME_CHARS = 80
NAMES_MAX = 8
_GRAMMARS = {
    **dict.fromkeys(("js", "jsx"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys(("c", "h"), ("tree_sitter_c", "language")),
    **dict.fromkeys(("cc", "cpp", "hpp"), ("tree_sitter_cpp", "language")),
    "cs": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "rb": ("tree_sitter_ruby", "language"),
    "rs": ("tree_sitter_rust", "language"),
    "ts": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}
_CALLED = late(r"(function|method|constructor|subroutine)(_|$)|^(func_literal|arrow_function|singleton_method)$")
_HOLDS = late(r"(class|struct|interface|trait|impl|enum|union|record|object|module|mod|namespace|type)(_|$)")
_DEFINES = late(r"_(definition|declaration|item|specifier|spec)$|^(class|module|method|singleton_method)$")
_NAMED = ("name", "declarator", "type")


class Definition(NamedTuple):
    """Lines from 0, both included. names: those it is nested in, then its own."""

    first: int
    last: int
    names: tuple[str, ...]


def is_grammar_missing(suffix: str) -> bool:
    """Return whether the extra has a grammar for such a file and is not installed."""
    return suffix in _GRAMMARS and _parser(suffix) is None


def definitions(text: str, suffix: str) -> list[Definition]:
    """Return the definitions of a file in order, outer ones before inner ones; none without the grammar."""
    parser, content = _parser(suffix), text.encode("utf-8", "replace")
    if parser is None or len(content) > PARSED_BYTES_MAX:
        return []
    return list(_walked(parser.parse(content).root_node))


@cache
def _parser(suffix: str) -> Parser | None:
    module, name = _GRAMMARS.get(suffix, ("", ""))
    try:
        if not module:
            return None
        from tree_sitter import Language, Parser

        return Parser(Language(getattr(importlib.import_module(module), name)()))
    except (ImportError, AttributeError, ValueError):  # not installed, or an incompatible version
        return None


def _walked(root: Node) -> Iterator[Definition]:
    left: list[tuple[Node, tuple[str, ...], int]] = [(root, (), 0)]
    for _ in range(NODES_MAX):
        if not left:
            return
        node, names, depth = left.pop()
        inner = names
        if node.is_named and (name := _name(node)):
            inner = (*names, name)[:NAMES_MAX]
            yield Definition(_first_line(node), node.end_point[0], inner)
            if _CALLED.search(node.type) or node.type == "variable_declarator":
                continue
        if depth < DEPTH_MAX and not (node.is_named and _CALLED.search(node.type)):
            left += [(child, inner, depth + 1) for child in reversed(node.children)]


def _name(node: Node) -> str:
    """Return the name of what a node defines, "" where it defines nothing."""
    kind = node.type
    if kind == "variable_declarator":
        value = node.child_by_field_name("value")
        if value is None or not (_CALLED.search(value.type) or value.type == "class"):
            return ""
    elif not (_DEFINES.search(kind) and (_CALLED.search(kind) or _HOLDS.search(kind))):
        return ""
    elif node.child_by_field_name("body") is None and kind.endswith("specifier"):
        return ""  # a type that is only named: `struct point p;`
    name = next((child for field in _NAMED if (child := node.child_by_field_name(field)) is not None), None)
    while name is not None and (inner := name.child_by_field_name("declarator")) is not None:
        name = inner  # C: the name is inside of its declarator
    text = name.text.decode("utf-8", "replace") if name is not None and name.text is not None else ""
    return " ".join(text.split())[:NAME_CHARS]


def _first_line(node: Node) -> int:
    """Return the first line of a definition, including its line's other text and the comments above it."""
    while (
        (outer := node.parent) is not None and outer.parent is not None and outer.start_point[0] == node.start_point[0]
    ):
        if outer.start_byte == node.start_byte and outer.end_byte > node.end_byte + 2:
            break
        node = outer
    line: int = node.start_point[0]
    above = node.prev_sibling
    while above is not None and above.type.endswith(("comment", "attribute_item")) and above.end_point[0] >= line - 1:
        # a comment may end at the start of the next line, and one after other code belongs to that
        before = above.prev_sibling
        if before is not None and before.end_point[0] == above.start_point[0] and before.end_point[1]:
            break
        line, above = above.start_point[0], above.prev_sibling
    return line
