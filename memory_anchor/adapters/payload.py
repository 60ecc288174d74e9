"""A memory as one flat JSON object: what every engine stores, and what export and import carry.

The fields a filter may name (`where.INDEXED_FIELDS`) are top-level keys, with FOREVER where an end is open, so that
each engine can index them as they are. The rest is left out while it holds its default: a payload stays readable and
small. What is written and read follows the fields of `Memory` and their types, so a new field is stored by being
there; its key is left out while it holds its default, and older payloads go without it. Reading is the hot side (a
search decodes some 200): pydantic's core checks a payload against a schema made of those types, a tenth faster than
code by hand. It is strict, because an import brings payloads that others wrote: "3" is no number, and a time carries
its zone. Rejected: pydantic over `Memory` itself (flat keys would have to be nested first) and pickled blobs
(unreadable, unindexable).

Invariant: `from_payload(to_payload(m)) == m` for every memory with JSON-native `gap` and outcomes, and also after the
payload went through JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Literal, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator, ValidationError
from pydantic_core import core_schema as cs

from memory_anchor.base.json_values import Json, Record, parsed, record
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import FOREVER, Citation, Locator, Memory, Receipt, Scope, Tag, Usage
from memory_anchor.domain.ports import Mark

Payload = dict[str, Json]
Stored = Memory | Scope | Citation | Locator | Receipt
"""What a payload holds by its own fields."""

_FOREVER_TEXT = FOREVER.isoformat()
_NO_USAGE = Usage()
_SCOPE = tuple(each.name for each in fields(Scope) if each.compare)
_SHOWN_CHARS = 40
_NULL_IS_A_VALUE = ("gap", "receipts")
"""Fields that hold JSON of others."""
_MADE_HERE = frozenset(("scope", "tags", "pinned", "is_current", "usage", "recorded_to", "valid_to", "receipts"))
"""Fields of a memory whose keys have other names or values."""
_ALWAYS: Mapping[type, frozenset[str]] = {
    Memory: frozenset(("version", "priority", "importance", "confidence", "origin", "write_mode", "visibility"))
    | {"status", "content_hash", "author"},
    Scope: frozenset(("account", "project", "user", "agent", "conversation")),
    Citation: frozenset(("trust",)),
}
"""Fields with a default that every record has nevertheless, since the first release; a new one is none of these."""

_NEVER = ("across",)

CHECKSUM = "sum"
"""A checksum over the payload as the old layout stored it, whose engine kept none; payloads of 0.1.0 have none."""
REVISION = "revision"
"""Which stored state of a version this is, on a store that several engines write to (`store.revisions`)."""
_DIGITS = 12
NOT_IN_CHECKSUM = frozenset({CHECKSUM, "usage", "last_at"})
"""Fields that are set without the rest being written again."""
MARK_FIELDS = ("state", "audience")
_sorted_json = json.JSONEncoder(sort_keys=True).encode


# --- the schema ------------------------------------------------------------------------------------------------------


def _instant(value: Json) -> datetime:
    instant = datetime.fromisoformat(value) if isinstance(value, str) else None
    if instant is None or instant.tzinfo is None:
        raise ValueError("a stored time is text, and carries its zone")
    return instant


def _end(value: Json) -> datetime | None:
    return None if value == _FOREVER_TEXT else _instant(value)


_INSTANT = cs.no_info_plain_validator_function(_instant)
_END = cs.no_info_plain_validator_function(_end)
_TEXT = cs.str_schema(strict=True)
_WHOLE = cs.int_schema(strict=True)
_NUMBER = cs.union_schema(  # unchanged: 3 stays 3, or a version would have another hash on another device
    [_WHOLE, cs.float_schema(strict=True)],
    custom_error_type="number_type",
    custom_error_message="a number belongs here",
)
_PLAIN: Mapping[type, CoreSchema] = {str: _TEXT, int: _WHOLE, float: _NUMBER, datetime: _INSTANT}


def _several(item: CoreSchema) -> CoreSchema:
    return cs.tuple_schema([item], variadic_item_index=0, strict=False)


def _schema_of(hint: type) -> CoreSchema:
    """Return the schema of a field's JSON; null is never stored, so an optional field is one that may be missing."""
    args, origin = get_args(hint), get_origin(hint)
    if type(None) in args:
        return _schema_of(args[0])
    if origin is tuple:
        return _several(_schema_of(args[0]))
    if origin is Literal:
        return cs.literal_schema(list(args))
    if origin is Mapping:
        return cs.dict_schema(_TEXT, cs.any_schema())
    if is_dataclass(hint):
        shape = cs.typed_dict_schema(_fields_of(hint))
        return cs.no_info_after_validator_function(lambda found: hint(**found), shape)
    if issubclass(hint, StrEnum):
        return cs.enum_schema(hint, list(hint), strict=False)
    return _PLAIN[hint]


