"""Reads a lorebook: entries with keys, from world info, character cards V2 and V3 as JSON, or our own YAML. Pure.

The formats name the same things differently (`excludeRecursion`, `extensions.exclude_recursion`), so an entry's names
become snake case, its own fields go before its `extensions`, and one model reads them. What is wrong in an entry costs
that field or that entry and gets one sentence; the rest of the book is read. What role-play clients add to entries has
no meaning for memory: such fields are named once a book and ignored. Rejected: a model for each format, three times the
same fields.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from memory_anchor.base import bounded_yaml
from memory_anchor.base.json_values import Json, Record, kind_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.language.safe_regex import late

BOOK_BYTES_MAX = 10 * 1024 * 1024
"""In base64 it fits into one line between a command and the engine."""
ENTRIES_MAX = 20_000
KEYS_MAX = 256
"""Keys of one entry, and secondary ones."""
ENTRY_CHARS_MAX = 100_000
PROBLEMS_KEPT = 50
YAML_NODES_MAX = 200_000
COUNT_MAX = 1_000_000
TITLE_MAX = 120
SHOWN_CHARS = 40
PNG = b"\x89PNG\r\n\x1a\n"
_SURROGATE = late(r"\\[uU](?:0000)?[dD][89a-fA-F]")
_HUMP = late(r"(?<=[a-z0-9])(?=[A-Z])")
_DECORATORS = late(r"\A(?:@@[^\n]{0,400}(?:\n|\Z))+")
_DECORATOR = late(r"@@@?(\w{1,40})[^\n]*")

Logic = Literal["and_any", "not_all", "not_any", "and_all"]
EntryPosition = Literal["prefix", "tail"]
_LOGICS: Mapping[str, Logic] = {"0": "and_any", "1": "not_all", "2": "not_any", "3": "and_all"}
_POSITIONS: Mapping[str, EntryPosition] = {
    **{"0": "prefix", "1": "prefix", "2": "tail", "3": "tail", "4": "tail", "5": "prefix", "6": "prefix", "7": "tail"},
    **{"before_char": "prefix", "after_char": "prefix", "outlet": "tail"},
}
"""World info numbers them: before and after the character, top and bottom of the author's note, at a depth, before and
after the examples, a named outlet."""
_NAMES = (
    *(("key", "keys"), ("keysecondary", "secondary_keys"), ("insertion_order", "order"), ("text", "content")),
    *(("id", "uid"), ("comment", "title"), ("name", "title"), ("selective_logic", "logic"), ("position", "place")),
    *(("recursive_scanning", "recursive"), ("match_whole_words", "whole_words")),
)
"""A client's name of a field, and ours; the earlier goes first where both say something."""
_IGNORED = (
    *("sticky", "cooldown", "delay", "delay_until_recursion", "probability", "group", "triggers", "ignore_budget"),
    *("character_filter", "character_filter_names", "character_filter_tags", "outlet_name", "scan_depth"),
    *("match_persona_description", "match_character_description", "match_character_personality"),
    *("match_character_depth_prompt", "match_scenario", "match_creator_notes"),
)
"""Fields of role-play clients without a meaning here."""
M = TypeVar("M", bound=BaseModel)


def _one_of(names: Mapping[str, str], value: Json) -> str:
    known = str(value).strip().lower()
    if (known := names.get(known, known)) not in names.values():
        raise PydanticCustomError(
            "choice", f"it should be one of {', '.join([*names, *dict.fromkeys(names.values())])}"
        )
    return known


def _listed(value: Json) -> Json:
    """Return keys as a list: an expression, or a text with commas."""
    if not isinstance(value, str):
        return value
    return [value] if value.startswith("/") else value.split(",")


_Key = Annotated[str, Field(min_length=1, max_length=2_000)]
_Keys = Annotated[tuple[_Key, ...], BeforeValidator(_listed), Field(max_length=KEYS_MAX)]
_Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
_Rank = Annotated[int, Field(ge=-COUNT_MAX, le=COUNT_MAX)]


class _Read(BaseModel):
    model_config = ConfigDict(
        frozen=True, coerce_numbers_to_str=True, str_strip_whitespace=True, allow_inf_nan=False, strict=False
    )


