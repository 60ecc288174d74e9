"""Goose: `sessions/sessions.db` in its data folder; a sub agent is a session, which names its parent in newer releases.

Messages are lists of content: text, tool requests, tool responses; some are Goose's own, for the model alone, and older
releases give an output twice, for the model and for the person. They stand in the order in which they were stored: the
time of a response may be before its request's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.json_values import Json, inside, objects, string
from memory_anchor.extensions.more_agents.stores import Listed, configs, sessions_in, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, resulted, seconds, text_of

AGENT, SUB_AGENT = "goose", "sub_agent"
UNNAMED = ("CLI Session", "New Chat")
ASKED_BY = (  # among the next messages of others after its first
    "select session_id parent_session_id from (select session_id, content_json from messages where session_id <> ?1 "
    "and id > (select min(id) from messages where session_id = ?1) order by id limit 1000) "
    "where instr(content_json, ?2) limit 1"
)


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    if own := env.get("GOOSE_PATH_ROOT"):
        return [Path(own) / "data" / "sessions"]
    linux, (_, mac, *windows) = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share"), configs(env, home)
    data = [linux / "goose", mac / "goose", *(folder / "Block" / "goose" / "data" for folder in windows)]
    return [folder / "sessions" for folder in data]


def found(root: Path) -> Iterator[FoundSession]:
    return sessions_in(AGENT, root, "sessions.db", _listed)


def _listed(select: Select) -> Listed:
    rows = select(
        "select s.id, s.working_dir, s.updated_at, max(m.id) last, count(m.id) n, max(m.created_timestamp) at "
        "from sessions s left join messages m on m.session_id = s.id group by s.id"
    )
    for row in rows:
        updated = str(row["updated_at"])
        at = max(seconds(updated if "+" in updated or "Z" in updated else f"{updated}Z"), seconds(row["at"]))
        size = last if isinstance(last := row["last"], int) else int(row["n"] or 0)
        yield str(row["id"]), size, at, str(row["working_dir"])


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    head, messages = queried(found.path, lambda select: _rows(select, found.part))
    facts.name, facts.parent = found.part, string(head, "parent_session_id")
    title = string(head, "name") or string(head, "description")
    facts.title = "" if facts.parent or string(head, "session_type") == SUB_AGENT or title in UNNAMED else title
    for message in messages:
        if inside(value(message["metadata_json"], facts), "userVisible") is not False:
            content, at = value(message["content_json"], facts), seconds(message["created_timestamp"])
            yield from _steps(message["role"], content, at)


def _rows(select: Select, session: str) -> tuple[Json, list[dict[str, str | int | float | None]]]:
    head = next(iter(select("select * from sessions where id = ?", (session,))), {})
    if head.get("session_type") == SUB_AGENT and not head.get("parent_session_id"):
        told = f'"subagent_session_id":"{session}"'
        head |= next(iter(select(ASKED_BY, (session, told))), {})
    return head, list(select("select * from messages where session_id = ? order by rowid", (session,)))


def _steps(role: Json, content: Json, at: float) -> Iterator[TranscriptStep]:
    yield from spoken(role, text_of(content), at)
    for block in objects(content):
        call, asked = string(block, "id"), inside(block, "toolCall", "value")
        answer = inside(block, "toolResult", "value")
        if block.get("type") == "toolRequest":
            yield tool(string(asked, "name"), inside(asked, "arguments"), at=at, call=call)
        elif block.get("type") == "toolResponse":
            told = objects(inside(answer, "content") or answer)
            told = [one for one in told if inside(one, "annotations", "audience") != ["user"]] or told
            output = text_of(told) or string(block, "toolResult", "error")
            failed = string(block, "toolResult", "status") == "error" or inside(answer, "isError") is True
            code = inside(answer, "structuredContent", "exit_code")
            yield resulted(output, at=at, call=call, exit=1 if code is None and failed else code)
