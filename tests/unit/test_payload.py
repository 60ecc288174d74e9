"""A memory as one flat JSON object: nothing is lost, and filtered fields are top-level keys."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.adapters.payload import from_payload, to_payload, usage_payload
from memory_anchor.domain import model
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import FOREVER, Layer, Memory, MemoryType, Receipt, Scope, Tag, Usage
from memory_anchor.domain.where import INDEXED_FIELDS

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "bool": st.booleans(),
    "int": st.integers(0, 10**6),
    "float": st.floats(-10_000, 10_000),
    "datetime": st.datetimes(datetime(1900, 1, 1), datetime(9990, 1, 1), timezones=st.just(UTC)),
    "Mapping[str, Json]": st.dictionaries(TEXT, JSON, max_size=2),
}


def of_type(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for the type of a field, as `model` writes it."""
    if name.endswith(" | None"):
        return st.none() | of_type(name.removesuffix(" | None"))
    if several := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", name):
        return st.lists(of_type(several[1]), max_size=3).map(tuple)
    if name in OF_TYPE:
        return OF_TYPE[name]
    named = getattr(model, name)
    if words := get_args(named):
        return st.sampled_from(words)
    if issubclass(named, Enum):
        return st.sampled_from(named)
    return st.builds(named, **{field.name: of_type(str(field.type)) for field in fields(named) if field.compare})


MEMORY = of_type("Memory")


def plain(**changes: Any) -> Memory:
    now = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
    return Memory("m1", "内容", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), now, now, **changes)


@given(MEMORY)
def test_every_memory_survives_the_payload_and_json(memory: Memory) -> None:
    """Export and import are identical, for every field that `Memory` has."""
    assert from_payload(to_payload(memory)) == memory
    assert from_payload(json.loads(json.dumps(to_payload(memory), ensure_ascii=False))) == memory


@given(MEMORY, st.booleans())
def test_its_json_text_is_read_to_the_same_memory(memory: Memory, escaped: bool) -> None:
    """What a database keeps: no number changes its kind on the way, or a version would have another hash elsewhere."""
    encoded = json.dumps(to_payload(memory), ensure_ascii=escaped)

    assert (
        from_payload(encoded) == memory
        and json.dumps(to_payload(from_payload(encoded)), ensure_ascii=escaped) == encoded
    )


@pytest.mark.parametrize("gap", [{"half": "\ud800"}, {"deep": json.loads("[" * 300 + "]" * 300)}, {"none": None}])
def test_a_text_that_the_quick_parser_does_not_take_is_read_all_the_same(gap: dict[str, Any]) -> None:
    """Half a character, great depth: as an earlier release wrote it."""
    memory = plain(gap=gap)

    assert from_payload(json.dumps(to_payload(memory))) == memory
    with pytest.raises(BadInput, match="'layer' is 'basement'"):
        from_payload(json.dumps(to_payload(memory) | {"layer": "basement"}))


def test_every_filtered_field_is_a_top_level_key() -> None:
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
    ("change", "message"),
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
def test_a_record_that_is_not_a_memory_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    """Import: bad input is named, and nothing crashes."""
    with pytest.raises(BadInput, match=message):
        from_payload(to_payload(plain()) | change)


def test_a_missing_field_is_named() -> None:
    """Import: the sentence names the field."""
    payload = to_payload(plain())
    del payload["content"]
    with pytest.raises(BadInput, match="'content' is missing"):
        from_payload(payload)


@given(MEMORY)
def test_null_in_an_imported_record_counts_as_left_out(memory: Memory) -> None:
    """Import: other programs write each field of a record, with null where there is nothing."""
    payload = to_payload(memory)
    for citation in payload.get("citations", ()):
        for name in ("title", "locator", "scope", "observed_at", "freshness", "variant", "index_version"):
            citation.setdefault(name, None)

    assert from_payload({**{field.name: None for field in fields(Memory)}, **payload}) == memory
