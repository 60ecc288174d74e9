"""Two versions of the package on one data directory: real processes, each from its own copy of the code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from labs import until

import memory_anchor
from memory_anchor.runtime import engine, wire

NEWER = "999.1.0"
PACKAGE = Path(memory_anchor.__file__).parent
WRITES = 12


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A folder with a copy of the package that calls itself a later version."""
    copy = tmp_path / "newer"
    shutil.copytree(PACKAGE, copy / "memory_anchor", ignore=shutil.ignore_patterns("__pycache__"))
    wire_file = copy / "memory_anchor" / "runtime" / "wire.py"
    wire_file.write_text(wire_file.read_text().replace(f'VERSION = "{wire.VERSION}"', f'VERSION = "{NEWER}"'))
    return copy


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "d"
    yield folder
    engine.stop(folder, wait_s=10.0)


def bridge(data: Path, code: Path) -> Agent:
    env = {
        **os.environ,
        "MEMORY_ANCHOR_DATA_DIR": str(data),
        "MEMORY_ANCHOR_EMBEDDER__KIND": "none",
        "MEMORY_ANCHOR_PROJECT_DIR": str(data.parent / "home"),
        "PYTHONPATH": str(code),
    }
    return Agent([sys.executable, "-P", "-m", "memory_anchor", "mcp"], env)


def serving(data: Path) -> str:
    return str((engine.status(data) or {}).get("version", ""))


def saved(answer: dict[str, Any]) -> bool:
    return not answer["result"].get("isError") and '"added"' in answer["result"]["content"][0]["text"]


BUOYS = ("red", "bell", "sand", "reef", "wreck")
"""With a number behind each, words that no other text has."""


@pytest.mark.slow
def test_a_newer_bridge_takes_over_and_nothing_of_the_older_one_is_lost(data: Path, newer: Path) -> None:
    """Attack N4: what is in work is answered once, the newer engine serves both, the older bridge says what to do."""
    old = bridge(data, PACKAGE.parent)
    assert saved(old.tool("save_memory", content="The first lamp stands on the pier"))
    assert serving(data) == wire.VERSION
    calls = [old.start_tool("save_memory", content=" ".join(f"{word}{at}" for word in BUOYS)) for at in range(WRITES)]

    new = bridge(data, newer)
    late = new.tool("save_memory", content="The second lamp stands on the mole")

    assert saved(late)
    assert all(saved(old.answer(request)) for request in calls)
    assert saved(old.tool("save_memory", content="The third lamp stands at the lock"))
    until(lambda: serving(data) == NEWER, "the newer engine serves")
    found = new.tool("search_memory", query="lamp pier mole lock", limit=10)["result"]["content"][0]["text"]
    assert [name for name in ("first lamp", "second lamp", "third lamp") if name not in found] == []
    until(lambda: any(NEWER in line and "restart this client" in line for line in old.errors), "the older one says so")
    assert (old.close(), new.close()) == (0, 0)
