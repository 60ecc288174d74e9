"""A migration that is killed, again and again, comes to the same end: nothing missing, nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from figures import figure

from memory_anchor.adapters.qdrant_store import QdrantStore
from memory_anchor.admin import rebuild
from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, MemoryType, Scope
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings

pytestmark = pytest.mark.slow
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TINY = CollectionSpec({DENSE: EmbedderIdentity("tiny", 8)})
KILLS, MANY = figure(2, 10), figure(1_500, 3_000)
CHILD = """
import sys
from pathlib import Path
from memory_anchor.admin import rebuild
from memory_anchor.front.cli.keep import migrate_store
rebuild.COPIED_AT_ONCE = 100
def tick(done, total, what):
    print(done, flush=True)
told = migrate_store(Path(sys.argv[1]), to=sys.argv[2], source="", dry=False, human=lambda: None, tick=tick)
print("finished", told["collections"]["verified_fact"]["versions"], flush=True)
"""


@pytest.mark.timeout(900)
def test_a_migration_killed_at_several_points_is_finished_by_the_same_command(tmp_path: Path) -> None:
    """Migrate: killed after some pages, four or ten times; into a real server where `QDRANT_TEST_URL` is."""
    home, url = tmp_path / "home", os.environ.get("QDRANT_TEST_URL", "")
    if url:
        from qdrant_client import QdrantClient

        with closing(QdrantClient(url=url)) as client:
            for name in COLLECTIONS:
                client.delete_collection(name)
    rng = np.random.default_rng(3)
    with DirectoryLock.acquire(home, role="test") as lock, closing(open_store(Settings(), home, lock)) as store:
        for name in COLLECTIONS:
            store.open_collection(name, TINY)
        for start in range(0, MANY, 500):
            entries = []
            for number in range(start, start + 500):
                one = Memory(f"m{number}", f"text {number}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)
                two = replace(one, version=2, content=f"更新 {number}", recorded_at=NOON + timedelta(days=1))
                row = rng.normal(size=8).astype(np.float32)
                rows = {DENSE: row / np.linalg.norm(row)}
                entries += [Entry(one.closed(two.recorded_at), rows), Entry(two, rows)]
            store.put("verified_fact", entries)
    env = {**os.environ, "MEMORY_ANCHOR_EMBEDDER__KIND": "none", "MEMORY_ANCHOR_DATA_DIR": str(home)}
    command = [sys.executable, "-c", CHILD, str(home), url.replace("http://", "qdrant://") or str(tmp_path / "there")]
    for kill in range(KILLS + 1):
        child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line.strip())
            if kill < KILLS and len(lines) > kill % 4:
                child.send_signal(signal.SIGKILL)
                break
        child.wait()
    assert lines[-1] == f"finished {2 * MANY}"
    with DirectoryLock.acquire(home, role="test") as lock, closing(open_store(Settings(), home, lock)) as store:
        target = QdrantStore(url=url) if url else QdrantStore(path=str(tmp_path / "there"))
        with closing(target):
            sums = []
            for side in (store, target):
                side.open_collection("verified_fact", CollectionSpec({}))
                sums.append(rebuild.StoreSums())
                list(rebuild._sum_up(side, "verified_fact", sums[-1]))
    assert sums[0] == sums[1] and sums[0].versions == 2 * MANY and sums[0].embedded == {DENSE: 2 * MANY}
