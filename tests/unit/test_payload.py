"""A memory as one flat JSON object: nothing is lost, and what is filtered lies flat."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.adapters.payload import from_payload, to_payload, usage_payload
from memory_anchor.errors import BadInput
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
from memory_anchor.where import INDEXED_FIELDS

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NAME = TEXT.filter(bool)
SHARE = st.floats(0, 1)
INSTANT = st.datetimes(datetime(1900, 1, 1), datetime(9990, 1, 1), timezones=st.just(UTC))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
MAPPING = st.dictionaries(TEXT, JSON, max_size=2)


def some(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def several(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, max_size=3).map(tuple)


SCOPE = st.builds(Scope, TEXT, TEXT, TEXT, TEXT, TEXT)
LINE = st.integers(0, 10**6)
CITATION = st.builds(
    Citation,
    kind=st.sampled_from(get_args(CitationKind)),
    ref=TEXT,
    title=some(TEXT),
    locator=st.builds(Locator, some(LINE), some(LINE), some(TEXT), some(LINE)),
    scope=some(SCOPE),
    observed_at=some(INSTANT),
    trust=st.sampled_from(Trust),
    freshness=some(st.sampled_from(get_args(Freshness))),
    variant=some(TEXT),
    index_version=some(TEXT),
)
MEMORY_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": NAME,
    "content": NAME,
    "layer": st.sampled_from(Layer),
    "type": st.sampled_from(MemoryType),
    "scope": SCOPE,
    "recorded_at": INSTANT,
    "valid_from": INSTANT,
    "key": TEXT,
    "tags": several(st.builds(Tag, NAME, SHARE)),
    "priority": st.floats(0, 200),
    "importance": SHARE,
    "confidence": SHARE,
    "sentiment": some(st.floats(-1, 1)),
    "origin": st.sampled_from(Origin),
    "write_mode": st.sampled_from(WriteMode),
    "extractor_model": some(TEXT),
    "visibility": st.sampled_from(Visibility),
    "status": st.sampled_from(Status),
    "pinned": st.booleans(),
    "epistemic": some(st.sampled_from(Epistemic)),
    "version": st.integers(1, 10**6),
    "previous_version_id": some(TEXT),
    "valid_to": some(INSTANT),
    "recorded_to": some(INSTANT),
    "conversation_seq": some(LINE),
    "half_life_days": some(st.floats(0.1, 10_000)),
    "first_recorded_at": some(INSTANT),
    "content_at": some(INSTANT),
    "corroborated_at": some(INSTANT),
    "citations": several(CITATION),
    "when": some(INSTANT),
    "where": some(TEXT),
    "who": several(TEXT),
    "ttl_days": some(LINE),
    "expires_at": some(INSTANT),
    "promoted_to": some(TEXT),
    "context": TEXT,
    "questions": several(TEXT),
    "content_hash": TEXT,
    "author": TEXT,
    "reason": TEXT,
    "written_in": TEXT,
    "disputes": several(TEXT),
    "gap": some(MAPPING),
    "is_current": st.booleans(),
    "usage": st.builds(Usage, LINE, LINE, some(INSTANT), several(INSTANT)),
    "receipts": several(st.builds(Receipt, TEXT, TEXT, MAPPING)),
}
MEMORY = st.builds(Memory, **MEMORY_FIELDS)


def plain(**changes: Any) -> Memory:
    now = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
    return Memory("m1", "内容", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), now, now, **changes)


@given(MEMORY)
def test_every_memory_survives_the_payload_and_json(memory: Memory) -> None:
    """Export and import are identical, for every field."""
    assert from_payload(to_payload(memory)) == memory
    assert from_payload(json.loads(json.dumps(to_payload(memory), ensure_ascii=False))) == memory


def test_the_property_speaks_of_every_field() -> None:
    """A new field of `Memory` must be generated above, or its loss would go unseen."""
    assert MEMORY_FIELDS.keys() == {field.name for field in fields(Memory) if field.compare}


def test_every_filtered_field_lies_flat() -> None:
    """`where.INDEXED_FIELDS`: each is a key of a payload that uses it, with its kind of value."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    memory = plain(
        tags=(Tag("a"), Tag("b", 0.5)),
        who=("x",),
        where="src",
        when=now,
        expires_at=now,
        conversation_seq=3,
        written_in="c1",
        usage=Usage(1, 0, now, (now,)),
        receipts=(Receipt("k", "f", {}),),
    )
    payload = to_payload(memory)
    for name, kind in INDEXED_FIELDS.items():
        value = payload[name]
        for each in value if isinstance(value, list) else [value]:
            match kind:
                case "keyword":
                    assert isinstance(each, str)
                case "datetime":
                    assert datetime.fromisoformat(each).tzinfo is not None
                case _:
                    assert isinstance(each, int | float) and not isinstance(each, bool)
    assert (payload["tag"], payload["pinned"], payload["request_keys"]) == (["a", "b"], "no", ["k"])
    assert payload["audience"] == memory.audience


