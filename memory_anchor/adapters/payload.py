"""A memory as one flat JSON object: what every engine stores, and what export and import carry.

The fields a filter may name (`where.INDEXED_FIELDS`) are top-level keys, with FOREVER where an end is open, so that
each engine can index them as they are. The rest is left out while it holds its default: a payload stays readable and
small. Reading is the hot side (a search decodes some 200): pydantic checks a payload against the shapes below and
returns typed values, a tenth faster than code by hand. It is strict, because an import brings payloads that others
wrote: "3" is no number, and a time carries its zone. Rejected: pydantic over `Memory` itself (flat keys would have to
be nested first) and pickled blobs (unreadable, unindexable).

Invariant: `from_payload(to_payload(m)) == m` for every memory with JSON-native `gap` and outcomes, and also after the
payload went through JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Required, TypeVar

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    JsonValue,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    with_config,
)
from pydantic_core import CoreSchema
from pydantic_core.core_schema import float_schema, int_schema, no_info_after_validator_function, union_schema
from typing_extensions import TypedDict

from memory_anchor.base.json_values import Json, Record
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import (
    FOREVER,
    Citation,
    CitationKind,
    Epistemic,
    Freshness,
    Layer,
    Locator,
    Memory,
    MemoryType,
    Origin,
    Receipt,
    Scope,
    Status,
    Tag,
    Trust,
    Usage,
    Visibility,
    WriteMode,
)
from memory_anchor.domain.ports import Mark

Payload = dict[str, Json]

_FOREVER_TEXT = FOREVER.isoformat()
_NO_USAGE = Usage()
_SHOWN_CHARS = 40
_NULL_IS_A_VALUE = ("gap", "receipts")
"""Fields that hold JSON of others."""

_UNLESS_DEFAULT: Mapping[str, Json | tuple[()]] = {
    **dict.fromkeys(("key", "context", "reason", "written_in"), ""),
    **dict.fromkeys(("extractor_model", "previous_version_id", "where", "promoted_to")),
    **dict.fromkeys(("epistemic", "sentiment", "conversation_seq", "half_life_days", "ttl_days")),
    **dict.fromkeys(("when", "expires_at", "first_recorded_at", "content_at", "corroborated_at", "gap")),
    **dict.fromkeys(("who", "questions", "disputes", "relations", "citations"), ()),
}
"""Fields that are left out while they hold this default."""

CHECKSUM = "sum"
"""A checksum over the payload as it was stored, for an engine that keeps none; payloads of 0.1.0 have none."""
REVISION = "revision"
"""Which stored state of a version this is, on a store that several engines write to (`adapters.revisions`)."""
_DIGITS = 12
NOT_IN_CHECKSUM = frozenset({CHECKSUM, "usage", "last_at"})
"""Fields that are set without the rest being written again."""
MARK_FIELDS = ("state", "audience")
_sorted_json = json.JSONEncoder(sort_keys=True).encode


# --- the shapes ------------------------------------------------------------------------------------------------------


def _instant(value: Json) -> datetime:
    instant = datetime.fromisoformat(value) if isinstance(value, str) else None
    if instant is None or instant.tzinfo is None:
        raise ValueError("a stored time is text, and carries its zone")
    return instant


def _end(value: Json) -> datetime | None:
    return None if value == _FOREVER_TEXT else _instant(value)


_T = TypeVar("_T")
_Word = Annotated[_T, Field(strict=False)]
"""A value of an enumeration."""
_Several = Annotated[tuple[_T, ...], Field(strict=False)]
"""A list."""
_Instant = Annotated[datetime, PlainValidator(_instant)]
_End = Annotated[datetime | None, PlainValidator(_end)]
_NUMBER = union_schema(
    [int_schema(strict=True), float_schema(strict=True)],
    custom_error_type="number_type",
    custom_error_message="a number belongs here",
)
_Number = Annotated[float, GetPydanticSchema(lambda _, __: _NUMBER)]
"""Unchanged: 3 stays 3, or a version would have another hash on another device."""
_strict = with_config(strict=True)


@dataclass(frozen=True, slots=True)
class _From:
    """A value of the annotated type, made from an object of this shape."""

    shape: type

    def __get_pydantic_core_schema__(self, made: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(lambda fields: made(**fields), handler.generate_schema(self.shape))


@_strict
class _StoredLocator(TypedDict, total=False):
    line_start: int
    line_end: int
    sha: str
    chunk_index: int
    page: int
    heading: _Several[str]


@_strict
class _StoredScope(TypedDict, total=False):
    account: Required[str]
    project: Required[str]
    user: Required[str]
    agent: Required[str]
    conversation: Required[str]
    collection: str


@_strict
class _StoredCitation(TypedDict, total=False):
    kind: Required[CitationKind]
    ref: Required[str]
    title: str
    locator: Annotated[Locator, _From(_StoredLocator)]
    scope: Annotated[Scope, _From(_StoredScope)]
    observed_at: _Instant
    trust: Required[_Word[Trust]]
    freshness: Freshness
    variant: str
    index_version: str


@_strict
class _StoredReceipt(TypedDict):
    key: str
    fingerprint: str
    outcome: dict[str, JsonValue]


@_strict
class _StoredUsage(TypedDict):
    count: int
    shown: int
    accesses: _Several[_Instant]


@_strict
class _SameName(TypedDict, total=False):
    """Fields that a memory has under the same name."""

    id: Required[str]
    version: Required[int]  # second: by it an export is recognised (extensions/transfer/commands.py)
    content: Required[str]
    layer: Required[_Word[Layer]]
    type: Required[_Word[MemoryType]]
    recorded_at: Required[_Instant]
    recorded_to: Required[_End]
    valid_from: Required[_Instant]
    valid_to: Required[_End]
    key: str
    priority: Required[_Number]
    importance: Required[_Number]
    confidence: Required[_Number]
    sentiment: _Number
    origin: Required[_Word[Origin]]
    write_mode: Required[_Word[WriteMode]]
    extractor_model: str
    visibility: Required[_Word[Visibility]]
    status: Required[_Word[Status]]
    epistemic: _Word[Epistemic]
    previous_version_id: str
    conversation_seq: int
    half_life_days: _Number
    first_recorded_at: _Instant
    content_at: _Instant
    corroborated_at: _Instant
    citations: _Several[Annotated[Citation, _From(_StoredCitation)]]
    when: _Instant
    where: str
    who: _Several[str]
    ttl_days: int
    expires_at: _Instant
    promoted_to: str
    context: str
    questions: _Several[str]
    content_hash: Required[str]
    author: Required[str]
    reason: str
    written_in: str
    disputes: _Several[str]
    relations: _Several[str]
    gap: dict[str, JsonValue]
    receipts: _Several[Annotated[Receipt, _From(_StoredReceipt)]]
    revision: str


@_strict
class _Flat(_StoredScope, total=False):
    """Top-level keys that are nested in a memory, or named otherwise: scope, tags, usage and state."""

    state: Required[str]
    pinned: Required[str]
    tag: _Several[str]
    tag_weights: _Several[_Number]
    usage: _StoredUsage
    last_at: _Instant | None


_CONVERTED = ("recorded_to", "valid_to", "receipts", "revision")
_ALWAYS = [name for name in _SameName.__annotations__ if name not in {*_UNLESS_DEFAULT, *_CONVERTED}]


@cache
def _readers() -> tuple[TypeAdapter[_SameName], TypeAdapter[_Flat]]:
    """Created when the first payload is read: they take 4 ms, which a start need not wait for."""
    return TypeAdapter(_SameName), TypeAdapter(_Flat)


# --- writing and reading ---------------------------------------------------------------------------------------------


def mark_of(point_id: str, payload: Record) -> Mark:
    """Return the mark of the version that a payload holds."""
    return Mark(point_id, *(str(payload.get(name, "")) for name in MARK_FIELDS))


def to_payload(memory: Memory) -> Payload:
    """Return the memory as JSON-native values; `state`, `audience`, `tag` and `request_keys` are there to filter on."""
    payload = {name: _plain(getattr(memory, name)) for name in _ALWAYS}
    payload |= {"state": memory.state, "audience": memory.audience, **_scope_payload(memory.scope)}
    payload["pinned"] = "yes" if memory.pinned else "no"
    payload["recorded_to"] = _FOREVER_TEXT if memory.recorded_to is None else time_text(memory.recorded_to)
    payload["valid_to"] = _FOREVER_TEXT if memory.valid_to is None else time_text(memory.valid_to)
    for name, default in _UNLESS_DEFAULT.items():
        if (value := getattr(memory, name)) != default:
            payload[name] = _plain(value)
    if memory.tags:
        payload["tag"] = [tag.name for tag in memory.tags]
        if any(tag.weight != 1.0 for tag in memory.tags):
            payload["tag_weights"] = [tag.weight for tag in memory.tags]
    if memory.receipts:
        payload["request_keys"] = [receipt.key for receipt in memory.receipts]
        payload["receipts"] = [
            {"key": receipt.key, "fingerprint": receipt.fingerprint, "outcome": dict(receipt.outcome)}
            for receipt in memory.receipts
        ]
    if memory.usage != _NO_USAGE:
        payload |= usage_payload(memory.usage)
    return payload


def from_payload(payload: Record) -> Memory:
    """Return the memory a payload holds.

    Null in an import's line counts as left out. Raises BadInput: a field is missing, or is not a time, a number or one
    of the known words.
    """
    same_name, flat_shape = _readers()
    try:
        stored, flat = same_name.validate_python(payload), flat_shape.validate_python(payload)
    except ValidationError as error:
        if (without := _without_null(payload)) != payload:
            return from_payload(without)
        raise BadInput(f"memory record: {_wrong(error)}; compare one line of an export") from error
    names, weights, usage = flat.get("tag", ()), flat.get("tag_weights"), flat.get("usage")
    return Memory(
        **stored,
        scope=Scope(
            flat["account"],
            flat["project"],
            flat["user"],
            flat["agent"],
            flat["conversation"],
            flat.get("collection", ""),
        ),
        tags=tuple(map(Tag, names) if weights is None else map(Tag, names, weights)),
        pinned=flat["pinned"] == "yes",
        is_current=flat["state"] == stored["status"].value,
        usage=Usage(last_at=flat.get("last_at"), **usage) if usage else _NO_USAGE,
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


def with_checksum(payload: Payload) -> Payload:
    """Return the payload with its checksum."""
    return {**payload, CHECKSUM: _checksum({name: _rounded(value) for name, value in payload.items()})}


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


def _plain(value: Json | datetime | StrEnum | tuple[str | Citation, ...]) -> Json:
    """Return a field's value as JSON."""
    match value:
        case StrEnum():
            return value.value
        case datetime():
            return time_text(value)
        case tuple():
            return [_citation_payload(item) if isinstance(item, Citation) else item for item in value]
        case Mapping():
            return dict(value)
        case _:
            return value


def _scope_payload(scope: Scope) -> Payload:
    names = ("account", "project", "user", "agent", "conversation")
    return {name: getattr(scope, name) for name in (*names, *(("collection",) if scope.collection else ()))}


def _citation_payload(citation: Citation) -> Payload:
    payload: Payload = {"kind": citation.kind, "ref": citation.ref, "trust": citation.trust.value}
    for name in ("title", "freshness", "variant", "index_version"):
        if (text := getattr(citation, name)) is not None:
            payload[name] = text
    names = ("line_start", "line_end", "sha", "chunk_index", "page")
    locator = {name: value for name in names if (value := getattr(citation.locator, name)) is not None}
    if citation.locator.heading:
        locator["heading"] = list(citation.locator.heading)
    if locator:
        payload["locator"] = locator
    if citation.scope is not None:
        payload["scope"] = _scope_payload(citation.scope)
    if citation.observed_at is not None:
        payload["observed_at"] = time_text(citation.observed_at)
    return payload


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