def _fields_of(kind: type) -> dict[str, cs.TypedDictField]:
    hints = get_type_hints(kind, localns={"Json": str})  # of others' JSON only its keys are looked at
    return {
        name: cs.typed_dict_field(_schema_of(hint), required=_written(kind).get(name) == ())
        for name, hint in hints.items()
        if name not in (_MADE_HERE if kind is Memory else _NEVER)
    }


@cache
def _written(kind: type) -> Mapping[str, tuple[Json, ...]]:
    """Return the fields that are written of a value, each with the value for which it is left out, () for none."""

    left_out: dict[str, tuple[Json, ...]] = {}
    for each in (each for each in fields(kind) if each.compare):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        left_out[each.name] = () if default is MISSING or each.name in _ALWAYS.get(kind, ()) else (default,)
    return {name: value for name, value in left_out.items() if kind is not Memory or name not in _MADE_HERE}


@cache
def _reader() -> SchemaValidator:
    """Created when the first payload is read: it takes milliseconds, which a start need not wait for."""
    flat = {
        **{name: cs.typed_dict_field(_TEXT, required=True) for name in ("state", "pinned")},
        **{name: cs.typed_dict_field(_END, required=True) for name in ("recorded_to", "valid_to")},
        "receipts": cs.typed_dict_field(_schema_of(tuple[Receipt, ...]), required=False),
        "tag": cs.typed_dict_field(_several(_TEXT), required=False),
        "tag_weights": cs.typed_dict_field(_several(_NUMBER), required=False),
        "last_at": cs.typed_dict_field(cs.nullable_schema(_INSTANT), required=False),
    }
    usage = {"count": _WHOLE, "shown": _WHOLE, "accesses": _several(_INSTANT)}
    used = cs.typed_dict_schema({name: cs.typed_dict_field(kind, required=True) for name, kind in usage.items()})
    flat["usage"] = cs.typed_dict_field(used, required=False)
    return SchemaValidator(cs.typed_dict_schema(_fields_of(Memory) | _fields_of(Scope) | flat))


# --- writing and reading ---------------------------------------------------------------------------------------------


def mark_of(point_id: str, payload: Record) -> Mark:
    """Return the mark of the version that a payload holds."""
    return Mark(point_id, *(str(payload.get(name, "")) for name in MARK_FIELDS))


def to_payload(memory: Memory) -> Payload:
    """Return the memory as JSON-native values; `state`, `audience`, `tag` and `request_keys` are there to filter on."""
    payload: Payload = {"id": memory.id, "version": memory.version}  # in this order an export is recognised by them
    payload |= _object(memory)
    payload |= {"state": memory.state, "audience": memory.audience, **_object(memory.scope)}
    payload["pinned"] = "yes" if memory.pinned else "no"
    payload["recorded_to"] = _FOREVER_TEXT if memory.recorded_to is None else time_text(memory.recorded_to)
    payload["valid_to"] = _FOREVER_TEXT if memory.valid_to is None else time_text(memory.valid_to)
    if memory.tags:
        payload["tag"] = [tag.name for tag in memory.tags]
        if any(tag.weight != 1.0 for tag in memory.tags):
            payload["tag_weights"] = [tag.weight for tag in memory.tags]
    if memory.receipts:
        payload["request_keys"] = [receipt.key for receipt in memory.receipts]
        payload["receipts"] = [_object(receipt) for receipt in memory.receipts]
    if memory.usage != _NO_USAGE:
        payload |= usage_payload(memory.usage)
    return payload


