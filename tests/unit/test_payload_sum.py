"""A field that is not as it was written is never served: every stored payload carries a sum over all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memory_anchor.adapters.payload import CHECKSUM, NOT_IN_CHECKSUM, _checksum, checksum_matches, to_payload
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Citation, Layer, Memory, MemoryType, Receipt, Scope, Tag, Visibility
from memory_anchor.runtime.salvage import _memory

FACTS = "verified_fact"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEXT = "The ferry leaves at nine"


def memory() -> Memory:
    return Memory(
        "m1",
        TEXT,
        Layer.VERIFIED_FACT,
        MemoryType.FACT,
        Scope(project="p", agent="a"),
        NOON,
        NOON,
        key="ferry",
        tags=(Tag("port", 0.5),),
        visibility=Visibility.AGENT,
        importance=1.0,
        citations=(Citation("file", "a.md"),),
        questions=("when?",),
        gap={"why": 1.0, "了": [1, None]},
        receipts=(Receipt("k", "f", {"id": "m1"}),),
        author="agent:a",
        content_hash=content_hash(TEXT),
    )


def other(value: Any) -> Any:
    return value + "x" if isinstance(value, str) else value + 1 if isinstance(value, int | float) else [value]


def test_a_salvage_takes_no_text_that_is_not_the_one_that_was_written() -> None:
    """Attack N5 (mutation): versions of 0.1.0 carry no sum; their text is held against its hash."""
    payload = {name: value for name, value in to_payload(memory()).items() if name != CHECKSUM}
    assert _memory(memory().point_id, payload) == memory()
    assert _memory(memory().point_id, {**payload, "content": "The ferry leaves at ten"}) is None


@pytest.mark.parametrize("name", sorted(set(to_payload(memory())) - NOT_IN_CHECKSUM))
def test_a_change_of_any_field_shows(name: str) -> None:
    """Attack N5: each field that a payload has is under the sum."""
    payload = {**to_payload(memory()), CHECKSUM: _checksum(to_payload(memory()))}

    assert checksum_matches(payload)
    assert not checksum_matches({**payload, name: other(payload[name])})
    assert not checksum_matches({key: value for key, value in payload.items() if key != name})
