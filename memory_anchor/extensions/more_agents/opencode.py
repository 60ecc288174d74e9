"""opencode: `$XDG_DATA_HOME/opencode/opencode*.db`; a sub agent is a session.

A message is a row, its parts others: text, tool calls with their result, marks of the client. A part is written again
when its call ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.json_values import Json, inside, string
from memory_anchor.extensions.more_agents.stores import Listed, sessions_in, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession
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
    return sessions_in(AGENT, root, "opencode*.db", _listed)


def _listed(select: Select) -> Listed:
    rows = select(
        "select s.id, s.directory, count(p.id) n, max(s.time_updated, coalesce(max(p.time_updated), 0)) at "
        "from session s left join part p on p.session_id = s.id group by s.id"
    )
    for row in rows:
        yield str(row["id"]), int(row["n"] or 0), row["at"], str(row["directory"])


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    session, parts = queried(found.path, lambda select: _rows(select, found.part))
    facts.name, facts.parent = found.part[:NAME_CHARS], string(session, "parent_id")[:NAME_CHARS]
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
