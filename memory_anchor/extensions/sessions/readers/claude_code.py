"""Claude Code: `${CLAUDE_CONFIG_DIR:-~/.claude}/projects/**/*.jsonl`, a session a file, a side chain in its own.

A file is named for its session; after `/clear` the first lines still carry the id of the one before. A side chain
repeats its parent's id and has an `agentId`. Summaries describe the message of their `leafUuid`, in whatever file;
a session's own comes first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memory_anchor.base.json_values import Record, string
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
from memory_anchor.ingest.transcripts import claude_turn, is_inserted

PATTERN = "*.jsonl"
SKIPPED = (b'{"type":"file-history-', b'{"type":"api-request', b'{"type":"queue-operation"')
GROWS = True
FAILED = 1
"""The exit status of a call that the client calls an error and gives no number for."""


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        kind = line.get("type")
        if kind == "summary" and (leaf := string(line, "leafUuid")) and (title := string(line, "summary")):
            facts.titles[leaf] = title
        if kind not in ("user", "assistant", "attachment"):
            continue
        _note(line, facts)
        if line.get("isSidechain") and not facts.parent:
            continue
        turn = claude_turn(line)
        if turn is not None:
            yield from _steps_of(*turn, at=seconds(line.get("timestamp")), offset=offset)
    facts.title = facts.titles.get(facts.leaf, facts.title)


def _note(line: Record, facts: Facts) -> None:
    session, agent = line.get("sessionId"), line.get("agentId")
    if not facts.name and isinstance(session, str):
        if line.get("isSidechain") and isinstance(agent, str):
            facts.name, facts.parent = agent, session
        else:
            facts.name = facts.file if _is_uuid(facts.file) else session
    if isinstance(cwd := line.get("cwd"), str):
        facts.cwd = facts.cwd or cwd
    if isinstance(branch := line.get("gitBranch"), str) and branch:
        facts.branch = branch
    if isinstance(leaf := line.get("uuid"), str):
        facts.leaf = leaf


def _is_uuid(name: str) -> bool:
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def _steps_of(role: str, blocks: Sequence[Record], *, at: float, offset: int) -> Iterator[TranscriptStep]:
    for block in blocks:
        match block.get("type"):
            case "text":
                text = text_of([block])
                if role == "assistant" or not is_inserted(text):
                    yield from said("agent" if role == "assistant" else "user", text, at, offset)
            case "tool_use":
                call = str(block.get("id", ""))
                yield called(str(block.get("name", "")), block.get("input"), at=at, offset=offset, call=call)
            case "tool_result":
                call, output = str(block.get("tool_use_id", "")), text_of(block.get("content"))
                step = resulted(output, at=at, offset=offset, call=call)
                yield step if step.exit is not None else replace(step, exit=FAILED if block.get("is_error") else 0)
