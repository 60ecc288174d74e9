"""What the Edge store holds in memory: its engine maps far more than it needs, and the store gives that back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MIB = 150
"""Measured 42 MiB; 547 without giving mapped pages back."""

OPEN = """
import sys
from pathlib import Path
from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec, EmbedderIdentity
from memory_anchor.runtime.lock import DirectoryLock
lock = DirectoryLock.acquire(Path(sys.argv[1]), role="test")
for _ in range(2):
    store = EdgeStore(Path(sys.argv[1]), lock=lock)
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({"dense": EmbedderIdentity("tiny", 384)}))
    status = Path("/proc/self/status").read_text()
    assert store.size_bytes() < 16 << 20, store.size_bytes()
    store.close()
print(int(status.split("VmRSS:")[1].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_an_empty_store_is_small_in_memory_and_on_disk(tmp_path: Path) -> None:
    """Figures: an engine with 10,000 memories stays under 300 MB; four loaded shards must not take it all."""
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(answer.stdout) < MOST_MIB
