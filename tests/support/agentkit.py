"""A session as each agent writes it: the layouts of their files and databases, with one story in all of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sessionkit import DAY, Told, id_of

Act = tuple[Any, ...]
"""("user" | "agent", text), ("run", command, output, exit) or ("edit", path, old, new)."""


@dataclass
class Story:
    """A session. part_of: the session whose sub agent it is."""

    name: str
    acts: Sequence[Act]
    cwd: str = "/w/tidepool"
    title: str = ""
    part_of: str = ""

    @property
    def id(self) -> str:
        return id_of(self.name)

    @property
    def parent(self) -> str:
        return id_of(self.part_of) if self.part_of else ""

    def ms(self, number: int) -> int:
        return int((DAY + timedelta(minutes=number)).timestamp() * 1000)

    def iso(self, number: int) -> str:
        return (DAY + timedelta(minutes=number)).isoformat().replace("+00:00", "Z")


def _put(path: Path, *values: Any, lines: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(value) + "\n" for value in values) if lines else json.dumps(values[0], indent=2)
    path.write_text(text, encoding="utf-8")


def _claude(home: Path, *stories: Story) -> None:
    for story in stories:
        told = Told(story.name, story.cwd)
        for act in story.acts:
            {"user": told.user, "agent": told.says, "run": told.runs, "edit": told.edits}[act[0]](*act[1:])
        if story.parent:
            told.lines = [
                line | {"isSidechain": True, "agentId": story.id, "sessionId": story.parent} for line in told.lines
            ]
        _put(home / ".claude/projects/p" / f"{story.id}.jsonl", *told.lines)


def _codex(home: Path, *stories: Story) -> None:
    for story in stories:
        told = Told(story.name, story.cwd, "codex")
        for kind, *rest in story.acts:
            if kind == "edit":
                patch = "*** Begin Patch\n*** Update File: {}\n@@\n-{}\n+{}\n*** End Patch".format(*rest)
                told._codex(
                    "response_item", {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "e"}
                )
            else:
                {"user": told.user, "agent": told.says, "run": told.runs}[kind](*rest)
        _put(home / ".codex/sessions/2026/03/02" / f"rollout-{story.id}.jsonl", *told.lines)


def _arguments(act: Act, old: str, new: str) -> tuple[str, dict[str, Any]]:
    if act[0] == "run":
        return "shell", {"command": act[1]}
    return "edit", {"file_path": act[1], old: act[2], new: act[3]}


def _ended(act: Act) -> tuple[str, int]:
    return (act[2], act[3]) if act[0] == "run" else ("ok", 0)


def _gemini(home: Path, *stories: Story) -> None:
    for story in stories:
        where = f"<session_context>\n**Workspace Directories:**\n  - {story.cwd}\n"
        lines: list[dict[str, Any]] = [
            {"sessionId": story.id},
            {"id": "m0", "type": "user", "content": [{"text": where}]},
        ]
        for number, act in enumerate(story.acts, 1):
            head = {
                "id": f"m{number}",
                "timestamp": story.iso(number),
                "type": "user" if act[0] == "user" else "gemini",
            }
            if act[0] in ("user", "agent"):
                lines.append(head | {"content": [{"text": act[1]}]})
                continue
            (name, given), (output, code) = _arguments(act, "old_string", "new_string"), _ended(act)
            call = {"id": f"c{number}", "name": name, "args": given, "status": "error" if code else "success"}
            call["result"] = [{"functionResponse": {"response": {"error" if code else "output": output}}}]
            lines.append(head | {"content": "", "toolCalls": [call]})
        _put(home / ".gemini/tmp/p/chats" / f"session-{story.id}.jsonl", *lines)


def _qwen(home: Path, *stories: Story) -> None:
    for story in stories:
        lines: list[dict[str, Any]] = []
        for number, act in enumerate(story.acts, 1):
            head = {"sessionId": story.id, "cwd": story.cwd, "timestamp": story.iso(number)}
            if act[0] in ("user", "agent"):
                kind = "user" if act[0] == "user" else "assistant"
                lines.append(head | {"type": kind, "message": {"parts": [{"text": act[1]}]}})
                continue
            (name, given), (output, code) = _arguments(act, "old_string", "new_string"), _ended(act)
            call = {"id": f"c{number}", "name": name, "args": given}
            answer = {"id": f"c{number}", "response": {"error" if code else "output": output}}
            lines.append(head | {"type": "assistant", "message": {"parts": [{"functionCall": call}]}})
            lines.append(head | {"type": "tool_result", "message": {"parts": [{"functionResponse": answer}]}})
        _put(home / ".qwen/projects/p/chats" / f"{story.id}.jsonl", *lines)


def _copilot(home: Path, *stories: Story) -> None:
    for story in stories:
        start = {"sessionId": story.id, "context": {"cwd": story.cwd}}
        lines: list[dict[str, Any]] = [{"type": "session.start", "data": start, "timestamp": story.iso(0)}]
        for number, act in enumerate(story.acts, 1):
            at = {"timestamp": story.iso(number)}
            if act[0] in ("user", "agent"):
                kind = "user.message" if act[0] == "user" else "assistant.message"
                lines.append(at | {"type": kind, "data": {"content": act[1]}})
                continue
            (name, given), (output, code) = _arguments(act, "old_str", "new_str"), _ended(act)
            call, done = {"toolCallId": f"c{number}"}, {"success": not code, "result": {"content": output}}
            asked = call | {"toolName": name, "arguments": given}
            lines.append(at | {"type": "tool.execution_start", "data": asked})
            lines.append(at | {"type": "tool.execution_complete", "data": call | done})
        _put(home / ".copilot/session-state" / story.id / "events.jsonl", *lines)


def _filled(path: Path, tables: Sequence[str], rows: dict[str, list[tuple[Any, ...]]], *, log: bool) -> None:
    """Write rows as a client would: into its database, in a transaction, with its own kind of journal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        if log:
            db.execute("pragma journal_mode = wal")
        for table in tables:
            db.execute(f"create table if not exists {table}")
        for table, values in rows.items():
            for value in values:
                places = ", ".join("?" * len(value))
                db.execute(f"insert or replace into {table} values ({places})", value)  # noqa: S608
        db.commit()


