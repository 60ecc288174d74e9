"""SIGKILL at random moments over SQLite: every acknowledged write is there, whole, and the file is sound."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from points import FACTS, SPEC, entry
from sql_writer import THREADS

from memory_anchor.domain.where import Where
from memory_anchor.store.database import Sqlite
from memory_anchor.store.sql_store import SqlStore

WRITER = Path(__file__).with_name("sql_writer.py")
ROOT = Path(__file__).resolve().parents[2]
BATCH = 5


def killed_after(path: Path, first: int, acknowledgements: int) -> list[int]:
    """Return the batches acknowledged by a writer that is killed right after so many."""
    command = [sys.executable, str(WRITER), str(path), str(first), str(BATCH)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{WRITER.parent}"}
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(acknowledgements)]
        writer.kill()
        return acknowledged + [int(line) for line in writer.stdout.read().split("\n")[:-1]]


def check(path: Path, acknowledged: set[int]) -> int:
    """Hold the store against the acknowledgements; return the highest batch that is there."""
    with closing(SqlStore(Sqlite(path))) as store:
        store.open_collection(FACTS, SPEC)
        assert list(store.faults()) == []
        entries, following = store.scan(FACTS, Where(), page=100_000, with_vectors=True)
        assert following is None
        batches = Counter(int(each.memory.author.removeprefix("b")) for each in entries)
        assert set(batches.values()) == {BATCH}, "a batch is there by half, or twice"
        assert acknowledged <= batches.keys(), "an acknowledged batch is gone"
        for each in entries:
            batch, number = map(int, each.memory.id.removeprefix("b").split("n"))
            meant = entry(batch, number)
            assert each.memory.content == meant.memory.content and each.words == meant.words
            assert {name: row.tolist() for name, row in each.vectors.items()} == {
                name: row.tolist() for name, row in meant.vectors.items()
            }
        return max(batches)


def soak(path: Path, *, kills: int, most_acknowledged: int) -> int:
    """Return how many writes were acknowledged over so many kills."""
    rng = random.Random(7)
    acknowledged: set[int] = set()
    highest = 0
    for _ in range(kills):
        wanted = rng.randint(most_acknowledged // 2, most_acknowledged)
        acknowledged |= set(killed_after(path, highest + THREADS + 1, wanted))
        highest = check(path, acknowledged)
    return len(acknowledged) * BATCH


def test_no_acknowledged_write_of_four_threads_is_lost_over_a_few_kills(tmp_path: Path) -> None:
    """Durability: an answer means the write survives the process; a batch is all or nothing."""
    assert soak(tmp_path / "memory.db", kills=3, most_acknowledged=60) >= 200


@pytest.mark.slow
def test_no_acknowledged_write_of_four_threads_is_lost_over_many_kills(tmp_path: Path) -> None:
    """Durability: 0 lost and 0 doubled over 1,000 and more acknowledged writes."""
    assert soak(tmp_path / "memory.db", kills=20, most_acknowledged=100) >= 1_000
