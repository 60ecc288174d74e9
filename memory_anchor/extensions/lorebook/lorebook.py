"""Reads a lorebook: entries with keys, from world info, character cards V2 and V3 as JSON, or our own YAML. Pure.

The formats name the same things differently (`excludeRecursion`, `extensions.exclude_recursion`), so an entry's names
become snake case, its own fields go before its `extensions`, and one table reads them. What is wrong in an entry costs
that field or that entry and gets one sentence; the rest of the book is read. What role-play clients add to entries
(effects over messages, groups, chance, filters by character) has no meaning for memory: such fields are named once a
book and ignored. The file itself is never rewritten: an export returns its bytes, so that unknown fields survive.
Rejected: a model for each format, three times the same fields.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeVar

import yaml

from memory_anchor.base import bounded_yaml
from memory_anchor.base.json_values import Json, Record, kind_of
from memory_anchor.domain.errors import BadInput, MemoryAnchorError

BOOK_BYTES_MAX = 10 * 1024 * 1024
"""In base64 it fits into one line between a command and the engine."""
ENTRIES_MAX = 20_000
KEYS_MAX = 256
"""Keys of one entry, and secondary ones."""
KEY_CHARS_MAX = 2_000
ENTRY_CHARS_MAX = 100_000
PROBLEMS_KEPT = 50
YAML_NODES_MAX = 200_000
COUNT_MAX = 1_000_000
DEPTH_MAX = 1_000
TITLE_MAX = 120
SHOWN_CHARS = 40
PNG, ZIP = b"\x89PNG\r\n\x1a\n", b"PK\3\4"
PACKED = (ZIP, PNG, b"%PDF")
"""How files begin whose text their bytes do not show."""
_SURROGATE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_INTEGER = re.compile(r"-?\d{1,9}", re.A)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DECORATOR = re.compile(r"@@@?(\w{1,40})(?:[ \t]{1,8}([^\n]{0,400}))?\r?(?:\n|\Z)")

EntryPosition = Literal["prefix", "tail"]
Default = TypeVar("Default")


class Logic(IntEnum):
    """How secondary keys decide about a match, by SillyTavern's numbers."""

    AND_ANY = 0
    NOT_ALL = 1
    NOT_ANY = 2
    AND_ALL = 3


_POSITIONS: Mapping[int | str, EntryPosition] = {
    **{0: "prefix", 1: "prefix", 2: "tail", 3: "tail", 4: "tail", 5: "prefix", 6: "prefix", 7: "tail"},
    **{"before_char": "prefix", "after_char": "prefix", "prefix": "prefix", "tail": "tail", "outlet": "tail"},
}
"""World info numbers them: before and after the character, top and bottom of the author's note, at a depth, before and
after the examples, a named outlet."""
_IGNORED = (
    *("sticky", "cooldown", "delay", "delay_until_recursion", "probability", "group", "triggers", "ignore_budget"),
    *("character_filter", "character_filter_names", "character_filter_tags", "outlet_name", "outlet"),
    *("match_persona_description", "match_character_description", "match_character_personality"),
    *("match_character_depth_prompt", "match_scenario", "match_creator_notes"),
)
"""Fields of role-play clients without a meaning here."""


@dataclass(frozen=True, slots=True)
class LoreEntry:
    """One entry. uid: unique in its book. order: in a prompt, the higher the later. priority: admitted first.
    budget_weight: its share of what the budget leaves, 0 to be taken whole or not at all."""

    uid: str
    title: str
    content: str
    keys: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    logic: Logic = Logic.AND_ANY
    enabled: bool = True
    constant: bool = False
    order: int = 100
    priority: int = 100
    place: EntryPosition = "prefix"
    scan_depth: int | None = None
    case_sensitive: bool | None = None
    whole_words: bool | None = None
    exclude_recursion: bool = False
    prevent_recursion: bool = False
    budget_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Lorebook:
    """A book. id: its name in reports. scan_depth, token_budget, recursive: None where the book
    does not say. problems: a sentence each about what was left out."""

    id: str
    name: str
    entries: tuple[LoreEntry, ...]
    format: str
    scan_depth: int | None = None
    token_budget: int | None = None
    recursive: bool | None = None
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Problems:
    """Sentences about what was left out, the first `PROBLEMS_KEPT` of them; more: how many others."""

    sentences: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, sentence: str) -> None:
        if len(self.sentences) < PROBLEMS_KEPT:
            self.sentences.append(sentence)
        else:
            self.more += 1

    def all(self) -> tuple[str, ...]:
        return (*self.sentences, *([f"and {self.more} more of such entries and fields"] if self.more else ()))


