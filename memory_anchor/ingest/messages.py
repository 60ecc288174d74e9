"""A conversation as the write path reads it: checked once, bounded, without what must never be extracted.

`conversation` checks what a client sends and raises one sentence for the first thing wrong. `prose_of` is the part of a
message to learn from: without private and recalled text, code, logs, quoted lines and binary junk. Invariant: nothing
recalled reaches an extractor, by model or by rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from memory_anchor.base.json_values import Json, kind_of
from memory_anchor.base.lines import text_lines
from memory_anchor.domain.errors import BadInput
from memory_anchor.language.fences import split_fenced, strip_fenced
from memory_anchor.language.safe_regex import late
from memory_anchor.language.safety import strip_private

Role = Literal["user", "assistant", "system", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
ROLE_ALIASES: Mapping[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}

MAX_MESSAGES = 5_000
MAX_MESSAGE_CHARS = 200_000
READ_CHARS = 20_000
"""Read of one message; what people say to an agent is shorter, longer text was pasted."""
MAX_TOOL_CALLS = 200
MEMORY_TOOLS = late(
    r"(?:search|save|get|list|recall|build|read|add|log|find|promote|forget|end|remember|resolve)_?"
    r"(?:memor(?:y|ies)|events?|context|constitution|active_context|operations|session|conversation"
    r"|conflict)|memory[-_]anchor",
    re.I,
)
"""Names of our tools, also after a client's prefix: what they answer is recalled, never new."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. seq: its index in the conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    seq: int = 0


def conversation(messages: Json, *, most: int = MAX_MESSAGES, is_strict: bool = True) -> tuple[Message, ...]:
    """Return the checked messages.

    messages: a list of `{role, content, tool_calls?}`; content is text or a list of blocks (`text`, `tool_use`,
    `tool_result`). A tool's answer may stand first: clients cut a conversation anywhere.
    is_strict: a message with an unknown role, or content that is no text, is an error; else it is left out, unless no
    other is there. Raises BadInput: that, not a list, empty, more than `most`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise BadInput(f"messages is {kind_of(messages)}; allowed is a list of {{role, content}}.")
    if not 1 <= len(messages) <= most:
        raise BadInput(
            f"messages holds {len(messages)} turns; allowed are 1 to {most}. "
            "Longer files go through `memory-anchor extract`."
        )
    checked: list[Message] = []
    first_wrong: BadInput | None = None
    for seq, raw in enumerate(messages):
        try:
            checked.append(_message(raw, seq))
        except BadInput as wrong:
            first_wrong = first_wrong or wrong
    if first_wrong is not None and (is_strict or not checked):
        raise first_wrong
    return tuple(checked)


def _message(raw: Json, seq: int) -> Message:
    if not isinstance(raw, Mapping):
        raise BadInput(f"messages[{seq}] is {kind_of(raw)}; allowed is an object with role and content.")
    name = str(raw.get("role", "")).lower()[:40]
    name = ROLE_ALIASES.get(name, name)
    role = next((role for role in ROLES if role == name), None)
    if role is None:
        raise BadInput(f"messages[{seq}].role is {name!r}; allowed are {', '.join(ROLES)}.")
    text, calls = _content(raw.get("content"), seq)
    calls += _calls(raw.get("tool_calls"), seq)
    if len(text) > MAX_MESSAGE_CHARS:
        raise BadInput(f"messages[{seq}].content has {len(text)} characters; allowed are {MAX_MESSAGE_CHARS}.")
    return Message(role, text, tuple(calls[:MAX_TOOL_CALLS]), seq)


def _content(content: Json, seq: int) -> tuple[str, list[ToolCall]]:
    """Return the text and the tool calls of a content that is text or a list of blocks."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise BadInput(f"messages[{seq}].content is {kind_of(content)}; allowed is text or a list of blocks.")
    parts: list[str] = []
    calls: list[ToolCall] = []
    for block in content:
        if not isinstance(block, Mapping):
            continue
        text, arguments = block.get("text"), block.get("input")
        if block.get("type") in {"text", "input_text", "output_text"} and isinstance(text, str):
            parts.append(text)
        elif block.get("type") == "tool_use" and isinstance(arguments, Mapping):
            calls.append(ToolCall(str(block.get("name", "")), arguments))
    return "\n".join(parts), calls


def _calls(calls: Json, seq: int) -> list[ToolCall]:
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, (str, bytes)):
        raise BadInput(f"messages[{seq}].tool_calls is {kind_of(calls)}; allowed is a list of {{name, arguments}}.")
    checked = []
    for call in calls:
        inner = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(name := inner.get("name"), str):
            raise BadInput(f"messages[{seq}].tool_calls holds a call without a name; allowed is {{name, arguments}}.")
        checked.append(ToolCall(name, arguments_of(inner.get("arguments", inner.get("input")))))
    return checked


