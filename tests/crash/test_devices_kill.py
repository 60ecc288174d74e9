"""A device killed in the middle of a sync, anywhere: the next sync goes on; nothing is lost, doubled or half there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from devicekit import Laptop, differences, settled, texts_of
from stores import file_store

from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.testing import ManualClock

FACTS = 60
CHILD = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3].split(os.pathsep)
from devicekit import Laptop
from stores import file_store
from memory_anchor.extensions.devices import incoming, ledger
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.testing import ManualClock

home, after = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def counted(function):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return call

lock = DirectoryLock.acquire(home, role="test")
device = Laptop(home, ManualClock(), store=file_store(home / "store"))
# A kill between any two of these is a kill between any two steps of an exchange.
ledger.Ledger.record = counted(ledger.Ledger.record)
ledger.Ledger.set_position = counted(ledger.Ledger.set_position)
ledger.Ledger.mark_sent = counted(ledger.Ledger.mark_sent)
incoming.VersionWriter._write = counted(incoming.VersionWriter._write)
device.sync()
print("done", calls)
"""


def opened(home: Path) -> tuple[Laptop, DirectoryLock]:
    home.mkdir(parents=True, exist_ok=True)
    lock = DirectoryLock.acquire(home, role="test")
    return Laptop(home, ManualClock(), store=file_store(home / "store")), lock


@pytest.mark.slow
def test_a_device_killed_in_the_middle_of_a_sync_goes_on(tmp_path: Path) -> None:
    """Rule sync.kill: killed at eight points of reading and sending, over the real engine's store."""
    folder, home = tmp_path / "folder", tmp_path / "killed"
    folder.mkdir()
    one = Laptop(tmp_path / "one", ManualClock())
    one.join(folder, "one")
    names = [
        one.anchor.save_memory(f"Gate {n} of the orchard opens at {n % 24}:15 for cart {n}.").id for n in range(FACTS)
    ]
    one.sync()
    other, lock = opened(home)
    other.join(folder, "other")
    other.sync()
    for number, name in enumerate(names[:20]):  # both change some, so that versions move while it is killed
        one.anchor.curation.edit(str(name), content=f"Gate {number} is closed for cart {number}, says one.")
        other.clock.advance(seconds=1)
        other.anchor.curation.edit(str(name), content=f"Gate {number} is open for cart {number}, says the other.")
    one.sync()
    other.close()
    lock.release()

    killed = 0
    support = os.pathsep.join([str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])])
    for after in (1, 2, 3, 4, 5, 6, 8, 10):
        run = [sys.executable, "-c", CHILD, str(home), str(after), support]
        done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        killed += done.returncode != 0

    other, lock = opened(home)
    settled([other, one], rounds=3)
    assert killed >= 4
    assert differences({"one": one.state(), "other": other.state()}) == []
    for number, name in enumerate(names[:20]):
        for device in (one, other):
            said = texts_of(device.core)[str(name)]
            assert {
                f"Gate {number} is closed for cart {number}, says one.",
                f"Gate {number} is open for cart {number}, says the other.",
            } <= said
    for versions in one.state().values():
        assert len({said for _, said, _, _ in versions}) == len(versions)
    other.close()
    lock.release()
    one.close()
