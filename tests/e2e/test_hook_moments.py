"""What hooks tell unasked, through the real hook process, engine and store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from labs import Lab

pytestmark = pytest.mark.slow


def command(lab: Lab, *words: str, given: object = "") -> str:
    """Return what a command printed. given: its standard input, as JSON unless it is text."""
    typed = given if isinstance(given, str) else json.dumps(given)
    run = [sys.executable, "-m", "memory_anchor", *words]
    done = subprocess.run(run, input=typed, env=lab.env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def hook(lab: Lab, event: str, conversation: str, **payload: Any) -> str:
    """Return the text that a client's hook adds, "" for none."""
    output = command(lab, "hook", event, given={"session_id": conversation, **payload})
    return str(json.loads(output)["hookSpecificOutput"]["additionalContext"]) if output.strip() else ""


def test_a_prompt_a_tool_and_a_status_line_are_told_what_bears_on_them(lab: Lab, tmp_path: Path) -> None:
    """Issue 15: a first prompt's brief, a trap once before its command, the line of the status bar, what was heeded."""
    command(lab, "add", "No deploys on Thursdays after 15:00", "--type", "instruction")
    command(lab, "add", "npm install breaks the workspace links; use pnpm add", "--type", "decision")
    command(lab, "add", "Rotate the signing key", "--tag", "todo")
    assert "Rotate the signing key" in command(lab, "due")
    hook(lab, "SessionStart", "first", source="startup")
    command(lab, "engine", "status")

    asked = {"prompt": "ship the new build to production this Thursday evening"}
    context = next(text for _ in range(20) if (text := hook(lab, "UserPromptSubmit", "second", **asked)))
    trap = {"tool_name": "Bash", "tool_input": {"command": "cd web && npm install lodash"}}

    assert "No deploys on Thursdays" in context
    assert hook(lab, "UserPromptSubmit", "second", **asked) == ""
    assert "use pnpm add" in hook(lab, "PreToolUse", "second", **trap)
    assert hook(lab, "PreToolUse", "second", **trap) == ""
    assert " loaded · 0 saved" in command(lab, "statusline", given={"session_id": "second"})

    transcript = tmp_path / "t.jsonl"
    did = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "at 15:00 ./ship"}}
    lines = [
        {"type": "user", "message": {"role": "user", "content": asked["prompt"]}},
        {"type": "assistant", "message": {"role": "assistant", "content": [did]}},
    ]
    transcript.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    hook(lab, "SessionEnd", "second", transcript_path=str(transcript))
    counted = next(text for _ in range(20) if "UserPromptSubmit" in (text := command(lab, "stats", "--heeded")))
    assert "verified_fact UserPromptSubmit: 1 of" in counted
