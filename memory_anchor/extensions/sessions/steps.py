"""A transcript as steps, whichever agent wrote it: what was said, what was called, what came back.

Readers make nothing else, so that cutting, cleaning and storing know no agent. A step is raw: it is cleaned before it
is stored. Tools are told apart by their arguments, which agents name alike, and not by their names, which they do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from memory_anchor.base.json_values import Json, Record, lenient
from memory_anchor.language.safe_regex import bounded

StepKind = Literal["user", "agent", "call", "result"]
ActKind = Literal["command", "edit", "write", "read", "plan"]
SAID_CHARS = 20_000
"""Read of one message: what people say is shorter, longer text was pasted."""
OPEN, DONE = "[ ] ", "[x] "
"""How an entry of a plan begins, that is still to be done, or done."""
INPUT_CHARS = 400
"""Of a call's other arguments."""
MARGIN_CHARS = 100
"""Read beyond what is kept, so that a secret at the edge is seen whole, or with its word."""
EARLIEST, MILLISECONDS = 1_262_304_000.0, 100_000_000_000.0
"""No agent wrote before 2010; a larger number counts milliseconds."""
EXIT_END = 2**31
_EXIT = bounded(r"(?:Exit code:? |Process exited with code |\(exit code )(\d{1,3})")
_PATCHED = bounded(r"^\*\*\* (?:Update|Add|Delete) File: ([^\n]{1,400})$", re.MULTILINE)
_SHELLS = frozenset(("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh", "/usr/bin/bash", "/usr/bin/zsh"))


@dataclass(frozen=True, slots=True)
class Act:
    """What a call does. text: the command, or how the call is shown. old, new: the span that an edit replaces."""

    kind: ActKind
    text: str
    path: str = ""
    old: str = ""
    new: str = ""


@dataclass(frozen=True, slots=True)
class TranscriptStep:
    """One step. at: seconds since 1970, 0.0 where it is unknown. offset: of its line in the file.

    call: joins a call and its result. exit: how a result's command ended, None where nothing says it.
    """

    kind: StepKind
    text: str
    at: float = 0.0
    offset: int = 0
    act: Act | None = None
    call: str = ""
    exit: int | None = None


@dataclass(slots=True)
class Facts:
    """What is known of a session; its reader fills it in. leaf: the id of its newest message. file: the name of its
    file, without the ending. titles: of sessions, which may be others, by the newest message of each. problem: what of
    it could not be read, "" for nothing."""

    name: str = ""
    cwd: str = ""
    branch: str = ""
    title: str = ""
    parent: str = ""
    leaf: str = ""
    file: str = ""
    problem: str = ""
    titles: dict[str, str] = field(default_factory=dict, kw_only=True)


Lines = Iterable[tuple[int, Record]]
"""Each line of a transcript with its offset."""


def seconds(value: Json) -> float:
    """Return a time as seconds since 1970: ISO 8601, seconds or milliseconds; 0.0 for what is none.

    >>> seconds("2026-03-02T09:00:00Z") == seconds(1772442000) == seconds(1772442000000)
    True
    """
    at = 0.0
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value).timestamp()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            at = value / 1_000 if value > MILLISECONDS else float(value)
    except (ValueError, OverflowError, OSError):
        at = 0.0
    return at if EARLIEST <= at < MILLISECONDS else 0.0


def text_of(content: Json) -> str:
    """Return the text of a content: text itself, or a list of blocks; thinking is none.

    >>> text_of([{"type": "thinking", "text": "hm"}, {"type": "text", "text": "yes"}])
    'yes'
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [block if isinstance(block, str) else _block_text(block) for block in content]
    return "\n".join(part for part in parts if part)


def _block_text(block: Json) -> str:
    if not isinstance(block, Mapping) or block.get("type") in ("thinking", "reasoning") or block.get("thought"):
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else ""


def said(role: Literal["user", "agent"], text: str, at: float, offset: int = 0) -> Iterator[TranscriptStep]:
    """Yield what was said, bounded; nothing for blanks."""
    if text.strip():
        yield TranscriptStep(role, text[: SAID_CHARS + MARGIN_CHARS], at, offset)


def called(name: str, arguments: Json, *, at: float, offset: int = 0, call: str = "") -> TranscriptStep:
    """Return a call. arguments: an object, or JSON of one."""
    if isinstance(arguments, str):
        arguments = object_in(arguments) or {"input": arguments}
    act = _act(name, arguments if isinstance(arguments, Mapping) else {})
    return TranscriptStep("call", act.text, at, offset, act, call)


def object_in(text: str) -> Record | None:
    """Return the object that a text is, as JSON; None for none."""
    try:
        value = lenient(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _act(name: str, given: Record) -> Act:
    path = next(
        (value for key in ("file_path", "path", "filePath", "notebook_path") if (value := _str(given, key))), ""
    )
    command = given.get("command", given.get("cmd"))
    if isinstance(command, Sequence) and not isinstance(command, str):
        words = [word for word in command if isinstance(word, str)]
        command = words[-1] if len(words) == 3 and words[0] in _SHELLS else " ".join(words)
    patch = command if isinstance(command, str) else _str(given, "input") or _str(given, "patch")
    if "*** Begin Patch" in patch:
        return _patch(patch)
    if isinstance(command, str) and command and not _str(given, "old_str"):
        return Act("command", command)
    edits = given.get("edits")
    first = next((edit for edit in edits if isinstance(edit, Mapping)), {}) if isinstance(edits, list) else given
    old, new = (_str(first, f"{which}_string") or _str(first, f"{which}_str") for which in ("old", "new"))
    if old or new:
        return Act("edit", f"{name} {path}", path, old, new)
    content = _str(given, "content") or _str(given, "file_text")
    if content and path:
        return Act("write", f"{name} {path}\n{content}", path)
    plan = given.get("todos", given.get("plan"))
    if isinstance(plan, list) and plan:
        return Act("plan", "\n".join(_entry(entry) for entry in plan if isinstance(entry, Mapping)))
    values = " ".join(str(value) for value in given.values() if isinstance(value, str | int))
    return Act("read", f"{name} {values[: INPUT_CHARS + MARGIN_CHARS]}".rstrip(), path)


def _entry(entry: Record) -> str:
    is_done = entry.get("status") in ("completed", "done", "cancelled")
    return (DONE if is_done else OPEN) + (_str(entry, "content") or _str(entry, "step") or _str(entry, "text"))


def _str(given: Record, key: str) -> str:
    value = given.get(key)
    return value if isinstance(value, str) else ""


def _patch(patch: str) -> Act:
    """Return the edit of a patch in the form of Codex; its spans are the lines that go and those that come."""
    body = patch[patch.index("*** Begin Patch") :]
    paths = _PATCHED.findall(body)
    lines = body.split("\n")
    old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return Act("edit", " ".join(["apply_patch", *paths]), paths[0] if paths else "", old, new)


def resulted(output: str, *, at: float, offset: int = 0, call: str = "", exit: Json = None) -> TranscriptStep:
    """Return a result. exit: as the client says it, where that can be one; else as the output's own first lines do."""
    code = exit if type(exit) is int and abs(exit) < EXIT_END else None
    if code is None and (match := _EXIT.search(output, 0, 200)):
        code = int(match[1])
    return TranscriptStep("result", output, at, offset, None, call, code)
