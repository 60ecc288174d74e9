"""A memory as one flat JSON object: what every engine stores, and what export and import carry.

The fields a filter may name (`where.INDEXED_FIELDS`) lie flat under their own names, with FOREVER where an end is open,
so that each engine can index them as they are. The rest is left out while it holds its default: a payload stays
readable and small. Reading is the hot side (a search decodes some 200), so it looks enums up in plain dicts and asks
for optional parts once. Rejected: pydantic (10 times slower) and pickled blobs (unreadable, unindexable).

Invariant: `from_payload(to_payload(m)) == m` for every memory with JSON-native `gap` and outcomes, and also after the
payload went through JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

from memory_anchor.errors import BadInput
from memory_anchor.json_values import (
    Json,
    Record,
    items,
    number,
    one_of,
    optional_text,
    record,
    records,
    text,
    texts,
    whole,
)
from memory_anchor.model import (
    CITATION_KINDS,
    FOREVER,
    FRESHNESS,
    Citation,
    Epistemic,
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

_LAYERS = {member.value: member for member in Layer}
_TYPES = {member.value: member for member in MemoryType}
_ORIGINS = {member.value: member for member in Origin}
_WRITE_MODES = {member.value: member for member in WriteMode}
_VISIBILITIES = {member.value: member for member in Visibility}
_STATUSES = {member.value: member for member in Status}
_EPISTEMICS = {member.value: member for member in Epistemic}
_TRUSTS = {member.value: member for member in Trust}

_FOREVER_TEXT = FOREVER.isoformat()
_NO_USAGE = Usage()
_NO_LOCATOR = Locator()

_TEXTS = ("id", "content", "author", "content_hash", "account", "project", "user", "agent", "conversation")
_NUMBERS = ("version", "priority", "importance", "confidence")
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

    Raises BadInput: a field is missing, or holds what is not a time, a number or one of the known words.
    """
    try:
        return _decode(payload)
    except KeyError as error:
        raise BadInput(f"memory record: {_named(error.args[0])}") from error
    except (TypeError, ValueError) as error:
        _check_kinds(payload)
        raise BadInput("memory record: a field has the wrong kind of value; compare one line of an export") from error


def summed(payload: Payload) -> Payload:
    """Return the payload with its checksum."""
    return {**payload, SUM: _sum(record(_rounded(payload)))}


def is_as_written(payload: Record) -> bool:
    """Return whether a payload is the one that was summed; one without a sum is taken as it is.

    First as it is: few payloads have a number of more digits than `_DIGITS`.
    """
    return SUM not in payload or payload[SUM] == _sum(payload) or payload[SUM] == _sum(record(_rounded(payload)))


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
    return zlib.crc32(json.dumps(held, sort_keys=True).encode())


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


def _decode(payload: Record) -> Memory:
    ask = payload.get
    status = _STATUSES[str(payload["status"])]
    recorded_to = payload["recorded_to"]
    valid_to = payload["valid_to"]
    return Memory(
        id=text(payload["id"]),
        content=text(payload["content"]),
        layer=_LAYERS[str(payload["layer"])],
        type=_TYPES[str(payload["type"])],
        scope=_scope(payload),
        recorded_at=_time(payload["recorded_at"]),
        valid_from=_time(payload["valid_from"]),
        key=text(ask("key"), ""),
        tags=_tags(names, ask("tag_weights")) if (names := ask("tag")) else (),
        priority=number(payload["priority"]),
        importance=number(payload["importance"]),
        confidence=number(payload["confidence"]),
        sentiment=_maybe_number(ask("sentiment")),
        origin=_ORIGINS[str(payload["origin"])],
        write_mode=_WRITE_MODES[str(payload["write_mode"])],
        extractor_model=optional_text(ask("extractor_model")),
        visibility=_VISIBILITIES[str(payload["visibility"])],
        status=status,
        pinned=payload["pinned"] == "yes",
        epistemic=_EPISTEMICS[str(word)] if (word := ask("epistemic")) else None,
        version=whole(payload["version"]),
        previous_version_id=optional_text(ask("previous_version_id")),
        valid_to=None if valid_to == _FOREVER_TEXT else _time(valid_to),
        recorded_to=None if recorded_to == _FOREVER_TEXT else _time(recorded_to),
        conversation_seq=_maybe_whole(ask("conversation_seq")),
        half_life_days=_maybe_number(ask("half_life_days")),
        first_recorded_at=_maybe_time(ask("first_recorded_at")),
        content_at=_maybe_time(ask("content_at")),
        corroborated_at=_maybe_time(ask("corroborated_at")),
        citations=tuple(map(_citation, records(cited))) if (cited := ask("citations")) else (),
        when=_maybe_time(ask("when")),
        where=optional_text(ask("where")),
        who=tuple(texts(ask("who"))),
        ttl_days=_maybe_whole(ask("ttl_days")),
        expires_at=_maybe_time(ask("expires_at")),
        promoted_to=optional_text(ask("promoted_to")),
        context=text(ask("context"), ""),
        questions=tuple(texts(ask("questions"))),
        content_hash=text(payload["content_hash"]),
        author=text(payload["author"]),
        reason=text(ask("reason"), ""),
        written_in=text(ask("written_in"), ""),
        disputes=tuple(texts(ask("disputes"))),
        gap=None if (gap := ask("gap")) is None else record(gap),
        is_current=payload["state"] == status.value,
        usage=_usage(record(usage), ask("last_at")) if (usage := ask("usage")) else _NO_USAGE,
        receipts=tuple(map(_receipt, records(answered))) if (answered := ask("receipts")) else (),
        revision=optional_text(ask(REVISION)),
    )


