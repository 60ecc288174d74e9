"""The Claude Code plugin is what `install` writes, and nothing of it approves anything."""

from __future__ import annotations

import sys
from pathlib import Path

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
