"""What a conversation gets back after its compaction, of its own: decisions, rejected paths, open tasks, commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.compaction import given_back
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.wiring import Core

CORPUS = Path(__file__).resolve().parents[1] / "corpora" / "compaction_sessions.txt"


@dataclass
class Made:
    """A made session: its transcript, and what must come back by kind."""

    name: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    wanted: dict[str, list[str]] = field(default_factory=dict)
    calls: int = 0

    def said(self, role: str, text: str) -> None:
        self.add(role, [{"type": "text", "text": text}])

    def add(self, role: str, blocks: list[dict[str, Any]]) -> None:
        self.lines.append({"type": role, "message": {"role": role, "content": blocks}})

    def called(self, tool: str, given: dict[str, Any], output: str, code: int = 0) -> None:
        self.calls += 1
        call = f"toolu_{self.calls}"
        text = f"Exit code {code}\n{output}" if code else output
        self.add("assistant", [{"type": "tool_use", "id": call, "name": tool, "input": given}])
        self.add("user", [{"type": "tool_result", "tool_use_id": call, "content": text, "is_error": bool(code)}])

    def kept(self, folder: Path) -> Path:
        path = folder / f"{self.name}.jsonl"
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines), encoding="utf-8")
        return path


def sessions() -> Iterator[Made]:
    for block in CORPUS.read_text(encoding="utf-8").split("=== ")[1:]:
        name, *lines = block.rstrip("\n").split("\n")
        made, command, code, output = Made(name), "", 0, list[str]()
        for line in [*lines, "# end"]:
            kind, _, text = line.partition(" ")
            if command and kind not in "!>":
                made.called("Bash", {"command": command}, "\n".join(output), code)
                command, code, output = "", 0, []
            if kind == "U" or kind == "A":
                made.said("user" if kind == "U" else "assistant", text)
            elif kind == "$":
                command = text
            elif kind == "!":
                code = int(text)
            elif kind == ">":
                output.append(text)
            elif kind == "T":
                tasks = [part.strip() for part in text.split("|")]
                todos = [
                    {"content": task.removeprefix("x "), "status": "completed" if task.startswith("x ") else "pending"}
                    for task in tasks
                ]
                made.called("TodoWrite", {"todos": todos}, "ok")
            elif kind in ("D", "R", "O", "C"):
                made.wanted.setdefault(kind, []).append(text)
        yield made


def found(folder: Path) -> dict[str, tuple[int, int]]:
    """Return how many of what must come back do, and of how many, by kind."""
    counts: dict[str, tuple[int, int]] = {}
    for made in sessions():
        text = given_back(str(made.kept(folder)))
        for kind, wanted in made.wanted.items():
            right, of = counts.get(kind, (0, 0))
            counts[kind] = right + sum(one in text for one in wanted), of + len(wanted)
    return counts


def test_a_compacted_session_gets_its_own_decisions_and_commands_back(tmp_path: Path) -> None:
    """Rule sessions.compaction: 85 % of the decisions, half of the commands that are used again, 400 tokens at most."""
    shares = {kind: right / of for kind, (right, of) in found(tmp_path).items()}
    assert shares["D"] >= 0.85
    assert shares["C"] >= 0.5
    assert min(shares["R"], shares["O"]) >= 0.7
    assert max(count_tokens(given_back(str(made.kept(tmp_path)))) for made in sessions()) <= 400


def test_a_long_session_gives_back_no_more_than_its_budget_and_no_secret(tmp_path: Path) -> None:
    """Rule sessions.compaction: bounded, cleaned, fenced; what looks only or failed last is no command that worked."""
    made = Made("long")
    for number in range(300):
        made.said("user", f"Decided: part {number} is written to table_{number} because the readers expect it")
        made.called("Bash", {"command": f"make part-{number}"}, "ok")
    secret = "ghp_" + "a1B2c3D4e5" * 4
    made.said("user", f"From now on we always use the token {secret} for the mirror")
    made.called("Bash", {"command": "git status"}, "clean")
    made.called("Bash", {"command": "make broken"}, "boom", 2)
    text = given_back(str(made.kept(tmp_path)))
    assert 0 < count_tokens(text) <= 400
    assert secret not in text and "git status" not in text and "make broken" not in text
    assert text.count("<recalled-memory") == 1


def test_after_a_compaction_the_start_brings_the_session_back_within_400_tokens(core: Core, tmp_path: Path) -> None:
    """Rule sessions.compaction: where PreCompact noted the transcript it is read, though the start does not name it."""
    made = next(iter(sessions()))
    path, hooks = str(made.kept(tmp_path)), Hooks()
    anchor = core.anchor(Actor(scope=Scope(conversation="c1", agent="tester")))
    for number in range(40):
        anchor.save_memory(f"Rule {number}: the service number {number} is written in Rust", type="instruction")
    hooks.answer(anchor, "PreCompact", {"transcript_path": path})
    text = hooks.answer(anchor, "SessionStart", {"source": "compact"})
    assert "COPY then, because" in text
    assert count_tokens(text) <= 400
    assert "COPY then" not in hooks.answer(anchor, "SessionStart", {"source": "startup", "transcript_path": path})


def test_a_transcript_that_cannot_be_read_gives_nothing(tmp_path: Path) -> None:
    """Rule sessions.compaction: gone, foreign or torn."""
    (tmp_path / "torn.jsonl").write_text('{"type": "user", "mess')
    assert [given_back(str(tmp_path / name)) for name in ("gone.jsonl", "torn.jsonl")] == ["", ""]
    assert given_back("") == ""


def test_a_line_that_another_holds_whole_is_given_back_once(tmp_path: Path) -> None:
    """Rule compaction: the budget is for different things, in whatever order they were said."""
    made = Made("twice")
    for text in ("We always deploy on Thursdays", "From now on: We always deploy on Thursdays", "Never touch main"):
        made.said("user", text)
        made.said("assistant", "Understood.")
    (tmp_path / "twice.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in made.lines), encoding="utf-8")

    assert given_back(str(tmp_path / "twice.jsonl")).count("We always deploy on Thursdays") == 1
