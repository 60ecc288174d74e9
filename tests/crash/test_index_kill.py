"""An engine that is killed while its child writes the index: the next one loses nothing, and waits for nobody."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from memory_anchor.adapters import edge_child
from memory_anchor.adapters.edge_index import EdgeIndex
from memory_anchor.domain.ports import SearchIndex
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.sql_store import SqlStore

ROOT = Path(__file__).resolve().parents[2]
WRITER = """
import sys
from contextlib import closing
from pathlib import Path
sys.path.insert(0, {crash!r})
from points import SPEC, entry
from memory_anchor.adapters import edge_child
from memory_anchor.adapters.edge_index import EdgeIndex
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.sql_store import SqlStore

home, first = Path(sys.argv[1]), int(sys.argv[2])
database = Sqlite(home / "store" / "memory.db")
store = SqlStore(database)
for name in FOLLOWED:
    store.open_collection(name, SPEC)
follower = IndexFollower(PointSource(database), EdgeIndex(home / "index"), store.embedders)
for batch in range(first, first + 1000):
    store.put(FOLLOWED[0], [entry(batch, number) for number in range(40)])
    print(batch, flush=True)
    follower.catch_up()
"""


def assert_index_is_store(source: PointSource, index: SearchIndex, store: SqlStore) -> int:
    index.begin({name: store.embedders(name) for name in FOLLOWED}, anew=False)
    found = 0
    for name in FOLLOWED:
        marks = sorted(index.marks(name), key=lambda mark: mark.point_id)
        assert marks == sorted(source.marks(name), key=lambda mark: mark.point_id)
        found += len(marks)
    index.end()
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_engines_index_is_brought_after_the_store_by_the_next(seed: int, tmp_path: Path) -> None:
    """Kill: the orphan ends by itself; the next session waits for its lock, and index == store."""
    from points import SPEC

    rng, first = random.Random(seed), 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER.format(crash=str(Path(__file__).parent)), str(tmp_path), str(first)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            for _ in range(rng.randrange(1, 4)):
                first = int(writer.stdout.readline()) + 1
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split()
            first = max([first, *(int(batch) + 1 for batch in rest)])

    database = Sqlite(tmp_path / "store" / "memory.db")
    index = EdgeIndex(tmp_path / "index")
    with closing(SqlStore(database)) as store:
        for name in FOLLOWED:
            store.open_collection(name, SPEC)
        follower = IndexFollower(PointSource(database), index, store.embedders)
        while not follower.catch_up():
            pass
        assert assert_index_is_store(PointSource(database), index, store) >= 40 * first


def test_a_child_whose_engine_is_gone_touches_nothing(tmp_path: Path) -> None:
    """It may have waited for the lock until another engine's session was over: then its frames are the older ones."""
    (tmp_path / FOLLOWED[0]).mkdir()
    stranger = str(os.getppid())

    ended = subprocess.run(
        [sys.executable, edge_child.__file__, str(tmp_path), stranger, "anew"], input=b"", timeout=60
    )

    assert ended.returncode == 0 and (tmp_path / FOLLOWED[0]).is_dir()
