"""A real engine under SIGSTOP: commands end in time with the cure, and the cure ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from homes import EngineHome

from memory_anchor.runtime import engine, launch, wire

pytestmark = pytest.mark.slow

BOUND_S = 35.0
LOADED_S = 25.0
"""What starting Python may take on a machine that does much else."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[EngineHome]:
    made = EngineHome(tmp_path)
    yield made
    pid = int((wire.read_state(str(made.data)) or {}).get("pid", 0))
    if pid:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)
    engine.stop(made.data, wait_s=10)
    launch.reap()


def timed(home: EngineHome, *words: str) -> tuple[float, subprocess.CompletedProcess[bytes]]:
    begun = time.monotonic()
    done = home.run(*words)
    return time.monotonic() - begun, done


def test_every_command_ends_and_stop_ends_the_engine(home: EngineHome) -> None:
    """Attack N6: doctor, status and search name the cure within the bound; stop kills what does not answer."""
    assert home.run("add", "The ferry leaves at nine").returncode == 0
    pid = home.serve()
    os.kill(pid, signal.SIGSTOP)

    with ThreadPoolExecutor() as together:
        asked = [
            together.submit(timed, home, *words) for words in (("doctor",), ("engine", "status"), ("search", "ferry"))
        ]
    for future in asked:
        took, done = future.result()
        assert took < BOUND_S + LOADED_S, done.args
        assert done.returncode == 5, (done.args, done.stdout, done.stderr)
        told = " ".join((done.stdout + done.stderr).decode().split())
        assert "does not answer" in told and "memory-anchor engine stop" in told
    took, done = timed(home, "engine", "stop")

    assert done.returncode == 0 and took < BOUND_S + LOADED_S
    launch.reap()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]
    assert home.run("doctor").returncode == 0
    assert "ferry leaves" in home.run("search", "the ferry leaves at nine").stdout.decode()