def _check_kinds(payload: Record) -> None:
    """Raise BadInput with its name when a plain field holds another kind of value."""
    for name in _TEXTS:
        if not isinstance(payload[name], str):
            raise BadInput(f"memory record: {name!r} is to be text; compare one line of an export")
    for name in _NUMBERS:
        if not isinstance(payload[name], int | float):
            raise BadInput(f"memory record: {name!r} is to be a number; compare one line of an export")


def _time(value: Json) -> datetime:
    instant = datetime.fromisoformat(text(value))
    if instant.tzinfo is None:
        raise ValueError("a stored time carries its zone")
    return instant


def _maybe_number(value: Json) -> float | None:
    return None if value is None else number(value)


def _maybe_whole(value: Json) -> int | None:
    return None if value is None else whole(value)


def _maybe_time(value: Json) -> datetime | None:
    return _time(value) if value else None


def _tags(names: Json, weights: Json) -> tuple[Tag, ...]:
    return (
        tuple(map(Tag, texts(names))) if weights is None else tuple(map(Tag, texts(names), map(number, items(weights))))
    )


def _usage(usage: Record, last_at: Json) -> Usage:
    return Usage(
        count=whole(usage["count"]),
        shown=whole(usage["shown"]),
        last_at=_maybe_time(last_at),
        accesses=tuple(map(_time, items(usage["accesses"]))),
    )


def _receipt(receipt: Record) -> Receipt:
    return Receipt(text(receipt["key"]), text(receipt["fingerprint"]), record(receipt["outcome"]))


def _locator(place: Record) -> Locator:
    ask = place.get
    return Locator(
        _maybe_whole(ask("line_start")),
        _maybe_whole(ask("line_end")),
        optional_text(ask("sha")),
        _maybe_whole(ask("chunk_index")),
        _maybe_whole(ask("page")),
        tuple(texts(ask("heading"))),
    )


def _scope(scope: Record) -> Scope:
    return Scope(
        text(scope["account"]),
        text(scope["project"]),
        text(scope["user"]),
        text(scope["agent"]),
        text(scope["conversation"]),
        text(scope.get("collection"), ""),
    )


def _citation(citation: Record) -> Citation:
    ask = citation.get
    return Citation(
        kind=one_of(citation["kind"], CITATION_KINDS),
        ref=text(citation["ref"]),
        title=optional_text(ask("title")),
        locator=_locator(record(locator)) if (locator := ask("locator")) else _NO_LOCATOR,
        scope=_scope(record(scope)) if (scope := ask("scope")) else None,
        observed_at=_maybe_time(ask("observed_at")),
        trust=_TRUSTS[str(citation["trust"])],
        freshness=None if (freshness := ask("freshness")) is None else one_of(freshness, FRESHNESS),
        variant=optional_text(ask("variant")),
        index_version=optional_text(ask("index_version")),
    )


def _named(key: Json) -> str:
    """Return which field or word was not known; a word from a record is shown only when it is short."""
    text = str(key)
    return f"{text[:40]!r} is missing or is not a known word; compare one line of an export"
