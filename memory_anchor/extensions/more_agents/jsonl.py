"""The neutral format, for agents that no reader knows: `adopt --format jsonl FOLDER`, a session a file of lines.

`{"session", "cwd", "branch", "title", "parent"}` says what is known of it, in any line; `{"role": "user" | "agent",
"text"}` what was said; `{"tool", "input", "call"}` a call and `{"call", "output", "exit"}` what came of it. `at` is a
time, ISO 8601 or since 1970. All but one of `text`, `tool`, `output` may be left out (docs/sessions.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import string
from memory_anchor.extensions.more_agents.stores import spoken, tool
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep, resulted, seconds

PATTERN = "*.jsonl"
SKIPPED: tuple[bytes, ...] = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    del env, home
    return []


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        at, call = seconds(line.get("at")), string(line, "call")
        facts.name = facts.name or string(line, "session")
        facts.cwd, facts.parent = facts.cwd or string(line, "cwd"), facts.parent or string(line, "parent")
        facts.branch, facts.title = string(line, "branch") or facts.branch, string(line, "title") or facts.title
        if "text" in line:
            yield from spoken(line.get("role"), string(line, "text"), at, offset)
        elif "tool" in line:
            yield tool(string(line, "tool"), line.get("input"), at=at, call=call, offset=offset)
        elif "output" in line:
            yield resulted(string(line, "output"), at=at, offset=offset, call=call, exit=line.get("exit"))
