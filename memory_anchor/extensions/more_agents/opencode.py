"""opencode: `$XDG_DATA_HOME/opencode/opencode*.db`, before 1.2 JSON files in `storage/`; a sub agent is a session.

A message is a row or file, its parts others: text, tool calls with their result, marks of the client. A part is
written again when its call ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.json_values import Json, inside, string
from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.more_agents.stores import Listed, document, sessions_in, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession, files
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, resulted, seconds

AGENT = "opencode"
NAME_CHARS = 16
"""Of a session's id: its time and number; what follows is random, and looks as a token does."""
UNNAMED = ("New session - ", "Child session - ")
Parts = list[tuple[Json, Json]]
"""Each part with its message."""


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"]


def found(root: Path) -> Iterator[FoundSession]:
    stored = list(sessions_in(AGENT, root, "opencode*.db", _listed))
    yield from stored
    moved, messages = {one.part for one in stored}, root / "storage" / "message"
    for file in files(AGENT, root / "storage" / "session", "*.json", 2):
        if file.path.stem not in moved:
            written = [one.mtime_ns for one in files(AGENT, messages / file.path.stem, "*.json", 1)]
            yield FoundSession(AGENT, file.path, len(written), max([file.mtime_ns, *written]), file.problem)


def _listed(select: Select) -> Listed:
    rows = select(
        "select s.id, s.directory, count(p.id) n, max(s.time_updated, coalesce(max(p.time_updated), 0)) at "
        "from session s left join part p on p.session_id = s.id group by s.id"
    )
    for row in rows:
        yield str(row["id"]), int(row["n"] or 0), row["at"], str(row["directory"])


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    session, parts = queried(found.path, lambda select: _rows(select, found.part)) if found.part else _files(found.path)
    parent = string(session, "parent_id") or string(session, "parentID")
    facts.name, facts.parent = (found.part or found.path.stem)[:NAME_CHARS], parent[:NAME_CHARS]
    facts.cwd, title = string(session, "directory"), string(session, "title")
    facts.title = "" if title.startswith(UNNAMED) else title
    for message, part in parts:
        yield from _steps(value(message, facts), value(part, facts))


def _rows(select: Select, session: str) -> tuple[Json, Parts]:
    head = next(iter(select("select parent_id, directory, title from session where id = ?", (session,))), None)
    rows = select(
        "select m.data message, p.data part from message m join part p on p.message_id = m.id where m.session_id = ? "
        "order by m.time_created, m.id, p.id",
        (session,),
    )
    return head, [(row["message"], row["part"]) for row in rows]


def _files(path: Path) -> tuple[Json, Parts]:
    storage, parts = path.parents[2], Parts()
    try:
        for file in files(AGENT, storage / "message" / path.stem, "*.json", 1):
            message = document(file.path)
            written = files(AGENT, storage / "part" / file.path.stem, "*.json", 1)
            parts += [(message, document(part.path)) for part in written]
    except OSError as error:
        raise BadInput(f"its messages cannot be listed ({error.strerror})") from None
    return document(path), parts


def _steps(message: Json, part: Json) -> Iterator[TranscriptStep]:
    at, kind, state = seconds(inside(message, "time", "created")), string(part, "type"), inside(part, "state")
    is_inserted = inside(part, "synthetic") or inside(part, "ignored") or inside(message, "summary") is True
    if kind == "text" and not is_inserted:
        yield from spoken(inside(message, "role"), string(part, "text"), at)
    elif kind == "tool":
        call, at = string(part, "callID"), seconds(inside(state, "time", "start")) or at
        yield tool(string(part, "tool"), inside(state, "input"), at=at, call=call)
        status, code = string(state, "status"), inside(state, "metadata", "exit")
        if status in ("completed", "error"):
            exit = code if isinstance(code, int) else int(status == "error")
            yield resulted(string(state, "output") or string(state, "error"), at=at, call=call, exit=exit)
