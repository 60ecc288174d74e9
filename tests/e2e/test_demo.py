"""The main job, over real stdio with the real store and the bundled model; and what the README shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import demo
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository of its own: what this project's commits say today decides nothing here."""
    folder = tmp_path / "source"
    shutil.copytree(ROOT / ".ai" / "operations", folder / ".ai" / "operations")
    shutil.copy(ROOT / "constitution.yaml", folder)
    git = ["git", "-C", str(folder), "-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number, subject in enumerate(("greenhouse: water at dawn", "docs: name the valves", "温室：换了水泵")):
        at = (datetime.now(UTC) - timedelta(days=40 - number)).isoformat()
        dated = {**os.environ, "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True, env=dated)
    return folder


@pytest.mark.parametrize(("days", "runs"), [((1, 1), 1), ((1, 2), 2)])
def test_a_demo_over_midnight_is_run_once_more(
    days: tuple[int, int], runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demo: "what did we fix today" has no answer on the next day; the day is told by the clock of this machine."""
    left, ran = [date(2026, 3, day) for day in days], []
    monkeypatch.setattr(demo, "_today", lambda: left.pop(0))
    monkeypatch.setattr(demo, "_once", lambda *given: ran.append(given) or {"run": len(ran)})

    assert demo.run(say=lambda _: None, repository=tmp_path) == {"run": runs}


@pytest.mark.parametrize(("missed", "passed"), [(0, True), (1, True), (2, False)])
def test_the_demo_passes_by_its_answers_and_never_by_its_times(
    missed: int, passed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Demo: exit code and last line say what was answered, on a machine on which each answer takes a minute."""
    of_l0 = sum("identity_schema" in question.layers for question in demo.QUESTIONS)
    ranks = [None if of_l0 <= place < of_l0 + missed else 1 for place in range(len(demo.QUESTIONS))]
    answers = [
        demo.DemoAnswer(question, rank, "text", question.layers[0], 60_000.0)
        for question, rank in zip(demo.QUESTIONS, ranks, strict=True)
    ]
    figures = demo.figures_of(answers, [60_000.0] * 100, {"events": 1, "facts": 1}, 60_000.0)
    monkeypatch.setattr(demo, "run", lambda **_: figures)

    assert demo.main([]) == (0 if passed else 1)

    output = capsys.readouterr().out
    last = output.strip().splitlines()[-1]
    assert last.startswith("passed: " if passed else "failed (recall@5): ")
    assert f"{len(demo.QUESTIONS) - missed} of {len(demo.QUESTIONS)} questions answered" in output
    assert all(question.text in last.split("questions answered")[1] for question in demo.QUESTIONS[of_l0:][:missed])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_answers_every_question_after_a_restart(source: Path) -> None:
    """Rule 7.1: the five verification queries and five of our own, over MCP, after the server was stopped."""
    said: list[str] = []

    figures = demo.run(say=said.append, repository=source)

    assert [q["query"] for q in figures["questions"] if q["rank"] is None] == []
    assert (figures["l0_recall"], figures["recall_at_5"]) == (1.0, 1.0)
    assert any("stopped" in line for line in said)


def shown(fence: str, after: str) -> str:
    """Return the README's code block of this language that follows a phrase."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start = text.index(after)
    match = re.search(rf"```{fence}\n(.*?)```", text[start:], re.DOTALL)
    assert match is not None
    return match[1]


@pytest.mark.parametrize("client", ["claude-code", "codex"])
@pytest.mark.timeout(120)
def test_the_configuration_in_the_readme_starts_a_real_server(client: str, tmp_path: Path) -> None:
    """Rule readme: what it tells a user to write is run, in the era that client speaks."""
    if client == "claude-code":
        server = json.loads(shown("json", "Claude Code, in"))["mcpServers"]["memory-anchor"]
    else:
        import tomllib

        server = tomllib.loads(shown("toml", "Codex, in"))["mcp_servers"]["memory-anchor"]
    assert server["command"] == "memory-anchor"
    env = {**os.environ, "MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"), "HOME": str(tmp_path)}
    env["MEMORY_ANCHOR_EMBEDDER__KIND"] = "none"  # no rule of this test, and seconds of it
    process = subprocess.Popen(
        [sys.executable, "-m", "memory_anchor", *server["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=env,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
    }
    messages: list[dict[str, object]] = [
        {"method": "tools/call", "params": {"name": "save_memory", "arguments": {"content": "We use uv"}}},
        {"method": "tools/call", "params": {"name": "search_memory", "arguments": {"query": "uv"}}},
    ]
    if client == "claude-code":
        messages = [{**m, "params": {**m["params"], "_meta": meta}} for m in messages]  # type: ignore[dict-item]
    else:
        opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
        messages = [{"method": "initialize", "params": opening}, {"method": "notifications/initialized"}, *messages]
    answers = []
    try:
        for number, message in enumerate(messages, 1):
            is_call = not str(message["method"]).startswith("notifications/")
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **({"id": number} if is_call else {}), **message}) + "\n")
            process.stdin.flush()
            if is_call:
                answers.append(json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait(30)
        subprocess.run([sys.executable, "-m", "memory_anchor", "engine", "stop"], env=env, check=False, timeout=60)
    found = answers[-1]["result"]["structuredContent"]
    assert [snippet["text"] for snippet in found["snippets"]] == ["We use uv"]
