"""The examples in every command's help, and the next useful command that is printed at its end.

Both are in one table, `scripts/data/guide.toml`, packaged with the options of commands in `packaged.json`, since a
reader of TOML costs each command more than its answer. Rejected: examples in docstrings, which half of the commands had
and no test read.
After a command that showed a memory its id is filled in, so that the line can be copied.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from memory_anchor.base.json_values import Record, items, parsed, record, text, texts
from memory_anchor.front.cli.output import SHOWN_IDS, escape, print_dim

GROUP_EXAMPLES = 3
PACKAGED = "packaged.json"
P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def _packaged() -> Record:
    return record(parsed(Path(__file__).with_name(PACKAGED).read_bytes()))


def packaged(part: str) -> Record:
    """Return a part of what is packaged for commands.

    guide: `add` or `backup create` -> {examples, next}; options: call -> {about, fields}, see `generated`.
    """
    return record(_packaged()[part])


def group(app: typer.Typer, name: str, about: str) -> typer.Typer:
    """Return a new group of commands of `app`."""
    made = typer.Typer(help=about, no_args_is_help=True)
    app.add_typer(made, name=name)
    return made


def add_examples(app: typer.Typer) -> None:
    """Add to every command of an app its examples and its next command; to a group the first of its commands."""
    for info in app.registered_groups:
        own = [_with_examples(command, f"{info.name} ") for command in _commands(info.typer_instance)]
        info.epilog = _help(own[:GROUP_EXAMPLES])
    for command in _commands(app):
        _with_examples(command, "")


def _commands(app: typer.Typer | None) -> list[CommandInfo]:
    return app.registered_commands if app is not None else []


def _with_examples(command: CommandInfo, before: str) -> str:
    """Add its entry of the table to a command; return its first example."""
    callback = cast("Callable[..., object]", command.callback)
    entry = record(packaged("guide")[before + (command.name or get_command_name(callback.__name__))])
    command.epilog = _help(texts(entry["examples"]))
    if "next" in entry:
        command.callback = _guided(callback, text(entry["next"]))
    return str(items(entry["examples"])[0])


def _help(examples: list[str]) -> str:
    return "\n".join(["\b", "Examples:", *(escape(f"  {example}") for example in examples)])


def _guided(command: Callable[P, R], follows: str) -> Callable[P, R]:
    """Return the command, which then names the next one on a terminal: not with JSON, not in a pipe."""

    @functools.wraps(command)
    def run(*args: P.args, **options: P.kwargs) -> R:
        SHOWN_IDS.clear()
        result = command(*args, **options)
        as_json = options.get("json_") or options.get("as_json")
        if not as_json and sys.stdout.isatty() and ("{id}" not in follows or SHOWN_IDS):
            print_dim(f"next: `{follows.replace('{id}', SHOWN_IDS[0] if SHOWN_IDS else '')}`")
        return result

    return run
