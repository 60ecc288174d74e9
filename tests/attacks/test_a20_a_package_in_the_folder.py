"""A20: a package called `memory_anchor` in the folder an agent works in is never what we start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memory_anchor.front.clients import install, places
from memory_anchor.runtime import launch

SHADOWED = ("memory_anchor", "typer", "json", "pydantic", "mcp")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder whose modules leave a marker when they are imported."""
    folder = tmp_path / "cloned"
    for name in SHADOWED:
        (folder / name).mkdir(parents=True)
        for file in ("__init__.py", "__main__.py"):
            (folder / name / file).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nraise SystemExit(3)\n")
    return folder


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": launch.PACKAGE_ROOT}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def test_what_an_installer_writes_without_a_script_is_safe_in_any_folder(
    trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A20: `python -m memory_anchor` imported the folder's package; `-P` keeps the folder out of the path."""
    (trap / places.NAME).write_text("#!/bin/sh\n")
    (trap / places.NAME).chmod(0o755)
    with monkeypatch.context() as bare:
        bare.chdir(trap)
        bare.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
        command = list(install.own_command({"PATH": os.pathsep.join([".", "", str(tmp_path)])}))
    assert command[1:3] == ["-P", "-m"]

    ran([sys.executable, *command[1:], "hook", "Nonsense"], trap)

    assert not (tmp_path / "sprung").exists()
    ran([sys.executable, "-m", "memory_anchor"], trap)
    assert (tmp_path / "sprung").exists(), "the trap is armed"


def test_the_engine_is_started_beside_no_folder_of_a_project(trap: Path, tmp_path: Path) -> None:
    """Attack A20: the same for what a bridge starts."""
    program, *options = launch.engine_command()
    assert options[:2] == ["-P", "-m"]

    done = ran([program, "-P", "-c", f"import {options[2]} as module; print(module.__file__)"], trap)

    assert done.stdout.startswith(launch.PACKAGE_ROOT)
    assert not (tmp_path / "sprung").exists()
