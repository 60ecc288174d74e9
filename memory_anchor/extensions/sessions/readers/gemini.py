"""Gemini CLI: `~/.gemini/tmp/*/chats/*.jsonl` (`GEMINI_CLI_HOME` holds `.gemini`), one session a file.

A message may be written again with what came of it, and a resumed session repeats its own in `$set`: by its id each
counts once. `$rewindTo` takes back a message and all after it, which were said all the same and stay.
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
    resulted,
    said,
    seconds,
    text_of,
)

PATTERN = "session-*.jsonl"
SKIPPED = (b'{"$set":{"lastUpdated"',)
GROWS = False
_OF_THE_CLIENT = "<session_context>"


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    seen: set[str] = set()
    for offset, line in lines:
        change = line.get("$set")
        repeated = change.get("messages") if isinstance(change, Mapping) else None
        if isinstance(name := line.get("sessionId"), str):
            facts.name = facts.name or name
        for message in repeated if isinstance(repeated, list) else [line]:
            if isinstance(message, Mapping):
                yield from _steps_of(message, facts, seen, offset)


def _steps_of(message: Record, facts: Facts, seen: set[str], offset: int) -> Iterator[TranscriptStep]:
    role, name, at = message.get("type"), str(message.get("id")), seconds(message.get("timestamp"))
    if role not in ("user", "gemini", "model"):
        return
    text = text_of(message.get("content"))
    if text.startswith(_OF_THE_CLIENT):
        facts.cwd = facts.cwd or _folder_in(text)
    elif text.strip() and name not in seen:
        seen.add(name)
        yield from said("user" if role == "user" else "agent", text, at, offset)
    calls = message.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping) and (id := str(call.get("id"))) not in seen:
            seen.add(id)
            yield called(str(call.get("name", "")), call.get("args"), at=at, offset=offset, call=id)
            failed = call.get("status") == "error"
            yield resulted(_output(call.get("result")), at=at, offset=offset, call=id, exit=int(failed))


def _output(result: Json) -> str:
    parts = (
        [part.get("functionResponse") for part in result if isinstance(part, Mapping)]
        if isinstance(result, list)
        else []
    )
    responses = [part.get("response") for part in parts if isinstance(part, Mapping)]
    return "\n".join(str(one.get("output") or one.get("error") or "") for one in responses if isinstance(one, Mapping))


def _folder_in(text: str) -> str:
    """Return the first folder of the workspace that the client told its model."""
    _, _, after = text.partition("Workspace Directories:**\n")
    return after.split("\n", 1)[0].strip(" -")
