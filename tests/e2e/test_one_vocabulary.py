"""One vocabulary: what is answered has the same names in the library, a command, MCP, HTTP and TypeScript."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agent import Agent
from homes import COMMAND, EngineHome

from memory_anchor import Memory
from memory_anchor.extensions.library import answers

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "typescript" / "src" / "index.ts"
FORMER = {"show": {"memory"}}
"""Names of 0.1 that a door has beside those of today, for one release."""
SINCE_READ = {"access_count", "last_accessed_at"}
"""What a memory has once a search of this test was counted."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> EngineHome:
    folder = tmp_path_factory.mktemp("home")
    return EngineHome(folder, MEMORY_ANCHOR_PROJECT_DIR=str(folder))


@pytest.fixture(scope="module")
def address(home: EngineHome) -> Iterator[str]:
    """Yield the address of a server that also serves the commands and bridges of this home."""
    serve = [*COMMAND, "serve", "--port", "0"]
    server = subprocess.Popen(serve, env=home.env, cwd=home.folder, stdout=subprocess.PIPE, text=True)
    try:
        lines = iter((server.stdout or iter(())).readline, "")
        yield next(found[0] for line in lines if (found := re.search(r"http://127[^ ]*/s/[^ ]*?(?=/mcp)", line)))
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def through(home: EngineHome, address: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return what each door answers: (the memory, the hit)."""
    words = ("--type", "decision", "--key", "deploy.day", "--tag", "deploy", "--file", "deploy/run.sh:1-4")
    earlier = home.json("add", "We deploy on Mondays", *words)["id"]
    id = home.json("add", "We deploy on Thursdays now", *words, "--replaces", earlier)["id"]
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "command": (home.json("show", id), hit_of(home.json("search", "when do we deploy"), id))
    }
    agent = Agent([*COMMAND, "mcp", "--profile", "full"], home.env)
    try:
        memory, search = (
            answered(agent.call("tools/call", {"name": name, "arguments": asked}))
            for name, asked in (("get_memory", {"id": id}), ("search_memory", {"query": "when do we deploy"}))
        )
    finally:
        agent.process.kill()
        agent.process.wait()
    found["MCP"] = memory, hit_of(search, id)
    where = home.json("show", id)["scope"]["project"]
    asked = [
        httpx2.post(f"{address}/v1/memory/{path}", json={"project_id": where, **body}, timeout=60).raise_for_status()
        for path, body in (("get", {"id": id}), ("search", {"query": "when do we deploy"}))
    ]
    found["HTTP"] = asked[0].json(), hit_of(asked[1].json(), id)
    with Memory(where, url=address) as library:
        found["library"] = (
            named(library.get(id)),
            named(next(h for h in library.search("when do we deploy") if h.id == id)),
        )
    return found


CALLS: tuple[tuple[str, tuple[str, ...], tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]], ...] = (
    ("save", ("add", "{text}"), ("save_memory", {"content": "{text}"}), ("memory/store", {"content": "{text}"})),
    ("log", ("log", "{text}"), ("log_event", {"content": "{text}"}), ("memory/log", {"content": "{text}"})),
    ("events", (), ("search_events", {}), ("memory/events", {})),
    ("list", ("list",), ("", {}), ("memory/list", {})),
    ("history", ("history", "{id}"), ("", {}), ("memory/history", {"id": "{id}"})),
    (
        "context",
        ("context", "build", "deploy"),
        ("build_context", {"task": "deploy"}),
        ("memory/context", {"task": "deploy"}),
    ),
    ("constitution", ("constitution", "show"), ("get_constitution", {}), ("constitution", {})),
    ("forget", ("forget", "{id}"), ("forget_memory", {"id": "{id}"}), ("memory/forget", {"id": "{id}"})),
)
"""A call: the library's method, a command, a tool, a path and what each is asked; "" where a door has it under another
call. {text}: a new text, {id}: the id of a new memory."""
ROWS = ("events", "memories", "versions")
"""Answers of one list: their rows are compared."""
OF_HTTP = {"variant", "index_version", "algo_version"}
"""What an answer over HTTP says of its search, beside what every door says."""


class Doors:
    """The doors of one home, each asked one call at a time."""

    def __init__(self, home: EngineHome, address: str) -> None:
        self.home, self.address, self.written = home, address, 0
        self.agent = Agent([*COMMAND, "mcp", "--profile", "full"], home.env)
        self.project = home.json("show", self.new())["scope"]["project"]

    def new(self) -> str:
        """Return the id of a memory that nothing else says."""
        return str(self.home.json("add", self.text())["id"])

    def text(self) -> str:
        self.written += 1
        return f"Pier {self.written * 37} is painted in colour number {self.written * 101}"

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.filled(inner) for name, inner in value.items()}
        return self.text() if value == "{text}" else self.new() if value == "{id}" else value

    def ask(self, door: str, call: str) -> Any:
        """Return what a door answers, None where it has the call under another."""
        method, words, (tool, given), (path, body) = next(each for each in CALLS if each[0] == call)
        if door == "command":
            return self.home.json(*map(self.filled, words)) if words else None
        if door == "MCP":
            asked = {"name": tool, "arguments": self.filled(given)}
            return answered(self.agent.call("tools/call", asked)) if tool else None
        if door == "HTTP":
            asked = {"project_id": self.project, **self.filled(body)}
            return httpx2.post(f"{self.address}/v1/{path}", json=asked, timeout=60).raise_for_status().json()
        with Memory(self.project, url=self.address) as library:
            return getattr(library, method)(*self.filled(body).values())


@pytest.fixture(scope="module")
def doors(home: EngineHome, address: str) -> Iterator[Doors]:
    opened = Doors(home, address)
    yield opened
    opened.agent.process.kill()
    opened.agent.process.wait()


@pytest.mark.parametrize("call", [each[0] for each in CALLS])
def test_every_call_answers_by_the_same_names_at_every_door(doors: Doors, call: str) -> None:
    """Contract: one vocabulary; a typed answer of the library and of TypeScript has each name."""
    told = {door: doors.ask(door, call) for door in ("command", "MCP", "HTTP")}
    library = doors.ask("library", call)

    names = {door: names_of(answer) - OF_HTTP - SINCE_READ for door, answer in told.items() if answer is not None}
    assert len(set(map(frozenset, names.values()))) == 1, names
    first = library[0] if isinstance(library, list) else library
    fields = {each.name for each in dataclasses.fields(first)} | set(getattr(first, "more", ()))
    assert names["HTTP"] - {"steps"} <= fields, names["HTTP"] - fields
    promised, optional = promised_by_typescript(next(method for method, *_ in CALLS if method == call))
    assert promised <= set(told["HTTP"]) and promised | optional >= set(told["HTTP"])


def promised_by_typescript(method: str) -> tuple[set[str], set[str]]:
    """Return the names that the client's type of an answer always has, and those that it may leave out."""
    source = CLIENT.read_text("utf-8")
    kind = re.search(rf"^  {method}\([^\n]*\):\s*Promise<(.*?)> {{$", source, re.S | re.M)
    assert kind is not None
    body = re.search(rf"export interface {re.escape(kind[1])} {{(.*?)\n}}", source, re.S) or kind
    fields = re.findall(r"(\w+)(\??):", re.sub(r"(?<=.)\{[^{}]*\}", "", body[1], flags=re.S))
    return {name for name, mark in fields if not mark}, {name for name, mark in fields if mark}


def names_of(answer: dict[str, Any]) -> set[str]:
    """Return the names of an answer, or of the first of its rows and of what is beside them."""
    rows = next((answer[name] for name in ROWS if name in answer), None)
    return set(answer) if rows is None else set(rows[0]) | set(answer) - set(ROWS)


def answered(result: dict[str, Any]) -> Any:
    """Return a tool's answer: its structured form, or the JSON that its text is."""
    result = result.get("result", result)
    return result.get("structuredContent") or json.loads(result["content"][0]["text"])


def hit_of(answer: dict[str, Any], id: str) -> dict[str, Any]:
    return next(hit for hit in answer["snippets"] if hit["id"] == id)


def named(value: Any) -> dict[str, Any]:
    """Return a typed answer under the names by which a program reads it, what is at its default left out."""
    shown = {
        each.name: getattr(value, each.name)
        for each in dataclasses.fields(value)
        if each.name != "more" and getattr(value, each.name) != each.default
    }
    return shown | value.more


@pytest.mark.parametrize("part", [0, 1], ids=["memory", "hit"])
@pytest.mark.parametrize("door", ["MCP", "HTTP", "library"])
def test_a_memory_and_a_hit_have_one_set_of_names(through: Any, door: str, part: int) -> None:
    """Contract: one vocabulary in library, commands, MCP and HTTP; a name of 0.1 is beside those of today."""
    command = set(through["command"][part]) - (FORMER["show"] if part == 0 else set()) - SINCE_READ
    other = set(through[door][part]) - SINCE_READ
    left_out = command - other if door == "library" else set()  # fields at their default, which its repr leaves out too
    assert other | left_out == command and left_out <= {each.name for each in dataclasses.fields(answers.StoredMemory)}


def test_values_of_one_name_are_the_same_at_every_door(through: Any) -> None:
    """Contract: one vocabulary; not a name alone."""
    for part in (0, 1):
        shared = set(through["command"][part]) & set(through["MCP"][part]) & set(through["HTTP"][part])
        of_the_moment = {"score", "strength", "access_count", "last_accessed_at", "relevance"}
        for name in shared - of_the_moment - {"citations"}:  # over HTTP with the index and variant that found them
            values = [json.dumps(through[door][part][name], sort_keys=True) for door in ("command", "MCP", "HTTP")]
            assert len(set(values)) == 1, (name, values)


@pytest.mark.parametrize(("interface", "part"), [("StoredMemory", 0), ("Snippet", 1)])
def test_the_typescript_client_reads_the_names_that_http_answers(through: Any, interface: str, part: int) -> None:
    """Contract: one vocabulary; what its interfaces promise is there, and what may be left out has a known name."""
    body = re.search(rf"export interface {interface} {{(.*?)\n}}", CLIENT.read_text("utf-8"), re.S)
    assert body is not None
    outer = re.sub(r"\{[^{}]*\}", "", body[1])
    fields = dict(re.findall(r"(\w+)(\??):", outer))
    library = {each.name for each in dataclasses.fields(getattr(answers, interface))}
    promised = {name for name, left_out in fields.items() if not left_out}
    assert promised <= set(through["HTTP"][part])
    assert set(fields) <= library | set(through["HTTP"][part])
