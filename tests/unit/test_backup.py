"""Backup and restore: the same memory again, embedded already, or the old one untouched."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tarfile
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from archives import unpack
from stores import file_store

from memory_anchor.adapters import restoring
from memory_anchor.admin import backup
from memory_anchor.admin.traces import PurgeTraces
from memory_anchor.domain.errors import DiskFull, NotFound, Refused, StoreDamaged
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Scope
from memory_anchor.domain.where import HasVector, Where
from memory_anchor.extensions.knowledge.library import Library
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.front import calls
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.wire import Preamble
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import LocalTrail
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ManualClock

HUMAN = Actor(Caller.HUMAN, Scope(agent="a", conversation="c"))


def versions(store):
    return {
        e.memory.version_id: (e.memory, sorted(e.vectors), e.words)
        for name in COLLECTIONS
        for e in store.scan(name, Where(), page=10_000, with_vectors=True)[0]
    }


def opened(data_dir: Path, lock: DirectoryLock | None = None, store=None):
    return build_core(
        Settings(), data_dir=data_dir, lock=lock, store=store, embedder=HashEmbedder(), clock=ManualClock()
    )


def filled(core):
    anchor = core.anchor(HUMAN)
    texts = [
        "钥匙挂在门边的架子上",
        "Maps lie in cabinet 1",
        "The rope needs drying",
        "灯要每周加油",
        "Nails are short",
    ]
    ids = [anchor.save_memory(text).id for text in texts]
    anchor.curation.edit(ids[0], "钥匙 now hangs at the door")
    anchor.log_event("Somebody asked for the rope")
    core.services.searcher.index.embed_pending(100)
    return ids


def test_a_backup_waits_for_a_source_that_is_read_and_stops_no_write(tmp_path, monkeypatch):
    """Rule backup.locks: what reads a source stores passages while the backup waits for it; neither waits for ever."""
    freezes, freezing = Library.frozen, threading.Event()
    storing, store_batch = threading.Event(), Library._store_batch

    def frozen(library):
        freezing.set()
        return freezes(library)

    def stored(library, *batch, **how):
        storing.set()
        assert freezing.wait(30)
        store_batch(library, *batch, **how)

    monkeypatch.setattr(Library, "frozen", frozen)
    monkeypatch.setattr(Library, "_store_batch", stored)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "oven.md").write_text("# Oven\n\nIt takes 16 A.\n", encoding="utf-8")
    with (
        DirectoryLock.acquire(tmp_path / "data", role="test") as lock,
        closing(opened(tmp_path / "data", lock)) as core,
    ):
        anchor = core.anchor(replace(HUMAN, project_dir=str(notes)))
        knowledge_of(anchor).add(str(notes), "files")
        reading = threading.Thread(target=lambda: library_of(core.services).step(lambda: True), daemon=True)
        reading.start()
        assert storing.wait(30)
        copying = threading.Thread(target=backup.create, args=(core, tmp_path / "kept.tar.gz"), daemon=True)
        copying.start()
        for thread in (reading, copying):
            thread.join(60)
        assert (reading.is_alive(), copying.is_alive()) == (False, False)
        assert anchor.save_memory("The oven door stays shut").id
        assert library_of(core.services).store.count("knowledge", Where()) == 1


def unseen(done, total):
    """Show no progress."""


@pytest.fixture
def archive(core, tmp_path):
    filled(core)
    return Path(backup.create(core, tmp_path / "kept.tar.gz")["file"])


class Shelf:
    """A data directory that backups are restored into."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def open(self, folder: Path) -> SqlStore:
        return file_store(folder / "store")

    def restore(self, file: Path, *, force: bool = False):
        with DirectoryLock.acquire(self.data_dir, role="test") as lock:
            return backup.restore(self.data_dir, file, force=force, lock=lock, open_store=self.open, tick=unseen)

    def present(self) -> SqlStore:
        return self.open(self.data_dir)


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "shelf")


def test_what_is_restored_is_what_was_backed_up(core, archive, shelf):
    """Rule backup: every version, vector, audit record, project and setting of jobs; nothing is embedded again."""
    report = shelf.restore(archive)

    assert versions(shelf.present()) == versions(core.services.store)
    assert (report["versions"], report["replaced"]) == (len(versions(core.services.store)), "")
    assert (shelf.data_dir / "audiences").read_bytes() == (core.data_dir / "audiences").read_bytes()
    with closing(opened(shelf.data_dir, store=shelf.present())) as again:
        assert again.services.searcher.index.unembedded() == 0
        assert again.audit.verify() is None
        assert list(again.audit.lines())[: core.audit.size()] == list(core.audit.lines())
        assert again.anchor(HUMAN).search("where is the rope").snippets


