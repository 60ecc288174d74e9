"""What stands beside a command's work: two examples in its help, each of which can be typed, and what to type next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from human_seat import Seat
from typer.main import get_command
from typer.testing import CliRunner

from memory_anchor.domain.requests.fields import BaseRequest
from memory_anchor.extensions.knowledge import commands as knowledge
from memory_anchor.extensions.lorebook import commands as lorebooks
from memory_anchor.front.cli import care, guide, memories
from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.generated import Command
from memory_anchor.front.cli.shorthand import parse_time
from memory_anchor.front.table import ROWS

NAME = "memory-anchor"
ENDLESS = {"dashboard", "hook", "mcp", "serve", "statusline"}
"""They run until they are ended, or only a client starts them: nothing comes next."""
GENERATED: dict[str, Command] = {
    **{command.name: command for command in (*memories.COMMANDS, *care.COMMANDS)},
    **{f"jobs {command.name}": command for command in care.JOBS},
    **{f"knowledge {command.name}": command for command in knowledge.COMMANDS},
    **{f"lorebook {command.name}": command for command in lorebooks.COMMANDS},
}


@cache
def root() -> Any:
    return get_command(app)


def commands() -> Iterator[str]:
    """Yield the words of every command that is no group."""
    for name, command in root().commands.items():
        yield from (f"{name} {inner}" for inner in command.commands) if hasattr(command, "commands") else [name]


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """Return a line's command and what the real parser makes of its options. Fails: it cannot be typed."""
    words = shlex.split(next(part for part in line.split(" | ") if part.startswith(NAME)))
    words = words[1 : next((at for at, word in enumerate(words) if word in "<>"), None)]
    context, path = root().make_context(NAME, list(words)), []
    while hasattr(context.command, "commands"):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(path), dict(context.params)


@pytest.mark.parametrize("path", [*commands()])
def test_every_commands_help_has_two_examples_that_can_be_typed(path: str) -> None:
    """Rule cli.examples: help shows them as they are typed, the parser takes them, so does the request behind it."""
    entry = guide.packaged("guide")[path]
    help_text = CliRunner().invoke(app, [*path.split(), "--help"], env={"COLUMNS": "200"}).stdout

    assert len(set(entry["examples"])) >= 2
    for line in entry["examples"]:
        assert f"  {line}" in help_text
        command, values = parsed(line)
        assert command == path
        if path in GENERATED:
            check_request(GENERATED[path], values)


def check_request(command: Command, values: dict[str, Any]) -> None:
    """Hold the fields that a command line gives against the request's own types and bounds."""
    fields = {option: field for option, field in command._fields() if values.get(option) not in (None, [], (), "")}
    arguments = {field: values[option] for option, field in fields.items()}
    model = ROWS[command.call_name].request
    for name, kind in model.model_fields.items():
        if name in arguments and "Moment" in str(kind.annotation):
            arguments[name] = parse_time(name, str(arguments[name]))
    filled: dict[str, Any] = {"content": "x", "messages": [], "on": True}
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    missing = required - arguments.keys()
    request: BaseRequest = model.model_validate(arguments | {name: filled[name] for name in missing})
    assert request is not None


def test_the_table_names_every_command_and_no_other() -> None:
    """Rule cli.examples: a command that goes takes its line along."""
    assert set(guide.packaged("guide")) == set(commands())
    assert {path for path, entry in guide.packaged("guide").items() if "next" not in entry} == ENDLESS


@pytest.mark.parametrize("path", sorted(set(commands()) - ENDLESS))
def test_what_comes_next_can_be_typed_too(path: str) -> None:
    """Rule cli.next: another command than this one, in a form that the parser takes."""
    follows = guide.packaged("guide")[path]["next"].replace("{id}", "1m83pvrpgtsjv")
    command, _ = parsed(f"{NAME}{follows.removeprefix(NAME)}")
    assert follows.startswith(f"{NAME} ") and (command != path or "{id}" in guide.packaged("guide")[path]["next"])


@pytest.mark.slow
def test_a_person_is_told_what_comes_next_and_a_program_is_not(tmp_path: Path) -> None:
    """Rule cli.next: with the id that was shown; nothing in a pipe, with --json, or after a failure."""
    seat = Seat(tmp_path)

    def screen(*words: str) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seat.human(*words)[1]).rstrip()

    added = screen("add", "We use uv, not pip")
    (id,) = re.findall(r"added (\w{13})", added)
    assert added.endswith(f"next: `memory-anchor show {id}`")
    assert f"next: `memory-anchor show {id}`" in screen("list")
    assert f"next: `memory-anchor history {id}`" in screen("show", id)
    assert "next:" not in screen("search", "nothing like it", "--layer", "L2")
    assert "next:" not in screen("show", "1zzzzzzzzzzzz")
    assert "next:" not in screen("list", "--json")
    assert "next:" not in seat.shell("list").stdout
