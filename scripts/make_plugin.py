#!/usr/bin/env python3
# Run it with the project's interpreter: .venv/bin/python scripts/make_plugin.py
"""Write the Claude Code plugin into `plugin/`, and the marketplace that lists it, from what `install` writes.

Server and hooks are the very ones of `memory-anchor install claude-code`; a test compares what is committed. The
plugin starts `memory-anchor` from PATH, else by `uvx`; where neither is there it says so once and no hook fails.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memory_anchor.front.clients import places

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = "plugin"
WHAT = "Long-term memory for coding agents: captures, recalls, corrects and forgets, offline, with a human in charge."
COMMANDS: Mapping[str, tuple[str, str, str]] = {
    "remember": (
        "Save what should outlive this conversation",
        "[what to remember]",
        "Save this to long-term memory: $ARGUMENTS\n\nIf nothing is given, look at this conversation for decisions "
        "with their reasons, rules, preferences and fixes with their causes that are not saved yet. Save each with "
        "`save_memory`, one fact a call, so that a stranger understands it: who or what, the value, the condition, the "
        "reason. Keep names, numbers and commands as they are. Say in one line each what was saved and what waits for "
        "review.",
    ),
    "recall": (
        "Look up what is remembered",
        "<question>",
        "Search long-term memory with `search_memory` for: $ARGUMENTS\n\nAnswer from what comes back, naming each "
        "memory's id and age. What is marked weak is only a hint. If nothing fits, say so.",
    ),
    "review-memory": (
        "What waits for a human",
        "",
        "Say how many memories wait for review (`!memory-anchor list --status pending`) and tell the user to run "
        "`memory-anchor review` in a terminal: only a human approves. Approve nothing yourself.",
    ),
}
"""Name -> description, hint for arguments, prompt."""


SERVER = (
    """\
#!/bin/sh
# Starts the memory's server: the installed command, else uvx. Where neither is there, a server without tools says once
# what to install, and lets each hook pass in silence. Made by scripts/make_plugin.py.
command -v memory-anchor >/dev/null && exec memory-anchor mcp
command -v uvx >/dev/null && exec uvx --from memory-anchor memory-anchor mcp
missing='Memory Anchor is not installed: tell the user to run `pipx install memory-anchor` or to install uv.'
"""
    + places.TOOLLESS
)
"""What the plugin's server entry runs."""


def files() -> Iterator[tuple[str, str]]:
    """Yield (path below the root, text) of everything that a plugin is made of."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    about = {"name": places.NAME, "description": WHAT, "version": version}
    owner = {"name": "Memory Anchor"}
    entry = {"name": places.NAME, "source": f"./{PLUGIN}", "description": WHAT}
    shop = {"name": places.NAME, "description": WHAT, "owner": owner, "plugins": [entry]}
    yield ".claude-plugin/marketplace.json", _json(shop)
    yield f"{PLUGIN}/.claude-plugin/plugin.json", _json({**about, "author": owner, "license": "Apache-2.0"})
    command = (places.NAME,)
    server = places.in_lines({"command": "sh", "args": ["${CLAUDE_PLUGIN_ROOT}/server.sh"]})
    yield f"{PLUGIN}/.mcp.json", _json({"mcpServers": {places.NAME: server}})
    yield f"{PLUGIN}/server.sh", SERVER
    hooks = places.claude_hooks(command, {}, server=f"plugin:{places.NAME}:{places.NAME}")
    yield f"{PLUGIN}/hooks/hooks.json", _json({"hooks": {event: _guarded(hooks[event]) for event in hooks}})
    for name, (description, hint, prompt) in COMMANDS.items():
        front = f"description: {description}\n" + (f'argument-hint: "{hint}"\n' if hint else "")
        yield f"{PLUGIN}/commands/{name}.md", f"---\n{front}---\n\n{prompt}\n"


def _guarded(groups: Any) -> list[dict[str, Any]]:
    """Return matcher groups whose commands say nothing where `memory-anchor` is not there."""

    def one(hook: dict[str, Any]) -> dict[str, Any]:
        if hook["type"] != "command":
            return hook
        plain = str(hook["command"]).partition(" || ")[0]  # exec would fail aloud where its interpreter is gone
        return {**hook, "command": f"command -v {places.NAME} >/dev/null && {plain}; exit 0"}

    return [{**group, "hooks": [one(hook) for hook in group["hooks"]]} for group in groups]


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def main() -> None:
    for path, text in files():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text, "utf-8")
        print(path)


if __name__ == "__main__":
    main()
