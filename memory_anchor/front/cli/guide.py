"""What every command says beside its work: examples in its help, and at its end the next useful command.

Both stand in one table, `guide.toml`. Rejected: examples in docstrings, which half of the commands had and no test
read. At the end of a command that showed a memory its id is filled in, so that the line can be copied.
"""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import ParamSpec, TypeVar, cast

import typer
from rich.markup import escape
from typer.main import get_command_name
from typer.models import CommandInfo

from memory_anchor.front.cli.output import SHOWN, quiet
from memory_anchor.json_values import Record, items, text, texts

GROUP_EXAMPLES = 3
P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def table() -> Mapping[str, Record]:
    """Return `add` or `backup create` -> {examples, next}."""
    return tomllib.loads(files(__package__).joinpath("guide.toml").read_text("utf-8"))


def group(app: typer.Typer, name: str, about: str) -> typer.Typer:
    """Return a new group of commands of `app`."""
    made = typer.Typer(help=about, no_args_is_help=True)
    app.add_typer(made, name=name)
    return made


def illustrate(app: typer.Typer) -> None:
    """Put the examples under the help of every command of an app, and what follows at its end.

    A group has the first example of its first commands.
    """
    for info in app.registered_groups:
        own = [_illustrated(one, f"{info.name} ") for one in _commands(info.typer_instance)]
        info.epilog = _help(own[:GROUP_EXAMPLES])
    for one in _commands(app):
        _illustrated(one, "")


def _commands(app: typer.Typer | None) -> list[CommandInfo]:
    return app.registered_commands if app is not None else []


def _illustrated(command: CommandInfo, before: str) -> str:
    """Put its part of the table on a command; return its first example."""
    callback = cast("Callable[..., object]", command.callback)
    entry = table()[before + (command.name or get_command_name(callback.__name__))]
    command.epilog = _help(texts(entry["examples"]))
    if "next" in entry:
        command.callback = _guided(callback, text(entry["next"]))
    return str(items(entry["examples"])[0])


def _help(examples: list[str]) -> str:
    return "\n".join(["\b", "Examples:", *(escape(f"  {one}") for one in examples)])


def _guided(command: Callable[P, R], follows: str) -> Callable[P, R]:
    """Return the command, with what to type next said at its end where somebody reads it: no JSON, no pipe."""

    @functools.wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> R:
        SHOWN.clear()
        done = command(*args, **given)
        as_json = given.get("json_") or given.get("as_json")
        if not as_json and sys.stdout.isatty() and ("{id}" not in follows or SHOWN):
            quiet(f"next: `{follows.replace('{id}', SHOWN[0] if SHOWN else '')}`")
        return done

    return run
