"""Checks of every value a caller passes: an error is one sentence with the name, the value and what is allowed.

Front ends pass raw values to `MemoryAnchor`, which calls these; nothing below it sees an unchecked value. Written out
because schema libraries answer in several lines and quote the text they refuse. The other texts of a memory (names,
reasons, tags, files) come out of here `safety.cleaned` as well.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar
from zoneinfo import ZoneInfo

from memory_anchor.base.json_values import Json, Record, kind_of, number, record
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import LAYER_ALIASES, TYPE_ALIASES, Citation, Layer, Locator, MemoryType

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

CONTENT_MAX = 8_000
KEY_MAX = 200
TAG_MAX = 64
TAGS_MAX = 32
NAME_MAX = 200
PEOPLE_MAX = 32
FILES_MAX = 32
FILE_MAX = 500
PATH_MAX = 4_096
REASON_MAX = 2_000
QUERY_MAX = 4_000
REQUEST_ID_MAX = 200
TTL_DAYS_MAX = 36_500
YEARS = (1900, 9000)
JSON_DEPTH_MAX = 32
SHOWN_CHARS, SHOWN_FROM = 40, 400
"""Of a refused value in a message, and how much of it is cleaned first: it may be private text."""
PROJECT_ID_MAX = 64

_Choice = TypeVar("_Choice", bound=StrEnum)


def file_bytes(what: str, value: str) -> bytes:
    """Return the bytes of a file from its Base64."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise BadInput(f"{what} is not Base64; allowed is the bytes of one file in Base64") from None


def text(what: str, value: Json, *, most: int, required: bool = True) -> str:
    """Return `value` stripped at both ends, 1 to `most` characters (or "" when not required)."""
    if value is None and not required:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{what} is {kind_of(value)}; allowed is text of 1 to {most} characters")
    if "\x00" in value:
        raise BadInput(f"{what} has a NUL character at position {value.index(chr(0))}; allowed is text without NUL")
    lone = next((n for n, char in enumerate(value) if "\ud800" <= char <= "\udfff"), None)
    if lone is not None:
        raise BadInput(f"{what} has a lone surrogate at position {lone}; allowed is valid Unicode text")
    stripped = value.strip()
    if not stripped and required:
        raise BadInput(f"{what} is empty; allowed is text of 1 to {most} characters")
    if len(stripped) > most:
        raise BadInput(f"{what} is {len(stripped)} characters long; allowed are 1 to {most}")
    return stripped


def project_id(value: Json) -> str:
    """Return a project's id, checked before it names a folder, a key ring and its approvals.

    Letters (of any script), digits, `-` and `_`; inside a dot or a space, as in older stores. Raises BadInput.

    >>> project_id("team-app_2"), project_id("v1.2")
    ('team-app_2', 'v1.2')
    """
    name = value if isinstance(value, str) else ""
    is_plain = all(char.isalnum() or char in "-_. " for char in name) and name.isprintable()
    if not (is_plain and 1 <= len(name) <= PROJECT_ID_MAX and name[0] not in ". " and name[-1] not in ". "):
        raise BadInput(
            f"project id is {str(value)[:NAME_MAX]!r} (scope.project, or an alias); allowed are 1 to {PROJECT_ID_MAX} "
            "letters, digits, '-' and '_'"
        )
    return name


def storable_content(what: str, text: str) -> str:
    """Return checked text as it may be stored. Raises BadInput: nothing but placeholders is left."""
    from memory_anchor.language.safety import cleaned

    safe = cleaned(text).text
    if not safe:
        raise BadInput(f"{what} is empty once its private part is left out; allowed is text outside <private>")
    return with_words(what, safe)


def with_words(what: str, text: str) -> str:
    """Return clean text. Raises BadInput: it consists of placeholders alone."""
    from memory_anchor.language.safety import only_secrets

    if only_secrets(text):
        raise BadInput(f"{what} {only_kinds(re.findall(r'redacted:([a-z_]{1,20})', text))}; nothing was stored")
    return text


