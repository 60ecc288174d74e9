"""JSON as a type: a parsed value is `Json` until one of these readers checks what it is.

Text from outside (a file, a line, a service's answer) becomes values in `parsed`; from there on mypy requires a check
before each use. The readers raise ValueError where a value is of another kind, and the code that opened the file makes
it an error about that file; a default is for `null` and for what is missing alone. Standard library only, and nothing
that the bridge would not load anyway. Rejected: `object`, which accepts a memory where JSON is expected.

>>> notes = record(parsed('{"name": "api", "port": 8080}'))
>>> text(notes["name"]), whole(notes["port"]), text(notes.get("zone"), "UTC")
('api', 8080, 'UTC')
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias, TypeVar

    Word = TypeVar("Word", bound=str)

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Record: TypeAlias = "Mapping[str, Json]"
"""A JSON object."""


def parsed(encoded: str | bytes | bytearray) -> Json:
    """Return the value of a JSON text. Raises ValueError: it is not JSON; RecursionError: it is nested too deep."""
    value: Json = json.loads(encoded)
    return value


def lenient(encoded: str | bytes) -> Json:
    """Return the value of a JSON text in which a byte that is no UTF-8 and half a character cost themselves alone.

    Raises as `parsed` does.

    >>> lenient(b'{"said": "a \\xff b \\\\udc88"}')
    {'said': 'a \ufffd b \ufffd'}
    """
    text = encoded if isinstance(encoded, str) else encoded.decode("utf-8", "replace")
    value = parsed(text)
    return _whole_characters(value) if "\\ud" in text or "\\uD" in text else value


def _whole_characters(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {str(_whole_characters(name)): _whole_characters(item) for name, item in value.items()}
    return value


def text(value: Json, default: str | None = None) -> str:
    """Return a text."""
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        raise _unexpected(value, "a text")
    return value


def optional_text(value: Json) -> str | None:
    """Return a text, or None for `null`."""
    return None if value is None else text(value)


def one_of(value: Json, allowed: Sequence[Word]) -> Word:
    """Return the value as one of the allowed words."""
    for word in allowed:
        if word == value:
            return word
    raise _unexpected(value, f"one of {', '.join(allowed)}")


def whole(value: Json, default: int | None = None) -> int:
    """Return a whole number; true and false are none."""
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unexpected(value, "a whole number")
    return value


def number(value: Json) -> float:
    """Return a number; an integer stays one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unexpected(value, "a number")
    return value


def items(value: Json) -> Sequence[Json]:
    """Return the values of a list; `null` is an empty one."""
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _unexpected(value, "a list")
    return value


def texts(value: Json) -> list[str]:
    """Return the texts of a list; `null` is an empty one."""
    return [text(item) for item in items(value)]


def record(value: Json) -> Record:
    """Return an object's names and values; `null` is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _unexpected(value, "an object")
    return value


def records(value: Json) -> list[Record]:
    """Return the objects of a list; `null` is an empty one."""
    return [record(item) for item in items(value)]


def inside(given: Json, *names: str) -> Json:
    """Return what stands below these names in another program's value; None where there is none.

    >>> inside({"uri": {"path": "/w"}}, "uri", "path"), inside({"uri": 3}, "uri", "path")
    ('/w', None)
    """
    for name in names:
        given = given.get(name) if isinstance(given, Mapping) else None
    return given


def string(given: Json, *names: str) -> str:
    """Return the text that stands below these names, or ""."""
    return found if isinstance(found := inside(given, *names), str) else ""


def objects(given: Json) -> list[Record]:
    """Return the objects of what may be a list of some."""
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []


def kind_of(value: object) -> str:
    """Return the kind of a value in JSON's words, for error messages.

    >>> kind_of(None), kind_of({}), kind_of(7), kind_of(True)
    ('null', 'an object', 'a number', 'true or false')
    """
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (type(None), "null"),
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "text"),
        (Mapping, "an object"),
        ((list, tuple), "a list"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), f"a {type(value).__name__}")


def _unexpected(value: Json, wanted: str) -> ValueError:
    return ValueError(f"{kind_of(value)} where {wanted} belongs")
