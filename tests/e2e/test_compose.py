"""deploy/compose.yaml in a real Docker: by the page's commands, with every part killed in turn. Minutes, and root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("debootstrap") is None,
    reason="a Docker in namespaces of its own needs root, and debootstrap for the Debian that it runs on",
)
def test_what_docker_compose_starts_outlives_a_kill_of_each_of_its_parts() -> None:
    """Rule deploy: nothing acknowledged is lost or doubled, somebody answers, and Qdrant catches up."""
    done = subprocess.run([sys.executable, "scripts/compose"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, (done.stdout, done.stderr[-3_000:])
    answer = json.loads(done.stdout)
    assert (answer["lost"], answer["doubled"], answer["given_up"]) == (0, 0, [])
    assert answer["wrong_answers"] == {"memory-1": 0, "memory-2": 0}