CURSOR = (
    "ItemTable(key text unique on conflict replace, value blob)",
    "cursorDiskKV(key text unique on conflict replace, value blob)",
    "composerHeaders(composerId text primary key, workspaceId text, createdAt integer, lastUpdatedAt integer, "
    "isArchived integer, isSubagent integer, recency integer, checkpointAt integer, value text)",
)


def _cursor(home: Path, *stories: Story) -> None:
    """Write conversations as Cursor 3.14 does: what they are called, and whose they are, in a table."""
    _cursor_rows(home, stories, "table")


def cursor_before(home: Path, *stories: Story) -> None:
    """Write conversations as Cursor did in 2025: what they are called in each, their folders in one value."""
    _cursor_rows(home, stories, "value")


def _cursor_rows(home: Path, stories: Sequence[Story], kind: str) -> None:
    rows: list[tuple[str, str | bytes]] = []
    heads: list[dict[str, Any]] = []
    for story in stories:
        order = []
        for number, act in enumerate(story.acts, 1):
            bubble: dict[str, Any] = {"_v": 3, "bubbleId": f"b{number}", "createdAt": story.iso(number)}
            bubble |= {"type": 1 if act[0] == "user" else 2, "text": act[1] if act[0] in ("user", "agent") else ""}
            if act[0] not in ("user", "agent"):
                output, code = _ended(act)
                former = {"toolCallId": f"toolu_{number}", "status": "completed", "name": "run_terminal_command_v2"}
                former |= {"rawArgs": json.dumps({"command": act[1], "is_background": False})}
                former |= {"result": json.dumps({"output": output, "exitCodeV2": code, "rejected": False})}
                if act[0] == "edit":
                    given = {"file_path": act[1], "old_string": act[2], "new_string": act[3]}
                    former |= {"name": "search_replace", "rawArgs": json.dumps(given), "result": "{}"}
                bubble["toolFormerData"] = former
            rows.append((f"bubbleId:{story.id}:b{number}", json.dumps(bubble)))
            order.append({"bubbleId": f"b{number}", "type": bubble["type"]})
        composer = {"_v": 10, "composerId": story.id, "createdAt": story.ms(0), "fullConversationHeadersOnly": order}
        head = {"composerId": story.id, "workspaceIdentifier": {"id": "w1", "uri": {"fsPath": story.cwd}}}
        about: dict[str, Any] = {"name": story.title, "lastUpdatedAt": story.ms(len(order))}
        about |= {"subagentInfo": {"parentComposerId": story.parent}} if story.parent else {}
        (head if kind == "table" else composer).update(about)
        rows.append((f"composerData:{story.id}", json.dumps(composer).encode()))
        heads.append(head)
    path, index = home / ".config/Cursor/User/globalStorage/state.vscdb", json.dumps({"allComposers": heads})
    before: dict[str, list[tuple[Any, ...]]] = {"ItemTable": [("composer.composerHeaders", index)]}
    table = [
        (head["composerId"], "w1", 1, 1, 0, "subagentInfo" in head, None, None, json.dumps(head)) for head in heads
    ]
    if kind == "table":
        _filled(path, CURSOR, {"cursorDiskKV": rows, "composerHeaders": table}, log=False)
    else:
        _filled(path, CURSOR[:2], {"cursorDiskKV": rows, **before}, log=False)