def read_lorebook(content: bytes, name: str, *, book_id: str = "") -> Lorebook:
    """Return the book in a file's bytes. name: the file, for sentences.

    Raises BadInput: too large, no JSON or YAML, or nothing that has entries.
    """
    if len(content) > BOOK_BYTES_MAX:
        raise BadInput(f"{name} has {len(content)} bytes; allowed are {BOOK_BYTES_MAX}: split the lorebook")
    value, syntax = _parsed(content, name)
    book, listed, kind = _book_in(value, name)
    problems = Problems()
    is_list = isinstance(book["entries"], list)
    if len(listed) > ENTRIES_MAX:
        problems.add(f"{name} has {len(listed)} entries; the first {ENTRIES_MAX} were taken: split the lorebook")
    entries: list[LoreEntry] = []
    uids: Counter[str] = Counter()
    ignored: Counter[str] = Counter()
    for key, fields in listed[:ENTRIES_MAX]:
        if not isinstance(fields, Mapping):
            problems.add(f"entry {_short(key)} is {kind_of(fields)} and was left out; allowed is an object")
            continue
        entry = _entry(fields, str(key), selective=syntax == "yaml" or not is_list, kind=kind, problems=problems)
        if entry is not None:
            uids[entry.uid] += 1
            count = uids[entry.uid]
            entries.append(replace(entry, uid=f"{entry.uid}#{count}") if count > 1 else entry)
            ignored.update(_ignored(fields, kind))
    for field_name, count in sorted(ignored.items()):
        problems.add(f"{field_name} of {count} {'entry' if count == 1 else 'entries'} has no meaning here: ignored")
    reader = _Reader(_snake(book), "the book", problems)
    return Lorebook(
        id=book_id or name,
        name=reader.text("name") or name,
        entries=tuple(entries),
        format=f"{kind} {syntax}".strip(),
        scan_depth=reader.integer("scan_depth", None, most=DEPTH_MAX),
        token_budget=reader.integer("token_budget", None),
        recursive=reader.flag("recursive_scanning", reader.flag("recursive", None)),
        problems=problems.all(),
    )


def with_parsed(read: Callable[[bytes], str], content: bytes) -> str:
    """Return bytes as text and, where they can be parsed, the text in them. Raises BadInput: their text is packed."""
    text = content.decode("utf-8", "surrogateescape")
    try:
        return f"{text}\n{read(content)}"
    except MemoryAnchorError:
        if content.startswith(PACKED):
            raise
        return text


def text_of(content: bytes) -> str:
    """Return every text in a lorebook's file, unpacked and unescaped. Raises BadInput: it is no lorebook."""
    texts: list[str] = []
    seen: set[int] = set()
    values = [_parsed(content, "the lorebook")[0]]
    while values:
        value = values.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, (dict, list)) and id(value) not in seen:  # an alias of YAML is followed once
            seen.add(id(value))
            values += [*value, *value.values()] if isinstance(value, dict) else value
    return "\n".join(texts)


# --- from bytes to an object with entries ------------------------------------------------------------------------


