"""Sessions for tests: transcripts in the documented form of each agent, and a machine that they are on."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import Result

from memory_anchor.process.wiring import Core

DAY = datetime(2026, 3, 2, 9, tzinfo=UTC)


def id_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


@dataclass
class Told:
    """One session as lines of a transcript. Each step takes a minute."""

    name: str
    cwd: str
    agent: str = "claude-code"
    lines: list[dict[str, Any]] = field(default_factory=list)
    at: datetime = DAY
    calls: int = 0

    def __post_init__(self) -> None:
        if self.agent == "codex":
            self._codex("session_meta", {"id": id_of(self.name), "cwd": self.cwd, "git": {"branch": "main"}})

    def user(self, text: str) -> Told:
        return self._said("user", text)

    def says(self, text: str) -> Told:
        return self._said("assistant", text)

    def runs(self, command: str, output: str = "", code: int = 0) -> Told:
        self.calls += 1
        call = f"call_{self.calls}"
        if self.agent == "codex":
            shell = json.dumps({"command": ["bash", "-lc", command]})
            asked = {"type": "function_call", "name": "shell", "arguments": shell, "call_id": call}
            printed = json.dumps({"output": output, "metadata": {"exit_code": code}})
            self._codex("response_item", asked)
            return self._codex("response_item", {"type": "function_call_output", "call_id": call, "output": printed})
        printed = f"Exit code {code}\n{output}" if code else output
        return self.uses("Bash", {"command": command}, printed, failed=code > 0)

    def edits(self, path: str, old: str, new: str) -> Told:
        return self.uses("Edit", {"file_path": path, "old_string": old, "new_string": new}, "ok")

    def uses(self, name: str, arguments: Mapping[str, Any], output: str, *, failed: bool = False) -> Told:
        call = f"toolu_{len(self.lines)}"
        self._claude("assistant", [{"type": "tool_use", "id": call, "name": name, "input": arguments}])
        result = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": output,
            **({"is_error": True} if failed else {}),
        }
        return self._claude("user", [result])

    def thinks(self, text: str) -> Told:
        return self._claude("assistant", [{"type": "thinking", "thinking": text}])

    def _said(self, role: str, text: str) -> Told:
        if self.agent == "codex":
            kind = "input_text" if role == "user" else "output_text"
            content = [{"type": kind, "text": text}]
            return self._codex("response_item", {"type": "message", "role": role, "content": content})
        return self._claude(role, [{"type": "text", "text": text}])

    def _claude(self, role: str, content: list[dict[str, Any]], **more: Any) -> Told:
        line = {"type": role, "message": {"role": role, "content": content}, "cwd": self.cwd, "gitBranch": "main"}
        line |= {"sessionId": id_of(self.name), "uuid": id_of(f"{self.name}/{len(self.lines)}")}
        return self._add(line | more)

    def _codex(self, kind: str, payload: Mapping[str, Any]) -> Told:
        return self._add({"type": kind, "payload": payload})

    def _add(self, line: dict[str, Any]) -> Told:
        self.at += timedelta(minutes=1)
        self.lines.append({"timestamp": self.at.isoformat().replace("+00:00", "Z"), **line})
        return self

    def text(self) -> str:
        return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)


class Machine:
    """A home with agents' sessions, and the commands that read them."""

    def __init__(self, home: Path, core: Core, run: Callable[..., Result]) -> None:
        self.home, self.core, self._run = home, core, run
        self.claude, self.codex = home / ".claude" / "projects", home / ".codex" / "sessions"

    def keeps(self, told: Told) -> Path:
        """Write a session where its agent would."""
        name = f"{id_of(told.name)}.jsonl"
        if told.agent == "codex":
            path = self.codex / "2026/03/02" / f"rollout-2026-03-02T09-00-00-{name}"
        else:
            path = self.claude / told.cwd.replace("/", "-") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(told.text(), encoding="utf-8")
        return path

    def run(self, *words: str) -> Result:
        return self._run(*words)

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def adopt(self, *words: str) -> Any:
        return self.json("adopt", "--yes", *words)

    def found(self, query: str, *words: str) -> list[dict[str, Any]]:
        passages: list[dict[str, Any]] = self.json("sessions", "search", query, *words)["passages"]
        return passages

    def texts(self, query: str, *words: str) -> list[str]:
        return [str(passage["text"]) for passage in self.found(query, *words)]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what stands in the archive, as the next room reads it."""
        with sqlite3.connect(self.core.data_dir / "sessions.db") as db:
            return db.execute(sql).fetchall()

    def files(self) -> list[Path]:
        return sorted(self.core.data_dir.glob("sessions.db*"))
