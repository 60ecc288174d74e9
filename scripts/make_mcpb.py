"""Write the bundle for Claude Desktop: `.venv/bin/python scripts/make_mcpb.py [FOLDER]` (default build/).

The bundle holds a manifest and no code: it starts the installed command, or else `uvx`, as the plugin does. A bundle
with every wheel inside would be 100 MB a platform.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path

from memory_anchor.front.tool_specs import TOOLS

ROOT = Path(__file__).resolve().parents[1]
LONG = "Five layers that capture, recall, correct, age and forget, offline, shared by all your agents. You approve."


def manifest() -> dict[str, object]:
    """Return what the bundle says of itself (manifest 0.3)."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    start = {"command": "uvx", "args": ["--from", "memory-anchor", "memory-anchor", "mcp"]}
    return {
        "manifest_version": "0.3",
        "name": "memory-anchor",
        "display_name": "Memory Anchor",
        "version": project["version"],
        "description": project["description"],
        "long_description": LONG,
        "author": {"name": "The Memory Anchor developers"},
        "license": project["license"],
        "keywords": project["keywords"],
        "server": {
            "type": "python",
            "entry_point": "server/start.py",
            "mcp_config": {**start, "env": {"MEMORY_ANCHOR_DATA_DIR": "${user_config.data_dir}"}},
        },
        "tools": [{"name": spec.name, "description": spec.description} for spec in TOOLS if spec.shelf != "full"],
        "user_config": {
            "data_dir": {
                "type": "directory",
                "title": "Where memories are stored",
                "description": "The folder that your other agents use; leave it as it is.",
                "default": "${HOME}/.local/share/memory-anchor",
                "required": False,
            }
        },
        "compatibility": {"platforms": ["darwin", "linux", "win32"], "runtimes": {"python": ">=3.11"}},
    }


def build(folder: Path) -> Path:
    """Return the bundle, written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "memory-anchor.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", json.dumps(manifest(), indent=2) + "\n")
        bundle.writestr("server/start.py", "from memory_anchor.__main__ import main\n\nraise SystemExit(main())\n")
        bundle.write(ROOT / "LICENSE", "LICENSE")
    return path


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"))
