"""Codex: `${CODEX_HOME:-~/.codex}/sessions/**/rollout-*.jsonl`, one session a file.

Messages, calls and results are `response_item` lines; `event_msg` lines repeat them, but for how a command ended in
newer releases, which the result's own text says too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import Json, Record
from memory_anchor.extensions.sessions.steps import (
    Facts,
    Lines,
    TranscriptStep,
    called,
    object_in,
    resulted,
    said,
    seconds,
    text_of,
)
from memory_anchor.ingest.transcripts import CODEX_CALLS, CODEX_RESULTS, is_inserted

PATTERN = "rollout-*.jsonl"
SKIPPED = ()
GROWS = True


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [Path(env.get("CODEX_HOME") or home / ".codex") / "sessions"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    for offset, line in lines:
        item = line.get("payload")
        if not isinstance(item, Mapping):
            continue
        at = seconds(line.get("timestamp"))
        if line.get("type") == "session_meta":
            _note(item, facts)
        elif line.get("type") == "response_item":
            yield from _steps_of(item, at=at, offset=offset)


def _note(meta: Record, facts: Facts) -> None:
    facts.name = facts.name or str(meta.get("id") or meta.get("session_id") or "")
    facts.cwd = facts.cwd or str(meta.get("cwd") or "")
    git = meta.get("git")
    if isinstance(git, Mapping) and isinstance(branch := git.get("branch"), str):
        facts.branch = branch


def _steps_of(item: Record, *, at: float, offset: int) -> Iterator[TranscriptStep]:
    kind, call = item.get("type"), str(item.get("call_id", ""))
    if kind == "message":
        text, role = text_of(item.get("content")), item.get("role")
        if role == "assistant" or (role == "user" and not is_inserted(text)):
            yield from said("agent" if role == "assistant" else "user", text, at, offset)
    elif not isinstance(kind, str):
        return
    elif kind in CODEX_CALLS:
        arguments = item.get("arguments", item.get("input", item.get("action")))
        yield called(str(item.get("name", kind)), arguments, at=at, offset=offset, call=call)
    elif kind in CODEX_RESULTS:
        output, code = _output(item.get("output"))
        yield resulted(output, at=at, offset=offset, call=call, exit=code)


def _output(output: Json) -> tuple[str, Json]:
    """Return what a call printed and how it ended; older releases wrap both in JSON."""
    value = object_in(output) if isinstance(output, str) else output
    if isinstance(value, Mapping):
        meta, inner = value.get("metadata"), value.get("output", value.get("content"))
        code = meta.get("exit_code") if isinstance(meta, Mapping) else None
        if isinstance(inner, str):
            return inner, code
    return output if isinstance(output, str) else text_of(output), None