def test_a_backup_is_private_and_its_manifest_names_every_byte(archive):
    """Rule backup.private: 0600, one file, no links, and a hash for each member."""
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        manifest = json.loads(packed.extractfile(members[0]).read())
    assert members[0].name == "manifest.json"
    assert {member.name for member in members[1:]} == set(manifest["files"])
    assert manifest["collections"]["verified_fact"]["embedders"]["dense"]["model"] == "hash-test"
    assert [path.name for path in archive.parent.glob(".*")] == []


def test_a_directory_in_use_is_not_taken_without_force(archive, shelf):
    """Rule restore.refuse: what is there stays, to the byte."""
    shelf.data_dir.mkdir()
    (shelf.data_dir / "projects.json").write_text("mine")

    with pytest.raises(Refused, match="--force"):
        shelf.restore(archive)

    assert (shelf.data_dir / "projects.json").read_text() == "mine"
    report = shelf.restore(archive, force=True)
    assert (Path(report["replaced"]) / "projects.json").read_text() == "mine"
    assert not (shelf.data_dir / "projects.json").exists()


@pytest.mark.parametrize("harm", ["cut", "flip", "foreign", "extra"])
def test_a_damaged_backup_changes_nothing(archive, shelf, harm, tmp_path):
    """Rule restore.verify: every hash is compared first; the sentence says so and the directory stays as it was."""
    shelf.data_dir.mkdir()
    (shelf.data_dir / "projects.json").write_text("mine")
    if harm == "cut":
        archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    elif harm == "foreign":
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(__file__, "manifest.json")
    else:
        parts = tmp_path / "parts"
        unpack(archive, parts)
        if harm == "flip":
            chunk = next((parts / "memories").glob("verified_fact*.jsonl"))
            chunk.write_text(chunk.read_text().replace("cabinet 1", "cabinet 9"))
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(parts / "manifest.json", "manifest.json")
            packed.add(parts / "memories", "memories", filter=lambda m: m if not m.isdir() else None)
            for path in sorted((parts / "memories").iterdir()):
                packed.add(path, f"memories/{path.name}")
            if harm == "extra":
                packed.add(__file__, "../../outside")

    with pytest.raises(StoreDamaged, match="nothing was changed"):
        shelf.restore(archive, force=True)

    assert (shelf.data_dir / "projects.json").read_text() == "mine"
    assert not list(shelf.data_dir.glob("re*-*"))
    assert not (tmp_path / "outside").exists()


def test_a_missing_backup_is_not_found(shelf):
    with pytest.raises(NotFound, match="backup create"):
        shelf.restore(shelf.data_dir / "nothing.tar.gz")


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("at", range(1, 12))
def test_a_crash_in_the_last_step_leaves_the_old_or_the_new(core, archive, shelf, monkeypatch, at):
    """Rule restore.crash: killed before any of its moves, whoever opens the directory next finds one whole side."""
    shelf.data_dir.mkdir()
    for name in ("projects.json", "usage.json", "jobs.json"):
        (shelf.data_dir / name).write_text("old")
    moves = 0
    real = Path.rename

    def rename(self, target):
        nonlocal moves
        moves += 1
        if moves == at:
            raise Crash
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with suppress(Crash):
        shelf.restore(archive, force=True)
    monkeypatch.setattr(Path, "rename", real)

    restoring.finish_restore(shelf.data_dir)

    assert not (shelf.data_dir / restoring.JOURNAL).exists()
    (aside,) = shelf.data_dir.glob("replaced-*")
    assert {path.name for path in aside.iterdir()} == {"projects.json", "usage.json", "jobs.json"}
    assert versions(shelf.present()) == versions(core.services.store)
    assert LocalTrail(shelf.data_dir).size()
    assert not list(shelf.data_dir.glob("restore-*"))


def test_a_crash_before_the_journal_leaves_the_old(archive, shelf, monkeypatch):
    """Rule restore.crash: until the new side is complete nothing of the old was touched."""
    shelf.data_dir.mkdir()
    (shelf.data_dir / "projects.json").write_text("old")

    def dies(*_args, **_more):
        raise Crash

    monkeypatch.setattr(backup, "write_atomic", dies)
    with pytest.raises(Crash):
        shelf.restore(archive, force=True)
    monkeypatch.undo()

    assert restoring.finish_restore(shelf.data_dir) is False
    assert (shelf.data_dir / "projects.json").read_text() == "old"
    assert shelf.restore(archive, force=True)["replaced"]


