"""Labs of their own for each test here, ended when the test ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from labs import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    project = tmp_path / "project"
    project.mkdir()
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_ANCHOR", "CLAUDE", "CODEX"))
    }
    env |= {"MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"), "MEMORY_ANCHOR_PROJECT_DIR": str(project), "TZ": "UTC"}
    made = Lab(tmp_path / "data", env)
    yield made
    made.close()
