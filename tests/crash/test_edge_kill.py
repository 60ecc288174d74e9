"""SIGKILL at random moments: every acknowledged write is there exactly once, and no batch by half."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from edge_writer import FACTS, SPEC, entry, member

from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.domain.errors import StoreBusy
from memory_anchor.domain.where import Where
from memory_anchor.runtime.lock import DirectoryLock

WRITER = Path(__file__).with_name("edge_writer.py")
ROOT = Path(__file__).resolve().parents[2]
BATCH = 5


def start(folder: Path, first: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(folder), str(first), str(BATCH)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})


def killed_after(folder: Path, first: int, acknowledgements: int) -> list[int]:
    """Return the batches acknowledged by a writer that is killed right after so many."""
    with start(folder, first) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(acknowledgements)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    return acknowledged


def check(folder: Path, acknowledged: set[int]) -> None:
    """Open the store, count everything twice (by scan and by id), and hold it against the acknowledgements."""
    with DirectoryLock.acquire(folder, role="check") as lock, closing(EdgeStore(folder, lock=lock)) as store:
        store.open_collection(FACTS, SPEC)
        batches: Counter[int] = Counter()
        after: str | None = None
        while True:
            entries, after = store.scan(FACTS, Where(), after=after)
            batches.update(int(each.memory.author.removeprefix("b")) for each in entries)
            if after is None:
                break
        assert set(batches.values()) == {BATCH}, "a batch is there by half, or twice"
        assert acknowledged <= batches.keys(), "an acknowledged batch is gone"
        assert len(batches) == store.count(FACTS, Where()) // BATCH
        for batch in random.Random(1).sample(sorted(acknowledged), 5):
            points = [member(batch, number).point_id for number in range(BATCH)]
            got = store.get(FACTS, points, with_vectors=True)
            assert [each.memory.content for each in got] == [member(batch, n).content for n in range(BATCH)]
            assert all(each.words == entry(batch, number).words for number, each in enumerate(got))


def soak(folder: Path, *, kills: int, most_acknowledged: int) -> int:
    """Return how many writes were acknowledged over so many kills."""
    rng = random.Random(7)
    acknowledged: set[int] = set()
    for _ in range(kills):
        first = max(acknowledged, default=0) + 2  # the one after the last may be there, unacknowledged
        acknowledged |= set(killed_after(folder, first, rng.randint(most_acknowledged // 2, most_acknowledged)))
        check(folder, acknowledged)
    return len(acknowledged) * BATCH


def test_no_acknowledged_write_is_lost_over_a_few_kills(tmp_path: Path) -> None:
    """Durability: an answer means the write survives the process; a batch is all or nothing."""
    assert soak(tmp_path, kills=2, most_acknowledged=50) >= 200


@pytest.mark.slow
def test_no_acknowledged_write_is_lost_over_many_kills(tmp_path: Path) -> None:
    """Durability: 0 lost and 0 doubled over 1,000 and more acknowledged writes."""
    assert soak(tmp_path, kills=15, most_acknowledged=60) >= 1_000


def test_a_second_process_is_refused_and_the_first_goes_on_unharmed(tmp_path: Path) -> None:
    """Store: StoreBusy names the holder's pid; the holder writes on, flushes, and loses nothing."""
    with start(tmp_path, 1) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline())]
        for _ in range(20):
            with pytest.raises(StoreBusy, match=f"pid {writer.pid} "):
                DirectoryLock.acquire(tmp_path, role="intruder")
            acknowledged += [int(writer.stdout.readline()) for _ in range(2)]
        writer.kill()
        acknowledged += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    check(tmp_path, set(acknowledged))