LAST = 0
"""Killed when every entry is in its place and only the journal is left."""


@pytest.mark.parametrize("at", range(LAST, 9))
@pytest.mark.parametrize("next_step", ["opened", "restored again"])
def test_a_killed_restore_is_finished_and_nothing_of_either_side_is_lost(
    core, archive, shelf, monkeypatch, at, next_step
):
    """Rule restore.crash: both sides have entries of one name; each of them is where it belongs."""
    (shelf.data_dir / "audit").mkdir(parents=True)
    for name in ("usage.json", "audit/audit.jsonl"):
        (shelf.data_dir / name).write_text("old")
    moves, real = 0, Path.rename

    def rename(self, target):
        nonlocal moves
        moves += 1
        if moves == at:
            raise Crash
        return real(self, target)

    def dies(_path):
        raise Crash

    monkeypatch.setattr(Path, "rename", rename)
    if at == LAST:
        monkeypatch.setattr(restoring, "remove_durably", dies)
    with suppress(Crash):
        shelf.restore(archive, force=True)
    monkeypatch.undo()

    if next_step == "opened":
        restoring.finish_restore(shelf.data_dir)
        new = shelf.data_dir
    else:
        new = Path(shelf.restore(archive, force=True)["replaced"])
        assert versions(shelf.present()) == versions(core.services.store)

    old = shelf.data_dir / "replaced-1"
    assert {path.name for path in old.iterdir()} == {"usage.json", "audit"}
    assert (old / "audit" / "audit.jsonl").read_text() == (old / "usage.json").read_text() == "old"
    assert versions(shelf.open(new)) == versions(core.services.store)
    assert LocalTrail(new).verify() is None and LocalTrail(new).size()


@pytest.mark.parametrize("next_step", ["opened", "restored again"])
def test_what_a_killed_restore_unpacked_goes_with_the_next_start(archive, shelf, next_step):
    """Rule restore.crash: it holds every text in the clear, and nobody knows of it."""
    left = shelf.data_dir / "restore-4711" / "archive" / "memories"
    left.mkdir(parents=True)
    (left / "verified_fact-000000.jsonl").write_text("The rope needs drying")

    if next_step == "opened":
        with DirectoryLock.acquire(shelf.data_dir, role="test") as lock, closing(opened(shelf.data_dir, lock)):
            pass
    else:
        shelf.restore(archive)

    assert not list(shelf.data_dir.glob("restore-*"))


@pytest.mark.parametrize("next_step", ["a purge", "the next backup"])
@pytest.mark.parametrize("where", ["the first backup", "a purge of it"])
def test_what_a_killed_backup_left_goes_with_the_next_step(core, tmp_path, monkeypatch, where, next_step):
    """Rule backup.crash: every text in the clear beside its place; a purge that leaves it would certify too much."""
    ids = filled(core)
    file, gone = tmp_path / "shelf" / "kept.tar.gz", PurgeTraces.of((), ids[:1])
    if where != "the first backup":
        backup.create(core, file)

    def dies(*_given):
        raise Crash

    with monkeypatch.context() as killed:
        killed.setattr(os, "getpid", lambda: 4711)
        killed.setattr(backup, "replace_durably", dies)
        killed.setattr(backup, "remove_known", lambda *_given: None)
        for owner, name in ((shutil, "rmtree"), (Path, "unlink")):  # no process is left to clean up
            killed.setattr(owner, name, lambda *_given, **_how: None)
        with pytest.raises(Crash):
            backup.create(core, file) if where == "the first backup" else backup.KnownBackups(core.data_dir).erase(gone)
    assert len(list(file.parent.glob(".kept.tar.gz.4711.*"))) == 2
    assert backup.out_of_reach(core.data_dir) == ([str(file)] if where == "the first backup" else [])

    if next_step == "a purge":
        backup.KnownBackups(core.data_dir).erase(gone)
    else:
        backup.create(core, tmp_path / "another.tar.gz")

    assert list(file.parent.glob(".*")) == []
    assert [known["file"] for known in backup.known_backups(core.data_dir)][-1] == str(
        file if next_step == "a purge" else tmp_path / "another.tar.gz"
    )