def only_kinds(kinds: Iterable[str]) -> str:
    return f"says nothing besides what is never stored ({', '.join(dict.fromkeys(kinds))})"


def storable_text(what: str, value: Json, *, most: int) -> str:
    """Return an optional text as it may be stored, "" when nothing of it may be."""
    from memory_anchor.language.safety import cleaned

    return cleaned(text(what, value, most=most, required=False)).text


def choice(what: str, value: Json, kind: type[_Choice], aliases: Mapping[str, _Choice] | None = None) -> _Choice:
    if isinstance(value, str):
        name = value.strip().lower()
        if aliases and name in aliases:
            return aliases[name]
        if name in kind.__members__.values():
            return kind(name)
    raise BadInput(f"{what} is {_short(value)}; allowed are {', '.join(member.value for member in kind)}")


def layer(value: Json, what: str = "layer") -> Layer:
    return choice(what, value, Layer, LAYER_ALIASES)


def memory_type(value: Json, what: str = "type") -> MemoryType:
    return choice(what, value, MemoryType, TYPE_ALIASES)


def strings(what: str, value: Json, *, most: int, each: int) -> tuple[str, ...]:
    """Return a list of texts without repeats, in order; one text counts as a list of one."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        raise BadInput(f"{what} is {_short(value)}; allowed is a list of at most {most} texts")
    unique = tuple(dict.fromkeys(text(f"{what}[{n}]", item, most=each) for n, item in enumerate(value)))
    if len(unique) > most:
        raise BadInput(f"{what} has {len(unique)} entries; allowed are at most {most}")
    return unique


def instant(what: str, value: Json | datetime, *, zone: str, now: datetime) -> datetime:
    """Return an aware UTC instant from ISO 8601 text; without a zone it is local to the caller.

    A date alone means its first moment. Years 1900 to 9000.
    """
    if isinstance(value, datetime):
        moment = value
    else:
        if not isinstance(value, str) or not value.strip():
            raise BadInput(f"{what} is {_short(value)}; allowed is an ISO 8601 time such as {now:%Y-%m-%dT%H:%M:%SZ}")
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise BadInput(
                f"{what} is {_short(value)}; allowed is an ISO 8601 time such as {now:%Y-%m-%dT%H:%M:%SZ}"
            ) from None
    if not YEARS[0] <= moment.year <= YEARS[1]:
        raise BadInput(f"{what} is {_short(value)}; allowed are the years {YEARS[0]} to {YEARS[1]}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    return moment.astimezone(UTC)


def json_value(what: str, value: Json, *, most_bytes: int) -> str:
    """Return `value` as compact JSON text of at most `most_bytes` bytes and `JSON_DEPTH_MAX` levels."""
    try:
        encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        size = len(encoded.encode())
    except RecursionError:
        raise BadInput(f"{what} is nested too deep; allowed are {JSON_DEPTH_MAX} levels") from None
    except (TypeError, ValueError):
        raise BadInput(f"{what} is {kind_of(value)} that is not JSON; allowed is any JSON value") from None
    if size > most_bytes:
        raise BadInput(f"{what} is {size} bytes as JSON; allowed are {most_bytes}")
    if _is_deeper(value, JSON_DEPTH_MAX):
        raise BadInput(f"{what} is nested too deep; allowed are {JSON_DEPTH_MAX} levels")
    return encoded


def _is_deeper(value: Json, levels: int) -> bool:
    """Return whether a JSON value has lists or objects inside each other more than `levels` times."""
    level = [value]
    for _ in range(levels + 1):
        inner = [list(v.values()) if isinstance(v, dict) else v for v in level if isinstance(v, (dict, list))]
        if not inner:
            return False
        level = [v for values in inner for v in values]
    return True


_FILE = re.compile(r"^(?P<path>.+?)(?::(?P<start>\d{1,7})(?:-(?P<end>\d{1,7}))?)?$")


def file_citations(paths: Iterable[str], *, observed_at: datetime) -> tuple[Citation, ...]:
    """Return file citations from `path` or `path:10-20`."""
    citations = []
    for text in paths:
        match = _FILE.match(text)
        path = match["path"] if match else text
        start = int(match["start"]) if match and match["start"] else None
        end = int(match["end"]) if match and match["end"] else start
        if start is not None and (start < 1 or (end or start) < start):
            raise BadInput(f"files has {text!r}; allowed is `path` or `path:10-20` with 1 <= start <= end")
        citations.append(Citation("file", path, locator=Locator(start, end), observed_at=observed_at))
    return tuple(citations)


def _short(value: Json | datetime) -> str:
    return shortened(repr(value))


def shortened(value: str) -> str:
    """Return how a refused value is shown: cleaned, and never more than 40 characters of somebody's text."""
    from memory_anchor.language.safety import cleaned

    whole = cleaned(value[:SHOWN_FROM]).text
    return whole if len(whole) <= SHOWN_CHARS + 2 else f"{whole[:SHOWN_CHARS]}…"


