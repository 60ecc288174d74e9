"""What an empty memory takes: in the process that opens it, and on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MIB = 150
"""Of the process with everything that it imports to open a store."""

OPEN = """
import sys
from pathlib import Path
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec, EmbedderIdentity
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
lock = DirectoryLock.acquire(Path(sys.argv[1]), role="test")
for _ in range(2):
    store = open_store(Settings(), Path(sys.argv[1]), lock)
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({"dense": EmbedderIdentity("tiny", 384)}))
    assert store.beside.catch_up()
    status = Path("/proc/self/status").read_text()
    assert store.size_bytes() < 1 << 20, store.size_bytes()
    store.close()
taken = sum(each.stat().st_blocks * 512 for each in Path(sys.argv[1]).rglob("*"))
assert taken < 16 << 20, taken
print(int(status.split("VmRSS:")[1].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_empty_memory_is_small_in_memory_and_on_disk(tmp_path: Path) -> None:
    """Figures: an engine with 10,000 memories stays under 300 MB; the collections beside the store take none of it."""
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(answer.stdout) < MOST_MIB