def arguments_of(value: Json) -> Mapping[str, Json]:
    """Return a call's arguments as a mapping; JSON text is parsed, anything else becomes `{"input": ...}`."""
    if isinstance(value, str):
        import json

        try:
            value = json.loads(value[:MAX_MESSAGE_CHARS])
        except ValueError:
            return {"input": value}
    return value if isinstance(value, Mapping) else ({} if value is None else {"input": value})


_CODE = late(r"```(?:[^`]++|`(?!``))*(?:```)?|~~~(?:[^~]++|~(?!~~))*(?:~~~)?")
_NOISE_LINE = late(
    r"\s*+(?:>|[+-]{3} |@@ |diff --git|at \S{1,400}\(|File \"|Traceback|\$ |% |#!/|\{|\}|\[\{|<\w|</|\|.{0,400}\|"
    r"|\[(?:[A-Z]{4,8}|[\u4e00-\u9fff]{2})\]\s|\d{4}-\d\d-\d\d[T ]\d\d:|\[?\d\d:\d\d:\d\d"
    r"|(?:INFO|DEBUG|WARN(?:ING)?|ERROR|FATAL|TRACE)[\s:\]]|import \w|from \w{1,64} import|def \w{1,64}\("
    r"|class \w{1,64}[(:]|\w{2,10} ERR!|(?:FAILED|PASSED) \S{1,200}::"
    r"|(?:const|let|var|return|public|private|func|fn) .{0,400}[;{(=])"
)
_PAIR = late(r"\s*+[\w./ -]{1,30}(?::(?:\s|[^\x00-\x7f/]|$)|：)")
PAIRS_MIN = 3
"""Neighbouring lines of `key: value` that make a form, a log or a file, not what somebody says."""
_INDENTED = late(r"(?: {4}|\t)\s*+(?![-*•·]\s|\d{1,2}[.)、]\s)\S")
_SIGNED = late(r"[+-]")
_HUNK = late(r"^(?:@@ |diff --git)", re.M)
_CONTROL = late(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
_BLOB = late(r"[A-Za-z0-9+/=_-]{120,}")
JUNK_SHARE = 0.05


def prose_of(message: Message) -> str:
    """Return the lines of prose in a message; among several lines an indented one is code, unless it is a bullet."""
    text = message.content[:READ_CHARS]
    if len(_CONTROL.findall(text)) > JUNK_SHARE * len(text):
        return ""
    text = strip_fenced(strip_private(text))
    if "```" in text or "~~~" in text:
        text = _CODE.sub("\n", text)
    text = _BLOB.sub(" ", _CONTROL.sub("", text))
    lines = text_lines(text)
    if len(lines) > 1:
        changed = _diff_lines(lines, has_hunk=_HUNK.search(text) is not None)
        lines = [line for at, line in enumerate(lines) if at not in changed and not _INDENTED.match(line)]
        pairs = _pair_lines(lines)
        lines = [line for at, line in enumerate(lines) if at not in pairs]
    return "\n".join(line for line in lines if not _NOISE_LINE.match(line))


def _pair_lines(lines: Sequence[str]) -> frozenset[int]:
    """Return the indices of the lines of a pasted form: at least `PAIRS_MIN` neighbours of `key: value`."""
    found: set[int] = set()
    block: list[int] = []
    for at, line in enumerate((*lines, "")):
        if line and _PAIR.match(line):
            block.append(at)
            continue
        found.update(block if len(block) >= PAIRS_MIN else ())
        block = []
    return frozenset(found)


def _diff_lines(lines: Sequence[str], *, has_hunk: bool) -> frozenset[int]:
    """Return the indices of lines that a diff adds or removes; a list with one kind of bullet is no diff.

    has_hunk: the text has a hunk's header, so every signed line belongs to a diff.
    """
    changed: set[int] = set()
    block: list[int] = []
    for at, line in enumerate((*lines, "")):
        if _SIGNED.match(line):
            block.append(at)
        elif not (block and line.startswith(" ")):
            signs = {lines[signed][0] for signed in block}
            is_bare = any(lines[signed][1:2].strip() for signed in block)
            if has_hunk or len(signs) > 1 or (len(block) > 1 and is_bare):
                changed.update(block)
            block = []
    return frozenset(changed)


def recalled_text(messages: Iterable[Message]) -> str:
    """Return all text that memory put into this conversation (our tools' answers, fences), folded, to find repeats."""
    parts: list[str] = []
    from_memory = True  # an answer before the first call: what asked for it was cut off
    for message in messages:
        if message.tool_calls:
            from_memory = any(MEMORY_TOOLS.search(call.name) for call in message.tool_calls)
        if message.role == "tool":
            if from_memory:
                parts.append(message.content[:READ_CHARS])
        elif "<" in message.content:
            parts.append(split_fenced(message.content[:READ_CHARS])[1])
    return fold("\n".join(parts))


def fold(text: str) -> str:
    """Return text for comparing: lower case, single blanks, JSON escapes undone."""
    return " ".join(text.replace("\\n", " ").replace('\\"', '"').lower().split())
