"""Many transcripts: disk and memory are bounded, and readings that are killed lose and double nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench_sessions.py"


@pytest.mark.slow
def test_many_transcripts_killed_on_the_way_are_held_once_in_bounded_room(tmp_path: Path) -> None:
    """Rule index: 30 MB in processes of their own, three of them killed; docs/sessions.md has it for a gigabyte."""
    command = [sys.executable, str(BENCH), "many", str(tmp_path), "--bytes", "30000000", "--kills", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    took = json.loads(done.stdout)

    assert took["whole"]["killed"]["the same is held"] is True and took["whole"]["problems"] == 0
    assert took["whole"]["files"] > 3 * took["quarter"]["files"]
    assert took["share of the source"] <= 0.4 and took["whole"]["peak_mb"] <= 400
