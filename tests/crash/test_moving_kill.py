"""Carrying memories from a server into the database, killed again and again: nothing is missing, nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import oldserver
import pytest
from figures import figure

from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, MemoryType, Scope
from memory_anchor.domain.ports import CollectionSpec, Entry
from memory_anchor.domain.where import Where
from memory_anchor.process.app import open_store, settings_of
from memory_anchor.runtime.lock import DirectoryLock

pytestmark = pytest.mark.slow
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KILLS, MANY = figure(3, 10), 600
CHILD = """
import os, sys
from pathlib import Path
from memory_anchor.admin import upgrade
from memory_anchor.front.cli.keep import migrate_store
from memory_anchor.testing import human_of
upgrade.COPIED_AT_ONCE = 100
def tick(done, total, what):
    print(done, flush=True)
home = Path(sys.argv[1])
told = migrate_store(home, source="", dry=False, human=lambda: human_of(home), tick=tick)
print("finished", told["versions"]["verified_fact"], flush=True)
"""


@pytest.mark.timeout(900)
def test_a_move_killed_at_several_points_is_done_by_the_same_command(tmp_path: Path) -> None:
    """Migrate: one transaction, so a kill leaves nothing of it."""
    home, server = tmp_path / "home", tmp_path / "server"
    home.mkdir(exist_ok=True)
    entries = []
    for number in range(MANY):
        one = Memory(f"m{number}", f"text {number}", Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), NOON, NOON)
        two = replace(one, version=2, content=f"更新 {number}", recorded_at=NOON + timedelta(days=1))
        entries += [Entry(one.closed(two.recorded_at)), Entry(two)]
    oldserver.leave(server, entries)
    env = {
        **os.environ,
        "MEMORY_ANCHOR_EMBEDDER__KIND": "none",
        "MEMORY_ANCHOR_INDEX__KIND": "qdrant",
        "MEMORY_ANCHOR_INDEX__PATH": str(server),
    }
    for kill in range(KILLS + 1):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(home)], env=env, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(line.strip())
            if kill < KILLS and len(lines) > kill % 12:
                child.send_signal(signal.SIGKILL)
                break
        child.wait()
    assert lines[-1] == f"finished {2 * MANY}"
    alone = {"MEMORY_ANCHOR_EMBEDDER__KIND": "none"}
    with DirectoryLock.acquire(home, role="test") as lock, closing(open_store(settings_of(alone), home, lock)) as store:
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({}))
        assert store.count("verified_fact", Where()) == 2 * MANY
        current = {one.content for one in store.find("verified_fact", Where(), limit=9_999) if one.is_current}
        assert current == {f"更新 {number}" for number in range(MANY)}
        assert list(store.faults()) == []
