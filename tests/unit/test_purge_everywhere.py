"""A purge of an installation reaches every copy: rows, the collections of the index, and what was put aside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from archives import unpack
from disk import holding

from memory_anchor.adapters.old_store import OldStore
from memory_anchor.adapters.snapshot_file import ROWS_FILE, SNAPSHOT_FILE
from memory_anchor.admin.upgrade import KeptSides
from memory_anchor.domain.model import COLLECTIONS, Actor, Caller, Scope, point_id
from memory_anchor.domain.requests import requests
from memory_anchor.domain.rights import purge_digest
from memory_anchor.domain.where import Where
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.recall import index
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import EmbedderSettings, Settings
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import IndexFollower
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.testing import HashEmbedder

HUMAN = Actor(Caller.HUMAN, Scope(agent="a"))
SECRET = "swordfish-暗号-9931"
STORES = Path(__file__).resolve().parents[1] / "stores"


def opened(data: Path, lock: DirectoryLock) -> Core:
    return build_core(Settings(embedder=EmbedderSettings(kind="none")), data_dir=data, lock=lock)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """A whole installation: a database, its collections, an event and a fact with the secret."""
    data = tmp_path / "data"
    with DirectoryLock.acquire(data, role="test") as lock, closing(opened(data, lock)) as made:
        anchor = made.anchor(HUMAN)
        anchor.log_event(f"The vault opened with {SECRET}")
        anchor.save_memory("The ferry leaves at nine")
        yield made


def beside(core: Core) -> IndexFollower:
    follower = core.services.store.beside  # type: ignore[attr-defined]
    assert isinstance(follower, IndexFollower)
    return follower


def purged(core: Core, text: str = SECRET) -> dict[str, Any]:
    maintenance = core.anchor(HUMAN).maintenance
    shown = maintenance.preview_purge(requests.PreviewPurge(text=text))["memories"]
    return maintenance.purge(requests.Purge(text=text, seen=purge_digest(shown)))


def signs(text: str = SECRET) -> tuple[bytes, bytes]:
    return text.encode(), json.dumps(text)[1:-1].encode()


def test_a_purge_waits_for_the_collections_of_the_index(core: Core) -> None:
    """Purge: the certificate comes when no byte of a collection has the text any more, and nothing else is lost."""
    assert beside(core).catch_up()
    assert holding(core.data_dir / "index", *signs()) and holding(core.data_dir / "store", *signs())

    certificate = purged(core)

    assert (certificate["clean"], certificate["failed"]) == (True, [])
    assert holding(core.data_dir, *signs()) == []
    assert beside(core).state().behind == 0
    assert core.anchor(HUMAN).search("when does the ferry leave").snippets


def test_collections_that_cannot_be_made_again_are_named(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purge: the text is out of the store, and the certificate says where it may still be."""
    assert beside(core).catch_up()
    monkeypatch.setattr(beside(core), "_has_space", lambda: False)

    certificate = purged(core)

    assert not certificate["clean"] and "search index" in certificate["failed"][0]
    assert holding(core.data_dir / "store", *signs()) == []
    monkeypatch.undo()
    assert beside(core).catch_up()
    assert holding(core.data_dir, *signs()) == []


def test_the_database_that_a_restore_replaced_is_purged_too(core: Core) -> None:
    """Purge: rows of a database in `replaced-N` are erased, its collections go, other rows and files stay."""
    assert beside(core).catch_up()
    aside = core.data_dir / "replaced-1"
    for name in ("store", "index"):
        shutil.copytree(core.data_dir / name, aside / name)
    for name, text in (("spool/1.json", SECRET), ("spool/2.json", "nothing")):
        (aside / name).parent.mkdir(exist_ok=True)
        (aside / name).write_text(json.dumps({"text": text}))

    certificate = purged(core)

    assert (certificate["clean"], certificate["still_in"]) == (True, [])
    assert certificate["files"][KeptSides.name] == 2
    assert holding(core.data_dir, *signs()) == []
    assert holding(aside / "store", b"The ferry leaves") and (aside / "spool" / "2.json").exists()


def test_records_of_a_database_put_aside_go_with_the_text(core: Core) -> None:
    """Purge: what `replaced-N` keeps of an answer or a batch with the text is erased, other records stay."""
    for name, text in (("requests/1", SECRET), ("team/ingest/1.json", SECRET), ("requests/2", "nothing")):
        core.records.write(name, json.dumps({"items": [text]}).encode(), before=None)
    aside = core.data_dir / "replaced-1" / "store"
    shutil.copytree(core.data_dir / "store", aside)

    certificate = purged(core)

    assert (certificate["clean"], certificate["still_in"]) == (True, [])
    assert holding(core.data_dir, *signs()) == []
    with closing(Sqlite(aside / "memory.db")) as database:
        assert SqlRecords(database, core.clock.now).revisions(
            ["requests/1", "requests/2", "team/ingest/1.json"]
        ).keys() == {"requests/2"}


