"""A process that keeps lorebooks is killed at any moment: what is named is whole, and nothing is left over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from figures import figure

from memory_anchor.domain.model import Trust
from memory_anchor.extensions.lorebook.books import LorebookStore
from memory_anchor.extensions.lorebook.settings import LorebookSettings

pytestmark = pytest.mark.slow

KILLS = figure(5, 50)
ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import json, sys
from pathlib import Path
from memory_anchor.extensions.lorebook.books import LorebookStore
from memory_anchor.domain.model import Trust

home, store = Path(sys.argv[1]), LorebookStore()
for number in range(10_000):
    content = json.dumps({"entries": [{"key": ["a"], "content": f"{number} " * 20_000}]}).encode()
    store.add(home, content, file=f"book{number % 3}.json", trust=Trust.AGENT, by="agent", at="2026-01-01")
    print(number, flush=True)
    if number % 5 == 4:
        store.remove(home, f"book{number % 3}")
"""


def test_twenty_kills_lose_no_book_and_leave_no_half_of_one(tmp_path: Path) -> None:
    """Rule lore.kill: every book that is named is whole, nothing piles up."""
    chance = random.Random(11)
    counted = 0
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ}
        )
        assert child.stdout is not None
        assert child.stdout.readline()
        time.sleep(chance.random() / 20)
        child.send_signal(signal.SIGKILL)
        lines = child.stdout.read().split()
        child.wait()

        store = LorebookStore()
        books = store.books(tmp_path)
        assert {one.id for one in books} <= {"book0", "book1", "book2"}
        assert store.scanner(tmp_path, books, LorebookSettings())[1] == []
        counted += len(lines)
    store.add(tmp_path, b'{"entries": []}', file="last.json", trust=Trust.AGENT, by="agent", at="2026-01-01")

    assert len(list(tmp_path.glob("*.book"))) == len(store.books(tmp_path))
    assert not list(tmp_path.glob(".*.tmp"))
    assert counted
