"""A memory as one flat JSON object: what every engine stores, and what export and import carry.

The fields a filter may name (`where.INDEXED_FIELDS`) lie flat under their own names, with FOREVER where an end is open,
so that each engine can index them as they are. The rest is left out while it holds its default: a payload stays
readable and small. Reading is the hot side (a search decodes some 200): pydantic checks a payload against the shapes
below and gives typed values, a tenth faster than code by hand. It is strict, because an import brings payloads that
others wrote: "3" is no number, and a time carries its zone. Rejected: pydantic over `Memory` itself (what lies flat
would have to be nested first) and pickled blobs (unreadable, unindexable).

Invariant: `from_payload(to_payload(m)) == m` for every memory with JSON-native `gap` and outcomes, and also after the
payload went through JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
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

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, Record
from memory_anchor.model import (
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
from memory_anchor.ports import Mark

Payload = dict[str, Json]

_FOREVER_TEXT = FOREVER.isoformat()
_NO_USAGE = Usage()
_SHOWN_CHARS = 40
_AS_GIVEN = ("gap", "receipts")
"""Fields that hold JSON of others, in which null is a value."""

_OPTIONAL_TEXTS: Mapping[str, str | None] = {
    "key": "",
    "context": "",
    "reason": "",
    "written_in": "",
    "extractor_model": None,
    "previous_version_id": None,
    "where": None,
    "promoted_to": None,
}
"""Texts that are left out while they hold their default."""
_OPTIONAL_NUMBERS = ("sentiment", "conversation_seq", "half_life_days", "ttl_days")
_OPTIONAL_TIMES = ("when", "expires_at", "first_recorded_at", "content_at", "corroborated_at")
_OPTIONAL_LISTS = ("who", "questions", "disputes")


SUM = "sum"
"""A checksum over the payload as it was stored, for an engine that keeps none; payloads of 0.1.0 have none."""
REVISION = "revision"
"""Which stored state of a version this is, on a store that several engines write to (`adapters.revisions`)."""
_DIGITS = 12
UNSUMMED = frozenset({SUM, "usage", "last_at"})
"""What is set without the rest being written anew."""
MOVING = ("state", "audience")
"""Fields that a mark is made of."""
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
"""A word of an enumeration."""
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
"""As it is: 3 stays 3, or a version would have another hash on another device."""
_strict = with_config(strict=True)


@dataclass(frozen=True, slots=True)
class _From:
    """A value of the annotated type, made of an object of this shape."""

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
class _AsItIs(TypedDict, total=False):
    """What a memory has under the same name."""

    id: Required[str]
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
    version: Required[int]
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
    gap: dict[str, JsonValue]
    receipts: _Several[Annotated[Receipt, _From(_StoredReceipt)]]
    revision: str


@_strict
class _Flat(_StoredScope, total=False):
    """What lies flat, and is folded in a memory: whose it is, its tags, its use and where it stands."""

    state: Required[str]
    pinned: Required[str]
    tag: _Several[str]
    tag_weights: _Several[_Number]
    usage: _StoredUsage
    last_at: _Instant | None


@cache
def _readers() -> tuple[TypeAdapter[_AsItIs], TypeAdapter[_Flat]]:
    """Made when the first payload is read: they take 4 ms, which a start need not wait for."""
    return TypeAdapter(_AsItIs), TypeAdapter(_Flat)


# --- writing and reading ---------------------------------------------------------------------------------------------


def mark_of(point_id: str, payload: Record) -> Mark:
    """Return what may move of the version that a payload holds."""
    return Mark(point_id, *(str(payload.get(name, "")) for name in MOVING))


def to_payload(memory: Memory) -> Payload:
    """Return the memory as JSON-native values; `state`, `audience`, `tag` and `request_keys` are there to filter on."""
    scope = memory.scope
    payload: Payload = {
        "id": memory.id,
        "version": memory.version,
        "content": memory.content,
        "layer": memory.layer.value,
        "type": memory.type.value,
        "state": memory.state,
        "status": memory.status.value,
        "visibility": memory.visibility.value,
        "audience": memory.audience,
        "account": scope.account,
        "project": scope.project,
        "user": scope.user,
        "agent": scope.agent,
        "conversation": scope.conversation,
        "origin": memory.origin.value,
        "write_mode": memory.write_mode.value,
        "author": memory.author,
        "content_hash": memory.content_hash,
        "priority": memory.priority,
        "importance": memory.importance,
        "confidence": memory.confidence,
        "pinned": "yes" if memory.pinned else "no",
        "recorded_at": time_text(memory.recorded_at),
        "recorded_to": _FOREVER_TEXT if memory.recorded_to is None else time_text(memory.recorded_to),
        "valid_from": time_text(memory.valid_from),
        "valid_to": _FOREVER_TEXT if memory.valid_to is None else time_text(memory.valid_to),
    }
    if scope.collection:
        payload["collection"] = scope.collection
    for name, default in _OPTIONAL_TEXTS.items():
        if (text := getattr(memory, name)) != default:
            payload[name] = text
    for name in _OPTIONAL_NUMBERS:
        if (number := getattr(memory, name)) is not None:
            payload[name] = number
    for name in _OPTIONAL_LISTS:
        if texts := getattr(memory, name):
            payload[name] = list(texts)
    if memory.epistemic is not None:
        payload["epistemic"] = memory.epistemic.value
    for name in _OPTIONAL_TIMES:
        if (instant := getattr(memory, name)) is not None:
            payload[name] = time_text(instant)
    if memory.gap is not None:
        payload["gap"] = dict(memory.gap)
    payload.update(_parts(memory))
    return payload


def from_payload(payload: Record) -> Memory:
    """Return the memory a payload holds.

    What is null in an import's line is not given. Raises BadInput: a field is missing, or holds what is not a time, a
    number or one of the known words.
    """
    as_it_is, folded = _readers()
    try:
        stored, flat = as_it_is.validate_python(payload), folded.validate_python(payload)
    except ValidationError as error:
        if (given := _without_null(payload)) != payload:
            return from_payload(given)
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
    def given(value: Json) -> Json:
        match value:
            case dict():
                return {name: given(one) for name, one in value.items() if one is not None}
            case list():
                return [given(one) for one in value]
            case _:
                return value

    return {name: value if name in _AS_GIVEN else given(value) for name, value in payload.items() if value is not None}


def summed(payload: Payload) -> Payload:
    """Return the payload with its checksum."""
    return {**payload, SUM: _sum({name: _rounded(value) for name, value in payload.items()})}


def is_as_written(payload: Record) -> bool:
    """Return whether a payload is the one that was summed; one without a sum is taken as it is.

    First as it is: few payloads have a number of more digits than `_DIGITS`.
    """
    if SUM not in payload or payload[SUM] == _sum(payload):
        return True
    return payload[SUM] == _sum({name: _rounded(value) for name, value in payload.items()})


def _rounded(value: Json) -> Json:
    """Return a JSON value with its fractions at so many digits as come back from every engine.

    Edge 0.9.0 reads a number of 16 or 17 digits back one unit off in its last place: 6 of 100 drawn at random.
    """
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(inner) for name, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


def _sum(payload: Record) -> int:
    held = {name: value for name, value in payload.items() if name not in UNSUMMED}
    return zlib.crc32(_sorted_json(held).encode())


def usage_payload(usage: Usage) -> Payload:
    """Return the fields of the mutable part; `last_at` lies flat to be indexed, null while unused."""
    return {
        "usage": {
            "count": usage.count,
            "shown": usage.shown,
            "accesses": [time_text(at) for at in usage.accesses],
        },
        "last_at": None if usage.last_at is None else time_text(usage.last_at),
    }


def time_text(instant: datetime) -> str:
    """Return an aware instant as ISO 8601 in UTC with its microseconds."""
    return (instant if instant.tzinfo is UTC else instant.astimezone(UTC)).isoformat()


def _parts(memory: Memory) -> Payload:
    """Return the compound fields that are not at their default."""
    parts: Payload = {}
    if memory.tags:
        parts["tag"] = [tag.name for tag in memory.tags]
        if any(tag.weight != 1.0 for tag in memory.tags):
            parts["tag_weights"] = [tag.weight for tag in memory.tags]
    if memory.citations:
        parts["citations"] = [_citation_payload(citation) for citation in memory.citations]
    if memory.receipts:
        parts["request_keys"] = [receipt.key for receipt in memory.receipts]
        parts["receipts"] = [
            {"key": receipt.key, "fingerprint": receipt.fingerprint, "outcome": dict(receipt.outcome)}
            for receipt in memory.receipts
        ]
    if memory.usage != _NO_USAGE:
        parts.update(usage_payload(memory.usage))
    return parts


def _citation_payload(citation: Citation) -> Payload:
    payload: Payload = {"kind": citation.kind, "ref": citation.ref, "trust": citation.trust.value}
    for name in ("title", "freshness", "variant", "index_version"):
        if (text := getattr(citation, name)) is not None:
            payload[name] = text
    locator = {
        name: value
        for name in ("line_start", "line_end", "sha", "chunk_index", "page")
        if (value := getattr(citation.locator, name)) is not None
    }
    if citation.locator.heading:
        locator["heading"] = list(citation.locator.heading)
    if locator:
        payload["locator"] = locator
    if citation.scope is not None:
        scope = citation.scope
        payload["scope"] = {
            "account": scope.account,
            "project": scope.project,
            "user": scope.user,
            "agent": scope.agent,
            "conversation": scope.conversation,
        } | ({"collection": scope.collection} if scope.collection else {})
    if citation.observed_at is not None:
        payload["observed_at"] = time_text(citation.observed_at)
    return payload


def _wrong(error: ValidationError) -> str:
    """Return which field is wrong and how; a word from a record is shown only when it is short."""
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