def from_payload(payload: Record | str) -> Memory:
    """Return the memory of a payload, or of its JSON text, which takes two thirds of parsing it first.

    Null counts as left out. Raises BadInput: a field is missing, or no time, number or known word; ValueError: no JSON.
    """
    reader = _reader()
    try:
        found = reader.validate_json(payload) if isinstance(payload, str) else reader.validate_python(payload)
    except ValidationError as error:
        if isinstance(payload, str):  # also half a character and great depth, which the core's parser does not take
            return from_payload(record(parsed(payload)))
        if (without := _without_null(payload)) != payload:
            return from_payload(without)
        raise BadInput(f"memory record: {_wrong(error)}; compare one line of an export") from error
    names, weights, usage = found.pop("tag", ()), found.pop("tag_weights", None), found.pop("usage", None)
    last_at, state = found.pop("last_at", None), found.pop("state")
    scope = Scope(**{name: found.pop(name) for name in _SCOPE if name in found})
    return Memory(
        **found | {"pinned": found["pinned"] == "yes"},
        scope=scope,
        tags=tuple(map(Tag, names) if weights is None else map(Tag, names, weights)),
        is_current=state == found["status"].value,
        usage=Usage(last_at=last_at, **usage) if usage else _NO_USAGE,
    )


def _without_null(payload: Record) -> Record:
    def without(value: Json) -> Json:
        match value:
            case dict():
                return {name: without(inner) for name, inner in value.items() if inner is not None}
            case list():
                return [without(inner) for inner in value]
            case _:
                return value

    present = {name: value for name, value in payload.items() if value is not None}
    return {name: value if name in _NULL_IS_A_VALUE else without(value) for name, value in present.items()}


def checksum_matches(payload: Record) -> bool:
    """Return whether a payload is as it was written; True for one without a checksum.

    It is compared unrounded first: few payloads have a number of more digits than `_DIGITS`.
    """
    if CHECKSUM not in payload or payload[CHECKSUM] == _checksum(payload):
        return True
    return payload[CHECKSUM] == _checksum({name: _rounded(value) for name, value in payload.items()})


def _rounded(value: Json) -> Json:
    """Return a JSON value with its fractions rounded to as many digits as every engine returns unchanged.

    Edge 0.9.0 reads a number of 16 or 17 digits back one unit off in its last place: 6 of 100 drawn at random.
    """
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _checksum(payload: Record) -> int:
    covered = {name: value for name, value in payload.items() if name not in NOT_IN_CHECKSUM}
    return zlib.crc32(_sorted_json(covered).encode())


def usage_payload(usage: Usage) -> Payload:
    """Return the fields of the mutable part; `last_at` is a top-level key to be indexed, null while unused."""
    return {
        "usage": {"count": usage.count, "shown": usage.shown, "accesses": [time_text(at) for at in usage.accesses]},
        "last_at": None if usage.last_at is None else time_text(usage.last_at),
    }


def time_text(instant: datetime) -> str:
    """Return an aware instant as ISO 8601 in UTC with its microseconds."""
    return (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()


def _object(value: Stored) -> Payload:
    """Return a value's fields as JSON, without those that hold their default."""
    kind: type = type(value)
    return {
        name: _plain(found)
        for name, left_out in _written(kind).items()
        if (found := getattr(value, name)) not in left_out
    }


def _plain(value: str | float | datetime | tuple[str | Stored, ...] | Mapping[str, Json] | Stored | None) -> Json:
    """Return a field's value as JSON."""
    match value:
        case StrEnum():
            return value.value
        case str() | float() | int() | None:
            return value
        case datetime():
            return time_text(value)
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return dict(value)
        case _:
            return _object(value)


def _wrong(error: ValidationError) -> str:
    """Return which field is wrong and how; a value of the record is cut to `_SHOWN_CHARS`."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "missing":
            return f"{name!r} is missing"
        case "enum" | "literal_error":
            return f"{name!r} is {str(first['input'])[:_SHOWN_CHARS]!r}, which is not a known word"
        case "string_type":
            return f"{name!r} is to be text"
        case "int_type":
            return f"{name!r} is to be a whole number"
        case _:
            return f"{name!r} has the wrong kind of value"
