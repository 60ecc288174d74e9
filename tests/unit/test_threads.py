"""Threads of one process: linear algebra computes in the thread that asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_anchor.runtime.threads import ALGEBRA

COUNTED = """
import os, sys
from memory_anchor.runtime.threads import one_for_algebra
one_for_algebra()
import numpy
numpy.ones((600, 600)) @ numpy.ones((600, 600))
print(len(os.listdir("/proc/self/task")))
"""


def tasks(**environment: str) -> int:
    """Return how many threads a new process has after a large product."""
    kept = {name: value for name, value in os.environ.items() if name not in ALGEBRA}
    result = subprocess.run(
        [sys.executable, "-c", COUNTED], env=kept | environment, capture_output=True, text=True, check=True, timeout=60
    )
    return int(result.stdout)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_product_starts_no_thread_that_would_spin_beside_the_next_embedding() -> None:
    """Rule hot path: numpy's algebra has one thread, and the number the user sets stays."""
    assert tasks() == 1
    assert tasks(OPENBLAS_NUM_THREADS="2") == min(2, len(os.sched_getaffinity(0)))
