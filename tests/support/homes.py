"""The environment of a user of our own: nothing of whoever runs the tests, a data folder, no embedder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from labs import until

from memory_anchor.runtime import engine, launch, wire

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "memory_anchor"]
FOREIGN = ("MEMORY_ANCHOR", "CLAUDE", "CODEX", "GEMINI", "XDG_")


def environment(home: Path, data: Path, **more: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)},
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "MEMORY_ANCHOR_DATA_DIR": str(data),
        "MEMORY_ANCHOR_EMBEDDER__KIND": "none",
        "TZ": "UTC",
        **more,
    }


class EngineHome:
    """A user's folder, whose commands are real processes and whose engine is the real one."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder, self.data = folder, folder / "data"
        self.env = environment(folder, self.data, **more)

    def run(self, *words: str, stdin: str = "", data: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        env = {**self.env, **({"MEMORY_ANCHOR_DATA_DIR": str(data)} if data else {})}
        return subprocess.run([*COMMAND, *words], env=env, cwd=self.folder, capture_output=True, input=stdin.encode())

    def json(self, *words: str, stdin: str = "") -> Any:
        done = self.run(*words, "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def serve(self) -> int:
        """Start an engine, wait until it serves, and return its pid."""

        def pid() -> int:
            state = wire.read_state(str(self.data)) or {}
            return int(state["pid"]) if state.get("state") == "serving" else 0

        launch.start(str(self.data), self.env)
        found: int = until(pid, "an engine serves")
        return found

    def close(self) -> None:
        engine.stop(self.data, wait_s=10)
        launch.reap()
