"""Qwen Code: `~/.qwen/projects/*/chats/*.jsonl`, one session a file; lines as Claude Code's, messages of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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

PATTERN = "*.jsonl"
SKIPPED: tuple[bytes, ...] = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    del env
    return [home / ".qwen" / "projects"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        message, at = line.get("message"), seconds(line.get("timestamp"))
        facts.name = facts.name or str(line.get("sessionId") or "")
        facts.cwd = facts.cwd or str(line.get("cwd") or "")
        parts = message.get("parts") if isinstance(message, Mapping) else None
        if not isinstance(parts, list):
            continue
        role = "agent" if line.get("type") == "assistant" else "user"
        if line.get("type") in ("user", "assistant"):
            yield from said("agent" if role == "agent" else "user", text_of(parts), at, offset)
        for part in parts:
            asked, answer = (
                part.get(key) if isinstance(part, Mapping) else None for key in ("functionCall", "functionResponse")
            )
            if isinstance(asked, Mapping):
                call = str(asked.get("id", ""))
                yield called(str(asked.get("name", "")), asked.get("args"), at=at, offset=offset, call=call)
            if isinstance(answer, Mapping) and isinstance(response := answer.get("response"), Mapping):
                output = str(response.get("output") or response.get("error") or "")
                failed = int("error" in response)
                yield resulted(output, at=at, offset=offset, call=str(answer.get("id", "")), exit=failed)
