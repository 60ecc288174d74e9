"""`constitution.yaml` as text: parsed with line numbers, changed by one splice, compared by content.

The file belongs to a human, with comments and an order of its own, so it is never dumped again. Entries are located
through PyYAML's node marks, and a change replaces, removes or inserts exactly the characters of one entry; the result
is parsed again and must contain the expected entries and nothing else, or the splice is refused. Scalars are read as
plain strings (no implicit dates, booleans or tags). Invariant: `parse` takes any text and never raises; what it cannot
read becomes a problem that names the line and never quotes the text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import yaml

from memory_anchor.base.bounded_yaml import TooMuchYaml
from memory_anchor.base.bounded_yaml import check as check_yaml
from memory_anchor.base.lines import text_lines
from memory_anchor.base.terminal import is_hidden, named
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.domain.model import ConstitutionEntry
from memory_anchor.domain.requests.checks import CONTENT_MAX
from memory_anchor.language.safe_regex import late

FILE_NAME = "constitution.yaml"
MAX_ENTRIES = 20
MAX_BYTES = 1_000_000
"""20 entries of 8,000 characters are at most 640 KB of UTF-8; the rest is room for comments."""
MAX_NODES = 500
"""Values of the whole file, aliases counted in full: 20 entries of seven, and room for what is not served."""
MAX_PRIORITY = 200
PROBLEMS_SHOWN = 3
ENTRY_ID = late(r"[\w.\-]{1,64}")
_NO_WRAP = 1 << 30

PLACEHOLDER = "(say in one sentence what this project is for)"
"""The goal that earlier versions wrote into a new file; it is never approved."""
STARTER = """\
# 项目的身份（L0）：每次会话都会完整载入，最多 20 条。
# The identity of this project (L0): loaded whole into every conversation, at most 20 entries.
# Changes take three human confirmations: memory-anchor constitution propose ...
version: 1
entries: []
"""


@dataclass(frozen=True, slots=True)
class Position:
    """Where one entry is, in character offsets; `content_start` and `content_end` span its content scalar."""

    start: int
    end: int
    content_start: int
    content_end: int
    flow: bool


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed constitution. problems: one clause each, with its line; empty means that all of it is valid."""

    text: str
    version: str
    entries: tuple[ConstitutionEntry, ...]
    problems: tuple[str, ...] = ()
    positions: tuple[Position, ...] = ()

    @property
    def digest(self) -> str:
        """Return the hash of the served content (version and entries in order), without comments and layout."""
        served = [self.version, [[entry.id, entry.content, entry.priority] for entry in self.entries]]
        return hashlib.sha256(json.dumps(served, separators=(",", ":")).encode()).hexdigest()


def decode(content: bytes) -> tuple[str, str]:
    """Return the text and "", or "" and the problem."""
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return "", f"line {line} is not UTF-8"


def parse(text: str) -> Document:
    """Return the entries of `text` with every problem found; never raises."""
    try:
        check_yaml(text, most_nodes=MAX_NODES)
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except TooMuchYaml as error:
        return Document(text, "1", (), (str(error),))
    except yaml.MarkedYAMLError as error:
        return Document(text, "1", (), (_unreadable(text, error),))
    except (yaml.YAMLError, RecursionError, ValueError):
        return Document(text, "1", (), ("it is not readable YAML",))
    if root is None:
        return Document(text, "1", ())
    if not isinstance(root, yaml.MappingNode):
        return Document(text, "1", (), (f"{_line(root)} is not a mapping with version and entries",))
    top, problems = _fields(root)
    version = top.get("version")
    if version is not None and not isinstance(version, yaml.ScalarNode):
        problems.append(f"{_line(version)}: version is not a plain value")
    name = version.value if isinstance(version, yaml.ScalarNode) and version.value else "1"
    if version is not None and not _is_name(name):
        problems.append(f"{_line(version)}: version has other signs than letters, digits, - _ and . or is over 64 long")
        name = "1"
    return _entries(text, name, top.get("entries"), problems)


