"""The upgrade of a data directory of the old layout: everything arrives, once, whatever is killed meanwhile."""

from __future__ import annotations

import hashlib
import os
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from archives import unpack

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.adapters.old_store import OldStore
from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.restoring import STAGING
from memory_anchor.admin import backup
from memory_anchor.admin import upgrade as upgrading
from memory_anchor.admin.left_behind import kept_side
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec
from memory_anchor.domain.where import Where
from memory_anchor.process.app import build_core, open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.salvage import salvage
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import LocalTrail, SqlAudit
from memory_anchor.store.database import DATABASE_FILE
from memory_anchor.store.record_rows import SqlRecords, is_moved
from memory_anchor.store.sql_store import SqlStore

IN_DATABASE = Settings.model_validate({"database": {"url": "sqlite"}})
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
STORES = Path(__file__).resolve().parents[1] / "stores"
RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))


@pytest.fixture(params=RELEASES)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    unpack(STORES / f"{request.param}.tar.xz", tmp_path)
    for folder, _, _ in os.walk(tmp_path / "data"):
        Path(folder).chmod(0o700)
    return tmp_path / "data"


def contents(store: SqlStore | OldStore) -> dict[str, list[Any]]:
    """Everything of a store: payloads with usage and receipts, vectors, words."""
    found: dict[str, list[Any]] = {}
    for name in COLLECTIONS:
        store.open_collection(name) if isinstance(store, OldStore) else store.open_collection(name, CollectionSpec({}))
        entries, _ = store.scan(name, Where(), page=10_000, with_vectors=True)
        found[name] = [
            (
                to_payload(entry.memory),
                {vector: row.tobytes() for vector, row in entry.vectors.items()},
                entry.words and sorted(zip(entry.words.indices, entry.words.values, strict=True)),
            )
            for entry in entries
        ]
    return found


def old_contents(data: Path) -> dict[str, list[Any]]:
    with (
        DirectoryLock.acquire(data, role="test"),
        closing(OldStore(data / "store")) as store,
    ):
        return contents(store)


def opened(data: Path, lock: DirectoryLock) -> SqlStore:
    store = open_store(IN_DATABASE, data, lock)
    assert isinstance(store, SqlStore)
    return store


def others(data: Path) -> dict[str, str]:
    """The files beside the store and the trail, by their hashes."""
    left_out = ("store", "audit", "replaced-1", "store.lock", "run")
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.relative_to(data).parts[0] not in left_out
    }


def test_a_store_of_each_release_arrives_whole_in_the_database(data: Path) -> None:
    """Upgrade: versions, hashes, usage, receipts, vectors, words, trail; L0 and the rest stay; the old side is kept."""
    lines = (data / "audit" / "audit.jsonl").read_bytes()
    before, around = old_contents(data), others(data)
    assert sum(map(len, before.values())) > 20

    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        assert contents(store) == before
        trail = SqlAudit(store.database)
        assert b"".join(trail.lines()).startswith(lines) and trail.verify() is None
        assert trail.latest(upgrading.UPGRADED) == {
            "versions": {name: len(found) for name, found in before.items()},
            "kept": "replaced-1",
        }
        assert kept_side(data, trail) == data / "replaced-1"
        assert list(store.faults()) == []
    assert others(data) == {name: hashed for name, hashed in around.items() if not is_moved(name)}
    assert (data / "replaced-1" / "audit" / "audit.jsonl").read_bytes() == lines
    assert old_side(data) == before