class LoreEntry(_Read):
    """One entry. uid: unique in its book. order: in a prompt, the higher the later. priority: admitted first, else by
    order. budget_weight: its share of what the budget leaves, 0 to be taken whole or not at all."""

    uid: str
    title: str = ""
    content: Annotated[str, Field(max_length=ENTRY_CHARS_MAX)] = ""
    keys: _Keys = ()
    regex: _Keys = ()
    use_regex: bool = False
    secondary_keys: _Keys = ()
    selective: bool = True
    logic: Annotated[Logic, BeforeValidator(lambda value: _one_of(_LOGICS, value))] = "and_any"
    enabled: bool = True
    disable: bool = False
    constant: bool = False
    order: _Rank = 100
    priority: _Rank | None = None
    place: Annotated[EntryPosition, BeforeValidator(lambda value: _one_of(_POSITIONS, value))] = "prefix"
    case_sensitive: bool = False
    whole_words: bool = True
    exclude_recursion: bool = False
    prevent_recursion: bool = False
    budget_weight: Annotated[float, Field(ge=0, le=COUNT_MAX)] = 0.0


class Lorebook(_Read):
    """A book. id: its name in reports. scan_depth, token_budget, recursive: None where the book does not say.
    problems: a sentence each about what was left out."""

    id: str
    title: str = ""
    entries: tuple[LoreEntry, ...] = ()
    format: str = ""
    scan_depth: Annotated[int, Field(ge=0, le=1_000)] | None = None
    token_budget: _Count | None = None
    recursive: bool | None = None
    problems: tuple[str, ...] = ()


def capped(problems: Sequence[str]) -> tuple[str, ...]:
    """Return the first `PROBLEMS_KEPT` sentences about what was left out, and how many others there are."""
    more = len(problems) - PROBLEMS_KEPT
    return (*problems[:PROBLEMS_KEPT], *([f"and {more} more of such entries and fields"] if more > 0 else ()))


def read_lorebook(content: bytes, name: str, *, book_id: str = "") -> Lorebook:
    """Return the book in a file's bytes. name: the file, for sentences.

    Raises BadInput: too large, no JSON or YAML, or nothing that has entries.
    """
    if len(content) > BOOK_BYTES_MAX:
        raise BadInput(f"{name} has {len(content)} bytes; allowed are {BOOK_BYTES_MAX}: split the lorebook")
    value, syntax = _parsed(content, name)
    book, listed, kind = _book_in(value, name)
    problems: list[str] = []
    ignored: Counter[str] = Counter()
    if len(listed) > ENTRIES_MAX:
        problems.append(f"{name} has {len(listed)} entries; the first {ENTRIES_MAX} were taken: split the lorebook")
    entries: list[LoreEntry] = []
    uids: Counter[str] = Counter()
    for key, raw in listed[:ENTRIES_MAX]:
        if not isinstance(raw, Mapping):
            problems.append(f"entry {_short(key)} is {kind_of(raw)} and was left out; allowed is an object")
            continue
        fields = _named(raw)
        is_selective = syntax == "yaml" or not isinstance(book["entries"], list)
        if kind == "v3" and isinstance(text := fields.get("content"), str):
            fields["content"] = below = _DECORATORS.sub("", text)
            ignored.update(f"@@{name}" for name in _DECORATOR.findall(text[: len(text) - len(below)]))
        entry = _entry({"uid": key, "selective": is_selective} | fields, problems)
        if entry is not None:
            uids[entry.uid] += 1
            count = uids[entry.uid]
            entries.append(entry if count == 1 else entry.model_copy(update={"uid": f"{entry.uid}#{count}"}))
            ignored.update(field for field in _IGNORED if _says(fields.get(field), 100 * (field == "probability")))
    for field, count in sorted(ignored.items()):
        problems.append(f"{field} of {count} {'entry' if count == 1 else 'entries'} has no meaning here: ignored")
    own = {key: value for key, value in _named(book).items() if key != "entries"} | {"id": book_id or name}
    read = _without_wrong_fields(Lorebook, own, "the book", problems)
    more = {"title": read.title or name, "format": f"{kind} {syntax}", "problems": capped(problems)}
    return read.model_copy(update={"entries": tuple(entries), **more})


