"""Moving to another store and back: the same memories, whatever interrupts it, and never onto somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stores import file_store

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.dict_store import DictStore
from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.admin import rebuild
from memory_anchor.admin.rebuild import Migration, StoreSums, plan_copy
from memory_anchor.domain.errors import BadInput, Refused, StoreBusy
from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, MemoryType, Receipt, Scope, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry, MemoryStore, SparseVector
from memory_anchor.domain.where import Where
from memory_anchor.front.cli import keep
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.sql_store import SqlStore

TINY = EmbedderIdentity("tiny", 8)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MANY, KILLS = 60, 10


def filled(store: MemoryStore) -> None:
    """Memories with histories, uses, answers, words; every fourth without a vector yet."""
    rng = np.random.default_rng(3)
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({DENSE: TINY}))
    entries = []
    for number in range(MANY):
        row = rng.normal(size=8).astype(np.float32)
        first = Memory(f"m{number}", f"第 {number} 条 😀", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)
        second = replace(first, version=2, content=f"text {number}", receipts=(Receipt("k", "f", {"id": "x"}),))
        second = replace(second, usage=Usage(number, 1, NOON, (NOON,)), recorded_at=NOON + timedelta(days=1))
        rows = {DENSE: row / np.linalg.norm(row)} if number % 4 else {}
        words = SparseVector((number + 1, 900), (1.0, 0.5))
        entries += [Entry(first.closed(second.recorded_at), rows, words), Entry(second, rows, words)]
    store.put("verified_fact", entries)


def whole(store: MemoryStore) -> list[Any]:
    page, after = store.scan("verified_fact", Where(), page=10 * MANY, with_vectors=True)
    assert after is None
    return [(to_payload(e.memory), e.words, {k: row.round(3).tolist() for k, row in e.vectors.items()}) for e in page]


def moved(source: MemoryStore, target: MemoryStore, folder: Path, who: EmbedderIdentity = TINY) -> Migration:
    return Migration(source, target, names=("here", "there"), embedders={DENSE: who}, state_dir=folder)


def compared(run: Migration) -> dict[str, tuple[StoreSums, StoreSums]]:
    return {one[0]: one[1:] for one in run.compare() if isinstance(one, tuple)}


@contextmanager
def database(folder: Path) -> Iterator[SqlStore]:
    with closing(file_store(folder)) as store:
        yield store


@contextmanager
def plain(_: Path) -> Iterator[DictStore]:
    yield DictStore()


@pytest.mark.parametrize("kind", [plain, pytest.param(database, marks=pytest.mark.slow)])
def test_there_and_back_is_the_same_though_cut_off_at_ten_points(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrate: to qdrant and back it is equal by count, content, history, words and vectors; each run goes on."""
    monkeypatch.setattr(rebuild, "COPIED_AT_ONCE", 7)
    with kind(tmp_path / "a") as first, closing(QdrantStore(path=":memory:")) as middle, kind(tmp_path / "b") as last:
        filled(first)
        for source, target in ((first, middle), (middle, last)):
            state = tmp_path / target.kind
            for cut in range(KILLS):
                put = target.put

                def dying(collection: str, entries: list[Entry], put: Any = put, at: int = cut % 2) -> None:
                    if at:  # written, and dead before it was noted
                        put(collection, entries)
                    raise KeyboardInterrupt

                run = moved(source, target, state)
                steps = run.copy()
                next(steps, None)
                monkeypatch.setattr(target, "put", dying)
                with pytest.raises(KeyboardInterrupt):
                    list(steps)
                monkeypatch.undo()
                monkeypatch.setattr(rebuild, "COPIED_AT_ONCE", 7)
            run = moved(source, target, state)
            plan = plan_copy(source, target, names=("here", "there"), embedders={DENSE: TINY}, state_dir=state)
            assert run.is_resumed and plan["verified_fact"]["copied"] >= KILLS * 7 - 7
            list(run.copy())
            sums = compared(run)
            assert all(one.same_memories(other) for one, other in sums.values())
            assert sums["verified_fact"][1].versions == 2 * MANY
            assert sums["verified_fact"][1].embedded == {DENSE: 2 * (MANY - MANY // 4)}
            run.finish()
        assert whole(last) == whole(first)


def test_a_difference_of_one_use_is_seen() -> None:
    """Migrate: the history's sum covers use and receipts, the content's what is current."""
    one, other = DictStore(), DictStore()
    filled(one)
    filled(other)
    name = next(m.point_id for m in other.find("verified_fact", Where(), limit=1))
    other.set_usage("verified_fact", {name: Usage(count=77)})
    sums = []
    for store in (one, other):
        sums.append(StoreSums())
        list(rebuild._sum_up(store, "verified_fact", sums[-1]))
    assert sums[0].current == sums[1].current and not sums[0].same_memories(sums[1])


def test_vectors_of_another_embedder_are_left_to_be_made_anew(tmp_path: Path) -> None:
    """Migrate: carried where the embedder is the same, never passed off as another's."""
    source, target = DictStore(), DictStore()
    filled(source)
    run = moved(source, target, tmp_path, EmbedderIdentity("wider", 16))
    list(run.copy())
    sums = compared(run)["verified_fact"]
    assert sums[0].same_memories(sums[1]) and sums[1].embedded == {DENSE: 0}


def test_a_target_with_memories_and_another_migration_are_refused(tmp_path: Path) -> None:
    """Migrate: nothing is mixed with what is there; one sentence with the cure."""
    source, target = DictStore(), DictStore()
    filled(source)
    filled(target)
    with pytest.raises(Refused, match=r"there holds 120 versions in verified_fact already and nothing was changed"):
        moved(source, target, tmp_path)
    empty = DictStore()
    next(moved(source, empty, tmp_path).copy())
    with pytest.raises(Refused, match=r"from here to there was cut off.*run that one again.*migrate.json"):
        Migration(source, empty, names=("here", "else"), embedders={}, state_dir=tmp_path)


def never() -> Any:
    raise Refused("no terminal")


def test_the_command_asks_a_human_and_a_dry_run_copies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights: everything leaves through it. Settings and audit follow; the old store stays."""
    home, here, there = tmp_path / "home", tmp_path / "here", tmp_path / "there"
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.setenv("MEMORY_ANCHOR_STORE__KIND", "qdrant")
    monkeypatch.setenv("MEMORY_ANCHOR_STORE__PATH", str(here))
    with closing(QdrantStore(path=str(here))) as store:
        filled(store)
    home.mkdir(exist_ok=True)

    def run(to: str, dry: bool = False, human: Any = lambda: None, source: str = "") -> dict[str, Any]:
        return keep.migrate_store(home, to=to, source=source, dry=dry, human=human, tick=lambda *_: None)

    with pytest.raises(Refused, match="no terminal"):
        run(str(there), human=never)
    assert run(str(there), dry=True, human=never)["collections"]["verified_fact"] == {
        "versions": 2 * MANY,
        "vectors": {DENSE: 90},
        "copied": 0,
    }
    assert not there.exists()
    with closing(QdrantStore(path=str(tmp_path / "empty"))) as empty:
        assert empty.peek("verified_fact") is None
    run(str(tmp_path / "empty"), dry=True, human=never)
    with closing(QdrantStore(path=str(tmp_path / "empty"))) as empty:
        assert empty.peek("verified_fact") is None, "a dry run made a collection"
    run("edge", dry=True, human=never)
    assert not (home / "store").exists()
    told = run(str(there))
    assert told["collections"]["verified_fact"]["versions"] == 2 * MANY
    assert told["set"] == f"store.kind=qdrant, store.path={there}"
    assert not (home / "jobs" / "migrate.json").exists()
    record = json.loads((home / "audit" / "audit.jsonl").read_text().splitlines()[-1])
    assert record["kind"] == "store.migrated" and record["what"]["versions"]["verified_fact"] == 2 * MANY
    for to, source, error, words in (
        (str(there), "", Refused, "holds 120 versions"),
        (str(here), "", Refused, "already; nothing to migrate"),
        (str(here), str(there), Refused, "holds 120 versions"),
        ("ftp://u:secret@host", "", BadInput, "--to is 'host'"),
    ):
        with pytest.raises(error, match=words) as refused:
            run(to, source=source)
        assert "secret" not in str(refused.value)
    with DirectoryLock.acquire(home, role="test"), pytest.raises(StoreBusy):
        run(str(tmp_path / "third"))


def test_the_trail_goes_with_the_memories_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate: rows become the file beside a Qdrant store, and its lines rows again; the chain holds."""
    home, there = tmp_path / "home", tmp_path / "there"
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    with DirectoryLock.acquire(home, role="test") as lock, closing(open_store(Settings(), home, lock)) as store:
        filled(store)
        rows = SqlAudit(store.database)
        for number in range(3):
            rows.append("noted", {"number": number}, by="human:alice", at=NOON)
        lines = b"".join(rows.lines())

    def run(to: str, source: str) -> None:
        keep.migrate_store(home, to=to, source=source, dry=False, human=lambda: None, tick=lambda *_: None)

    run(str(there), "edge")
    file = JsonlAudit(home / "audit" / "audit.jsonl")
    there_and = b"".join(raw for raw, _ in file.lines())
    assert there_and.startswith(lines) and file.verify() is None
    assert [record["kind"] for record in file.records()] == ["noted"] * 3 + ["store.migrated"]
    assert (home / "store" / "memory.db").exists(), "the old store stays as it was"

    (home / "store").rename(home / "before")
    run("edge", str(there))
    with DirectoryLock.acquire(home, role="test") as lock, closing(open_store(Settings(), home, lock)) as store:
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({}))
        rows = SqlAudit(store.database)
        assert b"".join(rows.lines()).startswith(there_and) and rows.verify() is None
        assert [record["kind"] for record in rows.records()] == ["noted"] * 3 + ["store.migrated"] * 2
        assert len(whole(store)) == 2 * MANY
    assert not list(home.glob("replaced-*"))