def test_what_lay_in_files_beside_the_store_is_rows_after_it(data: Path) -> None:
    """Upgrade: usage a day, jobs, waiting batches and first answers, together with the memories; keys stay files."""
    for name in ("jobs.json", "usage.json", "jobs/words.json", "team/ingest/b1.json", "requests/r1", "team/keys.json"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text(f"what {name} held")

    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        rows = SqlRecords(store.database, lambda: NOON)
        moved = ("jobs.json", "usage.json", "jobs/words.json", "team/ingest/b1.json", "requests/r1")
        for name in moved:
            record = rows.read(name)
            assert record is not None and record.content == f"what {name} held".encode()
            assert not (data / name).exists() and (data / "replaced-1" / name).exists()
        assert rows.read("team/keys.json") is None and (data / "team/keys.json").exists()


def old_side(data: Path) -> dict[str, list[Any]]:
    kept = data / "replaced-1"
    with (
        DirectoryLock.acquire(kept, role="test"),
        closing(OldStore(kept / "store")) as store,
    ):
        return contents(store)


def test_a_second_start_upgrades_nothing(data: Path) -> None:
    """Upgrade: once; the second start finds a database."""
    for _ in range(2):
        with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
            upgrades = list(SqlAudit(store.database).records(upgrading.UPGRADED))
    assert len(upgrades) == 1 and not (data / "replaced-2").exists()


def test_a_side_that_does_not_read_back_the_same_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upgrade: counted and hashed on both sides before anything moves."""
    put = SqlStore.put
    monkeypatch.setattr(SqlStore, "put", lambda store, name, entries: put(store, name, entries[1:]))
    before = (data / "audit" / "audit.jsonl").read_bytes()

    with DirectoryLock.acquire(data, role="test") as lock, pytest.raises(StoreDamaged, match="not the same"):
        opened(data, lock)

    assert not (data / DATABASE_FILE).exists() and not (data / "replaced-1").exists()
    assert not list(data.glob(f"{STAGING}*"))
    assert (data / "audit" / "audit.jsonl").read_bytes() == before


def test_a_torn_and_a_broken_line_of_the_trail_arrive_as_they_are(data: Path) -> None:
    """Upgrade: what `verify` said of the file it says of the rows; a torn end is closed as the next append would."""
    path = data / "audit" / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"by":"', b'"by":"x', 1) + b'{"n":9999,"at"')
    broken = JsonlAudit(path).verify()
    assert broken is not None

    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        trail = SqlAudit(store.database)
        assert trail.verify() == broken and [r["kind"] for r in trail.records("torn")] == ["torn"]


def test_whoever_looks_at_the_trail_meanwhile_finds_it_on_either_side(data: Path) -> None:
    """Trail of a directory: a process that began before the upgrade goes on in the database."""
    trail = LocalTrail(data)
    count = len(list(trail.records()))
    with DirectoryLock.acquire(data, role="test") as lock:
        opened(data, lock).close()

    assert len(list(trail.records())) == count + 1 and trail.verify() is None


def test_a_backup_has_the_trail_of_the_rows_and_gives_it_back(data: Path, tmp_path: Path) -> None:
    """Backup: from the database and into it, the trail with what was imported into it."""
    with DirectoryLock.acquire(data, role="test") as lock:
        without = Settings.model_validate({"database": {"url": "sqlite"}, "embedder": {"kind": "none"}})
        with closing(build_core(without, data_dir=data, lock=lock)) as core:
            assert isinstance(core.audit, SqlAudit)
            file = Path(backup.create(core, tmp_path)["file"])
            lines, records = b"".join(core.audit.lines()), list(core.audit.records())
        restored = backup.restore(
            data,
            file,
            force=True,
            lock=lock,
            open_store=lambda folder: open_store(IN_DATABASE, folder, lock),
            tick=lambda done, total: None,
        )
        with closing(opened(data, lock)) as store:
            trail = SqlAudit(store.database)
            assert b"".join(trail.lines()) == lines and list(trail.records()) == records and trail.verify() is None
    assert restored["versions"] > 20 and not (data / "audit").exists()


def test_a_damaged_database_is_salvaged_row_by_row(data: Path) -> None:
    """Salvage: what is damaged comes from a backup or is named; the rest, and the trail, are as they were."""
    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        trail = SqlAudit(store.database)
        before, lines = contents(store), b"".join(trail.lines())
        ((damaged,),) = store.database.rows("select id from version where collection = 'event_log' limit 1")
        store.database.write(lambda link: link.run("update version set doc = doc || ' ' where id = ?", (damaged,)))

    report = salvage(IN_DATABASE, data, now=NOON)

    assert report.changed and [lost.id for lost in report.lost] == [damaged]
    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        after, trail = contents(store), SqlAudit(store.database)
        assert list(store.faults()) == [] and trail.verify() is None
        assert b"".join(trail.lines()).startswith(lines)
    kept = [payload for payload, *_ in before["event_log"] if payload["id"] != damaged]
    assert [payload for payload, *_ in after["event_log"]] == kept
    assert after["verified_fact"] == before["verified_fact"]


def test_a_database_with_unreadable_pages_is_salvaged_around_them(data: Path) -> None:
    """Salvage: pages that SQLite cannot read cost what lies in them, and no more; all of it is named."""
    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as store:
        count = sum(map(len, contents(store).values()))
        ((root,),) = store.database.rows("select rootpage from sqlite_master where name = 'version'")
    with (data / DATABASE_FILE).open("r+b") as file:  # an inner page of the table of versions: a part of all rows
        content = file.read()
        at = next(n for n in range(int(root or 1), len(content) // 4096) if content[4096 * n] == 13 and n > 20)
        file.seek(4096 * at)
        file.write(b"\xff" * 4096)

    report = salvage(IN_DATABASE, data, now=NOON)

    assert report.changed
    assert sum(report.kept.values()) + len(report.lost) == count and sum(report.kept.values()) > 0
