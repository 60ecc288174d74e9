"""Transcripts on disk as conversations: Claude Code's and Codex's JSON lines, and plain JSON.

The clients document neither format, so only what has stayed the same over their releases is read (type, role, content,
tool calls); other lines are skipped. No transcript, binary junk, too many lines or bytes: refused in one sentence,
before anything is written. A bad byte, half a character, a half-written line, one that is too long and a message of an
unknown kind cost themselves and not the session: a transcript is what at least one line says that it is.

Invariant: text that the client itself put in (environment, summaries, side chains) is never read as the user's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from memory_anchor.base.files import read_own_file
from memory_anchor.base.json_values import Json, lenient
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput
from memory_anchor.ingest.messages import Message, Role, ToolCall, arguments_of, conversation
from memory_anchor.language.safe_regex import bounded

MAX_BYTES = 64 * 1024 * 1024
END_BYTES = 256 * 1024
MAX_LINES = 200_000
MAX_LINE_CHARS = 4 * 1024 * 1024
MAX_MESSAGES = 20_000

CODEX_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
CODEX_RESULTS = frozenset(("function_call_output", "custom_tool_call_output"))

Format = Literal["claude-code", "codex", "json"]

_INSERTED = bounded(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions|turn_aborted|hook_prompt"
    r"|system-reminder|command-\w+|local-command-\w+|bash-\w+|task-notification)"
    r"|Caveat: The messages below|# AGENTS\.md"
    r"|This session is being continued from a previous|\[Request interrupted)"
)
"""How text begins that clients themselves put into a user's turn."""


def read_transcript(path: Path) -> tuple[tuple[Message, ...], Format]:
    """Return the messages of a transcript and the format it was in.

    Raises NotFound: no such file. BadInput: no regular file of this user (a pipe or device would never end), not a
    transcript, damaged, empty, or above `MAX_BYTES` or `MAX_MESSAGES`.
    """
    raw = read_own_file(path, most=MAX_BYTES)
    return parse_transcript(raw, name=path.name)


def read_end(path: Path, most: int = END_BYTES) -> tuple[Message, ...]:
    """Return the newest messages of a transcript: those of its last `most` bytes. Raises as `read_transcript` does."""
    raw = read_own_file(path, most=MAX_BYTES, last=most + 1)
    if len(raw) > most:
        raw = raw.partition(b"\n")[2]
    return parse_transcript(raw, name=path.name)[0]


def codex_exit_code(path: Path, call_id: str) -> int:
    """Return the exit code of a command that Codex just ran, from the end of its transcript; 0 where that has none.

    Raises as `read_transcript` does.
    """
    for line in reversed(read_own_file(path, most=MAX_BYTES, last=END_BYTES).split(b"\n")):
        if call_id.encode() not in line or b'"exit_code"' not in line:
            continue
        try:
            item = json.loads(line)["payload"]["item"]
            if item["id"] == call_id:
                return int(item["exit_code"])
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
    return 0


def parse_transcript(raw: bytes, *, name: str = "transcript") -> tuple[tuple[Message, ...], Format]:
    """Return the messages of a transcript's bytes and its format; raises BadInput as `read_transcript` does."""
    text = raw.decode("utf-8-sig", "replace")
    plain = _plain_json(text)
    if plain is not None:
        return conversation(plain, most=MAX_MESSAGES, is_strict=False), "json"
    lines = list(_lines(text, name))
    form: Format
    if any("payload" in line for line in lines):
        messages, form = _codex(lines), "codex"
    elif any(isinstance(line.get("message"), Mapping) for line in lines):
        messages, form = _claude_code(lines), "claude-code"
    elif lines and all("role" in line for line in lines):
        return conversation(lines, most=MAX_MESSAGES, is_strict=False), "json"
    else:
        raise BadInput(f"{name} is no transcript of Claude Code or Codex, nor a JSON list of {{role, content}}.")
    if not messages:
        raise BadInput(f"{name} holds no message of a user or an assistant.")
    if len(messages) > MAX_MESSAGES:
        raise BadInput(f"{name} holds {len(messages)} messages; allowed are {MAX_MESSAGES}.")
    return tuple(replace(message, seq=seq) for seq, message in enumerate(messages)), form


