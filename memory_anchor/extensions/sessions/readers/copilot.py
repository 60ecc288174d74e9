"""Copilot CLI: `~/.copilot/session-state/*/events.jsonl`, one session a file, an event a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import Record
from memory_anchor.extensions.sessions.steps import (
    Facts,
    Lines,
    TranscriptStep,
    called,
    resulted,
    said,
    seconds,
    text_of,
)

PATTERN = "events.jsonl"
SKIPPED: tuple[bytes, ...] = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    del env
    return [home / ".copilot" / "session-state"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        event = line.get("data")
        if isinstance(event, Mapping):
            yield from _steps_of(str(line.get("type")), event, facts, seconds(line.get("timestamp")), offset)


def _steps_of(kind: str, event: Record, facts: Facts, at: float, offset: int) -> Iterator[TranscriptStep]:
    call = str(event.get("toolCallId", ""))
    if kind == "session.start":
        where = event.get("context")
        facts.name = facts.name or str(event.get("sessionId") or "")
        facts.cwd = facts.cwd or (str(where.get("cwd") or "") if isinstance(where, Mapping) else "")
    elif kind in ("user.message", "assistant.message"):
        yield from said("user" if kind == "user.message" else "agent", text_of(event.get("content")), at, offset)
    elif kind == "tool.execution_start":
        yield called(str(event.get("toolName", "")), event.get("arguments"), at=at, offset=offset, call=call)
    elif kind == "tool.execution_complete":
        result = event.get("result")
        output = text_of(result.get("content")) if isinstance(result, Mapping) else ""
        yield resulted(output, at=at, offset=offset, call=call, exit=int(event.get("success") is False))
