"""Copilot CLI: `~/.copilot/session-state/*/events.jsonl`, one session a file, an event a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import inside, string
from memory_anchor.extensions.more_agents.stores import ended, spoken, tool
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep, seconds, text_of

PATTERN = "events.jsonl"
SKIPPED: tuple[bytes, ...] = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    del env
    return [home / ".copilot" / "session-state"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        event, kind, at = line.get("data"), line.get("type"), seconds(line.get("timestamp"))
        call = string(event, "toolCallId")
        if kind == "session.start":
            facts.name = facts.name or string(event, "sessionId")
            facts.cwd = facts.cwd or string(event, "context", "cwd")
        elif kind in ("user.message", "assistant.message"):
            yield from spoken(str(kind).partition(".")[0], text_of(inside(event, "content")), at, offset)
        elif kind == "tool.execution_start":
            yield tool(string(event, "toolName"), inside(event, "arguments"), at=at, offset=offset, call=call)
        elif kind == "tool.execution_complete" and isinstance(event, Mapping):
            output, failed = text_of(inside(event, "result", "content")), event.get("success") is False
            yield ended(output, failed=failed, at=at, offset=offset, call=call)
