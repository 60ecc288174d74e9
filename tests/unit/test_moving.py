"""What an earlier release kept on a Qdrant server goes into the database: whole or not at all, and never mixed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import oldserver
import pytest
from qdrant_client import QdrantClient

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.qdrant_index import QdrantIndex
from memory_anchor.domain.errors import BadInput, Refused, StoreBusy, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, MemoryType, Receipt, Scope, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry, SparseVector
from memory_anchor.domain.where import Where
from memory_anchor.front.cli import keep
from memory_anchor.process.app import open_store, settings_of
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.store.audit_rows import LocalTrail, SqlAudit
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import human_of

FACTS = "verified_fact"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MANY = 60


def entries() -> list[Entry]:
    """Memories with histories, uses, answers, words; every fourth without a vector yet."""
    rng = np.random.default_rng(3)
    made = []
    for number in range(MANY):
        row = rng.normal(size=8).astype(np.float32)
        first = Memory(f"m{number}", f"第 {number} 条 😀", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)
        second = replace(first, version=2, content=f"text {number}", receipts=(Receipt("k", "f", {"id": "x"}),))
        second = replace(second, usage=Usage(number, 1, NOON, (NOON,)), recorded_at=NOON + timedelta(days=1))
        rows = {DENSE: row / np.linalg.norm(row)} if number % 4 else {}
        words = SparseVector((number + 1, 900), (11 / 7, 1 / 3))
        made += [Entry(first.closed(second.recorded_at), rows, words), Entry(second, rows, words)]
    return made


class Desk:
    """A data directory, and a server's folder beside it that its settings name as the index."""

    def __init__(self, folder: Path) -> None:
        self.home, self.server = folder / "home", folder / "server"
        self.home.mkdir(exist_ok=True)
        self.human = human_of(self.home)

    def move(self, source: str = "", *, dry: bool = False, human: Callable[[], Any] | None = None) -> dict[str, Any]:
        asks = human or (lambda: self.human)
        return keep.migrate_store(self.home, source=source, dry=dry, human=asks, tick=lambda *_: None)

    def whole(self) -> list[Any]:
        """Return every version of the facts in the database."""
        with self.opened({}) as store:
            return shown(store.scan(FACTS, Where(), page=10 * MANY, with_vectors=True)[0])

    @contextmanager
    def opened(self, env: Mapping[str, str]) -> Iterator[SqlStore]:
        lock = DirectoryLock.acquire(self.home, role="test")
        with lock, closing(open_store(settings_of(env), self.home, lock)) as store:
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({DENSE: oldserver.TINY} if env else {}))
            yield store


def shown(page: list[Entry]) -> list[Any]:
    return sorted(
        (str(to_payload(e.memory)), *weights(e.words), str({k: row.round(3).tolist() for k, row in e.vectors.items()}))
        for e in page
    )


def weights(words: SparseVector | None) -> list[str]:
    return [] if words is None else [f"{term} {weight:.5f}" for term, weight in zip(words.indices, words.values)]  # noqa: B905


def never() -> Any:
    raise Refused("no terminal")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name, value in (
        ("EMBEDDER__KIND", "none"),
        ("INDEX__KIND", "qdrant"),
        ("INDEX__PATH", str(tmp_path / "server")),
    ):
        monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", value)
    made = Desk(tmp_path)
    oldserver.leave(made.server, entries())
    return made


def test_every_version_with_its_history_use_words_and_vectors_is_in_the_database(desk: Desk) -> None:
    """Migrate: equal by count, content, history, words and vectors; the trail says who moved what."""
    told = desk.move()

    assert told["versions"][FACTS] == 2 * MANY and told["left"] == "index"
    assert desk.whole() == shown(entries())
    with closing(LocalTrail(desk.home)) as trail:
        (moved,) = [one for one in trail.records() if one["kind"] == "store.migrated"]
    assert moved["by"] == "human:alice" and moved["what"] == {"from": str(desk.server), "versions": told["versions"]}


def test_a_start_before_that_is_refused_and_names_the_command(desk: Desk) -> None:
    """No memory seems lost: an empty database in its place would."""
    for is_there in (False, True):
        if is_there:
            assert desk.whole() == []
        told = "go into a database first; stop every engine.*memory-anchor migrate"
        with pytest.raises(Refused, match=told), desk.opened(os.environ):
            pass
        assert (desk.home / "store" / "memory.db").exists() is is_there


def test_a_dry_run_copies_nothing_and_asks_nobody(desk: Desk) -> None:
    """Rights: everybody's memories move, so a human signs; looking needs none."""
    told = desk.move(dry=True, human=never)

    assert told["versions"][FACTS] == 2 * MANY
    with pytest.raises(Refused, match="no terminal"):
        desk.move(human=never)
    assert desk.whole() == []


