"""Tests that fork do it in a process of their own, where no other test has left a thread."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INSIDE = "TEST_IN_FRESH_PROCESS"


def passed_alone(request: pytest.FixtureRequest) -> bool:
    """Run the test that asks in a fresh process, and return whether that was done; there it returns False.

    A forked child has the one thread that forked, and every lock that another thread of the parent held stays locked.
    """
    if os.environ.get(INSIDE):
        return False
    node = request.node.nodeid
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"{request.config.rootpath / node}"]
    done = subprocess.run(
        command,
        env={**os.environ, INSIDE: "1"},
        cwd=request.config.rootpath,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True
