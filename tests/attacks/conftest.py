"""A memory that is served to attackers: its own for each test, on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Served, core_to_serve, serving

from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    """The memory itself, as its own process sees it."""
    with core_to_serve(tmp_path / "core", project, clock) as made:
        yield made


@pytest.fixture
def served(held: Core) -> Iterator[Served]:
    with serving(held) as made:
        yield made
