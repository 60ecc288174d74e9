"""`scripts/kills`, small: kills, a full disk, a wrong clock and a stopped engine during a long work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from figures import one_in

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kills"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="disks and terminals of Linux")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("kind", one_in(5, ["import", "purge", "sync", "push", "migrate"]))
def test_a_long_work_in_trouble_loses_and_doubles_nothing(kind: str) -> None:
    """Promise 1: two kills, two full disks, two wrong clocks, one SIGSTOP; every failure is one sentence."""
    command = [sys.executable, str(SCRIPT), "--each", "2", "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)

    assert (done.returncode, told["passed"]) == (0, True), told
    assert (told["kills"], told["full disks"], told["clocks"], told["stops"]) == (2, 2, 2, 1)