INVALID = "not_taken"
"""The type of our own validation errors; their message is a sentence without its subject."""


def sentence(error: ErrorDetails, model: type[BaseModel], what: str) -> str:
    """Return one sentence about an error: the field, the value cut short, what is allowed."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    name = name or what
    value, limits = error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            required = [field for field, spec in model.model_fields.items() if spec.is_required()]
            return f"{what} lacks the argument {name!r}; required are {', '.join(required)}"
        case "extra_forbidden":
            hidden: frozenset[str] = getattr(model, "unlisted", frozenset())
            allowed = ", ".join(field for field in model.model_fields if field not in hidden) or "no arguments"
            return f"{what} got the unknown argument {shortened(repr(name))}; allowed are {allowed}"
        case "string_type":
            allowed = f"text of 1 to {most} characters" if (most := _most(model, name)) else "text"
            return f"{name} is {kind_of(value)}; allowed is {allowed}"
        case "string_too_short":
            return f"{name} is empty; allowed is text of 1 to {_most(model, name)} characters"
        case "string_too_long":
            return f"{name} is {len(value.strip())} characters long; allowed are 1 to {limits['max_length']}"
        case "string_unicode":
            return f"{name} has a lone surrogate; allowed is valid Unicode text"
        case "too_long":
            return f"{name} has {limits['actual_length']} entries; allowed are at most {limits['max_length']}"
        case "enum" | "literal_error":
            expected = re.sub(r"<\w{1,40}\.\w{1,40}: ('[^']{1,40}')>", r"\1", limits["expected"])
            allowed = expected.replace("'", "").replace(" or ", ", ")
            numbers = " (or L0 to L4)" if Layer.EVENT_LOG in allowed else ""
            return f"{name} is {shortened(repr(value))}; allowed are {allowed}{numbers}"
        case "tuple_type":
            return f"{name} is {shortened(repr(value))}; allowed is a list of texts"
        case "bool_type":
            return f"{name} is {shortened(repr(value))}; allowed are true and false"
        case kind if kind == INVALID:
            return f"{name} {limits['what']}"
    schema = field_of(model, str(error["loc"][0])) if error["loc"] else {}
    kind = "a whole number" if schema.get("type") == "integer" else "a number"
    if "minimum" in schema:
        at_least, at_most = number(schema["minimum"]), number(schema["maximum"])
        return f"{name} is {shortened(repr(value))}; allowed is {kind} from {at_least:g} to {at_most:g}"
    return f"{name} cannot be taken: {error['msg'][:1].lower()}{error['msg'][1:200]}"


def _most(model: type[BaseModel], name: str) -> int | None:
    """Return the most characters of a text, or of each text in a list."""
    schema = field_of(model, name.partition("[")[0])
    most = record(schema.get("items", schema)).get("maxLength")
    return most if isinstance(most, int) else None


def field_of(model: type[BaseModel], name: str) -> Record:
    from memory_anchor.base.json_schema import schema_of  # late: a command checks names without pydantic

    return record(record(schema_of(model)["properties"]).get(name))
