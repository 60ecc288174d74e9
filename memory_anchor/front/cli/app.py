"""The command line: `memory-anchor COMMAND`. A command parses, calls and prints.

`mcp` and `hook` are dispatched before this module is imported (see `__main__`), except for options that the bridge does
not know.
"""

from __future__ import annotations

from importlib.metadata import version as installed_version
from shutil import get_terminal_size
from typing import Annotated

import typer
from typer.core import TyperGroup

from memory_anchor.domain.errors import TABLE, BadInput
from memory_anchor.extensions import installed
from memory_anchor.front.cli import care, guide, keep, link, memories, setup
from memory_anchor.front.cli.constitution import make_app
from memory_anchor.front.cli.output import show_failure
from memory_anchor.front.cli.passphrase import identity
from memory_anchor.front.gone import about_command

LINE = "memory_anchor.line"


class Commands(TyperGroup):
    """All commands. A usage error is also shown as JSON when `--json` is given."""

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


TABLE_COLUMNS = 72
"""Terminal width from which help is a table; below it cells would be cut, and plain help wraps."""

app = typer.Typer(
    name="memory-anchor",
    cls=Commands,
    rich_markup_mode="rich" if get_terminal_size().columns >= TABLE_COLUMNS else None,
    help="Long-term memory for coding agents: five layers over MCP, with a human in charge.",
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
for extension in installed():
    extension.register(app)
app.add_typer(make_app(identity, link.check_writable, identity), name="constitution")
guide.add_examples(app)