@pytest.mark.skipif(not hasattr(os, "sync"), reason="nothing syncs everything here")
def test_the_new_side_is_on_disk_before_the_journal_announces_it(archive, shelf, monkeypatch):
    """Rule restore.power: a journal that survives a power cut names files that did."""
    seen = []

    def sync():
        (new,) = shelf.data_dir.glob("restore-*/new")
        seen.append(((shelf.data_dir / restoring.JOURNAL).exists(), {path.name for path in new.iterdir()}))

    monkeypatch.setattr(os, "sync", sync)
    shelf.restore(archive)

    ((announced, names),) = seen
    assert not announced and {"store", "audiences"} <= names


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_backup_that_is_reported_is_on_disk(core, tmp_path, monkeypatch):
    """Rule backup.power: the archive before it gets its name, and then the name."""
    filled(core)
    synced, real = [], os.fsync

    def fsync(handle):
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    file = Path(backup.create(core, tmp_path / "kept.tar.gz")["file"])

    archive = next(n for n, path in enumerate(synced) if path.name.startswith(f".{file.name}."))
    assert file.parent in synced[archive + 1 :]


def test_a_backup_that_failed_leaves_nothing(core, tmp_path, monkeypatch):
    """Rule backup.private: no copy of the memories in the clear, no half archive, and no backup that is known."""
    filled(core)
    (tmp_path / "shelf").mkdir()

    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "replace_durably", full)
    with pytest.raises(DiskFull, match="nothing was changed"):
        backup.create(core, tmp_path / "shelf" / "kept.tar.gz")

    assert list((tmp_path / "shelf").iterdir()) == []
    assert backup.known_backups(core.data_dir) == []
    assert not list(core.data_dir.glob("restore-*"))


@pytest.mark.parametrize("to", ["a file", "a folder"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_backup_asked_for_again_after_a_kill_is_one_backup(core, project, tmp_path, monkeypatch, to, when):
    """Promise 1: killed before it was finished it is made, killed after it is told of; one file either way."""
    filled(core)
    target = tmp_path / "shelf" if to == "a folder" else tmp_path / "shelf" / "kept.tar.gz"
    (tmp_path / "shelf").mkdir()
    caller, real = Preamble(project_dir=str(project), client="cli", nonce="n1"), backup.create

    def dies(*given):
        if when == "after":
            real(*given)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(backup, "create", dies)
        with pytest.raises(Crash):
            calls.run(core, caller, "backup_create", {"file": str(target)})

    again = calls.run(core, caller, "backup_create", {"file": str(target)})

    (file,) = (tmp_path / "shelf").iterdir()
    assert (again["file"], again["versions"]) == (str(file), len(versions(core.services.store)))


def test_known_backups_are_noted_and_a_purge_reaches_into_them(core, tmp_path):
    """Rule purge.backups: what is erased is erased in the backups that are known, and they still restore."""
    ids = filled(core)
    file = Path(backup.create(core, tmp_path / "b.tar.gz")["file"])
    assert [one["file"] for one in backup.known_backups(core.data_dir)] == [str(file)]

    gone = backup.KnownBackups(core.data_dir).erase(PurgeTraces.of((), ids[:1]))

    assert gone == len(core.anchor(HUMAN).history(ids[0])) >= 2
    shelf = Shelf(tmp_path / "again")
    report = shelf.restore(file)
    left = versions(shelf.present())
    assert report["versions"] == len(left) == len(versions(core.services.store)) - gone
    assert not any(name.startswith(ids[0]) for name in left)
    assert all(vectors for _, vectors, _ in left.values())
    parts = tmp_path / "parts"
    unpack(file, parts)
    assert not any("钥匙".encode() in path.read_bytes() for path in parts.rglob("*") if path.is_file())
    file.unlink()
    assert backup.out_of_reach(core.data_dir) == [str(file)]


@pytest.mark.slow
def test_an_installations_store_is_restored_with_its_vectors_and_opens_as_usual(tmp_path):
    """Rule backup: on the real store too."""
    data = tmp_path / "data"
    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as core:
        filled(core)
        before = versions(core.services.store)
        file = Path(backup.create(core, tmp_path)["file"])
    assert file.stat().st_size < 200_000
    shutil.rmtree(data)

    with DirectoryLock.acquire(data, role="test") as lock:
        backup.restore(
            data,
            file,
            force=False,
            lock=lock,
            open_store=lambda folder: file_store(folder / "store"),
            tick=unseen,
        )
        with closing(opened(data, lock)) as core:
            after = versions(core.services.store)
            assert after.keys() == before.keys()
            assert all(after[name][0] == before[name][0] for name in before)
            assert core.services.store.count("verified_fact", Where((HasVector(),))) == len(
                [name for name, (memory, *_) in before.items() if memory.layer.value == "verified_fact"]
            )
            assert core.services.searcher.index.unembedded() == 0
