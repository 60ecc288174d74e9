"""`scripts/kills`, small: kills, a full disk, a wrong clock and a stopped engine during a long work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from figures import one_in

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kills"

PARTS = {"kill": 2, "disk": 2, "clock": 2, "stop": 1}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="disks and terminals of Linux")


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("kind", "parts"),
    one_in(6, [("import", "kill"), *((kind, "all") for kind in ("import", "purge", "sync", "push", "migrate"))]),
)
def test_a_long_work_in_trouble_loses_and_doubles_nothing(kind: str, parts: str) -> None:
    """Promise 1: two kills, two full disks, two wrong clocks, one SIGSTOP; every failure is one sentence."""
    chosen = PARTS if parts == "all" else [parts]
    command = [sys.executable, str(SCRIPT), "--each", "2", "--kinds", kind, "--parts", *chosen]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)

    assert (done.returncode, told["passed"]) == (0, True), told
    assert [told[name] for name in ("kills", "full disks", "clocks", "stops")] == [
        PARTS[part] * (part in chosen) for part in PARTS
    ]
