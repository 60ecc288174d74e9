"""What an answer promises about the disk: its bound in `batch`, what is synced, and a file that was taken away."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from stores import file_store

from memory_anchor.base.files import write_atomic
from memory_anchor.domain.errors import MemoryAnchorError
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.store import database
from memory_anchor.testing import HashEmbedder, ephemeral_core

SOON_S = 20.0
ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")


def test_a_database_under_batch_answers_at_once_and_syncs_its_log_within_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule power: so too for the embedded store; `always` leaves the sync to the COMMIT."""
    synced, real = threading.Event(), database.sync_file

    def told(path: Path) -> None:
        real(path)
        if path.name.endswith("-wal"):
            synced.set()

    monkeypatch.setattr(database, "sync_file", told)
    with closing(database.Sqlite(tmp_path / "memory.db", sync_ms=60_000)) as later:
        later.write(lambda link: link.run("insert into meta values('a', 'b')"))
        assert later.connect(writes=True).rows("pragma synchronous") == [(1,)]
        assert not synced.is_set()
    assert synced.is_set(), "nothing is left for after the lock is let go"
    synced.clear()
    with closing(database.Sqlite(tmp_path / "soon" / "memory.db", sync_ms=30)) as soon:
        soon.write(lambda link: link.run("insert into meta values('a', 'b')"))
        assert synced.wait(SOON_S)
    with closing(database.Sqlite(tmp_path / "memory.db")) as always:
        assert always.connect(writes=True).rows("pragma synchronous") == [(2,)]


def _synced_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that every fsync from now on adds its file to; the fsync itself is done."""
    found: list[str] = []
    real = os.fsync

    def told(handle: int) -> None:
        found.append(Path(f"/proc/self/fd/{handle}").readlink().as_posix())
        real(handle)

    monkeypatch.setattr(os, "fsync", told)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_file_replaced_whole_is_synced_with_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule power: the content, the name, and the name of each folder that was made for it."""
    files = _synced_files(monkeypatch)
    write_atomic(tmp_path / "a" / "b" / "key.json", b"{}")

    assert [str(tmp_path), str(tmp_path / "a")] == files[:2]
    assert files[2].startswith(str(tmp_path / "a" / "b" / ".key.json."))
    assert files[3] == str(tmp_path / "a" / "b")


def test_a_data_directory_that_was_removed_ends_its_users_loudly(tmp_path: Path) -> None:
    """Rule bounded: SQLite goes on writing to a file that has no name any more; what is answered must be kept."""
    core = ephemeral_core(tmp_path, store=file_store(tmp_path / "store"), embedder=HashEmbedder())
    core.anchor(ACTOR).save_memory("We deploy on Tuesdays.")
    shutil.rmtree(tmp_path / "store")

    with pytest.raises(MemoryAnchorError, match="was removed"):
        core.anchor(ACTOR).save_memory("We release on Fridays.")


def test_a_database_closes_while_another_thread_s_first_write_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule close: what copies the log may be made at that very moment."""
    made, begun = threading.Event(), threading.Thread.start

    def slowly(thread: threading.Thread) -> None:
        if thread.name == "checkpoints":
            made.set()
            time.sleep(0.2)
        begun(thread)

    database.Sqlite(tmp_path / "memory.db").close()
    opened = database.Sqlite(tmp_path / "memory.db")
    monkeypatch.setattr(threading.Thread, "start", slowly)

    def writes() -> None:
        with opened.unit() as link:
            link.run("insert into meta(name, value) values('a', 'b')")

    writer = threading.Thread(target=writes, name="writer")
    writer.start()
    assert made.wait(20)

    opened.close()

    writer.join(20)


def test_a_database_closes_although_ctrl_c_fell_into_the_start_of_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule stop: a thread that never began is not waited for, and no error hides the interrupt."""

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    database.Sqlite(tmp_path / "memory.db").close()
    opened = database.Sqlite(tmp_path / "memory.db")
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), opened.unit() as link:
        link.run("insert into meta(name, value) values('a', 'b')")

    opened.close()
