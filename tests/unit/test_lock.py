"""The lock on a data directory: one holder, named to whoever comes second."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from memory_anchor.domain.errors import Refused, StoreBusy, Unavailable
from memory_anchor.runtime import lock as lock_module
from memory_anchor.runtime.lock import LOCK_FILE, DirectoryLock

HOLD = """
import sys
from pathlib import Path
from memory_anchor.runtime.lock import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]), role="engine")
print("held", flush=True)
sys.stdin.readline()
"""


def test_a_second_holder_is_told_who_is_first(tmp_path: Path) -> None:
    """Store: a second process gets StoreBusy naming the holder's pid and role."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=rf"in use by pid {holder.pid} \(engine, since 20.*nothing was changed"):
            DirectoryLock.acquire(tmp_path, role="cli")
        holder.kill()
    DirectoryLock.acquire(tmp_path, role="cli").release()


def test_the_same_process_cannot_take_it_twice(tmp_path: Path) -> None:
    """One store a directory, also within one process."""
    with DirectoryLock.acquire(tmp_path, role="engine") as lock:
        assert lock.held and lock.directory == tmp_path
        with pytest.raises(StoreBusy, match=f"pid {os.getpid()}"):
            DirectoryLock.acquire(tmp_path, role="engine")
        assert lock.held
    assert not lock.held
    lock.release()
    with DirectoryLock.acquire(tmp_path, role="engine") as again:
        assert again.held


def test_the_file_is_private_and_stays(tmp_path: Path) -> None:
    """Deleting a lock file would let two processes hold two locks; 0600 in a folder made 0700."""
    home = tmp_path / "new" / "home"
    DirectoryLock.acquire(home, role="engine").release()
    assert stat.S_IMODE((home / LOCK_FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert (home / LOCK_FILE).read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_never_owns_the_lock(tmp_path: Path) -> None:
    """flock is shared with forked children: they let go of it at once, and the parent keeps it."""
    lock = DirectoryLock.acquire(tmp_path, role="engine")
    child = os.fork()
    if child == 0:
        os._exit(0 if not lock.held else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.held
    with pytest.raises(StoreBusy):
        DirectoryLock.acquire(tmp_path, role="other")
    lock.release()
    DirectoryLock.acquire(tmp_path, role="other").release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A grandchild left behind must not lock the next engine out."""
    script = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from memory_anchor.runtime.lock import DirectoryLock\n"
        "lock = DirectoryLock.acquire(Path(sys.argv[1]), role='engine')\n"
        "ready, wait = os.pipe()\n"
        "if os.fork() == 0:\n    print('forked', flush=True)\n    sys.stdin.readline()\n    os._exit(0)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "forked\n"
        parent.kill()
        parent.wait()
        DirectoryLock.acquire(tmp_path, role="next").release()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    """Bad input: a read-only folder gives one sentence."""
    tmp_path.chmod(0o500)
    with pytest.raises(Refused, match="cannot be written"):
        DirectoryLock.acquire(tmp_path, role="engine")


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    """Bad input: one sentence, whatever the operating system says."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="cannot be locked"):
        DirectoryLock.acquire(tmp_path / "file", role="engine")


def test_a_dead_holders_name_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text outlives a killed holder; between its lock and its name the next one is just "another process"."""
    monkeypatch.setattr(lock_module, "is_running", lambda _pid: False)
    monkeypatch.setattr(lock_module, "_HOLDER_PAUSE_S", 0)
    with DirectoryLock.acquire(tmp_path, role="engine"), pytest.raises(StoreBusy, match="in use by another process"):
        DirectoryLock.acquire(tmp_path, role="cli")


def test_importing_it_imports_nothing_heavy() -> None:
    """Processes: the lock is taken before the imports."""
    script = (
        "import sys, memory_anchor.runtime.lock; print([m for m in ('numpy','asyncio','json') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