def _parsed(content: bytes, name: str) -> tuple[Json, str]:
    """Return the value in a file, and "json" or "yaml"."""
    if content.startswith(PNG):
        raise BadInput(f"{name} is a picture; allowed is JSON or YAML: export the card or its lorebook as JSON")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is no UTF-8 text; allowed is a lorebook or a character card") from None
    try:
        if text.lstrip()[:1] in ("{", "["):
            value, syntax = json.loads(text), "json"
        else:
            bounded_yaml.check(text, most_nodes=YAML_NODES_MAX)
            safe_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            value, syntax = yaml.load(text, Loader=safe_loader), "yaml"  # noqa: S506
        if _SURROGATE.search(text):  # an escaped half of a surrogate pair, which UTF-8 cannot hold
            value = json.loads(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
        return value, syntax
    except json.JSONDecodeError as error:
        raise BadInput(f"{name} is no JSON (line {error.lineno}: {error.msg}); allowed is a lorebook") from None
    except bounded_yaml.TooMuchYaml as error:
        raise BadInput(f"{name}: {error}; split the lorebook") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise BadInput(f"{name} is no YAML (line {line}); allowed is a lorebook as JSON or YAML") from None
    except (RecursionError, ValueError):  # too deep; a number of more digits than are read
        raise BadInput(f"{name} is nested too deep or has a number too long to read; allowed is a lorebook") from None


def _book_in(value: Json, name: str) -> tuple[Record, list[tuple[int | str, Json]], str]:
    """Return the object that has entries, its entries by number or name, and its format. Raises BadInput."""
    if not isinstance(value, Mapping):
        problem = "is a list" if isinstance(value, list) else f"holds {kind_of(value)}"
        raise BadInput(f"{name} {problem}; allowed is an object with entries")
    spec = str(value.get("spec", ""))
    book: Json = value
    kind = ""
    if isinstance(data := value.get("data"), Mapping):
        kind = "v3" if "v3" in spec else "v2"
        book = data if spec == "lorebook_v3" or "entries" in data else data.get("character_book")
        if book is None:
            raise BadInput(f"{name} is a character card without a lorebook; allowed is one with a character_book")
    entries = book.get("entries") if isinstance(book, Mapping) else None
    if not isinstance(book, Mapping) or not isinstance(entries, (list, dict)):
        raise BadInput(f"{name} has no entries; allowed is a lorebook, world info, or a character card with one")
    if isinstance(entries, list):
        return book, list(enumerate(entries)), kind or "book"
    return book, list(entries.items()), kind or "world info"


# --- from an object to an entry ----------------------------------------------------------------------------------


def _entry(entry: Record, key: str, *, selective: bool, kind: str, problems: Problems) -> LoreEntry | None:
    """Return an entry; None where its content is no text. selective: whether secondary keys count by default."""
    fields = _fields(entry)
    uid = str(next((fields[name] for name in ("uid", "id") if isinstance(fields.get(name), (str, int))), key))
    uid = uid[:TITLE_MAX]
    reader = _Reader(fields, f"entry {uid}", problems)
    content = fields.get("content", fields.get("text", ""))
    if not isinstance(content, str) or len(content) > ENTRY_CHARS_MAX:
        problem = f"has {len(content)} characters" if isinstance(content, str) else f"is {kind_of(content)}"
        problems.add(f"entry {uid}: content {problem} and was left out; allowed is text of up to {ENTRY_CHARS_MAX}")
        return None
    as_regex = reader.flag("use_regex", False)
    keys = reader.keys("keys", "key", as_regex=as_regex) + reader.keys("regex", as_regex=True)
    secondary = reader.keys("secondary_keys", "keysecondary", as_regex=as_regex)
    order = reader.integer("order", reader.integer("insertion_order", 100), least=-COUNT_MAX)
    decorators, content = _decorated(content) if kind == "v3" else ((), content)
    if not keys and not fields.get("constant"):
        problems.add(f"entry {uid}: has no key and is not constant; give it one, it is never admitted")
    return LoreEntry(
        uid=uid,
        title=(reader.text("comment") or reader.text("name") or (keys[0] if keys else uid))[:TITLE_MAX],
        content=content,
        keys=keys,
        secondary=secondary if reader.flag("selective", selective) else (),
        logic=Logic(reader.choice("selective_logic", _LOGICS, Logic.AND_ANY)),
        enabled=reader.flag("enabled", True)
        and not reader.flag("disable", False)
        and "@@dont_activate" not in decorators
        and not (reader.flag("use_probability", True) and reader.number("probability", 100.0) == 0),
        constant=reader.flag("constant", False),
        order=order,
        priority=reader.integer("priority", order, least=-COUNT_MAX),
        place=reader.choice("position", _POSITIONS, "prefix"),
        scan_depth=reader.integer("scan_depth", None, most=DEPTH_MAX),
        case_sensitive=reader.flag("case_sensitive", None),
        whole_words=reader.flag("match_whole_words", None),
        exclude_recursion=reader.flag("exclude_recursion", False),
        prevent_recursion=reader.flag("prevent_recursion", False),
        budget_weight=reader.number("budget_weight", 0.0),
    )


_LOGICS: Mapping[int | str, Logic] = {key: logic for logic in Logic for key in (logic.value, logic.name.lower())}


def _fields(entry: Record) -> dict[str, Json]:
    """Return an entry's fields in snake case, its own before its extensions."""
    extensions = entry.get("extensions")
    return (_snake(extensions) if isinstance(extensions, Mapping) else {}) | _snake(entry)


def _decorated(content: str) -> tuple[tuple[str, ...], str]:
    """Return (the names of the lines `@@name value` at the head of a V3 entry, the text below them)."""
    names = []
    while match := _DECORATOR.match(content):
        names.append(f"@@{match[1].lower()}")
        content = content[match.end() :]
    return tuple(names), content


def _ignored(raw: Record, kind: str) -> set[str]:
    """Return the names of an entry's fields that say something but have no meaning here.

    Clients write every field; one at its neutral value says nothing.
    """
    fields = _fields(raw)
    content = fields.get("content", fields.get("text", ""))
    decorators = _decorated(content)[0] if kind == "v3" and isinstance(content, str) else ()
    found = set(decorators) - {"@@dont_activate"}
    for name in _IGNORED:
        value = fields.get(name)
        if isinstance(value, Mapping):  # a filter: says something where it lists something
            value = any(isinstance(part, list) and part for part in value.values())
        is_certain = name == "probability" and (fields.get("use_probability") is False or str(value) == "100")
        if value and value != "0" and not is_certain:
            found.add(name)
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads fields of any kind: for a value of the wrong one it adds a problem and returns the default.

    subject: the entry, for sentences.
    """

    fields: Record
    subject: str
    problems: Problems

    def _value(self, name: str) -> Json:
        """Return a field's value; a number written as text as a number, and None for an empty text."""
        value = self.fields.get(name)
        if isinstance(value, str) and not (value := value.strip()):
            return None
        return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else value

    def flag(self, name: str, default: Default) -> bool | Default:
        value = self._value(name)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        return self._wrong(name, value, "true or false", default)

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if value is None or isinstance(value, str):
            return (value or "").strip()
        return str(value) if isinstance(value, int) else str(self._wrong(name, value, "text", ""))

    def integer(self, name: str, default: Default, *, least: int = 0, most: int = COUNT_MAX) -> int | Default:
        value = self._value(name)
        if value is None or value is False:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            return self._wrong(name, value, f"a whole number from {least} to {most}", default)
        return value

    def number(self, name: str, default: float, *, most: float = float(COUNT_MAX)) -> float:
        value = self._value(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            return float(self._wrong(name, value, f"a number from 0 to {most:g}", default))
        return float(value)

    def choice(self, name: str, allowed: Mapping[int | str, Default], default: Default) -> Default:
        value = self._value(name)
        if value is None:
            return default
        value = value.lower() if isinstance(value, str) else value
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value in allowed:
            return allowed[value]
        return self._wrong(name, value, "one of " + ", ".join(map(str, allowed)), default)

    def texts(self, name: str) -> list[str]:
        value = self.fields.get(name)
        if value is None:
            return []
        texts = _texts(value)
        if len(texts) < (len(value) if isinstance(value, list) else 1):
            self._wrong(name, value, "a list of texts", None)
        return texts

    def keys(self, *names: str, as_regex: bool) -> tuple[str, ...]:
        """Return keys; a text that is no expression is a list with commas."""
        name = next((name for name in names if self.fields.get(name) is not None), names[0])
        value = self.fields.get(name)
        if isinstance(value, str):
            keys = [value.strip()] if as_regex or value.startswith("/") else _split(value)
        else:
            keys = [key.strip() for key in self.texts(name)]
        if long := next((key for key in keys if len(key) > KEY_CHARS_MAX), None):
            self._wrong(name, long, f"a key of up to {KEY_CHARS_MAX} characters", None)
        keys = [key for key in dict.fromkeys(keys) if 0 < len(key) <= KEY_CHARS_MAX]
        if len(keys) > KEYS_MAX:
            self.problems.add(f"{self.subject}: {name} has {len(keys)} keys; the first {KEYS_MAX} were taken")
        return tuple(f"/{key}/" if as_regex and not key.startswith("/") else key for key in keys[:KEYS_MAX])

    def _wrong(self, name: str, value: Json, allowed: str, default: Default) -> Default:
        used = "" if default is None else f"; {default} was taken"
        self.problems.add(f"{self.subject}: {name} is {_short(value)}; allowed is {allowed}{used}")
        return default


def _snake(fields: Record) -> dict[str, Json]:
    return {_HUMP.sub("_", str(name)).lower(): value for name, value in fields.items()}


def _texts(value: Json) -> list[str]:
    """Return the texts of a list, or the one text; numbers become texts, since YAML reads an unquoted text as one."""
    listed = value if isinstance(value, list) else [value]
    return [str(item) for item in listed if isinstance(item, (str, int)) and not isinstance(item, bool)]


def _split(listed: str) -> list[str]:
    return [item.strip() for item in listed.split(",") if item.strip()]


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARS + 2 else f"{shown[:SHOWN_CHARS]}…"