OPENCODE = (
    "session(id text primary key, parent_id text, directory text, title text, time_created int, time_updated int)",
    "message(id text primary key, session_id text, time_created int, time_updated int, data text)",
    "part(id text primary key, message_id text, session_id text, time_created int, time_updated int, data text)",
)


def opencode_id(name: str) -> str:
    """Return a session's id in its form: a time in 12 digits, and chance."""
    return f"ses_{id_of(name).replace('-', '')[:12]}aBtJZwDaoI6q6T"


def _opencode_parts(story: Story) -> list[tuple[str, dict[str, Any], str, dict[str, Any], int]]:
    parts = []
    for number, act in enumerate(story.acts, 1):
        at = story.ms(number)
        message = {"role": "user" if act[0] == "user" else "assistant", "time": {"created": at}}
        part: dict[str, Any] = {"type": "text", "text": act[1]}
        if act[0] not in ("user", "agent"):
            (_, given), (output, code) = _arguments(act, "oldString", "newString"), _ended(act)
            given = {"filePath" if key == "file_path" else key: value for key, value in given.items()}
            state = {"status": "completed", "input": given, "output": output, "time": {"start": at, "end": at}}
            state["metadata"] = {"output": output, "exit": code} if act[0] == "run" else {"diagnostics": {}}
            part = {
                "type": "tool",
                "tool": "bash" if act[0] == "run" else "edit",
                "callID": f"t{number}",
                "state": state,
            }
        name = f"{story.id[:8]}{number:03}"
        parts.append((f"msg_{name}", message, f"prt_{name}", part, at))
    return parts


def _opencode(home: Path, *stories: Story) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {"session": [], "message": [], "part": []}
    for story in stories:
        id, parent = opencode_id(story.name), opencode_id(story.part_of) if story.part_of else None
        last = story.ms(len(story.acts))
        rows["session"].append((id, parent, story.cwd, story.title or "New session - 1", story.ms(0), last))
        for message, said, part, what, at in _opencode_parts(story):
            rows["message"].append((message, id, at, at, json.dumps(said)))
            rows["part"].append((part, message, id, at, at, json.dumps(what)))
    _filled(home / ".local/share/opencode/opencode.db", OPENCODE, rows, log=True)


GOOSE = (
    "sessions(id text primary key, name text not null, session_type text not null default 'user', "
    "working_dir text not null, created_at timestamp, updated_at timestamp, parent_session_id text)",
    "messages(id integer primary key autoincrement, message_id text, session_id text, role text, content_json text, "
    "created_timestamp integer, timestamp timestamp, tokens integer, metadata_json text)",
)


def _goose_messages(story: Story) -> list[tuple[str, list[dict[str, Any]], int]]:
    messages: list[tuple[str, list[dict[str, Any]], int]] = []
    for number, act in enumerate(story.acts, 1):
        at = story.ms(number) // 1000
        if act[0] in ("user", "agent"):
            messages.append(("user" if act[0] == "user" else "assistant", [{"type": "text", "text": act[1]}], at))
            continue
        output, code = _ended(act)
        name, given = "developer__shell", {"command": act[1]}
        if act[0] == "edit":
            name, given = (
                "developer__text_editor",
                {"command": "str_replace", "path": act[1], "old_str": act[2], "new_str": act[3]},
            )
        asked = {
            "type": "toolRequest",
            "id": f"r{number}",
            "toolCall": {"status": "success", "value": {"name": name, "arguments": given}},
        }
        value = {
            "content": [{"type": "text", "text": output}],
            "structuredContent": {"exit_code": code},
            "isError": bool(code),
        }
        answer = {"type": "toolResponse", "id": f"r{number}", "toolResult": {"status": "success", "value": value}}
        messages += [("assistant", [asked], at), ("user", [answer], at)]
    return messages


