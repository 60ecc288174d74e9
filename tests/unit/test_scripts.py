"""The scripts that developers and CI call: what their arguments come to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "test"


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([], ["-m", "not slow"]),
        (["--durations=5"], ["-m", "not slow", "--durations=5"]),
        (["--maxfail", "1", "tests/unit"], ["-m", "not slow", "--maxfail", "1", "tests/unit"]),
        (["-m", "slow"], ["-m", "slow"]),
        (["-x", "-mslow"], ["-x", "-mslow"]),
        (["-m", ""], ["-m", ""]),
    ],
)
def test_only_m_lets_the_slow_tests_in(tmp_path: Path, given: list[str], chosen: list[str]) -> None:
    """Rule tests.fast: an option beside it leaves the fast suite the fast one."""
    for name, text in (("scripts/setup", ""), ("venv/bin/python", 'printf "%s\\n" "$@"\n')):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}")
        file.chmod(0o700)
    shutil.copy(SCRIPT, tmp_path / "scripts" / "test")
    env = {**os.environ, "VENV": str(tmp_path / "venv"), "TMPDIR": str(tmp_path), "TEST_PROCESSES": "7"}

    result = subprocess.run(
        [tmp_path / "scripts" / "test", *given], env=env, capture_output=True, text=True, check=True
    )

    assert result.stdout.split("\n")[:-1] == ["-m", "pytest", "-n", "7", "--dist", "worksteal", *chosen]
