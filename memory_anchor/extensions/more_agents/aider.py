"""aider: `.aider.chat.history.md` where it was started, Markdown for people; a start is a session.

What a person typed begins with `#### ` and ends with two blanks; `> ` is aider's own; the rest is the model's. There
is no time but the start's, and no id: a session is named for its file and its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
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
STOPPED, FENCE, END = "> ^C", "```", "####   "
FILES_KEPT = 4
"""Files whose starts are remembered: each start is found and read alone, newest first, of every project in turn."""
RUNS = {"/run ": "", "!": "", "/test ": "", "/git ": "git "}
"""What a person types to run a command, and how the command begins then."""


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [home, *([Path(own).parent] if (own := env.get("AIDER_CHAT_HISTORY_FILE")) else ())]


def found(root: Path) -> Iterator[FoundSession]:
    for file in files(AGENT, root, HISTORY, 1):
        sections: dict[str, str] = {}
        try:
            sections = {} if file.problem else _sections_of(file.path)
        except (BadInput, NotFound) as error:
            file = replace(file, problem=str(error))
        if not sections:
            yield file
        for start, text in sections.items():
            at = int(seconds(start) * 1e9)
            size, folder = len(text) - text.count("\n"), str(file.path.parent)
            yield FoundSession(AGENT, file.path, size, at, part=start, folder=folder, file_bytes=file.size)


def _sections_of(path: Path) -> dict[str, str]:
    """Return the text of each start, by its time; those of one second together. Raises BadInput, NotFound."""
    try:
        status = path.lstat()
    except OSError as error:
        raise NotFound(f"{path} cannot be opened: {error.strerror}") from None
    return _sections(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=FILES_KEPT)
def _sections(path: Path, size: int, mtime_ns: int) -> dict[str, str]:
    del size, mtime_ns  # which change with the file
    sections: dict[str, list[str]] = {}
    start = ""
    for line in read_own_file(path, most=FILE_BYTES_MAX).decode("utf-8", "replace").split("\n"):
        if line.startswith(START) and seconds(time := line.removeprefix(START).strip()):
            start = time
        elif start:
            sections.setdefault(start, []).append(line)
    return {start: "\n".join(lines) for start, lines in sections.items()}


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    at, lines = seconds(found.part), [*_sections_of(found.path).get(found.part, "").split("\n"), END]
    facts.name = f"aider-{stable_hash(str(found.path))[:12]}-{re.sub('[^0-9]', '', found.part)}"
    typed, answer, last, is_code, is_told = list[str](), list[str](), "", False, False
    for number, line in enumerate(lines):
        is_code = is_code and not _ends_code(lines, number)
        is_typed = _is_typed(line) and not is_code
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
            is_code ^= line.startswith(FENCE)
            answer.append(line)


def _is_typed(line: str) -> bool:
    return line.startswith(TYPED) and line.endswith("  ")


def _ends_code(lines: Sequence[str], number: int) -> bool:
    """Return whether a block of code that was left open ends before this line: the answer was stopped, or a person
    typed this, and up to what was typed next every fence has its own."""
    if number == len(lines) - 1 or lines[number].startswith(STOPPED):
        return True
    if not _begins(lines, number):
        return False
    after = next(at for at in range(number + 1, len(lines)) if _begins(lines, at) or at == len(lines) - 1)
    return sum(line.startswith(FENCE) for line in lines[number:after]) % 2 == 0


def _begins(lines: Sequence[str], number: int) -> bool:
    return _is_typed(lines[number]) and not lines[number - 1].strip()


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
