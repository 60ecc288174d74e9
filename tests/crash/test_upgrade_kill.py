"""An upgrade of the old layout is killed before each of its steps: the next start has everything, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from archives import unpack

from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.restoring import JOURNAL, STAGING
from memory_anchor.admin.left_behind import UPGRADED
from memory_anchor.domain.model import COLLECTIONS
from memory_anchor.domain.ports import CollectionSpec, MemoryStore
from memory_anchor.domain.where import Where
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.sql_store import SqlStore

IN_DATABASE = Settings.model_validate({"database": {"url": "sqlite"}})
STORES = Path(__file__).resolve().parents[1] / "stores"
EACH = 3
"""Steps between two kills: each kill opens an old store twice."""

KILLED_AT = """
import os, sys
from pathlib import Path
from memory_anchor.admin import backup, upgrade
from memory_anchor.adapters import restoring
from memory_anchor.process.app import open_store
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.sql_store import SqlStore

IN_DATABASE = Settings.model_validate({"database": {"url": "sqlite"}})
left = int(sys.argv[2])

def dying(owner, name):
    inner = getattr(owner, name)
    def step(*args, **kwargs):
        global left
        left -= 1
        if left < 0:
            os._exit(9)
        return inner(*args, **kwargs)
    setattr(owner, name, step)

for owner, name in ((SqlStore, "put"), (SqlStore, "scan"), (upgrade.SqlAudit, "take_over"), (upgrade, "swap_in"),
                    (upgrade.SqlAudit, "append"), (backup, "write_atomic"), (backup, "finish_restore"),
                    (Path, "rename"), (restoring, "sync_folder"), (restoring, "remove_durably")):
    dying(owner, name)
data = Path(sys.argv[1])
with DirectoryLock.acquire(data, role="test") as lock:
    restoring.finish_restore(data)
    open_store(IN_DATABASE, data, lock).close()
"""


def unpacked(folder: Path) -> Path:
    folder.mkdir()
    unpack(next(STORES.glob("*.tar.xz")), folder)
    for each, _, _ in os.walk(folder / "data"):
        Path(each).chmod(0o700)
    return folder / "data"


def texts_of(store: MemoryStore) -> list[str]:
    found = []
    for name in COLLECTIONS:
        store.open_collection(name, CollectionSpec({}))
        found += [repr(sorted(to_payload(one.memory).items())) for one in store.scan(name, Where(), page=10_000)[0]]
    return found


@pytest.mark.slow
def test_an_upgrade_that_is_killed_anywhere_is_done_by_the_next_start(tmp_path: Path) -> None:
    """Upgrade: killed before each of its steps and started again, nothing is lost and nothing doubled."""
    lines = b""
    first: list[str] = []
    killed = 0
    for steps in range(0, 100, EACH):
        data = unpacked(tmp_path / f"killed-{steps}")
        lines = lines or (data / "audit" / "audit.jsonl").read_bytes()
        ended = subprocess.run([sys.executable, "-c", KILLED_AT, str(data), str(steps)], check=False, timeout=120)
        if ended.returncode == 0:
            break
        assert ended.returncode == 9
        killed += 1
        again = subprocess.run([sys.executable, "-c", KILLED_AT, str(data), "100000"], check=False, timeout=120)
        assert again.returncode == 0
        with DirectoryLock.acquire(data, role="test") as lock, closing(open_store(IN_DATABASE, data, lock)) as store:
            first = first or texts_of(store)
            assert texts_of(store) == first and len(first) > 20, steps
            assert isinstance(store, SqlStore)
            trail = SqlAudit(store.database)
            assert b"".join(trail.lines()).startswith(lines) and trail.verify() is None
            assert len(list(trail.records(UPGRADED))) == 1
        assert (data / "replaced-1" / "store" / "event_log").is_dir()
        assert not list(data.glob(f"{STAGING}*")) and not (data / JOURNAL).exists()
        shutil.rmtree(data)
    else:
        pytest.fail("it never came to its end")
    assert killed > 5
