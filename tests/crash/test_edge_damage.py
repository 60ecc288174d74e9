"""What can go wrong with the Edge store's files: each is one of our errors, one clear sentence, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import disk
import numpy as np
import pytest
from edge_writer import FACTS, NOON, SPEC, entry, member

from memory_anchor.adapters import edge_engine, sparse_files
from memory_anchor.adapters.edge_engine import translated_errors
from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.domain.errors import (
    DiskFull,
    MemoryAnchorError,
    NotFound,
    Refused,
    StoreBusy,
    StoreDamaged,
    Unavailable,
    WrongEmbedder,
)
from memory_anchor.domain.model import Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry
from memory_anchor.domain.where import Where
from memory_anchor.runtime.lock import DirectoryLock

WRITTEN = 12


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[DirectoryLock]:
    with DirectoryLock.acquire(tmp_path, role="test") as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, lock: DirectoryLock) -> Path:
    """The folder of a closed collection with twelve memories."""
    with closing(EdgeStore(tmp_path, lock=lock)) as store:
        store.open_collection(FACTS, SPEC)
        for number in range(WRITTEN):  # one by one: the engine repairs what its last logged operation holds
            store.put(FACTS, [entry(1, number)])
    return tmp_path / FACTS


def reopened(folder: Path, lock: DirectoryLock, spec: CollectionSpec = SPEC, **settings: object) -> EdgeStore:
    store = EdgeStore(folder, lock=lock, **settings)  # type: ignore[arg-type]
    store.open_collection(FACTS, spec)
    return store


def segment(home: Path) -> Path:
    (folder,) = (home / "shard-1" / "segments").iterdir()
    return folder


def rows_of(store: EdgeStore) -> dict[str, np.ndarray]:
    return {each.memory.id: each.vectors[DENSE] for each in store.scan(FACTS, Where(), with_vectors=True)[0]}


def shorten(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def overwrite(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * size)


# --- damage ----------------------------------------------------------------------------------------------------------


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a segment's state is garbage": lambda home: (segment(home) / "segment.json").write_text("{"),
    "the ids are garbage": lambda home: overwrite(segment(home) / "mutable_id_tracker.mappings", 200),
    "the ids are cut off": lambda home: shorten(segment(home) / "mutable_id_tracker.mappings", 30),
    "the segments are gone": lambda home: shutil.rmtree(home / "shard-1" / "segments"),
    "the shard's configuration is garbage": lambda home: (home / "shard-1" / "edge_config.json").write_text("{"),
    "the shard is gone": lambda home: shutil.rmtree(home / "shard-1"),
    "the record is garbage": lambda home: (home / "collection.json").write_text('{"format": 1}'),
    "the record is gone": lambda home: (home / "collection.json").unlink(),
    "the record is of a later format": lambda home: (home / "collection.json").write_text('{"format": 2}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_says_so_and_what_to_do(home: Path, lock: DirectoryLock, damage: str) -> None:
    """Durability: a corrupted segment is a clear error; the engine alone would open some of these empty."""
    DAMAGES[damage](home)

    with pytest.raises(StoreDamaged, match=r"doctor|backup|upgrade") as raised:
        reopened(home.parent, lock)

    assert str(home) in str(raised.value) and "batch 1" not in str(raised.value)
    with pytest.raises(StoreDamaged):
        reopened(home.parent, lock)


def test_a_truncated_log_is_noticed_and_the_rest_can_be_kept(tmp_path: Path, lock: DirectoryLock) -> None:
    """Durability: acknowledged writes that are gone from the log are not passed over in silence."""
    store = reopened(tmp_path, lock)
    store.put(FACTS, [entry(1, number) for number in range(3)])
    store.flush()
    store.put(FACTS, [entry(2, number) for number in range(4)])
    crashed = tmp_path / "crashed"
    sparse_files.copy_tree(tmp_path / FACTS, crashed)  # what a kill would leave
    store.close()
    shutil.rmtree(tmp_path / FACTS)
    crashed.rename(tmp_path / FACTS)
    for log in (tmp_path / FACTS / "shard-1" / "wal").glob("open-*"):
        shorten(log, 200)

    with pytest.raises(StoreDamaged, match=r"7 versions were written and 3 can be read.*doctor"):
        reopened(tmp_path, lock)

    with closing(EdgeStore(tmp_path, lock=lock)) as store:
        assert store.salvage(FACTS, SPEC) == 3
    with closing(reopened(tmp_path, lock)) as store:
        assert store.count(FACTS, Where()) == 3
        assert {path.name for path in (tmp_path / FACTS).glob("shard-*")} == {"shard-1", "shard-2"}


def test_unreadable_vectors_are_said_when_they_are_asked_for(home: Path, lock: DirectoryLock) -> None:
    """Durability: damage that only a read meets is the same clear error."""
    shorten(next((segment(home) / "vector_storage-dense").rglob("chunk_0.mmap")), 100)

    with pytest.raises(StoreDamaged), closing(reopened(home.parent, lock)) as store:
        store.nearest(FACTS, np.ones(8, dtype=np.float32), Where(), limit=5)


# --- lock, space, permission -----------------------------------------------------------------------------------------


def test_without_a_held_lock_nothing_is_opened_or_written(tmp_path: Path) -> None:
    """Store: the lock comes before load."""
    lock = DirectoryLock.acquire(tmp_path, role="test")
    with closing(reopened(tmp_path, lock)) as store:
        lock.release()
        with pytest.raises(StoreBusy, match="not locked by this process"):
            store.put(FACTS, [entry(1, 0)])
    with pytest.raises(StoreBusy, match="not locked by this process"):
        EdgeStore(tmp_path, lock=lock)


def test_below_the_reserve_nothing_is_written_and_nothing_lost(home: Path, lock: DirectoryLock) -> None:
    """Store: a full disk is SIGBUS, so it is refused before; what is there stays readable."""
    with closing(reopened(home.parent, lock)) as store:
        store._reserve_bytes = 1 << 60  # the disk fills up meanwhile
        for write in (
            lambda: store.put(FACTS, [entry(2, 0)]),
            lambda: store.set_vectors(FACTS, {member(1, 0).point_id: {DENSE: np.ones(8, dtype=np.float32)}}),
            lambda: store.set_usage(FACTS, {member(1, 0).point_id: Usage(1)}),
            lambda: store.erase(FACTS, [member(1, 0).point_id]),
        ):
            with pytest.raises(DiskFull, match=r"MiB free and needs 1099511627\d{3} MiB; nothing was written"):
                write()
        assert store.count(FACTS, Where()) == WRITTEN
        assert [each.memory for each in store.get(FACTS, [member(1, 0).point_id])] == [member(1, 0)]
    with pytest.raises(DiskFull):
        reopened(home.parent, lock, reserve_bytes=1 << 60)
    with closing(reopened(home.parent, lock)) as store:
        assert store.count(FACTS, Where()) == WRITTEN


def test_files_are_private(home: Path, lock: DirectoryLock) -> None:
    """Store: 0600 files in 0700 folders, whatever the umask; what the engine adds is sealed at the next flush."""
    before = os.umask(0)
    try:
        with closing(reopened(home.parent, lock)) as store:
            store.put(FACTS, [entry(2, number) for number in range(50)])
            store.flush()
            for path in [home, *home.rglob("*")]:
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)


# --- erasing ---------------------------------------------------------------------------------------------------------


def holds(folder: Path, text: str) -> list[str]:
    return [str(path) for path in disk.holding(folder, text)]


def test_after_erasing_no_file_holds_the_text(home: Path, lock: DirectoryLock) -> None:
    """Purge: neither payloads nor the write-ahead log nor an index keep it; the rest is whole."""
    with closing(reopened(home.parent, lock)) as store:
        secret = Entry(member(9, 1), {DENSE: np.ones(8, dtype=np.float32)})
        store.put(FACTS, [secret])
        assert holds(home, "batch 9 member 1") and holds(home, "b9n1")

        store.erase(FACTS, [secret.memory.point_id])

        assert not holds(home, "batch 9 member 1") and not holds(home, "b9n1")
        assert store.count(FACTS, Where()) == WRITTEN
        (left,) = store.get(FACTS, [member(1, 3).point_id], with_vectors=True)
        assert left.memory == member(1, 3) and left.words == entry(1, 3).words
    assert not holds(home, "batch 9 member 1")
    with closing(reopened(home.parent, lock)) as store:
        assert store.count(FACTS, Where()) == WRITTEN


def test_a_crash_while_erasing_shows_the_old_store_or_the_new(
    home: Path, lock: DirectoryLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replacing a shard is one rename: what failed before it is swept away, what came after it counts."""
    gone = [member(1, 0).point_id]
    with closing(reopened(home.parent, lock)) as store:
        with monkeypatch.context() as patch:
            patch.setattr("memory_anchor.adapters.edge_shards._write_record", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                store.erase(FACTS, gone)
        assert store.count(FACTS, Where()) == WRITTEN
        with monkeypatch.context() as patch:
            patch.setattr("memory_anchor.adapters.edge_shards._remove_strays", lambda *_: None)
            store.erase(FACTS, gone)
    assert len(list(home.glob("shard-*"))) == 2
    (home / "shard-9").mkdir()  # a copy that was never finished

    with closing(reopened(home.parent, lock)) as store:
        assert store.count(FACTS, Where()) == WRITTEN - 1
    assert len(list(home.glob("shard-*"))) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_new_shard_is_on_disk_before_the_record_that_names_it(
    home: Path, lock: DirectoryLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability: a cut right after the record was renamed must find the shard it names, all of it."""
    synced: list[Path] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        real(handle)

    with closing(reopened(home.parent, lock)) as store:
        monkeypatch.setattr(os, "fsync", fsync)
        store.erase(FACTS, [entry(1, 0).memory.point_id])

    (record,) = [place for place, path in enumerate(synced) if path.name.startswith(".collection.json")]
    before = {path for path in synced[:record] if path.is_relative_to(home / "shard-2")}
    assert {path for path in (home / "shard-2").rglob("*") if path.is_dir()} <= before
    assert any(path.name == "segment.json" for path in before)


@pytest.mark.slow
def test_readers_and_writers_go_on_while_a_shard_is_replaced(home: Path, lock: DirectoryLock) -> None:
    """Thread-safety: no reader meets a closed shard, no write goes to the old one."""
    failures: list[BaseException] = []
    stop = threading.Event()

    with closing(reopened(home.parent, lock)) as store:

        def read() -> None:
            try:
                while not stop.is_set():
                    assert store.count(FACTS, Where()) >= WRITTEN - 3
                    assert store.nearest(FACTS, np.ones(8, dtype=np.float32), Where(), limit=5)
            except BaseException as error:
                failures.append(error)

        def write() -> None:
            try:
                for number in range(40):
                    store.put(FACTS, [entry(5, number)])
            except BaseException as error:
                failures.append(error)

        reader, writer = threading.Thread(target=read), threading.Thread(target=write)
        reader.start()
        writer.start()
        for number in range(3):
            store.erase(FACTS, [member(1, number).point_id])
        writer.join()
        stop.set()
        reader.join()
        assert failures == []
        assert store.count(FACTS, Where()) == WRITTEN - 3 + 40


# --- versions --------------------------------------------------------------------------------------------------------


def test_an_older_schema_is_migrated_and_the_old_shard_kept_as_a_backup(home: Path, lock: DirectoryLock) -> None:
    """Schema version: migrated after a backup; erasing later reaches the backup too."""
    newer = CollectionSpec(SPEC.embedders, schema_version=3)
    steps = {
        1: lambda payload: payload | {"where": "one"},
        2: lambda payload: payload | {"where": payload["where"] + "+"},
    }

    with closing(reopened(home.parent, lock, newer, migrations=steps)) as store:
        (entry_now,) = store.get(FACTS, [member(1, 2).point_id], with_vectors=True)
        assert entry_now.memory.where == "one+" and entry_now.words == entry(1, 2).words
        assert store.count(FACTS, Where()) == WRITTEN
        assert {path.name for path in home.glob("shard-*")} == {"shard-1", "shard-2"}
        store.erase(FACTS, [member(1, 2).point_id])
        assert not holds(home, "batch 1 member 2 ")
    with closing(reopened(home.parent, lock, newer)) as store:
        assert store.count(FACTS, Where()) == WRITTEN - 1


def test_a_shard_with_vectors_of_an_earlier_kind_is_read_and_renewed(
    tmp_path: Path, lock: DirectoryLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability: a store whose vectors lie in 32 bits goes on as it is, and in 16 bits once its shard is copied."""
    with monkeypatch.context() as earlier:
        earlier.setattr(edge_engine, "_STORED_AS", "Float32")
        with closing(reopened(tmp_path, lock)) as store:
            store.put(FACTS, [entry(1, number) for number in range(5)])
    with closing(reopened(tmp_path, lock)) as store:
        store.put(FACTS, [entry(1, 5)])
        before = rows_of(store)
        nearest = [hit.point_id for hit in store.nearest(FACTS, before[entry(1, 2).memory.id], Where(), limit=3)]
        store.erase(FACTS, [entry(1, 0).memory.point_id])
    (renewed,) = (tmp_path / FACTS).glob("shard-*/segments/*/vector_storage-dense/tq_vectors")
    assert renewed.is_dir()
    with closing(reopened(tmp_path, lock)) as store:
        after = rows_of(store)
        assert len(after) == len(before) - 1
        assert all(np.allclose(row, before[name], atol=1e-4) for name, row in after.items())
        again = store.nearest(FACTS, before[entry(1, 2).memory.id], Where(), limit=3)
        assert again[0].point_id == nearest[0]


def test_a_newer_schema_or_one_without_a_way_is_left_alone(home: Path, lock: DirectoryLock) -> None:
    """Schema version: an older program never touches what a newer one wrote."""
    with pytest.raises(StoreDamaged, match="no migration leads on from 1"):
        reopened(home.parent, lock, CollectionSpec(SPEC.embedders, schema_version=2))
    record = json.loads((home / "collection.json").read_text())
    (home / "collection.json").write_text(json.dumps(record | {"schema_version": 5}))
    with pytest.raises(StoreDamaged, match=r"newer memory-anchor \(schema 5.*upgrade"):
        reopened(home.parent, lock)


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "ours"),
    [
        ("Service runtime error: Shard is not initialized", Unavailable),
        ("Vector dimension error: expected dim: 4, got 2", WrongEmbedder),
        ("Not existing vector name error: nope", WrongEmbedder),
        ("No point with id 00000000-0000-0000-0000-000000000063", NotFound),
        ("failed to open WAL /x/wal: Can't init WAL: Kind(WouldBlock)", StoreBusy),
        ("IO Error: No space left on device (os error 28)", DiskFull),
        ("failed to open WAL: Permission denied (os error 13)", Refused),
        ("Read-only file system (os error 30)", Refused),
        ("Too many open files (os error 24)", Unavailable),
        ("Failed to decode value: Failed to decompress LZ4 value: expected another byte, found none", StoreDamaged),
        ("anything else that 秘密 may quote", StoreDamaged),
    ],
)
def test_each_message_of_the_engine_is_one_of_our_errors(message: str, ours: type[MemoryAnchorError]) -> None:
    """Every engine error is a bare Exception: mapped in one place, without its wording."""
    with pytest.raises(ours) as raised, translated_errors(Path("/data/verified_fact")):
        raise Exception(message)
    assert type(raised.value) is ours
    assert "/data/verified_fact" in str(raised.value) and "秘密" not in str(raised.value)


