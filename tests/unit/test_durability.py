"""What an answer promises about the disk: group commit, its order, its bound in `batch`, and a disk that refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from stores import file_store

from memory_anchor.base.durability import Durability, SyncedLock
from memory_anchor.base.files import write_atomic
from memory_anchor.domain.errors import MemoryAnchorError, Unavailable
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.store import database
from memory_anchor.testing import HashEmbedder, ephemeral_core

WRITERS = 8
SOON_S = 20.0
ACTOR = Actor(Caller.AGENT, Scope(agent="tester", conversation="c1"), client="tester")


FORKED = """
import os, sys
from memory_anchor.base.durability import Durability, SyncedLock

def save():
    durability = Durability()
    with SyncedLock(durability):
        durability.note_write("store", "log", lambda: None)
        durability.note_write("trail", "log", lambda: None)

save()
child = os.fork()
if not child:
    save()
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_of_a_process_that_saved_can_save_too() -> None:
    """Rule bounded: the threads that sync are not in a fork, and nothing waits for them."""
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=SOON_S).returncode == 7


def test_one_sync_serves_all_who_wrote_before_it_began() -> None:
    """Rule power: concurrent writers share an fsync; none is answered before one that began after its write."""
    durability = Durability()
    began, go, log = threading.Event(), threading.Event(), []

    def sync() -> None:
        log.append("sync")
        began.set()
        assert go.wait(SOON_S)

    first = threading.Thread(target=durability.note_write, args=("store", "a", sync))
    first.start()
    assert began.wait(SOON_S)
    others = [threading.Thread(target=durability.note_write, args=("store", "a", sync)) for _ in range(WRITERS)]
    for thread in others:
        thread.start()
    while durability.written < 1 + WRITERS:
        threading.Event().wait(0.001)
    assert all(thread.is_alive() for thread in others), "answered before its write was synced"
    go.set()
    for thread in (first, *others):
        thread.join(SOON_S)

    assert log == ["sync", "sync"]


def test_the_next_writer_decides_while_this_one_waits_for_the_disk() -> None:
    """Rule power: the writers' lock is let go before the wait, and the answer comes after it."""
    durability = Durability()
    lock, waiting, go, entered = SyncedLock(durability), threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        waiting.set()
        assert go.wait(SOON_S)

    def write() -> None:
        with lock, lock:
            durability.note_write("store", "a", slow)

    def look() -> None:
        with lock:
            entered.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert waiting.wait(SOON_S)
    reader = threading.Thread(target=look)
    reader.start()

    assert entered.wait(SOON_S)
    assert writer.is_alive()
    go.set()
    writer.join(SOON_S)
    reader.join(SOON_S)


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


def test_a_disk_that_does_not_confirm_is_never_trusted_again() -> None:
    """Rule power: after a failed fsync the kernel has dropped those pages, so that a repeat would prove nothing."""
    durability = Durability()

    def refuse() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(Unavailable, match="did not confirm"):
        durability.note_write("store", "a", refuse)
    with pytest.raises(Unavailable, match="did not confirm"):
        durability.note_write("store", "a", lambda: None)


def test_who_waits_for_another_writers_sync_is_not_answered_where_it_fails() -> None:
    """Rule power: a group shares the failure too; what the waiting one wrote is not on disk either."""
    durability = Durability()
    began, go = threading.Event(), threading.Event()
    answers: list[str] = []

    def refuse() -> None:
        began.set()
        assert go.wait(SOON_S)
        raise OSError(5, "Input/output error")

    def writes(work: Callable[[], None]) -> None:
        try:
            work()
            answers.append("answered")
        except Unavailable:
            answers.append("refused")

    first = threading.Thread(target=writes, args=(lambda: durability.note_write("store", "a", refuse),))
    first.start()
    assert began.wait(SOON_S)
    others = [threading.Thread(target=writes, args=(durability.sync,)) for _ in range(WRITERS)]
    for thread in others:
        thread.start()
    while len(durability._changed._waiters) < WRITERS:  # type: ignore[attr-defined]
        threading.Event().wait(0.001)
    go.set()
    for thread in (first, *others):
        thread.join(SOON_S)

    assert answers == ["refused"] * (1 + WRITERS)


def test_a_write_beside_the_lock_is_on_disk_on_return_whoever_holds_the_lock() -> None:
    """Rule power: only what the holder of the lock itself writes waits for its end."""
    durability = Durability()
    held, go, synced = threading.Event(), threading.Event(), list[str]()

    def holds() -> None:
        with SyncedLock(durability):
            held.set()
            assert go.wait(SOON_S)

    holder = threading.Thread(target=holds)
    holder.start()
    assert held.wait(SOON_S)

    durability.note_write("audit", "trail", lambda: synced.append("trail"))

    assert synced == ["trail"]
    go.set()
    holder.join(SOON_S)


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
