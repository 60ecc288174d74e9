"""Qwen Code: `~/.qwen/projects/*/chats/*.jsonl`, one session a file; lines as Claude Code's, messages of parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import inside, objects, string
from memory_anchor.extensions.more_agents.stores import ended, spoken, tool
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep, seconds, text_of

PATTERN = "*.jsonl"
SKIPPED: tuple[bytes, ...] = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    del env
    return [home / ".qwen" / "projects"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        parts, at = inside(line.get("message"), "parts"), seconds(line.get("timestamp"))
        facts.name, facts.cwd = facts.name or string(line, "sessionId"), facts.cwd or string(line, "cwd")
        if line.get("type") in ("user", "assistant"):
            yield from spoken(line.get("type"), text_of(parts if isinstance(parts, list) else None), at, offset)
        for part in objects(parts):
            asked, answer = part.get("functionCall"), part.get("functionResponse")
            if isinstance(asked, Mapping):
                call = string(asked, "id")
                yield tool(string(asked, "name"), asked.get("args"), at=at, offset=offset, call=call)
            if isinstance(response := inside(answer, "response"), Mapping):
                output, failed = str(response.get("output") or response.get("error") or ""), "error" in response
                yield ended(output, failed=failed, at=at, offset=offset, call=string(answer, "id"))