def _goose(home: Path, *stories: Story) -> None:
    rows: dict[str, list[tuple[Any, ...]]] = {"sessions": [], "messages": []}
    for count, story in enumerate(stories):
        updated = story.iso(len(story.acts)).replace("T", " ").removesuffix("Z")
        kind = "sub_agent" if story.parent else "user"
        rows["sessions"].append((story.id, story.title, kind, story.cwd, story.iso(0), updated, story.parent or None))
        for number, (role, content, at) in enumerate(_goose_messages(story), 1):
            shown = '{"userVisible":true,"agentVisible":true}'
            row = (count * 1000 + number, f"m{number}", story.id, role, json.dumps(content), at, updated, None, shown)
            rows["messages"].append(row)
    _filled(home / ".local/share/goose/sessions/sessions.db", GOOSE, rows, log=True)


def _cline(home: Path, *stories: Story) -> None:
    for story in stories:
        messages: list[dict[str, Any]] = []
        for number, act in enumerate(story.acts, 1):
            head = {"id": f"msg_{number}", "ts": story.ms(number), "role": "user" if act[0] == "user" else "assistant"}
            text = f'<user_input mode="act">{act[1]}</user_input>' if act[0] == "user" else act[1]
            if act[0] in ("user", "agent"):
                messages.append(head | {"content": [{"type": "text", "text": text}]})
                continue
            output, code = _ended(act)
            use = {"type": "tool_use", "id": f"call_{number}", "name": "run_commands", "input": {"commands": [act[1]]}}
            failed = {"error": f"Command exited with code {code}"} if code else {}
            entry = {"query": act[1], "result": output, "success": not code} | failed
            if act[0] == "edit":
                use |= {"name": "editor", "input": {"path": act[1], "old_text": act[2], "new_text": act[3]}}
            answer = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": [entry]}
            messages.append(head | {"content": [use]})
            messages.append(head | {"id": f"r_{number}", "role": "user", "content": [answer]})
        folder = home / ".cline/data/sessions" / (story.parent or story.id)
        origin = {"parentThreadId": story.parent} if story.parent else {}
        content = {"version": 1, "sessionId": story.id, "origin": origin, "messages": messages}
        if not story.parent:
            about = {
                "session_id": story.id,
                "cwd": story.cwd,
                "metadata": {"title": story.title, "git": {"branch": "main"}},
            }
            _put(folder / f"{story.id}.json", about, lines=False)
        _put(folder / f"{story.id}.messages.json", content, lines=False)


def _aider(home: Path, *stories: Story) -> None:
    lines: list[str] = []
    for number, story in enumerate(stories):
        began = (DAY + timedelta(hours=number)).strftime("%Y-%m-%d %H:%M:%S")
        lines += [
            "",
            f"# aider chat started at {began}",
            "",
            "> Aider v0.86.2  ",
            "> Git repo: .git with 1 files  ",
            "",
        ]
        for act in story.acts:
            if act[0] == "user":
                lines += [*(f"#### {line}  " for line in act[1].split("\n")), ""]
            elif act[0] == "agent":
                lines += [act[1], ""]
            elif act[0] == "run":
                lines += [f"#### /run {act[1]}  ", f"> {act[2].splitlines()[0] if act[2] else ''}  ", ""]
            else:
                path, old, new = act[1:]
                block = ["```", "<<<<<<< SEARCH", old, "=======", new, ">>>>>>> REPLACE", "```", ""]
                lines += [path, *block, f"> Applied edit to {path}  ", ""]
    (home / "tidepool").mkdir(parents=True, exist_ok=True)
    (home / ".aider.chat.history.md").write_text("\n".join(lines), encoding="utf-8")


def _jsonl(home: Path, *stories: Story) -> None:
    for story in stories:
        lines: list[dict[str, Any]] = [
            {"session": story.id, "cwd": story.cwd, "title": story.title, "parent": story.parent}
        ]
        for number, act in enumerate(story.acts, 1):
            at = {"at": story.iso(number)}
            if act[0] in ("user", "agent"):
                lines.append(at | {"role": act[0], "text": act[1]})
                continue
            (name, given), (output, code) = _arguments(act, "old_string", "new_string"), _ended(act)
            lines.append(at | {"tool": name, "input": given, "call": f"c{number}"})
            lines.append(at | {"call": f"c{number}", "output": output, "exit": code})
        _put(home / "exports" / f"{story.id}.jsonl", *lines)


WRITERS: dict[str, Callable[..., None]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "qwen": _qwen,
    "copilot": _copilot,
    "cursor": _cursor,
    "opencode": _opencode,
    "cline": _cline,
    "goose": _goose,
    "aider": _aider,
    "jsonl": _jsonl,
}
SUB_AGENTS = frozenset(("claude-code", "cursor", "opencode", "cline", "goose", "jsonl"))
"""Agents that say whose a sub agent is."""