def test_a_purge_of_records_alone_leaves_the_text_in_no_byte(core: Core) -> None:
    """Purge: also where no memory has the text, what was erased is out of the database's log when it is certified."""
    core.records.write("requests/1", json.dumps({"items": ["nothing but the falcon lands"]}).encode(), before=None)
    core.records.write(
        "team/ingest/1.json", json.dumps({"items": ["the falcon lands", "a ferry"]}).encode(), before=None
    )
    assert holding(core.data_dir, b"the falcon lands")

    certificate = purged(core, "the falcon lands")

    assert (certificate["versions"], certificate["clean"]) == (0, True)
    assert holding(core.data_dir, b"the falcon lands") == []
    assert b"a ferry" in record_of(core, "team/ingest/1.json")


def record_of(core: Core, name: str) -> bytes:
    stored = core.records.read(name)
    assert stored is not None
    return stored.content


def test_a_database_put_aside_that_cannot_be_read_is_named(core: Core) -> None:
    """Purge: what a salvage left is no failure of the purge, and a human is told to take it away."""
    aside = core.data_dir / "replaced-1"
    (aside / "store").mkdir(parents=True)
    (aside / "store" / "memory.db").write_bytes(b"\xff" * 8192)

    certificate = purged(core)

    assert (certificate["clean"], certificate["still_in"]) == (False, [str(aside)])


def test_what_searches_saved_goes_and_comes_back_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purge: no byte of the file of the mirror, finished or cut off by a kill, has a name or the number of a purged
    memory, neither when the certificate comes nor when the file is made again."""
    monkeypatch.setattr(index, "SAVED_FROM", 1)
    data, embedder = tmp_path / "data", HashEmbedder()
    with DirectoryLock.acquire(data, role="test") as lock:
        with closing(build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)) as core:
            logged = core.anchor(HUMAN).log_event(f"The vault opened with {SECRET}", who=[SECRET])
            for number in range(9):
                core.anchor(HUMAN).log_event(f"Ferry {number} left at nine")
        sought = (*signs(), UUID(point_id(logged.id, 1)).bytes)
        with closing(build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)) as core:
            core.services.searcher.index.warm()
            for file in (SNAPSHOT_FILE, ROWS_FILE):
                shutil.copy(data / SNAPSHOT_FILE, data / f".{file}.tmp")  # a process was killed while it saved
            for file in (SNAPSHOT_FILE, f".{SNAPSHOT_FILE}.tmp", f".{ROWS_FILE}.tmp"):
                assert all(sign in (data / file).read_bytes() for sign in (sought[0], sought[2]))

            certificate = purged(core)

            assert (certificate["clean"], certificate["failed"]) == (True, [])
            assert not any(sign in path.read_bytes() for path in data.rglob("*npz*") for sign in sought)
            assert core.anchor(HUMAN).search("when does the ferry leave").snippets
        assert (data / SNAPSHOT_FILE).exists()
        assert not any(sign in path.read_bytes() for path in data.rglob("*npz*") for sign in sought)


@pytest.fixture
def upgraded(tmp_path: Path) -> Path:
    """A directory of the old layout that was upgraded; its old side is in `replaced-1`."""
    unpack(next(STORES.glob("*.tar.xz")), tmp_path)
    data = tmp_path / "data"
    for each in (data, *(path for path in data.rglob("*") if path.is_dir())):
        each.chmod(0o700)
    with DirectoryLock.acquire(data, role="test") as lock:
        opened(data, lock).close()
    return data


def texts_of(directory: Path) -> list[str]:
    with closing(OldStore(directory)) as old:
        for name in COLLECTIONS:
            old.open_collection(name)
        return [e.memory.content for name in COLLECTIONS for e in old.scan(name, Where(), page=1_000)[0]]


def test_the_old_side_of_an_upgrade_goes_with_the_text_and_stays_without_it(upgraded: Path) -> None:
    """Purge: shards of the old layout go whole where one has the text; a purge of anything else leaves them."""
    before = texts_of(upgraded / "replaced-1" / "store")
    text = max(before, key=len)
    with DirectoryLock.acquire(upgraded, role="test") as lock, closing(opened(upgraded, lock)) as core:
        core.anchor(HUMAN).log_event(f"The vault opened with {SECRET}")
        assert purged(core)["files"][KeptSides.name] == 0
        assert (upgraded / "replaced-1" / "store").is_dir()

        certificate = purged(core, text)

        assert certificate["files"][KeptSides.name] >= 1 and not certificate["failed"]
    assert not (upgraded / "replaced-1" / "store").exists()
    assert holding(upgraded, text.encode()) == []


def test_a_reindex_leaves_the_old_side_and_the_collections_follow(upgraded: Path) -> None:
    """Reindex: words are made anew in the database alone; what was put aside is not touched, the index catches up."""
    before = texts_of(upgraded / "replaced-1" / "store")
    with DirectoryLock.acquire(upgraded, role="test") as lock, closing(opened(upgraded, lock)) as core:
        while not core.anchor(HUMAN).maintenance.reindex(requests.ReindexStore())["finished"]:
            pass
        assert beside(core).catch_up() and beside(core).state().behind == 0
    assert texts_of(upgraded / "replaced-1" / "store") == before