def test_cut_off_in_the_middle_nothing_is_there_and_the_same_command_does_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrate: one transaction."""
    put, left = SqlStore.put, [2]
    monkeypatch.setattr("memory_anchor.admin.upgrade.COPIED_AT_ONCE", 25)

    def dying(store: SqlStore, collection: str, page: list[Entry]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        put(store, collection, page)

    monkeypatch.setattr(SqlStore, "put", dying)
    with pytest.raises(KeyboardInterrupt):
        desk.move()
    monkeypatch.setattr(SqlStore, "put", put)
    assert desk.whole() == []

    desk.move()

    assert desk.whole() == shown(entries())
    with pytest.raises(Refused, match="is an index already, made of a database; there is nothing to migrate"):
        desk.move()


def test_what_differs_on_both_sides_is_left_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate: a use that got lost on the way is seen."""
    put = SqlStore.put

    def forgetting(store: SqlStore, collection: str, page: list[Entry]) -> None:
        put(store, collection, [replace(one, memory=replace(one.memory, usage=Usage())) for one in page])

    monkeypatch.setattr(SqlStore, "put", forgetting)
    with pytest.raises(StoreDamaged, match=r"120 of 120 versions were read.*not the same; nothing was changed.*again"):
        desk.move()
    monkeypatch.setattr(SqlStore, "put", put)
    assert desk.whole() == []


def test_a_database_with_other_memories_takes_none(desk: Desk) -> None:
    """Migrate: nothing is mixed with what is there; one sentence with the cure."""
    with desk.opened({}) as store:
        store.put(FACTS, [Entry(replace(entries()[0].memory, id="another"))])

    with pytest.raises(Refused, match=r"holds memories already, and others than .*nothing was changed. Set data_dir"):
        desk.move()


def test_the_trail_and_the_counts_that_lay_as_files_are_rows_now(desk: Desk) -> None:
    """Migrate: the chain holds, and the files are kept aside."""
    trail = JsonlAudit(desk.home / "audit" / "audit.jsonl")
    for number in range(3):
        trail.append("noted", {"number": number}, by="human:ann", at=NOON)
    lines = b"".join(raw for raw, _ in trail.lines())
    (desk.home / "jobs.json").write_text('{"decay": {}}')

    desk.move()

    with desk.opened({}) as store:
        rows = SqlAudit(store.database)
        assert b"".join(rows.lines()).startswith(lines) and rows.verify() is None
        assert [one["kind"] for one in rows.records()] == ["noted"] * 3 + ["store.migrated"]
        kept = SqlRecords(store.database, lambda: NOON).read("jobs.json")
        assert kept is not None and kept.content == b'{"decay": {}}'
    assert not (desk.home / "audit").exists() and not (desk.home / "jobs.json").exists()
    assert {path.name for path in (desk.home / "replaced-1").iterdir()} == {"audit", "jobs.json"}


def test_once_moved_it_is_moved_though_the_database_has_gone_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate: killed before the server was handed over, and an engine wrote since: the same command ends it."""
    monkeypatch.setattr(QdrantIndex, "hand_over", lambda *_: never())
    with pytest.raises(Refused):
        desk.move()
    monkeypatch.undo()
    for name, value in (("EMBEDDER__KIND", "none"), ("INDEX__KIND", "qdrant"), ("INDEX__PATH", str(desk.server))):
        monkeypatch.setenv(f"MEMORY_ANCHOR_{name}", value)
    with desk.opened({}) as store:
        store.put(FACTS, [Entry(replace(entries()[0].memory, id="another"))])

    assert desk.move()["left"] == "index"


def test_a_second_trail_is_never_dropped(desk: Desk) -> None:
    """Migrate: the database has one of its own by now; a human decides."""
    with desk.opened({}) as store:
        SqlAudit(store.database).append("noted", {"number": 7}, by="human:ann", at=NOON)
    JsonlAudit(desk.home / "audit" / "audit.jsonl").append("noted", {"number": 1}, by="human:ann", at=NOON)

    with pytest.raises(Refused, match=r"has an audit trail already.*nothing was changed"):
        desk.move()

    assert (desk.home / "audit").exists() and desk.whole() == []


def test_what_is_no_index_leaves_the_server_when_it_is_handed_over(desk: Desk) -> None:
    """Purge x migrate: nothing would bring those collections after the database any more."""
    desk.move()

    with closing(QdrantClient(path=str(desk.server))) as client:
        assert {one.name for one in client.get_collections().collections} == {"event_log", FACTS}


def test_afterwards_the_collections_are_this_database_s_index_and_an_earlier_release_refuses_them(desk: Desk) -> None:
    """Two truths at once are worse than either: what the server holds is made of the database from now on."""
    desk.move()

    with desk.opened(os.environ) as store:
        assert store.beside is not None and store.beside.catch_up(), store.beside.state()
    with closing(QdrantClient(path=str(desk.server))) as client:
        told = (client.get_collection(FACTS).config.metadata or {})["memory_anchor"]
        assert told["schema_version"] > 1 and told["index_of"]
        assert client.count(FACTS).count == 2 * MANY


def test_what_it_cannot_do_is_said_in_one_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input: the value, what is allowed, never a key."""
    with pytest.raises(BadInput, match="--from is 'host'; allowed is qdrant://HOST:PORT") as refused:
        desk.move("ftp://u:secret@host")
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("MEMORY_ANCHOR_INDEX__KIND", "edge")
    with pytest.raises(BadInput, match=r"--from names no server, and index\.kind is 'edge'"):
        desk.move()
    with DirectoryLock.acquire(desk.home, role="test"), pytest.raises(StoreBusy):
        desk.move(str(desk.server))
