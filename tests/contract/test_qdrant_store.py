"""What only the Qdrant store has: a folder others may hold, a server that may be away, collections of somebody else."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import disk
import pytest

from memory_anchor.adapters.qdrant_link import Access, QdrantLink
from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.domain.errors import (
    ChangedMeanwhile,
    DiskFull,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    WrongEmbedder,
)
from memory_anchor.domain.model import Layer, Memory, MemoryType, Receipt, Scope
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry
from memory_anchor.domain.where import Where

FACTS = "verified_fact"
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def memory(name: str, content: str = "text") -> Memory:
    return Memory(name, content, Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)


def opened(path: Path, spec: CollectionSpec = SPEC) -> QdrantStore:
    store = QdrantStore(path=str(path))
    store.open_collection(FACTS, spec)
    return store


def test_a_folder_keeps_memories_and_who_made_their_vectors(tmp_path: Path) -> None:
    """Embedder identity: it lies with the collection, not with the program."""
    with closing(opened(tmp_path)) as store:
        store.put(FACTS, [Entry(memory("one"))])
    with closing(opened(tmp_path)) as store:
        assert store.find(FACTS, Where(), limit=5) == [memory("one")]
    with closing(QdrantStore(path=str(tmp_path))) as store, pytest.raises(WrongEmbedder, match="memory-anchor reindex"):
        store.open_collection(FACTS, CollectionSpec({DENSE: EmbedderIdentity("other", 4)}))


def test_a_folder_in_use_is_busy(tmp_path: Path) -> None:
    """Store: a second one is refused and nothing is harmed."""
    with closing(opened(tmp_path)) as store:
        with pytest.raises(StoreBusy, match="nothing was changed"):
            QdrantStore(path=str(tmp_path))
        store.put(FACTS, [Entry(memory("one"))])
        assert store.count(FACTS, Where()) == 1


def test_a_newer_schema_and_a_strangers_collection_are_left_alone(tmp_path: Path) -> None:
    """Schema version: an older program never touches what a newer one, or somebody else, made."""
    newer = CollectionSpec(SPEC.embedders, schema_version=2)
    with closing(opened(tmp_path / "newer", newer)) as store, pytest.raises(StoreDamaged, match="newer memory-anchor"):
        store.open_collection(FACTS, SPEC)
    from qdrant_client import QdrantClient, models

    with closing(QdrantClient(path=str(tmp_path / "strange"))) as client:
        client.create_collection(FACTS, models.VectorParams(size=4, distance=models.Distance.COSINE))
    with pytest.raises(StoreDamaged, match="was not made by memory-anchor"):
        opened(tmp_path / "strange")


def test_erased_text_is_in_no_file_of_the_folder(tmp_path: Path) -> None:
    """Purge: the database is rewritten."""
    with closing(opened(tmp_path)) as store:
        store.put(FACTS, [Entry(memory("one", "unforgettable-marker")), Entry(memory("two"))])
        store.erase(FACTS, [memory("one").point_id])
        assert store.find(FACTS, Where(), limit=5) == [memory("two")]
    assert disk.holding(tmp_path, "unforgettable-marker") == []
    with closing(sqlite3.connect(tmp_path / "collection" / FACTS / "storage.sqlite")) as database:
        assert database.execute("select count(*) from points").fetchone() == (1,)


def test_a_server_that_is_away_is_unavailable() -> None:
    """Store failure: one sentence with the address and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses at once
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with closing(QdrantStore(url=url)) as store, pytest.raises(Unavailable, match=f"{url} does not answer"):
            store.open_collection(FACTS, SPEC)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Store failure: closed is not damaged."""
    store = opened(tmp_path)
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.count(FACTS, Where())


@pytest.mark.parametrize(
    ("status", "ours"), [(401, Refused), (403, Refused), (404, StoreDamaged), (507, DiskFull), (500, Unavailable)]
)
def test_each_answer_of_a_server_is_one_of_our_errors(status: int, ours: type[Exception]) -> None:
    """HTTP status -> our error, without the server's wording."""
    with closing(QdrantLink(Access(("http://127.0.0.1:1",)))) as link:
        error = link.error_of_status(status, b"secret")
    assert type(error) is ours and f"HTTP {status}" in str(error) and "secret" not in str(error)


def test_a_batch_that_lost_a_part_is_put_back(tmp_path: Path) -> None:
    """Several engines: changed between our look and our write, in one memory of two; nobody sees a half."""
    with closing(opened(tmp_path)) as store:
        store.put(FACTS, [Entry(memory("one")), Entry(memory("two"))])
        read = {each.id: each for each in store.find(FACTS, Where(), limit=9)}
        batch = [
            Entry(version)
            for old in read.values()
            for version in (replace(old, version=2, content="ours"), old.closed(NOON))
        ]
        look = store._records

        def overtaken(collection: str, points: list[str]) -> dict[str, Any]:
            seen = look(collection, points)
            store._records = look
            store.put(FACTS, [Entry(replace(read["two"], receipts=(Receipt("k", "f", {}),)))])
            return seen

        store._records = overtaken
        with pytest.raises(ChangedMeanwhile, match="'two'"):
            store.put(FACTS, batch)

        stored = store.find(FACTS, Where(), limit=9)
        assert sorted((m.id, m.version, m.is_current) for m in stored) == [("one", 1, True), ("two", 1, True)]
        store.put(FACTS, [Entry(v) for v in (replace(read["one"], version=2), read["one"].closed(NOON))])


def test_it_is_a_server_or_a_folder() -> None:
    """Settings: not both, not neither."""
    for arguments in ({}, {"url": "http://localhost:1", "path": ":memory:"}):
        with pytest.raises(ValueError, match="a url or a path"):
            QdrantStore(**arguments)
