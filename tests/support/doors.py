"""What attacks on the doors share: a home, projects in it, the real command and the real bridge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent import Agent
from homes import FOREIGN, ROOT

from memory_anchor.runtime import engine, launch, wire

COMMAND = [sys.executable, "-m", "memory_anchor"]


class House:
    """One user's home with projects; everything in it runs as real processes.

    settings: text of the user's own settings file. private: the environment names the data directory.
    """

    def __init__(self, folder: Path, *, settings: str = "embedder: {kind: none}\n", private: bool = False) -> None:
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.env = {**kept, "PYTHONPATH": str(ROOT), "HOME": str(self.home), "TZ": "UTC"}
        if private:
            self.env["MEMORY_ANCHOR_DATA_DIR"] = str(folder / "data")
        self.file = Path(wire.user_config_file(self.env))
        if settings:
            self.file.parent.mkdir(parents=True)
            self.file.write_text(settings)
        self.data = Path(wire.data_dir(self.env))
        self.agents: list[Agent] = []

    def project(self, name: str) -> Path:
        folder = self.home / name
        (folder / ".ai").mkdir(parents=True, exist_ok=True)
        return folder

    def environment(self, project: str, **more: str) -> dict[str, str]:
        return {**self.env, "CLAUDE_PROJECT_DIR": str(self.project(project)), **more}

    def bridge(self, project: str, *options: str, **env: str) -> Agent:
        conversation = f"{project}-{len(self.agents)}"
        agent = Agent(
            [*COMMAND, "mcp", *options], self.environment(project, CLAUDE_CODE_SESSION_ID=conversation, **env)
        )
        self.agents.append(agent)
        return agent

    def run(self, *arguments: str, project: str = "here", stdin: bytes = b"", **env: str) -> Any:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            env=self.environment(project, **env),
            cwd=self.project(project),
            capture_output=True,
            timeout=60,
            check=False,
        )

    def state(self) -> Mapping[str, Any]:
        return wire.read_state(str(self.data)) or {}

    def close(self) -> None:
        for agent in self.agents:
            agent.process.kill()
            agent.process.wait()
        engine.stop(self.data, wait_s=5.0)
        launch.reap()


def answer(agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return what a tool answers. Asserts that it is no error."""
    result = agent.tool(tool, **arguments)["result"]
    text = result["content"][0]["text"]
    assert not result.get("isError"), text
    told: dict[str, Any] = result.get("structuredContent") or json.loads(text)
    return told
