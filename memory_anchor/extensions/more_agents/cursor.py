"""Cursor: `User/globalStorage/state.vscdb`, where each conversation is a row, and each of its messages ("bubbles").

`composerData:ID` names its messages in their order; `bubbleId:ID:BUBBLE` has what was said (type 1 a person, 2 the
model) or the call of a tool, its arguments and result as JSON in texts. What a conversation is called, its folder and
its parent stand there or in a list of all, which is a table in 3.14. Not read: what its command line keeps elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from memory_anchor.adapters.client_database import Select, queried
from memory_anchor.base.json_values import Json, inside, objects, string
from memory_anchor.extensions.more_agents.stores import Listed, configs, ended, sessions_in, spoken, tool, value
from memory_anchor.extensions.sessions.agents import FoundSession
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep, resulted, seconds

AGENT = "cursor"
FAILED = ("error", "cancelled")
ROLES = {1: "user", 2: "agent"}
SAID = (
    "select id, json_extract(value, '$.lastUpdatedAt', '$.createdAt', '$.workspaceIdentifier.uri.fsPath', '$.name', "
    "'$.subagentInfo.parentComposerId') head, coalesce(json_array_length(value, '$.fullConversationHeadersOnly'), 0) "
    "+ coalesce(json_array_length(value, '$.conversation'), 0) n from ({}) where json_valid(value)"
)
ITSELF = (  # bytes in some, which JSON functions refuse
    "select substr(key, 14) id, cast(value as text) value from cursorDiskKV "
    "where key >= 'composerData:' and key < 'composerData;'"
)
TABLE = "select composerId id, cast(value as text) value from composerHeaders"
ONE_VALUE = (
    "select json_extract(one.value, '$.composerId') id, one.value from (select cast(value as text) listed "
    "from ItemTable where key = 'composer.composerHeaders'), "
    "json_each(case when json_valid(listed) then listed end, '$.allComposers') one where one.type = 'object'"
)


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [folder / "Cursor" / "User" / "globalStorage" for folder in configs(env, home)]


def found(root: Path) -> Iterator[FoundSession]:
    return sessions_in(AGENT, root, "state.vscdb", _listed)


def _listed(select: Select) -> Listed:
    is_table = list(select("select 1 from sqlite_master where name = 'composerHeaders'"))
    told = {id: head for id, _, head in _said(select, TABLE if is_table else ONE_VALUE)}
    for id, size, own in _said(select, ITSELF):
        changed, began, *named = (mine or other for mine, other in zip(own, told.get(id, own), strict=True))
        if size:
            yield id, size, changed or began, *map(string, named)


def _said(select: Select, where: str) -> Iterator[tuple[str, int, list[Json]]]:
    for row in select(SAID.format(where)):
        head = value(row["head"], Facts())
        yield str(row["id"]), int(row["n"] or 0), head if isinstance(head, list) else [None] * 5


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    stored, bubbles = queried(found.path, lambda select: _rows(select, found.part))
    composer = value(stored, facts)
    facts.name, facts.title, facts.parent = found.part, found.title, found.parent
    held = objects(inside(composer, "conversation"))
    for header in held or objects(inside(composer, "fullConversationHeadersOnly")):
        bubble = header if held else value(bubbles.get(string(header, "bubbleId")), facts)
        uri = string(dict(enumerate(uris)).get(0)) if isinstance(uris := inside(bubble, "workspaceUris"), list) else ""
        facts.cwd = facts.cwd or string(bubble, "workspaceProjectDir") or _path_of(uri)
        yield from _steps(bubble, header.get("type"), seconds(inside(bubble, "createdAt") or header.get("createdAt")))


def _path_of(uri: str) -> str:
    try:
        return unquote(urlsplit(uri).path)
    except ValueError:
        return ""


def _rows(select: Select, id: str) -> tuple[Json, Mapping[str, Json]]:
    first, last = f"bubbleId:{id}:", f"bubbleId:{id};"
    of_key = "select cast(value as text) value from cursorDiskKV where key = ?"
    stored = next((row["value"] for row in select(of_key, (f"composerData:{id}",))), None)
    rows = select("select key, cast(value as text) value from cursorDiskKV where key >= ? and key < ?", (first, last))
    bubbles: dict[str, Json] = {str(row["key"]).removeprefix(first): row["value"] for row in rows}
    return stored, bubbles


def _steps(bubble: Json, kind: Json, at: float) -> Iterator[TranscriptStep]:
    role = ROLES.get(int(kind)) if isinstance(kind := inside(bubble, "type") or kind, int) else None
    if role and not (inside(bubble, "isSimulated") or inside(bubble, "isDisplayOnly")):
        yield from spoken(role, string(bubble, "text"), at)
    former = inside(bubble, "toolFormerData")
    if not (name := string(former, "name")):
        return
    call, status = string(former, "toolCallId") or string(bubble, "bubbleId"), string(former, "status")
    yield tool(name, inside(former, "rawArgs") or inside(former, "params"), at=at, call=call)
    result = string(former, "result")
    if result or status in ("completed", *FAILED):
        answer = value(result, Facts()) if result.startswith("{") else {"output": result}
        output = next((said for key in ("output", "contents", "error") if (said := string(answer, key))), "")
        code = inside(answer, "exitCodeV2") or inside(answer, "exitCode")
        failed = status in FAILED or string(former, "additionalData", "status") in FAILED
        output = output or string(former, "error")
        step = ended(output, failed=failed, at=at, call=call)
        yield step if code is None else resulted(output, at=at, call=call, exit=code)
