"""A field that is not as it was written is never served: every stored payload carries a sum over all of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.adapters.payload import CHECKSUM, NOT_IN_CHECKSUM, checksum_matches, to_payload, with_checksum
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.model import Citation, Layer, Memory, MemoryType, Receipt, Scope, Tag, Usage, Visibility
from memory_anchor.domain.ports import CollectionSpec, Entry
from memory_anchor.domain.where import Where
from memory_anchor.runtime.lock import DirectoryLock
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


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EdgeStore]:
    with DirectoryLock.acquire(tmp_path, role="test") as lock, closing(EdgeStore(tmp_path / "s", lock=lock)) as made:
        made.open_collection(FACTS, CollectionSpec({}))
        made.put(FACTS, [Entry(memory())])
        yield made


def altered(store: EdgeStore, change: dict[str, Any]) -> None:
    import qdrant_edge as edge

    target = store._collections[FACTS]
    target.write(edge.UpdateOperation.set_payload([memory().point_id], change), points=1)


def other(value: Any) -> Any:
    return value + "x" if isinstance(value, str) else value + 1 if isinstance(value, int | float) else [value]


def test_a_salvage_takes_no_text_that_is_not_the_one_that_was_written() -> None:
    """Attack N5 (mutation): versions of 0.1.0 carry no sum; their text is held against its hash."""
    payload = {name: value for name, value in to_payload(memory()).items() if name != CHECKSUM}
    version = CollectionSpec({}).schema_version

    assert _memory(memory().point_id, payload, version) == memory()
    assert _memory(memory().point_id, {**payload, "content": "The ferry leaves at ten"}, version) is None


@pytest.mark.parametrize("name", sorted(set(to_payload(memory())) - NOT_IN_CHECKSUM))
def test_a_change_of_any_field_shows(name: str) -> None:
    """Attack N5: each field that a payload has is under the sum."""
    payload = with_checksum(to_payload(memory()))

    assert checksum_matches(payload)
    assert not checksum_matches({**payload, name: other(payload[name])})
    assert not checksum_matches({key: value for key, value in payload.items() if key != name})


@pytest.mark.parametrize(
    "change",
    [
        {"audience": "u|default||", "visibility": "user"},
        {"valid_to": "2027-01-01T00:00:00+00:00"},
        {"importance": 2.0},
        {CHECKSUM: 1},
    ],
)
def test_the_store_names_the_version_and_serves_nothing(store: EdgeStore, change: dict[str, Any]) -> None:
    """Attack N5: a field that still decodes but is not the one that was written is damage, read by id or by scan."""
    altered(store, change)

    for read in (lambda: store.get(FACTS, [memory().point_id]), lambda: store.scan(FACTS, Where())):
        with pytest.raises(StoreDamaged, match="m1"):
            read()


def test_use_leaves_it_whole(store: EdgeStore) -> None:
    """Attack N5: what is set without the rest is outside the sum, and the engine gives back what it was given."""
    store.set_usage(FACTS, {memory().point_id: Usage(3, 1, NOON, (NOON,))})
    store.flush()

    (entry,) = store.get(FACTS, [memory().point_id])

    assert replace(entry.memory, usage=Usage()) == memory() and entry.memory.usage.count == 3


def test_a_number_of_seventeen_digits_is_no_damage(store: EdgeStore) -> None:
    """Rule sum.numbers: the engine's last digit of a fraction is its own; a changed one before it is damage."""
    share = 0.36692130885349883
    odd = replace(memory(), id="m2", importance=share, gap={"sizes": [0.9144442328042213 / 3]})
    store.put(FACTS, [Entry(odd)])

    [entry] = store.get(FACTS, [odd.point_id])

    assert entry.memory.importance == pytest.approx(share, rel=1e-15)
    written = with_checksum(to_payload(odd))
    assert checksum_matches(written)
    assert not checksum_matches({**written, "importance": share + 1e-9})
    exact = {**to_payload(odd), CHECKSUM: zlib.crc32(json.dumps(to_payload(odd), sort_keys=True).encode())}
    assert checksum_matches(exact), "sums of before counted every digit"
