"""A torn log and a flipped bit: named when the store opens or a memory is read, never served, never a dead process."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from figures import figure, one_in

from memory_anchor.adapters.sparse_files import copy_tree

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests/crash"]
import edge_writer as writer
from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.domain.where import Where
lock = DirectoryLock.acquire(Path(sys.argv[2]), role="test")
try:
    store = EdgeStore(Path(sys.argv[2]), lock=lock)
    store.open_collection(writer.FACTS, writer.SPEC)
    if sys.argv[3] == "write":
        for batch in range(4):
            store.put(writer.FACTS, [writer.entry(batch, number) for number in range(5)])
        store.close() if sys.argv[4] == "closed" else os._exit(0)
        sys.exit(0)
    found, _ = store.scan(writer.FACTS, Where(), page=100)
except StoreDamaged as error:
    print("named", error)
    sys.exit(0)
members = [writer.member(batch, number) for batch in range(4) for number in range(5)]
wanted = {member.id: member.content for member in members}
told = {entry.memory.id: entry.memory.content for entry in found}
print("whole" if told == wanted else f"silent: {len(told)} of {len(wanted)}")
"""
PAGE = 4096
FLIPS = figure(4, 12)


def child(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(ROOT), str(folder), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    return done.stdout.strip()


def live(content: bytes) -> list[int]:
    return [at for at, byte in enumerate(content) if byte]


@pytest.mark.slow
@pytest.mark.parametrize("how", one_in(2, ["cut short", "zeroed", "garbage", "half zeroed"]))
def test_a_torn_last_page_of_the_log_is_named(tmp_path: Path, how: str) -> None:
    """Rule power: acknowledged versions that the log lost are counted and named; nothing is opened as if whole."""
    child(tmp_path / "s", "write", "killed")
    log = next((tmp_path / "s" / "verified_fact" / "shard-1" / "wal").glob("open-1"))
    content = bytearray(log.read_bytes())
    end = live(content[: 1 << 20])[-1] + 1
    page = end // PAGE * PAGE
    if how == "zeroed":
        content[page : page + PAGE] = bytes(PAGE)
    elif how == "garbage":
        content[page : page + PAGE] = random.Random(1).randbytes(PAGE)
    elif how == "half zeroed":
        content[end - 200 : end] = bytes(200)
    log.write_bytes(bytes(content[:page]) if how == "cut short" else bytes(content))

    assert child(tmp_path / "s", "read").startswith("named")


@pytest.mark.slow
@pytest.mark.parametrize("place", one_in(2, ["payload_storage", "mutable_id_tracker", "wal", "points.mark", ".json"]))
def test_a_flipped_bit_is_named_or_harmless(tmp_path: Path, place: str) -> None:
    """Rule power: whatever bit flips, every text that is given is the one that was written; seeded, `FLIPS` a place."""
    rng = random.Random(place)
    child(tmp_path / "good", "write", "killed" if place == "wal" else "closed")
    for _ in range(FLIPS):
        copy_tree(tmp_path / "good", tmp_path / "bad")
        files = [path for path in sorted((tmp_path / "bad").rglob("*")) if path.is_file() and place in str(path)]
        path = rng.choice([path for path in files if path.stat().st_blocks])
        content = path.read_bytes()
        at = rng.choice(live(content) or [0])
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << rng.randrange(8)]))

        result = child(tmp_path / "bad", "read")
        assert result == "whole" or result.startswith("named"), f"{path.name}, byte {at}: {result}"
        shutil.rmtree(tmp_path / "bad")


def test_a_text_that_is_not_the_one_written_is_never_served(tmp_path: Path) -> None:
    """Rule power: the engine has no checksums, so that each text is held against the hash kept with it."""
    from contextlib import closing

    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import edge_writer as writer
    import qdrant_edge as edge

    from memory_anchor.adapters.edge_store import EdgeStore
    from memory_anchor.domain.errors import StoreDamaged
    from memory_anchor.domain.where import Where
    from memory_anchor.runtime.lock import DirectoryLock

    with DirectoryLock.acquire(tmp_path, role="test") as lock, closing(EdgeStore(tmp_path, lock=lock)) as store:
        store.open_collection(writer.FACTS, writer.SPEC)
        entry = writer.entry(1, 1)
        store.put(writer.FACTS, [entry])
        point = entry.memory.point_id
        forged = edge.UpdateOperation.set_payload([point], {"content": entry.memory.content + " never"})
        store._collections[writer.FACTS].write(forged, points=1)

        for read in (
            lambda: store.get(writer.FACTS, [point]),
            lambda: store.find(writer.FACTS, Where(), limit=5),
            lambda: store.scan(writer.FACTS, Where()),
        ):
            with pytest.raises(StoreDamaged, match=entry.memory.id):
                read()