def _entries(text: str, version: str, entries_node: yaml.Node | None, problems: list[str]) -> Document:
    if entries_node is None or (isinstance(entries_node, yaml.ScalarNode) and entries_node.value in ("", "~", "null")):
        return Document(text, version, (), tuple(problems))
    if not isinstance(entries_node, yaml.SequenceNode):
        problems.append(f"{_line(entries_node)}: entries is not a list")
        return Document(text, version, (), tuple(problems))
    entries: list[ConstitutionEntry] = []
    positions: list[Position] = []
    for position, node in enumerate(entries_node.value):
        entry, content, entry_problems = _entry(node, position)
        if entry is not None and any(earlier.id == entry.id for earlier in entries):
            entry_problems.append(f"{_line(node)}: the id is there twice")
            entry = None
        problems += entry_problems
        if entry is not None and content is not None:
            entries.append(entry)
            positions.append(
                Position(
                    node.start_mark.index,
                    _end(text, node),
                    content.start_mark.index,
                    _end(text, content),
                    bool(node.flow_style),
                )
            )
    if len(entries_node.value) > MAX_ENTRIES:
        problems.append(f"it has {len(entries_node.value)} entries and at most {MAX_ENTRIES} are allowed")
    return Document(text, version, tuple(entries), tuple(problems), tuple(positions))


def _entry(node: yaml.Node, position: int) -> tuple[ConstitutionEntry | None, yaml.Node | None, list[str]]:
    if not isinstance(node, yaml.MappingNode):
        return None, None, [f"{_line(node)}: the entry is not a mapping with id, content and priority"]
    fields, problems = _fields(node)
    content = fields.get("content")
    content_text = content.value.strip() if isinstance(content, yaml.ScalarNode) else ""
    if not 1 <= len(content_text) <= CONTENT_MAX:
        problems.append(f"{_line(node)}: content is missing, empty or over {CONTENT_MAX} characters")
        return None, None, problems
    id_node = fields.get("id")
    name = id_node.value if isinstance(id_node, yaml.ScalarNode) else entry_id_of(content_text)
    if not _is_name(name):
        problems.append(f"{_line(node)}: id has other signs than letters, digits, - _ and . or is over 64 long")
        return None, None, problems
    if hidden := first_hidden_character(content_text):
        problems.append(f"line {content.start_mark.line + 1}: content holds {hidden}" if content else hidden)
    priority = fields.get("priority")
    number = priority.value if isinstance(priority, yaml.ScalarNode) else str(position)
    if not (number.isascii() and number.isdigit() and len(number) <= 3 and int(number) <= MAX_PRIORITY):
        problems.append(f"{_line(node)}: priority is not a whole number from 0 to {MAX_PRIORITY}")
        number = str(position)
    return ConstitutionEntry(name, content_text, int(number)), content, problems


def _is_name(value: str) -> bool:
    return bool(ENTRY_ID.fullmatch(value)) and not any(map(is_hidden, value))


def first_hidden_character(text: str) -> str:
    """Return a phrase for the first invisible character of `text`, with its line; "" for none."""
    for line, content in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        hidden = next((character for character in content if character != "\t" and is_hidden(character)), "")
        if hidden:
            return f"{named(hidden)} in its line {line}, a sign that is not seen where it is read; take it out"
    return ""


def _fields(node: yaml.MappingNode) -> tuple[dict[str, yaml.Node], list[str]]:
    fields: dict[str, yaml.Node] = {}
    problems = []
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if name in ("version", "entries", "id", "content", "priority") and name in fields:
            problems.append(f"{_line(key)}: {name} is given twice")
            continue
        fields[name] = value
    return fields, problems


