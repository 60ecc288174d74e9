"""A torn log and a flipped bit: named when the store opens or a memory is read, never served, never a dead process."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from figures import figure, one_in

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests/crash"]
import points as writer
from memory_anchor.domain.errors import StoreDamaged
from memory_anchor.domain.where import Where
from memory_anchor.store import database
from memory_anchor.store.sql_store import SqlStore
database.COPY_AFTER_S = 600  # what is written stays in the log
try:
    store = SqlStore(database.Sqlite(Path(sys.argv[2]) / "memory.db"))
    store.open_collection(writer.FACTS, writer.SPEC)
    if sys.argv[3] == "write":
        for batch in range(4):
            store.put(writer.FACTS, [writer.entry(batch, number) for number in range(5)])
        store.close() if sys.argv[4] == "closed" else os._exit(0)
        sys.exit(0)
    found, _ = store.scan(writer.FACTS, Where(), page=100, with_vectors=True)
    if faults := list(store.faults()):
        raise StoreDamaged(faults[0])
except StoreDamaged as error:
    print("named", error)
    sys.exit(0)
members = [writer.entry(batch, number) for batch in range(4) for number in range(5)]
wanted = {one.memory.id: (one.memory.content, one.memory.audience, one.words) for one in members}
told = {one.memory.id: (one.memory.content, one.memory.audience, one.words) for one in found}
print("whole" if told == wanted else f"silent: {len(told)} of {len(wanted)}")
"""
PAGE = 4096
FLIPS = figure(6, 60)


def child(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(ROOT), str(folder), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("how", one_in(3, ["cut short", "zeroed", "garbage", "half zeroed", "gone"]))
def test_a_torn_log_is_named(tmp_path: Path, how: str) -> None:
    """Rule power: acknowledged versions that the log lost are counted and named; nothing is opened as if whole."""
    child(tmp_path / "s", "write", "killed")
    log = tmp_path / "s" / "memory.db-wal"
    content = bytearray(log.read_bytes())
    page = (len(content) - 1) // PAGE * PAGE
    if how == "zeroed":
        content[page:] = bytes(len(content) - page)
    elif how == "garbage":
        content[page:] = random.Random(1).randbytes(len(content) - page)
    elif how == "half zeroed":
        content[-200:] = bytes(200)
    log.write_bytes(bytes(content[:page]) if how == "cut short" else b"" if how == "gone" else bytes(content))

    assert child(tmp_path / "s", "read").startswith("named")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["memory.db", "memory.db-wal", "memory.db-end"])
def test_a_flipped_bit_is_named_or_harmless(tmp_path: Path, file: str) -> None:
    """Rule power: whatever bit flips, every text that is given is the one that was written; seeded, `FLIPS` a file."""
    rng = random.Random(file)
    child(tmp_path / "good", "write", "killed" if file.endswith("wal") else "closed")
    for _ in range(FLIPS):
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        path = tmp_path / "bad" / file
        content = bytearray(path.read_bytes())
        at = rng.choice([at for at, byte in enumerate(content) if byte])
        content[at] ^= 1 << rng.randrange(8)
        path.write_bytes(content)

        result = child(tmp_path / "bad", "read")
        assert result == "whole" or result.startswith("named"), f"{path.name}, byte {at}: {result}"
        shutil.rmtree(tmp_path / "bad")