def _plain_json(text: str) -> list[Json] | None:
    """Return the list of a plain JSON file ([{role, content}], or {"messages": [...]}), else None."""
    if text.lstrip()[:1] not in {"[", "{"}:
        return None
    try:
        value = lenient(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    return value if isinstance(value, list) else None


def _lines(text: str, name: str) -> Iterator[Mapping[str, Json]]:
    count = read = 0
    for line in text_lines(text):
        if not line.strip():
            continue
        count += 1
        if count > MAX_LINES:
            raise BadInput(f"{name} has more than {MAX_LINES} lines.")
        if len(line) > MAX_LINE_CHARS:
            continue
        try:
            value = lenient(line)
        except (ValueError, RecursionError):
            continue
        read += 1
        if isinstance(value, Mapping):
            yield value
    if count and not read:
        raise BadInput(f"{name} is no JSON; allowed are JSON and JSON lines.")


def _claude_code(lines: Sequence[Mapping[str, Json]]) -> list[Message]:
    messages: list[Message] = []
    for line in lines:
        turn = None if line.get("isSidechain") else claude_turn(line)
        if turn is not None:
            _add_turn(messages, *turn)
    return messages


def claude_turn(line: Mapping[str, Json]) -> tuple[Role, Sequence[Mapping[str, Json]]] | None:
    """Return who speaks in a line of Claude Code and its blocks; None where nobody does."""
    if line.get("isMeta") or line.get("isCompactSummary"):
        return None
    message, typed = line.get("message"), line.get("attachment")
    if line.get("type") in {"user", "assistant"} and isinstance(message, Mapping):
        role: Role = "assistant" if line["type"] == "assistant" else "user"
        content = message.get("content")
    elif line.get("type") == "attachment" and isinstance(typed, Mapping) and _is_typed_at_work(typed):
        role, content = "user", typed.get("prompt")
    else:
        return None
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, Sequence):
        return None
    origin = line.get("origin")
    is_reported = isinstance(origin, Mapping) and origin.get("kind", "human") != "human"
    turn = [block for block in blocks if isinstance(block, Mapping)]
    return role, [block for block in turn if not is_reported or block.get("type") == "tool_result"]


def is_inserted(text: str) -> bool:
    """Return whether a client put a text into its user's turn."""
    return _INSERTED.match(text) is not None


def _is_typed_at_work(attachment: Mapping[str, Json]) -> bool:
    """Return whether an attachment is what the user typed while the client worked; other reports are queued alike."""
    return attachment.get("type") == "queued_command" and attachment.get("humanTurn") is True


def _add_turn(messages: list[Message], role: Role, blocks: Sequence[Mapping[str, Json]]) -> None:
    """Add one turn: tool results as separate messages, text and calls as the speaker's."""
    parts: list[str] = []
    calls: list[ToolCall] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text" and isinstance(text := block.get("text"), str):
            if not (role == "user" and is_inserted(text)):
                parts.append(text)
        elif kind == "tool_use":
            calls.append(ToolCall(str(block.get("name", "")), arguments_of(block.get("input"))))
        elif kind == "tool_result":
            messages.append(Message("tool", _text_of(block.get("content"))))
    if parts or calls:
        messages.append(Message(role, "\n".join(parts), tuple(calls)))


def _text_of(content: Json) -> str:
    """Return the text of a result that is text or a list of text blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, Mapping))
    return ""


def _codex(lines: Sequence[Mapping[str, Json]]) -> list[Message]:
    messages: list[Message] = []
    for line in lines:
        item = line.get("payload")
        if line.get("type") != "response_item" or not isinstance(item, Mapping):
            continue
        kind = item.get("type")
        if kind == "message" and item.get("role") in {"user", "assistant"}:
            role: Role = "user" if item["role"] == "user" else "assistant"
            text = _text_of(item.get("content"))
            if text.strip() and not (role == "user" and is_inserted(text)):
                messages.append(Message(role, text))
        elif kind in CODEX_CALLS:
            arguments = item.get("arguments", item.get("input", item.get("action")))
            messages.append(Message("assistant", "", (ToolCall(str(item.get("name", kind)), arguments_of(arguments)),)))
        elif kind in CODEX_RESULTS:
            output = item.get("output")
            messages.append(
                Message("tool", output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
            )
    return messages
