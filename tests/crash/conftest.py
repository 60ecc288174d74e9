"""What the tests that pull plugs share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from powerhome import SEED, Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    print(f"seed {SEED}")
    made = Home(tmp_path, SEED)
    yield made
    made.close()
