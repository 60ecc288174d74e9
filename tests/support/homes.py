"""The environment of a user of our own: nothing of whoever runs the tests, a data folder, no embedder."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
