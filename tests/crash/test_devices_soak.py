"""Random interleavings on two and three devices, the 1,000 of docs/devices.md with MEMORY_ANCHOR_FULL_FIGURES=1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from devicedrive import World, driven
from figures import figure, one_in
from stores import file_store

from memory_anchor.domain.ports import MemoryStore
from memory_anchor.runtime.lock import DirectoryLock

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", one_in(2, range(figure(2, 10))))
def test_a_thousand_interleavings_end_alike_everywhere(tmp_path: Path, part: int) -> None:
    """Rule sync.converges: 500 on two devices, 500 on three; 0 lost, 0 that came back after a purge."""
    seeds = range(part * 10, part * 10 + figure(2, 10))
    assert driven(tmp_path, seeds, devices=2 + part % 2, rounds=figure(5, 10), steps=12) == []


@pytest.fixture
def engines() -> Iterator[Callable[[Path], MemoryStore]]:
    with ExitStack() as stack:

        def engine(home: Path) -> MemoryStore:
            home.mkdir(parents=True, exist_ok=True)
            lock = DirectoryLock.acquire(home, role="test")
            stack.callback(lock.release)
            return file_store(home / "store")

        yield engine


@pytest.mark.slow
@pytest.mark.parametrize("seed", one_in(3, [1, 2, 3]))
def test_the_real_engine_store_ends_alike_too(
    tmp_path: Path, engines: Callable[[Path], MemoryStore], seed: int
) -> None:
    """Rule sync.converges: over Qdrant Edge."""
    world = World(tmp_path, seed, 2, store=engines)
    for _ in range(4):
        did = [world.step() for _ in range(12)]
        for device in world.devices:
            device.sign()
        assert world.check() == [], did
    world.close()
