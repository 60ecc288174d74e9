"""The Claude Code plugin is what `install` writes, and nothing of it approves anything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memory_anchor.runtime.wire import HOOK_TOOL

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import make_plugin  # noqa: E402 - a script of ours


def test_the_plugin_in_the_tree_is_the_one_that_its_script_makes() -> None:
    """Rule install.one: one table says what a client is given, however it gets it."""
    made = dict(make_plugin.files())

    assert {path: (ROOT / path).read_text("utf-8") for path in made} == made
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / make_plugin.PLUGIN).rglob("*") if path.is_file()}
    assert there == {path for path in made if path.startswith(make_plugin.PLUGIN)}


def test_no_command_of_the_plugin_approves() -> None:
    """Rule human: approving is no tool and no command of an agent."""
    for name, (_, _, prompt) in make_plugin.COMMANDS.items():
        assert not any(word in prompt for word in ("constitution approve", "accept ", "--human", "purge")), name


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs that holds what any system has, and neither `memory-anchor` nor `uvx`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "sed"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def fake(folder: Path, name: str) -> None:
    """Put a program into a folder that prints its name and arguments."""
    (folder / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
    (folder / name).chmod(0o755)


def server(tools: Path, *messages: dict[str, object]) -> str:
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    script = [str(tools / "sh"), str(ROOT / make_plugin.PLUGIN / "server.sh")]
    return subprocess.run(script, input=lines, env={"PATH": str(tools)}, capture_output=True, text=True).stdout


def test_the_plugins_server_is_the_command_else_uvx_else_one_sentence(tools: Path) -> None:
    """Issue plugin: it works without a pip install before, and without either nothing fails."""
    asked: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": HOOK_TOOL}},
    ]
    told = [json.loads(line) for line in server(tools, *asked, {"jsonrpc": "2.0", "method": "x"}).splitlines()]
    assert [one["id"] for one in told] == [0, 1] and told[1]["result"] == {"content": []}
    assert "not installed" in told[0]["result"]["instructions"]

    fake(tools, "uvx")
    assert server(tools) == "uvx --from memory-anchor memory-anchor mcp\n"
    fake(tools, "memory-anchor")
    assert server(tools) == "memory-anchor mcp\n"


def test_no_hook_of_the_plugin_fails_where_the_command_is_missing(tools: Path) -> None:
    hooks = json.loads((ROOT / make_plugin.PLUGIN / "hooks" / "hooks.json").read_text("utf-8"))["hooks"]
    commands = [
        one["command"] for groups in hooks.values() for group in groups for one in group["hooks"] if "command" in one
    ]

    def run(command: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(tools / "sh"), "-c", command], env={"PATH": str(tools)}, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr

    assert commands and {run(command) for command in commands} == {(0, "")}
    fake(tools, "memory-anchor")
    assert all(re.fullmatch(r"memory-anchor hook \w+\n", run(command)[1]) for command in commands)
