"""The command line: `memory-anchor COMMAND`. A command parses, calls and prints.

`mcp` and `hook` are dispatched before this module is imported (see `__main__`), except for options that the bridge does
not know. A command that is named imports the module that has it and no other: all of them cost three times as much.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from memory_anchor.domain.errors import TABLE, BadInput
from memory_anchor.extensions import installed
from memory_anchor.front.cli import guide, link
from memory_anchor.front.cli.output import show_failure
from memory_anchor.front.cli.spinner import COMPLETING
from memory_anchor.front.gone import about_command

if TYPE_CHECKING:
    from typer._click.core import Command, Parameter
    from typer.models import CommandInfo

    app: typer.Typer

LINE = "memory_anchor.line"
PANELS = {
    "Every day": ("search", "add", "list", "show", "edit", "forget", "review", "due", "undo"),
    "Set up": ("init", "install", "config", "constitution", "adopt", "import"),
    "Look after": ("doctor", "dashboard", "pause", "backup", "purge"),
    "Share": ("serve", "keys", "sync"),
    "For programs": ("mcp",),
}
"""The first list of the help, in this order: what a new user needs. All others work, and `MORE` names those of use."""
MORE = (
    *("log", "history", "profile", "pin", "context", "knowledge", "sessions", "handoff", "projects", "export", "stats"),
    *("jobs", "engine", "uninstall", "reindex", "migrate", "extract", "eval"),
)
"""Named below the list; the rest is what clients start, and older spellings."""
MODULES: Mapping[str, tuple[str, ...]] = {
    "memories": (
        *("search", "add", "log", "list", "show", "edit", "pin", "unpin", "forget", "restore", "profile", "history"),
        *("why-not", "context"),
    ),
    "care": ("review", "purge", "extract", "undo", "stats", "due", "pause", "jobs", "projects"),
    "keep": ("reindex", "migrate", "doctor", "backup"),
    "setup": ("init", "mcp", "install", "uninstall", "hook", "statusline", "engine"),
    "config": ("config",),
    "constitution": ("constitution",),
}
"""Which module of this room registers which commands; an extension's are in its `Extension.commands`."""


class Commands(TyperGroup):
    """All commands. A usage error is also shown as JSON when `--json` is given; help shows no type of a switch."""

    def list_commands(self, _: typer.Context) -> list[str]:  # type: ignore[override]
        first = [name for names in PANELS.values() for name in names]
        return sorted(self.commands, key=lambda name: first.index(name) if name in first else len(first))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Command | None:  # type: ignore[override]
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _arrange_parameters(command, ctx)
        return command

    def get_params(self, ctx: typer.Context) -> list[Parameter]:  # type: ignore[override]
        return [_arranged(each) for each in super().get_params(ctx)]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta[LINE] = list(args)
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            answer = super().invoke(ctx)
            if link.has_called():
                from memory_anchor.front.cli.linking import offer_project_link

                offer_project_link()
            return answer
        except Exception as error:
            message = getattr(error, "format_message", None)  # of typer's usage errors, in every version
            if message is not None and (gone := about_command(ctx.meta[LINE])):
                error.message = gone  # type: ignore[attr-defined]
                error.format_message = lambda: gone  # type: ignore[attr-defined]
            if message is not None and "--json" in ctx.meta[LINE]:
                show_failure(TABLE[BadInput].code, " ".join(str(error.format_message()).split()))  # type: ignore[attr-defined]
            raise


def _arranged(parameter: Parameter) -> Parameter:
    """Return a parameter whose help shows no type of a switch, and whose plain values wait for nobody."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    if hasattr(parameter, "get_runtime_param"):
        parameter.get_runtime_param = lambda: PlainValues(parameter)
    return parameter


LONGEST_NUMBER = 18
"""Digits of what is read as a number at once; Python refuses thousands, and pydantic says so in its sentence."""


class PlainValues:
    """Reads the values of a parameter: what is plain at once, all else as typer does, by pydantic.

    Pydantic's import costs two thirds of a command that an engine answers.
    """

    def __init__(self, parameter: Parameter) -> None:
        self._kind = parameter.type_descriptor.annotation  # type: ignore[attr-defined]
        self._with_pydantic = type(parameter).get_runtime_param  # type: ignore[attr-defined]

    def coerce(self, value: object, param: Parameter, ctx: typer.Context) -> object:
        is_several = getattr(param, "multiple", False) or param.nargs == -1
        if value is None:
            return () if is_several else None
        if is_several and self._kind == list[str] and isinstance(value, list | tuple):
            return value
        if isinstance(self._kind, type) and isinstance(value, self._kind):
            return value
        if isinstance(value, str):
            if self._kind is int and value.isascii() and value.isdecimal() and len(value) <= LONGEST_NUMBER:
                return int(value)
            if self._kind is Path and (not os.path.lexists(value) or os.access(value, os.R_OK)):
                return Path(value)
        return self._with_pydantic(param).coerce(value, param=param, ctx=ctx)


def _arrange_parameters(command: Command, ctx: typer.Context) -> None:
    help_option = command.get_help_option(ctx)
    for parameter in (*command.params, *([help_option] if help_option is not None else [])):
        _arranged(parameter)
    for inner in getattr(command, "commands", {}).values():
        _arrange_parameters(inner, ctx)


def _arrange(app: typer.Typer) -> None:
    """Put each command into its panel of the help, and hide the others from the first list."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        name = _name(command)
        command.rich_help_panel, command.hidden = panel_of.get(name, "More"), name not in panel_of
    for group in app.registered_groups:
        group.rich_help_panel, group.hidden = panel_of.get(str(group.name), "More"), group.name not in panel_of


TABLE_COLUMNS = 72
"""Terminal width from which help is a table; below it cells would be cut, and plain help wraps."""


def _version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        typer.echo(f"memory-anchor {version('memory-anchor')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Declare the options that belong to no command."""


@cache
def command_line(word: str = "") -> typer.Typer:
    """Return the command line: with the one command that `word` names, or with every command where it names none."""
    made = typer.Typer(
        name="memory-anchor",
        cls=Commands,
        rich_markup_mode="rich" if get_terminal_size().columns >= TABLE_COLUMNS else None,
        help="Long-term memory for coding agents: five layers over MCP, with a human in charge.",
        epilog=f"More: {', '.join(MORE)}. Each explains itself with --help.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(root)
    if word == "--version":
        return made
    if COMPLETING in os.environ:
        word = ""
    homes: list[tuple[tuple[str, ...], Callable[[typer.Typer], None]]] = [
        *((names, partial(_register, module)) for module, names in MODULES.items()),
        *((extension.commands, extension.register) for extension in installed()),
    ]
    own = next((register for names, register in homes if word in names), None)
    for register in [own] if own is not None else [register for _, register in homes]:
        register(made)
    if own is not None:
        made.registered_commands = [each for each in made.registered_commands if _name(each) == word]
        made.registered_groups = [each for each in made.registered_groups if each.name == word]
    for app in (made, *(group.typer_instance for group in made.registered_groups)):
        for command in app.registered_commands if app is not None else ():
            if isinstance(command.callback, partial):  # see `generated.register`
                command.callback = command.callback()
    guide.add_examples(made)
    _arrange(made)
    return made


def _register(module: str, app: typer.Typer) -> None:
    import_module(f"memory_anchor.front.cli.{module}").register(app)


def _name(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def __getattr__(name: str) -> typer.Typer:
    """Return `app`, which has every command."""
    if name == "app":
        return command_line()
    raise AttributeError(name)
