"""What the readers of this room share: the sessions of a database, JSON of a file or a text, names of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.files import read_own_file
from memory_anchor.base.json_values import Json, Record, lenient, string
from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.extensions.sessions.agents import ODD, UNKNOWN_FORMAT, FoundSession, files
from memory_anchor.extensions.sessions.reading import FILE_BYTES_MAX, LONG, NO_JSON
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, called, resulted, said, seconds
from memory_anchor.language.safe_regex import bounded

_CODE, CODE_CHARS = bounded(r"^Exit Code: (\d{1,3})$", re.MULTILINE), 400
"""What ends a command's output where its client prints how it ended, and how near to the end it stands."""
Listed = Iterator[tuple[str, int, Json, *tuple[str, ...]]]
"""Sessions of a database: id, a number that changes as it grows, when it changed, its folder; its title and parent."""
_NAMES = {
    **dict.fromkeys(("target_file", "relativeWorkspacePath"), "file_path"),
    **dict.fromkeys(("oldString", "old_text", "before"), "old_string"),
    **dict.fromkeys(("newString", "new_text", "after"), "new_string"),
    **dict.fromkeys(("contents", "code_edit"), "content"),
}
_EDITOR = frozenset(("view", "write", "create", "str_replace", "insert", "undo_edit"))
"""What editors take as `command`, and is none."""


def configs(env: Mapping[str, str], home: Path) -> list[Path]:
    """Return where desktop programs keep their settings, on Linux, macOS and Windows."""
    windows = [Path(folder)] if (folder := env.get("APPDATA")) else []
    return [Path(env.get("XDG_CONFIG_HOME") or home / ".config"), home / "Library" / "Application Support", *windows]


def sessions_in(agent: str, root: Path, pattern: str, listed: Callable[[Select], Listed]) -> Iterator[FoundSession]:
    """Yield the sessions of the databases in a folder; of one that cannot be read, the file with its problem."""
    for file in files(agent, root, pattern, 1):
        try:
            rows = [] if file.problem else queried(file.path, lambda select: list(listed(select)))
        except (BadInput, NotFound) as error:
            rows, file = [], replace(file, problem=str(error))
        except ODD:
            rows, file = [], replace(file, problem=UNKNOWN_FORMAT)
        if file.problem:
            yield file
        for id, size, at, *named in rows:
            yield FoundSession(agent, file.path, size, int(seconds(at) * 1e9), "", id, file.size, *named)


def document(path: Path) -> Json:
    """Return the value of a JSON file. Raises BadInput: it is none, or too long; NotFound."""
    try:
        return lenient(read_own_file(path, most=FILE_BYTES_MAX))
    except (ValueError, RecursionError):
        raise BadInput(f"{path.name} is no JSON: it is being written, was cut off, or is damaged") from None


def value(given: Json, facts: Facts) -> Json:
    """Return the value of a JSON text, or what is there instead of a text; None for damage, which is noted."""
    try:
        return lenient(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        facts.problem = NO_JSON if given else LONG
        return None


def spoken(role: Json, text: str, at: float, offset: int = 0) -> Iterable[TranscriptStep]:
    """Return what the user said, or the agent."""
    return said("user" if role == "user" else "agent", text, at, offset)


def tool(name: str, given: Json, *, at: float, call: str = "", offset: int = 0) -> TranscriptStep:
    """Return a call. given: its arguments by name, or JSON of them; renamed as other agents name them."""
    given = value(given, Facts()) or {"input": given} if isinstance(given, str) else given
    named: Record = {_NAMES.get(key, key): one for key, one in given.items()} if isinstance(given, Mapping) else {}
    if string(named, "command") in _EDITOR and "path" in named:
        named = {key: one for key, one in named.items() if key != "command"}
    return called(name, named, at=at, offset=offset, call=call)


def ended(output: str, *, failed: bool, at: float, call: str, offset: int = 0) -> TranscriptStep:
    """Return a result. failed: as the client says it; a command that failed may be a success to it, and its output says
    how it ended."""
    printed = _CODE.findall(output[-CODE_CHARS:])
    step = resulted(output, at=at, offset=offset, call=call, exit=int(printed[-1]) if printed else None)
    return replace(step, exit=step.exit or int(failed))
