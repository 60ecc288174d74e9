"""The command line: thin, quiet, `--json` everywhere, one sentence and one exit code for what fails."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memory_anchor.domain.model import Actor, Caller
from memory_anchor.front import calls
from memory_anchor.front.cli.app import app
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock

Run = Callable[..., Result]


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_what_is_added_is_found_listed_shown_and_forgotten(run: Run) -> None:
    """Rule commands: the everyday loop, as JSON."""
    added = answer(run("add", "We use uv for environments", "--type", "decision", "--tag", "tools", "--json"))
    hits = answer(run("search", "which tool for environments", "--json"))
    listed = answer(run("list", "--tag", "tools", "--json"))

    assert added["outcome"] == "added"
    assert [s["id"] for s in hits["snippets"]] == [m["id"] for m in listed["memories"]] == [added["id"]]
    shown = answer(run("show", added["id"], "--json"))
    assert shown["content"] == "We use uv for environments"
    assert shown["memory"] == {name: value for name, value in shown.items() if name != "memory"}, "the key of 0.1"
    step = answer(run("history", added["id"], "--json"))["steps"][0]
    assert step["at"] == shown["recorded_at"], "an instant is written one way in every answer"
    assert answer(run("forget", added["id"], "--reason", "stale", "--json"))["outcome"] == "archived"
    assert answer(run("search", "which tool for environments", "--json")) == {"snippets": []}
    assert answer(run("restore", added["id"], "--json"))["status"] == "active"
    assert len(answer(run("history", added["id"], "--json"))["versions"]) == 3


def test_a_search_shows_how_likely_each_answer_is_right(run: Run) -> None:
    """Rule commands: the figure beside an id is the one that decides what is weak, not the order's own score."""
    run("add", "We use uv for environments", "--type", "decision")
    shown = answer(run("search", "which tool for environments", "--json"))["snippets"][0]

    assert f"{shown['id']} {shown['relevance']:.0%} " in run("search", "which tool for environments").stdout


def test_text_comes_from_a_pipe_too(run: Run) -> None:
    """Rule commands: `-` and nothing read standard input."""
    logged = answer(run("log", "-", "--who", "Ana", "--ttl-days", "7", "--json", input="CI flaked on test_edge\n"))

    memory = answer(run("show", logged["id"], "--json"))["memory"]
    assert (memory["content"], memory["who"], memory["ttl_days"]) == ("CI flaked on test_edge", ["Ana"], 7)