def entry_id_of(content: str) -> str:
    """Return the id of an entry that was given none."""
    return f"entry-{hashlib.sha256(content.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _unreadable(text: str, error: yaml.MarkedYAMLError) -> str:
    conflict = re.search(r"^<{7} ", text, re.MULTILINE)
    if conflict:
        return f"line {text.count(chr(10), 0, conflict.start()) + 1} is a merge conflict"
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1 if mark else 1} is not readable YAML"


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


def _end(text: str, node: yaml.Node) -> int:
    """Return the offset after the last character of a node; a block's own end mark comes after comments."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        end = node.end_mark.index
        return max(node.start_mark.index, len(text[:end].rstrip()))
    children = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    return max((_end(text, child) for child in children), default=node.end_mark.index)


def by_priority(entries: Sequence[ConstitutionEntry]) -> tuple[ConstitutionEntry, ...]:
    """Return entries in the order they are served: by priority, lowest number first, then as written."""
    return tuple(sorted(entries, key=lambda entry: entry.priority))


def changed_lines(approved: str, text: str) -> str:
    """Return which lines of `text` differ, in words: "lines 4-6 differ"."""
    old, new = text_lines(approved), text_lines(text)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    first, last = head + 1, len(new) - tail
    if last < first:
        missing = len(old) - tail - head
        return f"{missing} line{'s' if missing > 1 else ''} missing at line {first}"
    return f"line {first} differs" if first == last else f"lines {first}-{last} differ"


# --- the three splices -----------------------------------------------------------------------------------------


def add(text: str, entry: ConstitutionEntry) -> str:
    """Return `text` with `entry` after the last one.

    Raises BadInput: the id is taken, there are `MAX_ENTRIES` already, or the layout cannot be spliced.
    """
    before = parse(text)
    if any(existing.id == entry.id for existing in before.entries):
        raise BadInput(f"entry_id is {entry.id}, which exists already; give another id, or use action replace")
    if len(before.entries) >= MAX_ENTRIES:
        raise BadInput(
            f"there would be {len(before.entries) + 1} entries; allowed are {MAX_ENTRIES}; replace or remove one"
        )
    newline = "\r\n" if "\r\n" in text else "\n"
    last = before.positions[-1] if before.positions else None
    if last is None:
        changed = _first(text, entry, newline)
    elif last.flow and _flow_list(text):
        changed = text[: last.end] + ", " + _flow(entry) + text[last.end :]
    else:
        changed = _below(text, last, entry, newline)
    return _checked(before, changed, (*before.entries, entry))


def replace_content(text: str, *, entry_id: str, content: str) -> str:
    """Return `text` with other content in one entry; everything around it stays byte for byte.

    Raises NotFound: no such entry. BadInput: the layout cannot be spliced.
    """
    before = parse(text)
    index = _position(before, entry_id)
    position = before.positions[index]
    changed = text[: position.content_start] + _scalar(content) + text[position.content_end :]
    expected = [replace(entry, content=content) if entry.id == entry_id else entry for entry in before.entries]
    return _checked(before, changed, tuple(expected))


def remove(text: str, *, entry_id: str) -> str:
    """Return `text` without one entry's lines; comments above and below it stay.

    Raises NotFound: no such entry. BadInput: the layout cannot be spliced.
    """
    before = parse(text)
    index = _position(before, entry_id)
    position = before.positions[index]
    if position.flow and _flow_list(text):
        if index > 0:
            changed = text[: before.positions[index - 1].end] + text[position.end :]
        elif len(before.positions) > 1:
            changed = text[: position.start] + text[before.positions[1].start :]
        else:
            changed = text[: position.start] + text[position.end :].lstrip(", ")
    else:
        start, end = _lines(text, position)
        changed = text[:start] + text[end:]
    return _checked(before, changed, tuple(entry for entry in before.entries if entry.id != entry_id))


def _position(document: Document, entry_id: str) -> int:
    for index, entry in enumerate(document.entries):
        if entry.id == entry_id:
            return index
    ids = ", ".join(entry.id for entry in document.entries) or "none"
    raise NotFound(f"entry_id is {entry_id!r:.70}; the entries are {ids}")


def _checked(before: Document, changed: str, expected: tuple[ConstitutionEntry, ...]) -> str:
    after = parse(changed)
    if (
        after.version != before.version
        or _ids_and_contents(after.entries) != _ids_and_contents(expected)
        or after.problems != ()
    ):
        why = before.problems[0] if before.problems else "its layout does not allow it"
        raise BadInput(
            f"{FILE_NAME} cannot be changed in place ({why}); "
            "edit it by hand, then run `memory-anchor constitution adopt`"
        )
    return changed


def _ids_and_contents(entries: Sequence[ConstitutionEntry]) -> list[tuple[str, str]]:
    # A priority that was left out is the position, which a removal moves; those written out cannot change.
    return [(entry.id, entry.content) for entry in entries]


def _scalar(content: str) -> str:
    """Return `content` as one double-quoted line that any YAML 1.1 parser reads back as it was."""
    return yaml.dump(content, default_style='"', allow_unicode=True, width=_NO_WRAP).rstrip("\n")


def _flow(entry: ConstitutionEntry) -> str:
    return f"{{id: {_scalar(entry.id)}, content: {_scalar(entry.content)}, priority: {entry.priority}}}"


def _block(entry: ConstitutionEntry, indent: str, newline: str) -> str:
    name = entry.id if re.fullmatch(r"[A-Za-z][\w\-]*", entry.id, re.ASCII) else _scalar(entry.id)
    lines = (f"- id: {name}", f"  content: {_scalar(entry.content)}", f"  priority: {entry.priority}")
    return newline.join(indent + line for line in lines) + newline


def _below(text: str, last: Position, entry: ConstitutionEntry, newline: str) -> str:
    start, end = _lines(text, last)
    line = text[start:]
    indent = line[: len(line) - len(line.lstrip(" "))]
    head = text[:end] if text[:end].endswith("\n") else text[:end] + newline
    return head + _block(entry, indent, newline) + text[end:]


def _first(text: str, entry: ConstitutionEntry, newline: str) -> str:
    """Return `text` with its first entry: in place of an empty list, below the key, or below everything."""
    node = _list_node(text)
    if node is None:
        head = text if not text or text.endswith("\n") else text + newline
        return head + "entries:" + newline + _block(entry, "  ", newline)
    start, end = node.start_mark.index, node.end_mark.index
    block = newline + _block(entry, "  ", newline)
    if end == start:  # `entries:` and nothing: the mark may lie behind comments, so go to the key's own line
        key_line = re.search(r"^entries[ \t]*:[^\r\n]*(\r?\n|$)", text, re.MULTILINE)
        start = end = key_line.end() if key_line else end
        head = text[:start] if not start or text[:start].endswith("\n") else text[:start] + newline
        return head + block[len(newline) :] + text[end:]
    rest = text[end:]
    comment = re.match(r"[ \t]*(#[^\r\n]*)?(\r?\n|$)", rest)
    if comment is None:
        return text[:start] + block + rest
    comment_text = f" {comment[1]}" if comment[1] else ""
    return text[:start].rstrip(" ") + comment_text + block + rest[comment.end() :]


def _list_node(text: str) -> yaml.Node | None:
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    return _fields(root)[0].get("entries")


def _flow_list(text: str) -> bool:
    node = _list_node(text)
    return bool(isinstance(node, yaml.SequenceNode) and node.flow_style)


def _lines(text: str, position: Position) -> tuple[int, int]:
    """Return the span of whole lines an entry of a block list takes, from its dash to its last line's end."""
    dashes = [
        token.start_mark.index
        for token in yaml.scan(text, Loader=yaml.BaseLoader)
        if isinstance(token, yaml.BlockEntryToken) and token.start_mark.index < position.start
    ]
    start = text.rfind("\n", 0, dashes[-1] if dashes else position.start) + 1
    newline = text.find("\n", position.end)
    return start, len(text) if newline < 0 else newline + 1
