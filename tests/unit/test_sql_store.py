"""The store over SQLite: beyond the contract of every store, its file, its checksums, its counter and its failures."""

from __future__ import annotations

import random
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pgserver import Cluster
from reference_store import DictStore
from test_payload import MEMORY, plain
from threads import at_once

from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.system import SystemClock
from memory_anchor.admin import backup
from memory_anchor.domain.errors import DiskFull, MemoryAnchorError, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.domain.model import Actor, Caller, Memory, Scope, Tag, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry, SparseVector
from memory_anchor.domain.where import INDEXED_FIELDS, AnyOf, Between, Condition, OneOf, StartsWith, Where
from memory_anchor.front import doctor_store
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store import tables
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.postgresql import Postgresql, open_database
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ManualClock
from memory_anchor.upkeep.statistics import statistics

FACTS = "verified_fact"
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 4)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "purple elephants in the cellar"


def entry_of(name: str, content: str = "", **changes: Any) -> Entry:
    memory = replace(plain(), id=name, content=content or f"about {name}", **changes)
    row = np.random.default_rng(zlib.crc32(name.encode())).normal(size=4).astype(np.float32)
    return Entry(memory, {DENSE: row}, SparseVector((1, 7), (0.5, 2.0)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "memory.db"


@pytest.fixture
def database(path: Path) -> Iterator[Sqlite]:
    with closing(Sqlite(path)) as made:
        yield made


@pytest.fixture
def store(database: Sqlite) -> SqlStore:
    made = SqlStore(database)
    made.open_collection(FACTS, SPEC)
    return made


def opened(path: Path) -> SqlStore:
    store = SqlStore(Sqlite(path))
    store.open_collection(FACTS, SPEC)
    return store


# --- how it is found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", [None, Scope()])
def test_statistics_count_in_indexes_also_in_an_older_file(
    path: Path, reader: Scope | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs: of 100,000 versions none is read to be counted."""
    with closing(opened(path)) as store:
        store.put(FACTS, [entry_of(name, expires_at=NOON) for name in "abc"])
    with closing(sqlite3.connect(path)) as raw:  # as the file was before
        raw.execute("drop index by_record")
        raw.execute("create index latest on version(collection, recorded_at)")
    with closing(opened(path)) as store:
        rows, asked = store.database.rows, list[tuple[str, Any]]()
        monkeypatch.setattr(
            store.database, "rows", lambda sql, values=(): asked.append((sql, values)) or rows(sql, values)
        )

        assert statistics(store, NOON, reader=reader, unembedded=0).versions == 3

        plans = [rows(f"explain query plan {sql}", values) for sql, values in asked if "count(*)" in sql]
        read = [str(plan[0][3]) for plan in plans]
        assert len(read) > 8 and [plan for plan in read if "USING COVERING INDEX" not in plan] == []
        assert not rows("select 1 from sqlite_master where name = 'latest'")


@pytest.mark.parametrize("few", [2, 4])
def test_what_few_have_is_looked_up_and_what_many_have_is_sought(
    few: int, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs: of a tag that a hundredth has no index is read through to its end."""
    store.put(FACTS, [entry_of(name, tags=(Tag("ui"),)) for name in "abc"])
    rows, asked = store.database.rows, list[tuple[str, Any]]()
    monkeypatch.setattr(store.database, "rows", lambda sql, values=(): asked.append((sql, values)) or rows(sql, values))
    monkeypatch.setattr(tables, "FEW", few)

    assert len(store.find(FACTS, Where((OneOf("tag", ("ui",)),)), limit=5, order_by="recorded_at")) == 3

    sql, values = asked[-1]
    sought = [plan for *_, plan in rows(f"explain query plan {sql}", values) if "(collection=?" in str(plan)]
    assert bool(sought) is (few == 2)


# --- what is stored --------------------------------------------------------------------------------------------------


@given(st.lists(MEMORY, max_size=4, unique_by=lambda memory: memory.point_id))
def test_every_memory_survives_the_store(memories: list[Memory]) -> None:
    """Payload: whatever a memory holds; numbers to the last digit, times to the microsecond."""
    with closing(SqlStore(Sqlite(IN_MEMORY))) as store:
        store.open_collection(FACTS, SPEC)
        store.put(FACTS, [Entry(memory) for memory in memories])

        assert [each.memory for each in store.get(FACTS, [memory.point_id for memory in memories])] == memories
        assert {each.memory.point_id for each in store.scan(FACTS, Where())[0]} == {each.point_id for each in memories}
        assert list(store.faults()) == []


@st.composite
def wheres(draw: st.DrawFn, memories: list[Memory], depth: int = 2) -> Where:
    """A filter over values that the memories hold, and over some that none does."""

    def condition() -> Condition:
        field = draw(st.sampled_from(sorted(INDEXED_FIELDS)))
        held = [value for memory in memories for value in listed(to_payload(memory).get(field))]
        values = st.sampled_from(held) if held else st.just("none")
        if depth and draw(st.integers(0, 5)) == 0:
            return AnyOf(tuple(draw(wheres(memories, depth - 1)) for _ in range(draw(st.integers(0, 2)))))
        if INDEXED_FIELDS[field] == "keyword":
            if draw(st.booleans()):
                return OneOf(field, tuple(draw(st.lists(values, max_size=2))))
            text = str(draw(values))
            return StartsWith(field, text[: draw(st.integers(0, len(text)))])
        bounds = st.none() | (values.map(datetime.fromisoformat) if INDEXED_FIELDS[field] == "datetime" else values)
        if not held:
            bounds = st.just(datetime(2026, 1, 1, tzinfo=UTC) if INDEXED_FIELDS[field] == "datetime" else 3)
        return Between(field, draw(bounds), draw(bounds))

    return Where(
        tuple(condition() for _ in range(draw(st.integers(0, 2)))),
        tuple(condition() for _ in range(draw(st.integers(0, 2)))),
    )


def listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


@pytest.fixture(params=["sqlite", "postgresql"])
def opens(request: pytest.FixtureRequest) -> Callable[[], SqlStore]:
    """Returns a new store over a database with nothing in it."""
    if request.param == "sqlite":
        return lambda: SqlStore(Sqlite(IN_MEMORY))
    server: Cluster = request.getfixturevalue("postgres")
    return lambda: SqlStore(Postgresql(server.emptied()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_filter_lets_the_same_through_as_the_reference(data: st.DataObject, opens: Callable[[], SqlStore]) -> None:
    """Port find, count, scan, facet: any filter over any field, with any order, answers like the dict store."""
    memories = data.draw(st.lists(MEMORY, max_size=5, unique_by=lambda memory: memory.point_id))
    where = data.draw(wheres(memories))
    ranged = sorted(name for name, kind in INDEXED_FIELDS.items() if kind != "keyword")
    order, descending = data.draw(st.sampled_from(ranged)), data.draw(st.booleans())
    field = data.draw(st.sampled_from(sorted(INDEXED_FIELDS.keys() - {*ranged})))
    reference = DictStore()
    with closing(opens()) as store:
        for each in (store, reference):
            each.open_collection(FACTS, SPEC)
            each.put(FACTS, [Entry(memory) for memory in memories])

        assert store.count(FACTS, where) == reference.count(FACTS, where)
        assert store.scan(FACTS, where) == reference.scan(FACTS, where)
        assert store.marks(FACTS, where) == reference.marks(FACTS, where)
        assert store.facet(FACTS, field, where) == reference.facet(FACTS, field, where)
        assert store.find(FACTS, where, limit=3, order_by=order, descending=descending) == reference.find(
            FACTS, where, limit=3, order_by=order, descending=descending
        )


def test_every_write_of_a_row_moves_the_counter_that_is_followed(store: SqlStore, database: Sqlite) -> None:
    """`changed`: inserts, replacements, vectors, usage and erasing each take the next number; none is taken twice."""
    one, two = entry_of("one"), entry_of("two")
    seen: list[tuple[Any, ...]] = []

    def note() -> None:
        seen.append(database.rows("select id, seq, changed from version order by id"))

    store.put(FACTS, [one, two])
    note()
    store.put(FACTS, [one])
    note()
    store.set_usage(FACTS, {two.memory.point_id: Usage(1)})
    note()
    store.set_vectors(FACTS, {one.memory.point_id: {DENSE: np.ones(4, dtype=np.float32)}})
    note()
    store.erase(FACTS, [one.memory.point_id])
    note()
    store.put(FACTS, [one])
    note()

    assert seen == [
        [("one", 1, 1), ("two", 2, 2)],
        [("one", 1, 3), ("two", 2, 2)],
        [("one", 1, 3), ("two", 2, 4)],
        [("one", 1, 5), ("two", 2, 4)],
        [("two", 2, 4)],
        [("one", 7, 7), ("two", 2, 4)],
    ]
    assert database.rows("select changed, collection from gone") == [(6, FACTS)]


# --- the file --------------------------------------------------------------------------------------------------------


def test_the_file_and_its_log_are_the_owners_alone_and_safe_by_pragma(store: SqlStore, path: Path) -> None:
    """Files: 0600 from the beginning; a log that is synced at each commit, deleted bytes overwritten."""
    store.put(FACTS, [entry_of("one")])

    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {"memory.db": 0o600, "memory.db-end": 0o600, "memory.db-wal": 0o600, "memory.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    link = Sqlite.connect(cast("Any", store).database, writes=True)
    with closing(link.raw):
        for pragma, value in (
            ("journal_mode", "wal"),
            ("synchronous", 2),
            ("secure_delete", 1),
            ("foreign_keys", 1),
            ("busy_timeout", 5_000),
            ("auto_vacuum", 2),
            ("page_size", 4_096),
        ):
            assert link.rows(f"pragma {pragma}") == [(value,)], pragma


def test_a_memory_is_found_and_what_few_are_is_listed_without_reading_the_others(
    store: SqlStore, database: Sqlite
) -> None:
    """Rule store.reads: by ids or hashes, and of states that few are in, the work does not grow with the store."""
    readers, is_current = OneOf("audience", (plain().audience, "a|x")), (OneOf("state", ("history",)),)
    one, texts = Where((OneOf("id", ("m7",)), readers), is_current), Where((OneOf("content_hash", ("h7", "h8")),))
    old = Where((OneOf("state", ("superseded",)), readers))
    ways: list[Callable[[], object]] = [
        lambda: store.find(FACTS, one, limit=1),
        lambda: store.count(FACTS, one),
        lambda: store.find(FACTS, texts, limit=9),
        lambda: store.find(FACTS, old, limit=9, order_by="recorded_at", descending=True),
    ]

    def work(way: Callable[[], object]) -> int:
        done = [0]
        with database.reading() as link:
            cast("sqlite3.Connection", link.raw).set_progress_handler(lambda: done.append(0), 10)
        way()
        return len(done)

    store.put(FACTS, [entry_of(f"m{number}") for number in range(30)])
    few = [work(way) for way in ways]
    store.put(FACTS, [entry_of(f"m{number}") for number in range(30, 900)])
    assert [memory.id for memory in store.find(FACTS, one, limit=1)] == ["m7"]
    assert [many <= 2 * some for many, some in zip(map(work, ways), few, strict=True)] == [True] * len(ways)


def test_a_closed_store_is_one_file_without_a_log(path: Path) -> None:
    """Close: the log is copied into the file and removed."""
    with closing(opened(path)) as store:
        store.put(FACTS, [entry_of("one")])

    assert sorted(each.name for each in path.parent.iterdir()) == ["memory.db", "memory.db-end"]
    with closing(opened(path)) as store:
        assert store.count(FACTS, Where()) == 1


def test_what_is_erased_is_in_no_byte_of_any_file(store: SqlStore, path: Path) -> None:
    """Purge: rows, indexes and log; text, tags and vectors."""
    entry = entry_of("one", SECRET, tags=(Tag("lilac"),), who=("zebediah",))
    store.put(FACTS, [entry, entry_of("two")])
    store.put(FACTS, [entry])  # once more, so that an old image of its pages exists

    store.erase(FACTS, [entry.memory.point_id])

    left = b"".join(each.read_bytes() for each in path.parent.iterdir())
    for needle in (SECRET.encode(), b"lilac", b"zebediah", entry.vectors[DENSE].tobytes()):
        assert needle not in left
    assert store.count(FACTS, Where()) == 1 and list(store.faults()) == []


def test_no_erasure_takes_another_copy_of_the_log_for_a_reader(database: Sqlite) -> None:
    """Purge: SQLite lets one copy its log, and tells a second one at once that it is needed; ours stand in line."""
    rows = SqlRecords(database, SystemClock().now)

    def erase(name: str) -> None:
        for number in range(80):
            rows.write(f"{name}/{number}", b"x" * 20_000, before="")
            rows.delete(f"{name}/{number}", before=None)
            rows.wipe()

    at_once(*(partial(erase, name) for name in ("a", "b", "c")))


def test_a_reader_that_still_needs_the_erased_pages_is_said(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purge: SQLite leaves the text in its log without an error; the store says so, and can be asked again."""
    monkeypatch.setattr("memory_anchor.store.database.WAIT_MS", 50)
    store.put(FACTS, [entry_of("one", SECRET)])
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from version").fetchall()
        with pytest.raises(Unavailable, match="erase again"):
            store.erase(FACTS, [entry_of("one").memory.point_id])
        assert store.count(FACTS, Where()) == 0
        reader.execute("commit")

    store.erase(FACTS, [entry_of("one").memory.point_id])

    assert SECRET.encode() not in b"".join(each.read_bytes() for each in path.parent.iterdir())


def test_a_database_that_is_refused_is_held_open_by_nobody(path: Path) -> None:
    """Damage: an engine that looks again each second at a file which lost its end keeps no handle of it each time."""
    for name in ("one", "two"):
        before = path.read_bytes() if path.exists() else b""
        with closing(opened(path)) as store:
            store.put(FACTS, [entry_of(name)])
    path.write_bytes(before)

    for _ in range(3):
        with pytest.raises(StoreDamaged, match="cut short"):
            Sqlite(path)

    handles = [str(handle.readlink()) for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    assert [name for name in handles if f"{path}-end" in name] == []


def test_a_log_that_lost_lines_of_the_trail_alone_is_told_too(path: Path) -> None:
    """Damage: what was recorded without a version counts; a file from before it is not opened as if it were whole."""
    with closing(opened(path)) as store:
        SqlAudit(store.database).append("one", {}, by="human:alice", at=SystemClock().now())
    before = path.read_bytes()
    with closing(opened(path)) as store:
        SqlAudit(store.database).append("two", {}, by="human:alice", at=SystemClock().now())
    path.write_bytes(before)

    with pytest.raises(StoreDamaged, match="2 lines of the trail were written, 0 and 1 can be read"):
        Sqlite(path)


def test_a_second_process_that_writes_is_waited_for_and_then_said(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes: one lock for every write; reading goes on meanwhile."""
    store.put(FACTS, [entry_of("one")])
    cast("Any", store).database._writer().run("pragma busy_timeout=20")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreBusy, match="nothing was written"):
            store.put(FACTS, [entry_of("two")])
        assert store.count(FACTS, Where()) == 1
        other.execute("commit")

    store.put(FACTS, [entry_of("two")])

    assert store.count(FACTS, Where()) == 2


def test_a_full_disk_refuses_a_write_and_the_store_goes_on(store: SqlStore, database: Sqlite) -> None:
    """Full disk: the write raises, nothing of it is stored, and with room again the next one is."""
    store.put(FACTS, [entry_of("one")])
    ((pages,),) = database.rows("pragma page_count")
    database.write(lambda link: link.rows(f"pragma max_page_count={cast('int', pages) + 2}"))

    with pytest.raises(DiskFull, match="no room; nothing was written"):
        store.put(FACTS, [entry_of(f"m{number}", "x" * 8_000) for number in range(9)])

    assert [each.memory.id for each in store.scan(FACTS, Where())[0]] == ["one"]
    database.write(lambda link: link.rows("pragma max_page_count=100000"))
    store.put(FACTS, [entry_of("two")])
    assert store.count(FACTS, Where()) == 2 and list(store.faults()) == []


# --- damage ----------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def damageable(path: Path) -> dict[str, Entry]:
    """A closed store of twelve memories; by their points, as they were written."""
    entries = [
        entry_of(f"m{number:02}", f"memory {number} 记忆", tags=(Tag("db"),), usage=Usage(number))
        for number in range(12)
    ]
    with closing(opened(path)) as store:
        store.put(FACTS, entries)
    return {entry.memory.point_id: entry for entry in entries}


@pytest.mark.parametrize("what", ["text", "text that is no UTF-8 then", "vector", "audience", "usage"])
def test_a_flipped_bit_in_a_row_is_told_by_its_checksum_and_names_the_memory(path: Path, what: str) -> None:
    """Damage: SQLite finds nothing wrong with such a row; StoreDamaged names it, and the others still read."""
    entries = damageable(path)
    entry = next(each for each in entries.values() if each.memory.id == "m07")
    content = path.read_bytes()
    row = content.index("memory 7 记忆".encode())
    at = {
        "text": row,
        "text that is no UTF-8 then": row,
        "vector": content.index(entry.vectors[DENSE].tobytes()),
        "audience": content.rindex(entry.memory.audience.encode(), 0, row),
        "usage": content.index(b'"count":7') + len('"count":'),
    }[what]
    flip(path, at, 7 if "UTF-8" in what else 0)

    with closing(opened(path)) as store:
        with pytest.raises(StoreDamaged, match=entry.memory.point_id if what == "vector" else "of memory m07"):
            store.get(FACTS, [entry.memory.point_id], with_vectors=True)
        assert any(entry.memory.point_id in fault for fault in store.faults())
        others = [point for point in entries if point != entry.memory.point_id]
        assert len(store.get(FACTS, others, with_vectors=True)) == 11


def test_an_older_file_with_a_damaged_page_opens_without_the_index_that_it_lacks(path: Path) -> None:
    """Damage: an index that is made later reads every row; what can be read is read without it."""
    with closing(opened(path)) as store:
        store.put(FACTS, [entry_of(f"m{number}", "x" * 300) for number in range(200)])
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("drop index by_record")
        sizes = raw.execute("select pageno from dbstat where name = 'version' and pagetype = 'leaf'").fetchall()
        (size,) = raw.execute("pragma page_size").fetchone()
    page = sizes[len(sizes) // 2][0]
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    path.write_bytes(content)

    with closing(opened(path)) as store:
        assert [one.memory.id for one in store.get(FACTS, [entry_of("m0").memory.point_id])] == ["m0"]
        with pytest.raises(StoreDamaged, match="--salvage"):
            list(store.faults())


@pytest.mark.parametrize("seed", range(60))
def test_a_bit_flipped_anywhere_is_told_or_changes_no_answer(path: Path, seed: int) -> None:
    """Damage: wherever in the file, no wrong memory is ever read without an error."""
    entries = damageable(path)
    rng = random.Random(seed)
    flip(path, rng.randrange(path.stat().st_size), rng.randrange(8))

    try:
        with closing(opened(path)) as store:
            is_told = bool(list(store.faults()))
            found, _ = store.scan(FACTS, Where((OneOf("tag", ("db",)),)), with_vectors=True)
    except MemoryAnchorError:
        return
    wrong = [each for each in found if not same(each, entries.get(each.memory.point_id))]
    assert wrong == []
    assert is_told or len(found) == len(entries)


def same(one: Entry, other: Entry | None) -> bool:
    return (
        other is not None
        and one.memory == other.memory
        and one.words == other.words
        and one.vectors[DENSE].tolist() == other.vectors[DENSE].tolist()
    )


# --- settings --------------------------------------------------------------------------------------------------------


def test_an_address_of_no_database_is_refused_without_being_shown(tmp_path: Path) -> None:
    """`database.url` may hold a password."""
    with pytest.raises(MemoryAnchorError, match="neither 'sqlite' nor postgresql") as refused:
        open_database("mysql://me:hunter2@host/x", tmp_path / "memory.db")
    assert "hunter2" not in str(refused.value)


def test_a_whole_memory_works_over_it_and_is_there_after_a_restart(tmp_path: Path) -> None:
    """`database.url: sqlite`: save, change, search, forget, back up; another process finds it all."""
    chosen = Settings.model_validate({"database": {"url": "sqlite"}})
    human = Actor(Caller.HUMAN, Scope(agent="a", conversation="c"))

    def opened_core(lock: DirectoryLock) -> Core:
        return build_core(
            chosen, data_dir=tmp_path, lock=lock, embedder=HashEmbedder(), clock=ManualClock(), model=None
        )

    with DirectoryLock.acquire(tmp_path, role="test") as lock, closing(opened_core(lock)) as core:
        anchor = core.anchor(human)
        kept = anchor.save_memory("The gate of the old mill opens at seven").id
        gone = anchor.save_memory("The kettle needs a new lid").id
        assert kept and gone
        anchor.curation.edit(kept, "The gate of the old mill opens at eight")
        anchor.log_event("Somebody asked for the mill")
        anchor.forget(gone)
        core.services.searcher.index.embed_pending(100)
        made = backup.create(core, tmp_path.parent / "copy.tar.gz")
        assert made["versions"] == 5
    with DirectoryLock.acquire(tmp_path, role="test") as lock, closing(opened_core(lock)) as core:
        anchor = core.anchor(human)

        found = anchor.search("when does the gate of the mill open")

        assert found.snippets[0].text == "The gate of the old mill opens at eight"
        assert [each.version for each in anchor.history(kept)] == [1, 2]
        assert isinstance(core.services.store, SqlStore) and list(core.services.store.faults()) == []
    assert sorted(each.name for each in (tmp_path / "store").iterdir()) == ["memory.db", "memory.db-end"]


def test_doctor_says_how_far_the_collections_of_other_clients_are(tmp_path: Path) -> None:
    """Index: what waits for a rest is no fault; once a session ended well they hold everything."""
    chosen = Settings.model_validate({"database": {"url": "sqlite"}})
    with DirectoryLock.acquire(tmp_path, role="test") as lock:
        core = build_core(chosen, data_dir=tmp_path, lock=lock, embedder=HashEmbedder(), clock=ManualClock())
        with closing(core):
            core.anchor(Actor(Caller.HUMAN, Scope(agent="a"))).save_memory("The gate opens at seven")
            store = core.services.store
            assert isinstance(store, SqlStore) and store.beside is not None

            (waiting,) = doctor_store._collections(core)
            assert store.beside.catch_up()
            (complete,) = doctor_store._collections(core)

    assert "wait for a minute without a write" in waiting.finding
    assert complete.finding == "hold every event and fact"