def test_an_observation_file_is_stored_as_what_it_says(run: Run, tmp_path: Path) -> None:
    """Rule 4.1: summary becomes the key, details the content; the layer is the type's."""
    file = tmp_path / "observation.json"
    file.write_text(
        json.dumps(
            {
                "type": "bugfix",
                "summary": "Empty query",
                "details": "An empty query returns an empty list.",
                "layer": "verified_fact",
                "created_at": "2025-12-15T14:30:00Z",
                "author": "ana",
            }
        ),
        encoding="utf-8",
    )

    added = answer(run("add", "--observation", str(file), "--json"))

    memory = answer(run("show", added["id"], "--json"))["memory"]
    assert (memory["key"], memory["type"]) == ("Empty query", "bugfix")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("add", "  "), 2, "content is empty"),
        (("add", "x", "--confidence", "1.5"), 2, "confidence is 1.5"),
        (("add", "x", "--layer", "constitution"), 4, "propose_constitution_change"),
        (("show", "nothing"), 3, "no memory 'nothing'"),
        (("search", "x", "--limit", "51"), 2, "limit is 51"),
        (("jobs", "run", "sweep"), 2, "no job 'sweep'"),
        (("undo",), 2, "undo names nothing"),
        (("context", "show", "nothing"), 3, "nothing"),
        (("extract", "missing.jsonl"), 3, "missing.jsonl"),
    ],
)
def test_a_failure_is_one_sentence_and_its_exit_code(
    run: Run, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    """Rule exit-codes: 2 bad input, 3 not found, 4 refused; the sentence is on stderr, stdout stays clean."""
    result = run(*arguments)

    assert result.exit_code == code
    assert sentence in " ".join(result.stderr.split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [("add", "x", "--human"), ("review", "--accept", "x"), ("purge", "--matching", "x"), ("pin", "x", "--human")],
)
def test_without_a_terminal_nobody_counts_as_human(run: Run, arguments: tuple[str, ...]) -> None:
    """Rule human: the passphrase is typed on a terminal or the command is refused."""
    assert run(*arguments).exit_code == 4


def test_pausing_stops_agents_and_not_reading(run: Run, core: Core, agent: Actor) -> None:
    """Rule pause: agents read and do not write until a human says so; an agent's `--off` is refused."""
    run("add", "We use uv")
    assert answer(run("pause", "--json")) == {"paused": True}

    assert run("add", "We use poetry").exit_code == 4
    assert len(answer(run("search", "uv", "--json"))["snippets"]) == 1
    assert run("pause", "--off").exit_code == 4
    assert run("add", "We use ruff").exit_code == 4
    calls.answer("pause", core.anchor(replace(agent, caller=Caller.HUMAN)), {"off": True})
    assert run("add", "We use ruff").exit_code == 0


def test_an_agents_undo_is_shown_first_and_done_with_yes(run: Run) -> None:
    """Rule undo: preview, then compensating versions."""
    added = answer(run("add", "We use uv", "--json"))

    planned = answer(run("undo", "last", "--json"))
    assert [step["id"] for step in planned["steps"]] == [added["id"]]
    assert len(answer(run("list", "--json"))["memories"]) == 1
    answer(run("undo", "last", "--yes", "--json"))

    assert answer(run("list", "--json"))["memories"] == []


def test_a_job_moved_in_time_needs_a_dry_run_or_a_test_store(run: Run, clock: ManualClock) -> None:
    """Rule --at: time moves for checks only."""
    answer(run("log", "CI flaked", "--ttl-days", "1", "--json"))

    moved = run("jobs", "run", "expire_events", "--at", "2026-12-01")
    shown = answer(run("jobs", "run", "expire_events", "--at", "2026-12-01", "--dry-run", "--json"))

    assert moved.exit_code == 4
    assert len(shown["planned"]) == 1
    assert len(answer(run("list", "--json"))["memories"]) == 1


def test_a_context_is_built_and_its_report_read_back(run: Run) -> None:
    """Rule context: what it cost can be looked up later."""
    run("add", "Deploys need a smoke test first", "--type", "workflow")

    built = answer(run("context", "build", "which smoke test do deploys need first", "--json"))

    assert "smoke test" in built["text"]
    assert answer(run("context", "show", built["report_id"], "--json"))["report"]["sections"]


MESSAGES = [
    {"role": "user", "content": "which smoke test do deploys need first"},
    {"role": "assistant", "content": "?"},
]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("prompt.json", json.dumps({"messages": MESSAGES, "context_window_tokens": 9000})),
        ("prompt", json.dumps(MESSAGES)),
        ("session.jsonl", "\n".join(json.dumps(message) for message in MESSAGES) + "\n\n"),
        ("one-turn.log", json.dumps(MESSAGES[0])),
        ("-", json.dumps({"messages": MESSAGES})),
    ],
)
def test_a_whole_prompt_comes_from_any_file_or_a_pipe(run: Run, tmp_path: Path, name: str, text: str) -> None:
    """Rule context.build: JSON under any name, JSON lines, `-` for standard input."""
    run("add", "Deploys need a smoke test first", "--type", "workflow")
    source, piped = (name, text) if name == "-" else (str(tmp_path / name), None)
    if piped is None:
        Path(source).write_text(text, encoding="utf-8")

    built = answer(run("context", "build", source, "--json", input=piped))

    assert built["messages"][0] == MESSAGES[0]
    assert "smoke test" in built["text"]


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (b"buy milk\n", (), "is no JSON; allowed is JSON"),
        (b'{"role": "user", "content": "x"}\noops\n', (), "is no JSON (line 2)"),
        (b'{"model": "x"}', (), "is JSON and no prompt"),
        (b"42", (), "is JSON and no prompt"),
        (b"\xff\xfe\x00", (), "is not UTF-8 text"),
        (b" \n", (), "is empty"),
        (b'[{"role": "user", "content": "x"}]', ("--budget", "500"), "--budget is given with a whole prompt"),
        (b'["x"]', (), "messages[0]"),
    ],
)
def test_what_is_no_prompt_is_said_in_one_sentence(
    run: Run, tmp_path: Path, content: bytes, options: tuple[str, ...], sentence: str
) -> None:
    """Rule context.build: what, and what is allowed; never a word of the file's content."""
    file = tmp_path / "f"
    file.write_bytes(content)

    result = run("context", "build", str(file), *options)

    assert result.exit_code == 2, result.output
    stderr = " ".join(result.stderr.split())
    assert sentence in stderr
    assert "milk" not in stderr and stderr.count("error:") == 1


@pytest.mark.parametrize(
    "path", ["notes/prompt", "/tmp/none/prompt", "prompt.json", "s.JSONL", "./my notes/a.md", "a/"]
)
def test_a_path_that_names_no_file_is_no_task(run: Run, path: str) -> None:
    """Rule context.build: a mistyped path is said in one sentence, and no context is built for it."""
    result = run("context", "build", path)

    assert result.exit_code == 2, result.output
    stderr = " ".join(result.stderr.split())
    assert f"'{path}' reads as a path and names no file" in stderr
    assert stderr.count("error:") == 1


@pytest.mark.parametrize(
    "task", ["deploys", "mend the CI/CD job", "update README.md", "修复登录/注册", "https://a.org/b"]
)
def test_a_task_in_words_stays_a_task(run: Run, task: str) -> None:
    """Rule context.build: a slash or a file's name within a sentence makes no path of it."""
    assert answer(run("context", "build", task, "--json"))["report_id"]


