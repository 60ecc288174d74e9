"""Goose: `sessions/sessions.db` in its data folder, before 1.10 a file of lines a session; a sub agent is a session.

Both hold messages as lists of content: text, tool requests, tool responses; some are Goose's own, for the model alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.files import read_own_file
from memory_anchor.base.json_values import Json, inside, objects, string
from memory_anchor.extensions.more_agents.stores import Listed, configs, sessions_in, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession, files
from memory_anchor.extensions.sessions.reading import FILE_BYTES_MAX
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, resulted, seconds, text_of

AGENT = "goose"


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    if own := env.get("GOOSE_PATH_ROOT"):
        return [Path(own) / "data" / "sessions"]
    linux, (_, mac, *windows) = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share"), configs(env, home)
    data = [linux / "goose", mac / "goose", *(folder / "Block" / "goose" / "data" for folder in windows)]
    return [folder / "sessions" for folder in data]


def found(root: Path) -> Iterator[FoundSession]:
    stored = list(sessions_in(AGENT, root, "sessions.db", _listed))
    yield from stored
    imported = {one.part for one in stored}
    yield from (one for one in files(AGENT, root, "*.jsonl", 1) if one.path.stem not in imported)


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
    lines = queried(found.path, lambda select: _rows(select, found.part)) if found.part else _lines(found, facts)
    facts.name = found.part or found.path.stem
    for line in lines:
        if "working_dir" in (line if isinstance(line, Mapping) else ()):
            facts.cwd, facts.parent = string(line, "working_dir"), string(line, "parent_session_id")
            facts.title = string(line, "name") or string(line, "description")
        elif inside(value(inside(line, "metadata_json"), facts), "userVisible") is not False:
            content = value(inside(line, "content_json"), facts) or inside(line, "content")
            at = seconds(inside(line, "created") or inside(line, "created_timestamp"))
            yield from _steps(inside(line, "role"), content, at)


def _rows(select: Select, session: str) -> list[Json]:
    of_messages = "select * from messages where session_id = ? order by created_timestamp, id"
    return [*select("select * from sessions where id = ?", (session,)), *select(of_messages, (session,))]


def _lines(found: FoundSession, facts: Facts) -> list[Json]:
    raw = read_own_file(found.path, most=FILE_BYTES_MAX).decode("utf-8", "replace")
    return [value(line, facts) for line in raw.split("\n") if line.strip()]


def _steps(role: Json, content: Json, at: float) -> Iterator[TranscriptStep]:
    yield from spoken(role, text_of(content), at)
    for block in objects(content):
        call, asked, answer = (
            string(block, "id"),
            inside(block, "toolCall", "value"),
            inside(block, "toolResult", "value"),
        )
        if block.get("type") == "toolRequest":
            yield tool(string(asked, "name"), inside(asked, "arguments"), at=at, call=call)
        elif block.get("type") == "toolResponse":
            output = text_of(inside(answer, "content") or answer) or string(block, "toolResult", "error")
            failed = string(block, "toolResult", "status") == "error" or inside(answer, "isError") is True
            code = inside(answer, "structuredContent", "exit_code")
            yield resulted(output, at=at, call=call, exit=1 if code is None and failed else code)
