"""aider: `.aider.chat.history.md` where it was started, Markdown for people; a start is a session.

What a person typed begins with `#### ` and ends with two blanks; `> ` is aider's own; the rest is the model's. There
is no time but the start's, and no id: a session is named for its file and its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from memory_anchor.base.files import read_own_file
from memory_anchor.base.hashing import stable_hash
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.extensions.more_agents.stores import spoken, tool
from memory_anchor.extensions.sessions.agents import FoundSession, files
from memory_anchor.extensions.sessions.reading import FILE_BYTES_MAX
from memory_anchor.extensions.sessions.steps import Act, Facts, TranscriptStep, seconds

AGENT, HISTORY, IN_PROJECTS = "aider", ".aider.chat.history.md", True
START, TYPED, TOLD, APPLIED = "# aider chat started at ", "#### ", "> ", "> Applied edit to "
RUNS = {"/run ": "", "!": "", "/test ": "", "/git ": "git "}
"""What a person types to run a command, and how the command begins then."""


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [home, *([Path(own).parent] if (own := env.get("AIDER_CHAT_HISTORY_FILE")) else ())]


def found(root: Path) -> Iterator[FoundSession]:
    for file in files(AGENT, root, HISTORY, 1):
        sections: dict[str, list[str]] = {}
        try:
            sections = {} if file.problem else _sections(file.path)
        except (BadInput, NotFound) as error:
            file = replace(file, problem=str(error))
        if not sections:
            yield file
        for start, lines in sections.items():
            at = int(seconds(start) * 1e9)
            size, folder = sum(map(len, lines)), str(file.path.parent)
            yield FoundSession(AGENT, file.path, size, at, part=start, folder=folder, file_bytes=file.size)


def _sections(path: Path) -> dict[str, list[str]]:
    """Return the lines of each start, by its time; those of one second together."""
    sections: dict[str, list[str]] = {}
    start = ""
    for line in read_own_file(path, most=FILE_BYTES_MAX).decode("utf-8", "replace").split("\n"):
        if line.startswith(START) and seconds(time := line.removeprefix(START).strip()):
            start = time
        elif start:
            sections.setdefault(start, []).append(line)
    return sections


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    at, lines = seconds(found.part), _sections(found.path).get(found.part, [])
    facts.name = f"aider-{stable_hash(str(found.path))[:12]}-{re.sub('[^0-9]', '', found.part)}"
    typed, answer, last, is_code, is_told = list[str](), list[str](), "", False, False
    for line in (*lines, f"{TYPED}  "):
        is_typed = line.startswith(TYPED) and line.endswith("  ") and not is_code
        is_told = not is_typed and not is_code and (line.startswith(TOLD) or (is_told and bool(line.strip())))
        if answer and (is_typed or is_told):
            last, answer = "\n".join(answer).strip("\n"), []
            yield from spoken("agent", last, at)
        if is_typed:
            typed.append(line.removeprefix(TYPED).strip().replace("<blank>", ""))
            continue
        yield from _typed("\n".join(typed), at)
        typed = []
        if is_told and line.startswith(APPLIED):
            yield _edited(line.removeprefix(APPLIED).strip(), last, at)
        elif not is_told and (line.strip() or answer):
            is_code ^= line.startswith("```")
            answer.append(line)


def _typed(text: str, at: float) -> Iterator[TranscriptStep]:
    prefix = next((prefix for prefix in RUNS if text.startswith(prefix)), "")
    if prefix:
        yield tool("run", {"command": RUNS[prefix] + text.removeprefix(prefix)}, at=at)
    elif not text.startswith("/"):
        yield from spoken("user", text, at)


def _edited(path: str, answer: str, at: float) -> TranscriptStep:
    """Return the edit of a file, with the first span that the answer before it replaced there."""
    old, _, rest = answer.partition(f"{path}\n")[2].partition("<<<<<<< SEARCH\n")[2].partition("=======\n")
    act = Act("edit", f"edit {path}", path, old, rest.partition(">>>>>>> ")[0])
    return TranscriptStep("call", act.text, at, act=act)
