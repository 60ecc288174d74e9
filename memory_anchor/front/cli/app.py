"""The command line: `memory-anchor COMMAND`. A command parses, calls and prints.

`mcp` and `hook` are dispatched before this module is imported (see `__main__`), except for options that the bridge does
not know.
"""

from __future__ import annotations

from importlib.metadata import version as installed_version
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from memory_anchor.domain.errors import TABLE, BadInput
from memory_anchor.extensions import installed
from memory_anchor.front.cli import care, config, guide, keep, link, memories, setup
from memory_anchor.front.cli.constitution import make_app
from memory_anchor.front.cli.output import show_failure
from memory_anchor.front.cli.passphrase import identity
from memory_anchor.front.gone import about_command

if TYPE_CHECKING:
    from typer._click.core import Command, Parameter

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


class Commands(TyperGroup):
    """All commands. A usage error is also shown as JSON when `--json` is given; help shows no type of a switch."""

    def list_commands(self, _: typer.Context) -> list[str]:  # type: ignore[override]
        first = [name for names in PANELS.values() for name in names]
        return sorted(self.commands, key=lambda name: first.index(name) if name in first else len(first))

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Command | None:  # type: ignore[override]
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_types_of_switches(command, ctx)
        return command

    def get_params(self, ctx: typer.Context) -> list[Parameter]:  # type: ignore[override]
        return [_switch_without_type(each) for each in super().get_params(ctx)]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.meta[LINE] = list(args)
        return list(super().parse_args(ctx, args))

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            answer = super().invoke(ctx)
            if link.has_called():
                care.offer_project_link()
            return answer
        except Exception as error:
            message = getattr(error, "format_message", None)  # of typer's usage errors, in every version
            if message is not None and (gone := about_command(ctx.meta[LINE])):
                error.message = gone  # type: ignore[attr-defined]
                error.format_message = lambda: gone  # type: ignore[attr-defined]
            if message is not None and "--json" in ctx.meta[LINE]:
                show_failure(TABLE[BadInput].code, " ".join(str(error.format_message()).split()))  # type: ignore[attr-defined]
            raise


def _switch_without_type(parameter: Parameter) -> Parameter:
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter


def _without_types_of_switches(command: Command, ctx: typer.Context) -> None:
    help_option = command.get_help_option(ctx)
    for parameter in (*command.params, *([help_option] if help_option is not None else [])):
        _switch_without_type(parameter)
    for inner in getattr(command, "commands", {}).values():
        _without_types_of_switches(inner, ctx)


def _arrange(app: typer.Typer) -> None:
    """Put each command into its panel of the help, and hide the others from the first list."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        name = str(command.name or getattr(command.callback, "__name__", ""))
        command.rich_help_panel, command.hidden = panel_of.get(name, "More"), name not in panel_of
    for group in app.registered_groups:
        group.rich_help_panel, group.hidden = panel_of.get(str(group.name), "More"), group.name not in panel_of


TABLE_COLUMNS = 72
"""Terminal width from which help is a table; below it cells would be cut, and plain help wraps."""

app = typer.Typer(
    name="memory-anchor",
    cls=Commands,
    rich_markup_mode="rich" if get_terminal_size().columns >= TABLE_COLUMNS else None,
    help="Long-term memory for coding agents: five layers over MCP, with a human in charge.",
    epilog=f"More: {', '.join(MORE)}. Each explains itself with --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"memory-anchor {installed_version('memory-anchor')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Declare the options that belong to no command."""


memories.register(app)
care.register(app)
memories.register_contexts(app)
keep.register(app)
setup.register(app)
config.register(app)
for extension in installed():
    extension.register(app)
app.add_typer(make_app(identity, link.check_writable, identity), name="constitution")
guide.add_examples(app)
_arrange(app)