def test_open_ends_are_for_ever_and_the_state_of_an_old_version_is_history() -> None:
    """Two times: ranges can be pushed down because an open end is an instant; `state` decides liveness."""
    payload = to_payload(plain())
    assert payload["valid_to"] == payload["recorded_to"] == FOREVER.isoformat()
    closed = plain().closed(datetime(2026, 4, 1, tzinfo=UTC))
    assert (to_payload(closed)["state"], to_payload(closed)["status"]) == ("history", "active")
    assert from_payload(to_payload(closed)) == closed


def test_a_small_memory_is_a_small_payload() -> None:
    """What holds its default is left out."""
    payload = to_payload(plain())
    assert not {"tag", "usage", "receipts", "gap", "citations", "where", "who", "last_at", "key"} & payload.keys()
    assert len(json.dumps(payload)) < 1_000


def test_times_are_stored_in_utc() -> None:
    """An instant in another zone is the same instant."""
    moment = datetime(2026, 3, 1, 20, 0, tzinfo=timezone(timedelta(hours=8)))
    payload = to_payload(plain(when=moment))
    assert payload["when"] == "2026-03-01T12:00:00+00:00"
    assert from_payload(payload).when == moment


def test_unused_again_leaves_nothing_of_the_old_usage() -> None:
    """A usage payload replaces the last one whole."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    payload = to_payload(plain(usage=Usage(2, 1, now, (now,))))
    payload.update(usage_payload(Usage()))
    assert from_payload(payload) == plain()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"layer": "basement"}, "'layer' is 'basement'"),
        ({"status": None}, "'status'"),
        ({"recorded_at": "yesterday"}, "wrong kind"),
        ({"recorded_at": "2026-01-01T00:00:00"}, "wrong kind"),
        ({"tag": 3}, "wrong kind"),
        ({"citations": ["a"]}, "wrong kind"),
        ({"citations": [{"kind": "file"}]}, "'citations.0.ref' is missing"),
        ({"citations": [{"kind": "file", "ref": "a", "trust": "agent", "locator": {"page": "3"}}]}, "whole number"),
        ({"version": True}, "'version'"),
        ({"priority": "50"}, "'priority' has the wrong kind"),
        ({"content": 7}, "'content'"),
        ({"version": "1"}, "'version'"),
    ],
)
def test_a_record_that_is_not_a_memory_is_refused_in_one_sentence(change: dict[str, Any], said: str) -> None:
    """Import: bad input is named, and nothing crashes."""
    with pytest.raises(BadInput, match=said):
        from_payload(to_payload(plain()) | change)


def test_a_missing_field_is_named() -> None:
    """Import: the sentence names the field."""
    payload = to_payload(plain())
    del payload["content"]
    with pytest.raises(BadInput, match="'content' is missing"):
        from_payload(payload)


@given(MEMORY)
def test_null_in_an_imported_record_is_not_given(memory: Memory) -> None:
    """Import: other programs write each field of a record, with null where there is nothing."""
    payload = to_payload(memory)
    left_out: dict[str, Any] = {name: None for name in MEMORY_FIELDS if name not in payload}
    for cited in payload.get("citations", ()):
        for name in ("title", "locator", "scope", "observed_at", "freshness", "variant", "index_version"):
            cited.setdefault(name, None)

    assert from_payload({**left_out, **payload}) == memory