def _parsed(content: bytes, name: str) -> tuple[Json, str]:
    """Return the value in a file, and "json" or "yaml"."""
    if content.startswith(PNG):
        raise BadInput(f"{name} is a picture; allowed is JSON or YAML: export the card or its lorebook as JSON")
    try:
        text = content.decode("utf-8-sig")
        if text.lstrip()[:1] in ("{", "["):
            value, syntax = json.loads(text), "json"
        else:
            bounded_yaml.check(text, most_nodes=YAML_NODES_MAX)
            value, syntax = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), "yaml"  # noqa: S506
        if _SURROGATE.search(text):  # an escaped half of a surrogate pair, which UTF-8 cannot hold
            value = json.loads(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    except UnicodeDecodeError:
        raise BadInput(f"{name} is no UTF-8 text; allowed is a lorebook or a character card") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"{name} is no JSON (line {error.lineno}: {error.msg}); allowed is a lorebook") from None
    except bounded_yaml.TooMuchYaml as error:
        raise BadInput(f"{name}: {error}; split the lorebook") from None
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", 0) + 1
        raise BadInput(f"{name} is no YAML (line {line}); allowed is a lorebook as JSON or YAML") from None
    except (RecursionError, ValueError):  # too deep; a number of more digits than are read
        raise BadInput(f"{name} is nested too deep or has a number too long to read; allowed is a lorebook") from None
    return value, syntax


def _book_in(value: Json, name: str) -> tuple[Record, list[tuple[int | str, Json]], str]:
    """Return the object that has entries, its entries by number or name, and its format. Raises BadInput."""
    if not isinstance(value, Mapping):
        problem = "is a list" if isinstance(value, list) else f"holds {kind_of(value)}"
        raise BadInput(f"{name} {problem}; allowed is an object with entries")
    book: Json = value
    kind = ""
    if isinstance(data := value.get("data"), Mapping):
        spec = str(value.get("spec", ""))
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


def _entry(fields: dict[str, Json], problems: list[str]) -> LoreEntry | None:
    """Return an entry; None where its content is no text."""
    subject = f"entry {str(fields['uid'])[:TITLE_MAX]}"
    content = fields.get("content", "")
    if not isinstance(content, str) or len(content) > ENTRY_CHARS_MAX:
        problem = f"has {len(content)} characters" if isinstance(content, str) else f"is {kind_of(content)}"
        problems.append(f"{subject}: content {problem} and was left out; allowed is text of up to {ENTRY_CHARS_MAX}")
        return None
    read = _without_wrong_fields(LoreEntry, fields, subject, problems)
    as_regex = [key for key in read.keys if not key.startswith("/")] if read.use_regex else []
    keys = [key for key in read.keys if key not in as_regex]
    keys += [key if key.startswith("/") else f"/{key}/" for key in (*as_regex, *read.regex)]
    if not keys and not read.constant:
        problems.append(f"{subject}: has no key and is not constant; give it one, it is never admitted")
    return read.model_copy(
        update={
            "uid": read.uid[:TITLE_MAX],
            "title": (read.title or next(iter(keys), read.uid))[:TITLE_MAX],
            "keys": tuple(dict.fromkeys(keys)),
            "secondary_keys": read.secondary_keys if read.selective else (),
            "enabled": read.enabled and not read.disable,
            "priority": read.order if read.priority is None else read.priority,
        }
    )


def _named(raw: Record) -> dict[str, Json]:
    """Return fields by our names, an object's own before its extensions'; empty ones say nothing."""
    extensions = raw.get("extensions")
    fields: dict[str, Json] = {}
    for part in (extensions if isinstance(extensions, Mapping) else {}, raw):
        fields |= {_HUMP.sub("_", str(name)).lower(): value for name, value in part.items() if value not in (None, "")}
    for theirs, ours in _NAMES:
        if (value := fields.pop(theirs, None)) is not None:
            fields.setdefault(ours, value)
    return fields


def _says(value: Json, neutral: int) -> bool:
    """Return whether a field says something: clients write every field, most at a value that says nothing."""
    if isinstance(value, Mapping):  # a filter: says something where it lists something
        return any(isinstance(part, list) and part for part in value.values())
    return bool(value) and str(value) not in ("0", str(neutral))


def _without_wrong_fields(model: type[M], fields: dict[str, Json], subject: str, problems: list[str]) -> M:
    """Return the model of these fields; one that is wrong gets a sentence and its default."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        fields = dict(fields)
        for wrong in error.errors(include_url=False):
            name = str(wrong["loc"][0])
            if name in fields:
                said = wrong["msg"].partition(", unable")[0].replace("Input should", "it should")
                problems.append(f"{subject}: {name} is {_short(fields.pop(name))}; {said}")
        return model.model_validate({"uid": "?", **fields})


def _short(value: Json) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARS + 2 else f"{shown[:SHOWN_CHARS]}…"
