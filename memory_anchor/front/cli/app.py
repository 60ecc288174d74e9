"""The command line: `memory-anchor COMMAND`. Thin: a command parses, calls, and shows.

`mcp` and `hook` are dispatched before this module is imported (see `__main__`); here are the options that the bridge
has no part in.
"""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from memory_anchor.front.cli import (
    care,
    devices,
    evaluate,
    guide,
    keep,
    knowledge,
    link,
    lorebooks,
    memories,
    moving,
    projects,
    served,
    setup,
)
from memory_anchor.front.cli.constitution import make_app

app = typer.Typer(
    name="memory-anchor",
    help="Long-term memory for coding agents: five layers over MCP, with a human in charge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"memory-anchor {installed_version('memory-anchor')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Keep the one option that is no command's."""


memories.register(app)
care.register(app)
memories.register_contexts(app)
setup.register_dashboard(app)
evaluate.register(app)
keep.register(app)
moving.register(app)
served.register(app)
lorebooks.register(app)
projects.register(app)
devices.register(app)
knowledge.register(app)
setup.register(app)
evaluate.register_variants(app)
constitution = make_app(setup.identity, link.check_writable, setup.identity)
constitution.command("review")(served.review)
app.add_typer(constitution, name="constitution")
guide.illustrate(app)