def test_what_the_engine_really_says_is_known(home: Path, lock: DirectoryLock) -> None:
    """The messages above are those of the installed engine."""
    import qdrant_edge as edge

    shard_path = str(home / "shard-1")
    store = reopened(home.parent, lock)
    with pytest.raises(StoreBusy), translated_errors(home):
        edge.EdgeShard.load(shard_path)
    store.close()
    shard = edge_engine.load_shard(Path(shard_path))
    for request, ours in (
        (edge.Query.Nearest([1.0, 0.0], using=DENSE), WrongEmbedder),
        (edge.Query.Nearest([1.0, 0.0], using="nope"), WrongEmbedder),
    ):
        with pytest.raises(ours), translated_errors(home):
            shard.query(edge.QueryRequest(query=request, limit=1))
    with pytest.raises(NotFound), translated_errors(home):
        shard.update(edge.UpdateOperation.set_payload([member(7, 7).point_id], {"a": 1}))
    shard.close()
    with pytest.raises(Unavailable), translated_errors(home):
        shard.count(edge.CountRequest(exact=True))


def test_our_own_errors_and_bugs_pass_untouched() -> None:
    """Errors: what is ours stays ours, and a bug crashes."""
    for error in (DiskFull("ours"), KeyError("bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as passed, translated_errors(Path("/x")):
            raise error
        assert passed.value is error
    with pytest.raises(Refused), translated_errors(Path("/x")):
        raise PermissionError(13, "Permission denied")


def test_the_clock_going_backwards_is_no_matter(tmp_path: Path, lock: DirectoryLock) -> None:
    """Durability: order and identity come from ids and versions, not from instants."""
    from dataclasses import replace
    from datetime import timedelta

    old = member(1, 1)
    new = replace(old, version=2, recorded_at=NOON - timedelta(days=400))
    with closing(reopened(tmp_path, lock)) as store:
        store.put(FACTS, [Entry(old)])
        store.put(FACTS, [Entry(new), Entry(old.closed(new.recorded_at))])
        assert store.find(FACTS, Where(), limit=5, order_by="version", descending=True)[0] == new
