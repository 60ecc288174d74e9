"""Gemini CLI: `~/.gemini/tmp/*/chats/*.jsonl` (`GEMINI_CLI_HOME` holds `.gemini`), one session a file.

A message may be written again with what came of it, and a resumed session repeats its own in `$set`: by its id each
counts once. `$rewindTo` takes back a message and all after it, which were said all the same and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.base.json_values import Json, Record, inside, objects, string
from memory_anchor.extensions.more_agents.stores import ended, spoken, tool
from memory_anchor.extensions.sessions.steps import Facts, Lines, TranscriptStep, seconds, text_of

PATTERN = "session-*.jsonl"
SKIPPED = (b'{"$set":{"lastUpdated"',)
GROWS = False
RUNNING = (None, "validating", "scheduled", "awaiting_approval", "executing")
_OF_THE_CLIENT = "<session_context>"


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"]


def steps(lines: Lines, facts: Facts) -> Iterator[TranscriptStep]:
    seen: set[str] = set()
    for offset, line in lines:
        repeated = inside(line.get("$set"), "messages")
        facts.name = facts.name or string(line, "sessionId")
        for message in objects(repeated) if isinstance(repeated, list) else [line]:
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
        yield from spoken(role, text, at, offset)
    for call in objects(message.get("toolCalls")):
        if (id := str(call.get("id"))) not in seen:
            seen.add(id)
            yield tool(string(call, "name"), call.get("args"), at=at, offset=offset, call=id)
        status = call.get("status") or (call.get("result") and "success")
        if status not in RUNNING and (done := f"{id} {status}") not in seen:
            seen.add(done)
            failed = status in ("error", "cancelled")
            yield ended(_output(call.get("result")), failed=failed, at=at, offset=offset, call=id)


def _output(result: Json) -> str:
    responses = [inside(part, "functionResponse", "response") for part in objects(result)]
    return "\n".join(str(one.get("output") or one.get("error") or "") for one in responses if isinstance(one, Mapping))


def _folder_in(text: str) -> str:
    """Return the first folder of the workspace that the client told its model."""
    _, _, after = text.partition("Workspace Directories:**\n")
    return after.split("\n", 1)[0].strip(" -")