def test_the_reports_that_are_kept_are_listed_newest_first(run: Run, clock: ManualClock) -> None:
    """Rule context.show: without an id, all that can be shown."""
    made = []
    for task in ("deploys", "releases"):
        made.insert(0, answer(run("context", "build", task, "--budget", "1", "--json"))["report_id"])
        clock.advance(seconds=1)

    assert [kept["id"] for kept in answer(run("context", "show", "--json"))["reports"]] == made


def test_a_memory_that_did_not_come_says_why(run: Run) -> None:
    """Rule why-not: archived, another time, or beaten by others: one clause each."""
    added = answer(run("add", "We use uv for environments", "--json"))
    there = answer(run("why-not", added["id"], "uv environments", "--json"))
    run("forget", added["id"])
    gone = answer(run("why-not", added["id"], "uv environments", "--json"))

    assert (there["found"], gone["found"]) == (True, False)
    assert "archived" in gone["reasons"][0]


def test_every_command_has_a_sentence_and_json(run: Run) -> None:
    """Rule people: `--help` says what each command does; all but servers and hooks take `--json`."""
    import typer.main

    def walk(command: Any, path: str) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, f"{path} {name}".strip())
            return
        assert command.help, path
        options = {option for parameter in command.params for option in parameter.opts}
        if path not in ("mcp", "serve", "hook", "statusline"):
            assert "--json" in options, path

    walk(typer.main.get_command(app), "")


def test_a_secret_alone_is_turned_away_in_one_sentence(run: Run) -> None:
    """Rule safety: nothing is stored, the kinds are listed, the secret is not repeated."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

    for command in ("add", "log"):
        rejected = answer(run(command, secret, "--json"))
        shown = run(command, secret)

        assert (rejected["outcome"], rejected["id"], rejected["redactions"]) == ("rejected", None, ["token"])
        assert "says nothing besides what is never stored" in shown.output
        assert secret not in shown.output

    assert answer(run("list", "--json"))["memories"] == []


@pytest.mark.parametrize(("place", "code"), [("nowhere", 2), ("file", 2), ("full", 5)])
def test_a_project_that_cannot_be_set_up_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int
) -> None:
    """Rule exit-codes: a folder that is none is bad input; one that takes no file is said to."""
    (tmp_path / "file").touch()
    (tmp_path / "full" / "constitution.yaml").mkdir(parents=True)
    (tmp_path / "full" / ".ai").touch()
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MEMORY_ANCHOR_PROJECT_DIR", str(tmp_path / place))

    result = CliRunner().invoke(app, ["init"])

    assert result.exit_code == code
    assert result.stderr.count("\n") == 1 and str(tmp_path / place) in result.stderr


@pytest.mark.parametrize(
    ("line", "code", "exit_code"),
    [
        (("show", "nope", "--json"), "not_found", 3),
        (("list", "--layer", "L9", "--json"), "bad_input", 2),
        (("list", "--limit", "many", "--json"), "bad_input", 2),
        (("serch", "--json"), "bad_input", 2),
        (("import", "/nowhere/at.all", "--json"), "not_found", 3),
    ],
)
def test_a_failure_is_json_too_where_json_was_asked_for(
    run: Run, line: tuple[str, ...], code: str, exit_code: int
) -> None:
    """Rule commands: stdout holds one object on failure as on success, stderr the sentence."""
    result = run(*line)

    assert result.exit_code == exit_code
    failure = json.loads(result.stdout)
    assert failure["error"] == code and failure["message"]
    assert not run(*line[:-1]).stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this platform has no full device")
@pytest.mark.parametrize(("to", "exit_code"), [(">/dev/full", 5), (">&-", 0), ("2>&- >&-", 0)])
def test_output_that_cannot_be_written_is_one_sentence(tmp_path: Path, to: str, exit_code: int) -> None:
    """Rule commands: a full disk or a closed output behind `>` is no traceback."""
    command = f"{shlex.quote(sys.executable)} -m memory_anchor config budget --json {to}"
    env = {**os.environ, "HOME": str(tmp_path), "MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "d")}
    result = subprocess.run(command, shell=True, capture_output=True, text=True, env=env)  # noqa: S602

    assert result.returncode == exit_code, result.stderr
    assert "Traceback" not in result.stderr and "Exception ignored" not in result.stderr
    assert ("could not be written" in result.stderr) == (exit_code == 5)


@pytest.mark.parametrize("command", ["search", "import", "edit"])
def test_help_on_a_narrow_terminal_cuts_no_word(tmp_path: Path, command: str) -> None:
    """N23: at 40 columns the names of options and what is allowed ended in an ellipsis."""
    env = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "40"}
    line = [sys.executable, "-m", "memory_anchor", command, "--help"]
    narrow = subprocess.run(line, capture_output=True, text=True, env=env, check=True).stdout

    wide = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert "…" not in narrow
    assert set(re.findall(r"--[a-z-]+", wide)) <= set(re.findall(r"--[a-z-]+", narrow))
