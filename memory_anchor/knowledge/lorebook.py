"""Reads a lorebook: entries with keys, from SillyTavern world info, character cards V2 and V3, or our own YAML. Pure.

The three formats name the same things differently (`excludeRecursion`, `extensions.exclude_recursion`), so an entry's
names become snake case, its own fields go before its `extensions`, and one table reads them. What is wrong in an entry
costs that field or that entry and gets one sentence; the rest of the book is read. The file itself is never rewritten:
an export returns its bytes, so that unknown fields survive. Rejected: a model for each format, three times the same
thirty fields.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal, TypeVar

import yaml

from memory_anchor.base import bounded_yaml
from memory_anchor.base.json_values import Json, Record, kind_of
from memory_anchor.errors import BadInput

BOOK_BYTES_MAX = 10 * 1024 * 1024
"""In base64 it fits into one line between a command and the engine."""
CARD_BYTES_MAX = 16 * 1024 * 1024
"""Of a card in a picture, unpacked."""
ENTRIES_MAX = 20_000
KEYS_MAX = 256
"""Keys of one entry, and secondary ones."""
KEY_CHARS_MAX = 2_000
GROUPS_MAX = 16
"""Inclusion groups of one entry."""
ENTRY_CHARS_MAX = 100_000
PROBLEMS_KEPT = 50
YAML_NODES_MAX = 200_000
COUNT_MAX = 1_000_000
DEPTH_MAX = 1_000
TITLE_MAX = 120
SHOWN_CHARS = 40
PNG = b"\x89PNG\r\n\x1a\n"
_CARD_CHUNKS = ("ccv3", "chara")
"""Chunks of a picture that hold a card, the newer format first."""
_SURROGATE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_INTEGER = re.compile(r"-?\d{1,9}", re.A)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_DECORATOR = re.compile(r"@@@?(\w{1,40})(?:[ \t]{1,8}([^\n]{0,400}))?\r?(?:\n|\Z)")

EntryPosition = Literal["prefix", "tail", "outlet"]
Default = TypeVar("Default")


class Logic(IntEnum):
    """How secondary keys decide about a match, by SillyTavern's numbers."""

    AND_ANY = 0
    NOT_ALL = 1
    NOT_ANY = 2
    AND_ALL = 3


_POSITIONS: Mapping[int | str, EntryPosition] = {
    **{0: "prefix", 1: "prefix", 2: "tail", 3: "tail", 4: "tail", 5: "prefix", 6: "prefix", 7: "outlet"},
    **{"before_char": "prefix", "after_char": "prefix", "prefix": "prefix", "tail": "tail", "outlet": "outlet"},
}
"""World info numbers them: before and after the character, top and bottom of the author's note, at a depth, before and
after the examples, a named outlet."""
_FLAGS = ("constant", "group_override", "exclude_recursion", "prevent_recursion", "ignore_budget")
_ROLES: Mapping[int | str, str] = {
    **{0: "system", 1: "user", 2: "assistant"},
    **{"system": "system", "user": "user", "assistant": "assistant"},
}
SOURCES = (
    "persona_description",
    "character_description",
    "character_personality",
    "character_depth_prompt",
    "scenario",
    "creator_notes",
)
"""Further texts that an entry may ask to be matched against (`match_...`)."""


