"""What people and clients really do to the doors: early ends of input, odd folders, wrong options; no traceback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import COMMAND, House, answer

from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.extensions.transfer.other_tools import read_items

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
SAVE = {"name": "save_memory", "arguments": {"content": "Written just before the end: port 7003"}}
LAST = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": SAVE},
)
LAST_LINES = "".join(json.dumps(message) + "\n" for message in LAST).encode()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path, private=True)
    yield made
    made.close()


def test_the_last_request_before_the_end_of_input_is_answered_by_a_cold_start_too(house: House) -> None:
    """Rule input: an agent that writes its requests and closes its end gets every answer, and exit code 0."""
    done = house.run("mcp", stdin=LAST_LINES)

    answers = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, done.stderr
    assert json.loads(answers[2]["result"]["content"][0]["text"])["outcome"] == "added"


def test_a_last_request_that_no_engine_answers_fails_loudly(house: House) -> None:
    """Rule input: one sentence on stderr, an error for the request, an exit code that is not 0."""
    house.data.mkdir(parents=True)
    house.data.joinpath("logs").write_text("in the way")

    done = house.run("mcp", stdin=LAST_LINES)

    answers = {message["id"]: message for message in map(json.loads, done.stdout.splitlines())}
    assert "unavailable" in answers[2]["error"]["message"]
    assert done.returncode == 5, done.stderr
    assert b"the engine is not there" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize("option", ["--host=0.0.0.0", "--host=no.such.host.invalid", "--port=TAKEN", "--tls-cert=x"])
def test_serve_checks_its_options_before_it_takes_over_an_engine(house: House, option: str) -> None:
    """Rule serve: host, port, keys and certificates first; the engine that runs goes on."""
    agent = house.bridge("here")
    answer(agent, "search_memory", query="anything")
    pid = house.state()["pid"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = house.run("serve", option.replace("TAKEN", str(taken.getsockname()[1])))

    assert done.returncode in (2, 4, 5), done.stderr
    assert b"Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert house.state()["pid"] == pid
    answer(agent, "search_memory", query="anything")


@pytest.mark.skipif(os.name == "nt", reason="paths are bytes on POSIX alone")
def test_a_project_whose_path_is_no_utf8_is_a_project(house: House, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    env = house.environment("here")
    del env["CLAUDE_PROJECT_DIR"]

    def run(*arguments: str, stdin: bytes = b"") -> Any:
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=folder, env=env, input=stdin, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        return done.stdout

    run("add", "The cache port is 6380")
    assert b"6380" in run("search", "cache port")
    assert b"caf" in run("projects", "list")
    assert b"6380" in run("export", "-")
    assert b'"outcome\\":\\"added\\"' in run("mcp", stdin=LAST_LINES)
    assert b"7003" in run("list")


@pytest.mark.skipif(os.name == "nt", reason="a folder in use cannot be deleted there")
@pytest.mark.parametrize("arguments", [("add", "x is y"), ("list",), ("doctor",), ("projects", "list"), ("mcp",)])
def test_a_deleted_working_folder_costs_no_command(house: House, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    env = house.environment("here")
    del env["CLAUDE_PROJECT_DIR"]
    gone = tmp_path / "gone"
    gone.mkdir()
    command = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *COMMAND, *arguments]

    done = subprocess.run(command, cwd=gone, env=env, input=b"", capture_output=True, timeout=60, check=False)

    assert b"Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_a_hook_that_does_not_exist_names_those_that_do(house: House) -> None:
    done = house.run("hook", "Nope", stdin=b"{}")

    assert done.returncode == 0
    assert b"there is no hook 'Nope'; there are SessionStart, UserPromptSubmit" in done.stderr


def test_an_engine_is_started_by_its_command(house: House) -> None:
    """Contract: `engine start`; `engine status` says what starts one."""
    assert b"`memory-anchor engine start`" in house.run("engine", "status").stdout
    assert json.loads(house.run("engine", "start", "--json").stdout) == {"started": True}
    assert house.state()["state"] in ("loading", "serving")
    assert json.loads(house.run("engine", "start", "--json").stdout) == {"started": False}


# --- imports -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["5", "null", '"x"', '{"results": 7}'])
def test_an_export_of_another_kind_is_one_sentence(run: Callable[..., Any], tmp_path: Path, content: str) -> None:
    file = tmp_path / "mem0.json"
    file.write_text(content)

    done = run("import", "--from", "mem0", str(file))

    assert done.exit_code == 2 and "allowed is what get_all() gave" in done.output
    assert not isinstance(done.exception, ValueError | TypeError | AttributeError)


def test_nothing_of_another_store_becomes_none(tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": None, "entityType": None, "observations": [None, 5, "Deploys are on Mondays"]},
        {"type": "entity", "name": "Kim", "observations": [{"content": None}, {"content": "Kim reviews deploys"}]},
        {"type": "relation", "from": None, "to": "x", "relationType": None},
    ]
    file = tmp_path / "memory.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    read = list(read_items("server-memory", file, home=tmp_path))

    contents = [item.line["content"] for item in read if item.line]
    assert contents == ["5", "Deploys are on Mondays", "Kim reviews deploys"]
    assert not [item for item in read if item.line and "None" in json.dumps(item.line)]
    assert [item.problem for item in read if item.problem][
        -1
    ] == "it is neither an entity with observations nor a relation"


def test_an_import_says_why_a_line_was_rejected(run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text(json.dumps({"content": "Perhaps the cache is on port 6380", "confidence": 0.1}) + "\n")

    done = run("import", str(file))
    answer = json.loads(run("import", str(file), "--json").stdout)

    assert re.search(r"rejected: line 1: \w+", done.output), done.output
    assert answer["rejected"] == 1 and answer["reasons"][0]["line"] == 1


def test_an_import_that_is_stopped_says_what_is_done(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule input: Ctrl-C names the last line that is in, and what to do."""
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"content": f"Fact number {n} is kept"}) + "\n" for n in range(3)))
    monkeypatch.setattr("memory_anchor.extensions.transfer.transfer_files.BATCH_LINES", 1)

    class Stopping(moving.Ticker):
        def at(self, count: int, what: str = "") -> None:
            if count == 2:  # the first line was sent
                raise KeyboardInterrupt

    monkeypatch.setattr(moving, "Ticker", Stopping)

    done = run("import", str(file))

    assert done.exit_code == 130, done.output
    assert "is imported up to line 1," in done.output and "run the same command again" in done.output


def test_export_to_a_folder_is_one_sentence_of_ours(run: Callable[..., Any]) -> None:
    done = run("export", "/")

    assert done.exit_code == 2
    assert "/ is a folder; allowed is a file to write, or - for standard output" in done.output
