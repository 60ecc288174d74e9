"""Labs: a data directory with the real engine and bridge around a tiny server (`lab.py`); and waiting for processes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent import Agent

from memory_anchor.runtime import engine, launch, wire

LAB = str(Path(__file__).resolve().parent / "lab.py")
UNTIL_S = 40.0


def until(holds: Callable[[], Any], what: str, *, within_s: float = UNTIL_S) -> Any:
    """Wait for something other processes do, and return it; the bound is for a broken test only."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.01)
    raise AssertionError(f"never came true: {what}")


class Lab:
    def __init__(self, data: Path, env: dict[str, str]) -> None:
        self.data = data
        self.env = env
        self.agents: list[Agent] = []

    def agent(self, *options: str, modern: bool = False, greet: bool = True, **env: str) -> Agent:
        command = [sys.executable, LAB, "bridge", *options]
        agent = Agent(command, {**self.env, **env}, modern=modern, greet=greet)
        self.agents.append(agent)
        return agent

    def start_engine(self, **env: str) -> int:
        """Start an engine, wait until it serves, and return its pid."""
        launch.start(str(self.data), {**self.env, **env}, [sys.executable, LAB, "engine"])
        return self.serving()

    def serving(self, *, other_than: int = 0) -> int:
        def pid() -> int:
            state = wire.read_state(str(self.data)) or {}
            return int(state["pid"]) if state.get("state") == "serving" and state["pid"] != other_than else 0

        found: int = until(pid, "an engine serves")
        return found

    def log(self, key: str) -> list[Any]:
        """Return what the lab noted under `key`, in order."""
        path = self.data / "lab.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [noted[key] for line in lines if key in (noted := json.loads(line))]

    def kill(self, pid: int) -> None:
        os.kill(pid, 9)

    def close(self) -> None:
        for agent in self.agents:
            agent.process.kill()
            agent.process.wait()
        launch.reap()
        state = wire.read_state(str(self.data)) or {}
        if "pid" in state:
            with contextlib.suppress(OSError):
                os.kill(state["pid"], 18)  # SIGCONT, for a test that stopped it
            engine.stop(self.data, wait_s=5.0)
        launch.reap()