@dataclass(frozen=True, slots=True)
class LoreEntry:
    """One entry. uid: unique in its book. order: in a prompt, the higher the later. priority: admitted first. delay,
    sticky, cooldown: in messages. delay_until_recursion: a level from 1, 0 for none. budget_weight: its share of what
    the budget leaves, 0 to be taken whole or not at all. forced: by a decorator of its own text."""

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
    outlet: str = ""
    depth: int = 4
    role: str = "system"
    scan_depth: int | None = None
    case_sensitive: bool | None = None
    whole_words: bool | None = None
    probability: float = 100.0
    groups: tuple[str, ...] = ()
    group_override: bool = False
    group_weight: float = 100.0
    group_scoring: bool | None = None
    sticky: int = 0
    cooldown: int = 0
    delay: int = 0
    exclude_recursion: bool = False
    prevent_recursion: bool = False
    delay_until_recursion: int = 0
    ignore_budget: bool = False
    budget_weight: float = 0.0
    names: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    excludes: bool = False
    triggers: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Lorebook:
    """A book. id: its name in reports and in timed state. scan_depth, token_budget, recursive: None where the book
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

    Raises BadInput: too large, no PNG with a card, no JSON or YAML, or nothing that has entries.
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
    for key, fields in listed[:ENTRIES_MAX]:
        if not isinstance(fields, Mapping):
            problems.add(f"entry {_short(key)} is {kind_of(fields)} and was left out; allowed is an object")
            continue
        entry = _entry(fields, str(key), selective=syntax == "yaml" or not is_list, kind=kind, problems=problems)
        if entry is not None:
            uids[entry.uid] += 1
            count = uids[entry.uid]
            entries.append(replace(entry, uid=f"{entry.uid}#{count}") if count > 1 else entry)
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
    """Return the value in a file, and "json", "png" or "yaml"."""
    syntax = "png" if content.startswith(PNG) else ""
    if syntax:
        content = _card_in_png(content, name)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{name} is neither UTF-8 text nor a PNG; allowed is a lorebook or a character card") from None
    try:
        if syntax or text.lstrip()[:1] in ("{", "["):
            value, syntax = json.loads(text), syntax or "json"
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
        raise BadInput(f"{name} is no YAML (line {line}); allowed is a lorebook as JSON, PNG or YAML") from None
    except (RecursionError, ValueError):  # too deep; a number of more digits than are read
        raise BadInput(f"{name} is nested too deep or has a number too long to read; allowed is a lorebook") from None


def _card_in_png(content: bytes, name: str) -> bytes:
    """Return the card's JSON from a picture's text chunks. Raises BadInput."""
    cards: dict[str, bytes] = {}
    for kind, body in _text_chunks(content, name):
        keyword, _, rest = body.partition(b"\0")
        if (label := keyword.decode("latin-1").lower()) in _CARD_CHUNKS:
            cards[label] = _chunk_text(kind, rest, name)
    card = next((cards[label] for label in _CARD_CHUNKS if label in cards), None)
    if card is None:
        raise BadInput(f"{name} is a PNG without a character card (no chara or ccv3 text); allowed is one with a card")
    try:
        return base64.b64decode(card, validate=False)
    except (binascii.Error, ValueError):
        raise BadInput(f"{name} has a card that is not base64; export the card again") from None


def _text_chunks(content: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    start = len(PNG)
    while start < len(content):
        size = int.from_bytes(content[start : start + 4], "big")
        end = start + 12 + size
        if end > len(content):
            raise BadInput(f"{name} ends inside a piece of the PNG; get the file again")
        kind, body = content[start + 4 : start + 8], content[start + 8 : start + 8 + size]
        if kind in (b"tEXt", b"zTXt", b"iTXt"):
            if zlib.crc32(kind + body) != int.from_bytes(content[end - 4 : end]):
                raise BadInput(f"{name} is damaged (a text of the PNG has another checksum); get the file again")
            yield kind, body
        if kind == b"IEND":
            return
        start = end


def _chunk_text(kind: bytes, rest: bytes, name: str) -> bytes:
    """Return the text of a chunk after its keyword: plain, packed, or international with two more fields."""
    packed = kind == b"zTXt" or (kind == b"iTXt" and rest[:1] == b"\1")
    body = rest[1:] if kind == b"zTXt" else rest[2:].split(b"\0", 2)[-1] if kind == b"iTXt" else rest
    if not packed:
        return body
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(body, CARD_BYTES_MAX)
    except zlib.error:
        raise BadInput(f"{name} has a packed card that cannot be unpacked; export the card again") from None
    if unpacked.unconsumed_tail:
        raise BadInput(f"{name} has a card of more than {CARD_BYTES_MAX} bytes unpacked; allowed is less")
    return text


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
    extensions = entry.get("extensions")
    fields = (_snake(extensions) if isinstance(extensions, Mapping) else {}) | _snake(entry)
    uid = str(next((fields[name] for name in ("uid", "id") if isinstance(fields.get(name), (str, int))), key))
    uid = uid[:TITLE_MAX]
    reader = _Reader(fields, f"entry {uid}", problems)
    content = fields.get("content", fields.get("text", ""))
    if not isinstance(content, str) or len(content) > ENTRY_CHARS_MAX:
        problem = f"has {len(content)} characters" if isinstance(content, str) else f"is {kind_of(content)}"
        problems.add(f"entry {uid}: content {problem} and was left out; allowed is text of up to {ENTRY_CHARS_MAX}")
        return None
    decorators, content = _decorated(content, reader) if kind == "v3" else ({}, content)
    as_regex = reader.flag("use_regex", False)
    keys = reader.keys("keys", "key", as_regex=as_regex) + reader.keys("regex", as_regex=True)
    secondary = reader.keys("secondary_keys", "keysecondary", as_regex=as_regex)
    order = reader.integer("order", reader.integer("insertion_order", 100), least=-COUNT_MAX)
    characters = fields.get("character_filter")
    characters = _snake(characters) if isinstance(characters, Mapping) else {}
    is_certain = not reader.flag("use_probability", True)
    delayed = fields.get("delay_until_recursion")
    place: EntryPosition = reader.choice("position", _POSITIONS, "prefix")
    outlet = reader.text("outlet_name") or reader.text("outlet")
    if not keys and not fields.get("constant") and "activate" not in decorators:
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
        and "dont_activate" not in decorators,
        order=order,
        priority=reader.integer("priority", order, least=-COUNT_MAX),
        place="outlet" if outlet and "position" not in fields else place,
        outlet=outlet,
        depth=reader.integer("depth", _number(decorators.get("depth"), 4), most=COUNT_MAX),
        role=reader.choice("role", _ROLES, _ROLES.get(decorators.get("role", ""), "system")),
        scan_depth=reader.integer("scan_depth", _number(decorators.get("scan_depth"), None), most=DEPTH_MAX),
        case_sensitive=reader.flag("case_sensitive", None),
        whole_words=reader.flag("match_whole_words", None),
        probability=100.0 if is_certain else reader.number("probability", 100.0, most=100.0),
        groups=tuple(dict.fromkeys(_split(reader.text("group"))))[:GROUPS_MAX],
        group_weight=reader.number("group_weight", 100.0),
        group_scoring=reader.flag("use_group_scoring", None),
        delay_until_recursion=int(delayed) if isinstance(delayed, bool) else reader.integer("delay_until_recursion", 0),
        budget_weight=reader.number("budget_weight", 0.0),
        names=frozenset(reader.texts("character_filter_names") + _texts(characters.get("names"))),
        tags=frozenset(reader.texts("character_filter_tags") + _texts(characters.get("tags"))),
        excludes=reader.flag("character_filter_exclude", characters.get("is_exclude") is True),
        triggers=frozenset(reader.texts("triggers")),
        sources=frozenset(name for name in SOURCES if reader.flag(f"match_{name}", False)),
        forced="activate" in decorators,
        **{name: reader.flag(name, False) for name in _FLAGS},
        sticky=reader.integer("sticky", 0),
        cooldown=reader.integer("cooldown", 0),
        delay=reader.integer("delay", 0),
    )


_LOGICS: Mapping[int | str, Logic] = {key: logic for logic in Logic for key in (logic.value, logic.name.lower())}


def _decorated(content: str, reader: _Reader) -> tuple[dict[str, str], str]:
    """Return (the values of lines `@@name value` at the head of a V3 entry, the text below them)."""
    decorators: dict[str, str] = {}
    while match := _DECORATOR.match(content):
        decorators.setdefault(match[1].lower(), (match[2] or "").strip())
        content = content[match.end() :]
    if unknown := sorted(set(decorators) - {"activate", "dont_activate", "depth", "role", "scan_depth"}):
        reader.problems.add(f"{reader.subject}: the decorator @@{unknown[0]} is not known here and has no effect")
    return decorators, content


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


def _number(text: str | None, default: Default) -> int | Default:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 4 else default


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARS + 2 else f"{shown[:SHOWN_CHARS]}…"
