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


def roots(env: Mapping[str, str], home: Path) -> Sequence[Path]:
    return [folder / "Cursor" / "User" / "globalStorage" for folder in configs(env, home)]


def found(root: Path) -> Iterator[FoundSession]:
    return sessions_in(AGENT, root, "state.vscdb", _listed)


def _listed(select: Select) -> Listed:
    heads = _heads(select)
    rows = select(
        "select substr(key, 14) id, json_extract(value, '$.lastUpdatedAt', '$.createdAt', "
        "'$.workspaceIdentifier.uri.fsPath') head, "
        "coalesce(json_array_length(value, '$.fullConversationHeadersOnly'), 0) "
        "+ coalesce(json_array_length(value, '$.conversation'), 0) n "
        "from (select key, cast(value as text) value from cursorDiskKV "  # bytes in some, which JSON functions refuse
        "where key >= 'composerData:' and key < 'composerData;') where json_valid(value)"
    )
    for row in rows:
        id, own = str(row["id"]), value(row["head"], Facts())
        changed, began, folder = own if isinstance(own, list) else (None, None, None)
        if row["n"]:
            folder = folder or string(heads.get(id), "workspaceIdentifier", "uri", "fsPath")
            yield id, int(row["n"]), changed or inside(heads.get(id), "lastUpdatedAt") or began, str(folder)


def _heads(select: Select) -> dict[str, Json]:
    """Return what the list of all conversations says of each, by its id."""
    if list(select("select 1 from sqlite_master where name = 'composerHeaders'")):
        rows = select("select composerId id, cast(value as text) value from composerHeaders")
        return {str(row["id"]): value(row["value"], Facts()) for row in rows}
    rows = select("select cast(value as text) value from ItemTable where key = 'composer.composerHeaders'")
    listed = (one for row in rows for one in objects(inside(value(row["value"], Facts()), "allComposers")))
    return {string(one, "composerId"): one for one in listed}


def whole(found: FoundSession, facts: Facts) -> Iterator[TranscriptStep]:
    stored, bubbles, head = queried(found.path, lambda select: _rows(select, found.part))
    composer = value(stored, facts)
    facts.name, facts.title = found.part, string(composer, "name") or string(head, "name")
    whose = "subagentInfo", "parentComposerId"
    facts.parent = string(composer, *whose) or string(head, *whose)
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


def _rows(select: Select, id: str) -> tuple[Json, Mapping[str, Json], Json]:
    first, last = f"bubbleId:{id}:", f"bubbleId:{id};"
    of_key = "select cast(value as text) value from cursorDiskKV where key = ?"
    stored = next((row["value"] for row in select(of_key, (f"composerData:{id}",))), None)
    rows = select("select key, cast(value as text) value from cursorDiskKV where key >= ? and key < ?", (first, last))
    bubbles: dict[str, Json] = {str(row["key"]).removeprefix(first): row["value"] for row in rows}
    return stored, bubbles, _heads(select).get(id)


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
