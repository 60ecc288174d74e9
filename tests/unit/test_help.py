"""The help: 24 commands a new user needs, in groups, and older spellings that still work."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import make_commands
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from memory_anchor.extensions import installed
from memory_anchor.front.cli.app import MODULES, MORE, PANELS, PlainValues, app, command_line

FIRST = [name for names in PANELS.values() for name in names]


def shown(*words: str) -> str:
    return CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "100"}).stdout


def test_the_first_list_has_at_most_24_commands_in_five_groups() -> None:
    """Issue help: grouped by when they are needed; the others are named below."""
    page = shown()
    listed = re.findall(r"^[│ ] ?([a-z][a-z-]+)  +[A-Z]", page, re.M)

    assert sorted(listed) == sorted(FIRST) and len(FIRST) <= 24
    assert [page.index(panel) for panel in PANELS] == sorted(page.index(panel) for panel in PANELS)
    assert all(name in page for name in MORE) and "statusline" not in page and "why-not" not in page


@pytest.mark.parametrize("words", [(), ("search",), ("backup", "create"), ("review",)])
def test_a_switch_shows_no_type(words: tuple[str, ...]) -> None:
    assert "<bool>" not in shown(*words) and "BOOLEAN" not in shown(*words) and "--" in shown(*words)


def test_a_merged_command_does_what_the_older_one_did(run) -> None:  # type: ignore[no-untyped-def]
    """Issue help: doubles are merged; the older spelling works for one release."""
    id = json.loads(run("add", "We deploy with blue-green releases", "--json").stdout)["id"]

    def answer(*words: str) -> dict[str, object]:
        done = run(*words, "--json")
        assert done.exit_code == 0, done.stdout
        return dict(json.loads(done.stdout))

    question = "which editor is used"
    assert answer("search", question, "--why-not", id)["reasons"] == answer("why-not", id, question)["reasons"]
    answer("pin", id)
    assert answer("pin", id, "--off")["outcome"] == "updated"
    answer("forget", id)
    assert answer("undo", id)["outcome"] == "updated" and answer("search", "how do we deploy")["snippets"]
    answer("forget", id)
    assert answer("restore", id)["outcome"] == "updated"
    assert run("search", question, "--why-not", id).exit_code == 0 and run("undo", "nothing").exit_code == 3


EVERY = sorted(
    [
        *(str(each.name or getattr(each.callback, "__name__", "")) for each in app.registered_commands),
        *(str(each.name) for each in app.registered_groups),
    ]
)


@pytest.mark.parametrize("word", EVERY)
def test_a_command_that_is_named_alone_is_the_one_of_the_whole_list(word: str) -> None:
    """Rule command line: its module alone is imported, and nothing of it is missing."""
    alone = command_line(word)

    assert len(alone.registered_commands) + len(alone.registered_groups) == 1
    pages = [
        CliRunner().invoke(line, [word, "--help"], env={"COLUMNS": "100"}).stdout for line in (alone, command_line())
    ]
    assert pages[0] == pages[1] != ""


def test_the_table_of_modules_names_what_they_register() -> None:
    """Rule command line: a word that no module names would cost the import of all of them."""
    own = [name for names in MODULES.values() for name in names]
    others = [name for extension in installed() for name in extension.commands]

    assert sorted(own + others) == EVERY


@pytest.mark.parametrize("word", ["", *EVERY])
def test_a_command_line_imports_no_machinery_before_a_command_runs(word: str) -> None:
    """Rule command line: help and completion wait for typer alone; "" is the list of all."""
    code = (
        "import sys; from memory_anchor.front.cli.app import command_line; from typer.main import get_command;"
        f"get_command(command_line({word!r})); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    rooms = ("ingest", "recall", "process", "store", "identity", "use_cases", "admin", "upkeep", "layers")
    heavy = (
        "pydantic",
        "rich.",
        "tomllib",
        "numpy",
        "qdrant",
        "sqlite3",
        "cryptography",
        "mcp",
        "fastapi",
        "ssl",
        "asyncio",
        "memory_anchor.settings",
    )
    heavy += (
        *(f"memory_anchor.{room}." for room in rooms),
        "memory_anchor.language.safety",
        "memory_anchor.language.terms",
    )
    assert [name for name in loaded if name.startswith(heavy)] == []


def test_what_commands_are_packaged_with_is_what_the_requests_say() -> None:
    """Rule once: options are made from the requests; `scripts/make_commands.py` renews the file."""
    assert json.loads(make_commands.PACKAGED.read_text("utf-8")) == make_commands.packaged()


WORDS = (
    st.sampled_from(
        ["", "-", "5", "05", "-5", "5.0", " 5", "٥", "x", "~", "/", "/nowhere", "\udcff", "true", "9" * 5_000]
    )
    | st.text()
)


@given(st.sampled_from([str, int, float, bool, Path, list[str]]), WORDS | st.none())
def test_a_plain_value_is_read_as_pydantic_reads_it(kind: Any, word: str | None) -> None:
    """Rule command line: what pydantic is not loaded for comes out as it would with it, refusals too."""
    made = typer.Typer()

    @made.command()
    def command(value: Annotated[Any, typer.Option()] = None) -> None: ...

    command.__annotations__["value"] = Annotated[kind | None, typer.Option()]
    parameter = get_command(made).params[0]
    own = type(parameter).get_runtime_param(parameter)
    if kind == list[str] and word is not None:
        word = (word, word)

    def read(by: Any) -> Any:
        try:
            value = by.coerce(word, param=parameter, ctx=None)
            return list(value) if isinstance(value, tuple) else value
        except typer.BadParameter as error:
            return error.message

    assert read(PlainValues(parameter)) == read(own)
