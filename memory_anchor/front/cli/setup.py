"""Commands that set up and run: init, mcp, engine, install, uninstall."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli import completing, init
from memory_anchor.front.cli.guide import group
from memory_anchor.front.cli.link import data_dir
from memory_anchor.front.cli.output import JsonOption, escape, handle_errors, out, print_dim, show_json
from memory_anchor.front.cli.passphrase import identity

if TYPE_CHECKING:
    from typer.core import TyperGroup

    from memory_anchor.front.clients.install import Plan


def register(app: typer.Typer) -> None:
    init.register(app, identity)
    app.command()(mcp)
    engine = group(app, "engine", "The process that owns the data directory: status, start, stop.")
    engine.command("status")(engine_status)
    engine.command("start")(engine_start)
    engine.command("stop")(engine_stop)
    app.command()(install)
    app.command()(uninstall)
    app.command()(hook)
    app.command()(statusline)


ClientArgument = Annotated[
    str,
    typer.Argument(
        help="claude-code, codex, gemini, cursor, vscode, claude-desktop, windsurf, zed, opencode or json.",
        autocompletion=completing.words(
            *("claude-code", "codex", "gemini", "cursor", "vscode", "claude-desktop", "windsurf", "zed", "opencode"),
            "json",
        ),
    ),
]
ScopeOption = Annotated[str, completing.choice("user", "project")]
PlanOption = Annotated[bool, typer.Option("--dry-run", help="Only show the change.")]
TRANSPORTS = ("stdio", "sse", "http")


@handle_errors
def mcp(
    context: typer.Context,
    in_process: Annotated[bool, typer.Option("--in-process", help="Everything in this one process.")] = False,
    transport: Annotated[str, completing.choice(*TRANSPORTS)] = "stdio",
    host: Annotated[str | None, typer.Option(help="For sse and http.")] = None,
    port: Annotated[int | None, typer.Option(help="For sse and http.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="This agent only reads.")] = False,
    no_memory: Annotated[bool, typer.Option("--no-memory", help="This session reads and keeps nothing.")] = False,
    answers: Annotated[str | None, typer.Option(help="both, or lines alone.")] = None,
    profile: Annotated[str | None, typer.Option(help="Which tools are shown.")] = None,
    project_dir: Annotated[str | None, typer.Option(metavar="FOLDER", help="Not the folder it starts in.")] = None,
    data_dir: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where everything is kept.")] = None,
) -> None:
    """Serve MCP: what an agent's configuration starts."""
    if transport not in TRANSPORTS:
        raise BadInput(f"--transport is {transport!r}; allowed are {', '.join(TRANSPORTS)}")
    if no_memory and transport != "stdio":
        raise BadInput("--no-memory is for one agent's session; allowed is it with stdio")
    from memory_anchor.runtime.bridge import arguments

    valued = {"--answers": answers, "--profile": profile, "--project-dir": project_dir, "--data-dir": data_dir}
    options = [f"{name}={value}" for name, value in valued.items() if value is not None]
    options += ["--read-only"] * read_only + ["--no-memory"] * no_memory
    os.environ.update(arguments(options))
    if transport != "stdio":
        serve = cast("TyperGroup", context.find_root().command).commands["serve"]
        context.invoke(serve, host=host, port=port)
        return
    if in_process:
        from memory_anchor.front.backend import run_in_process

        raise typer.Exit(run_in_process())
    from memory_anchor.runtime.bridge import main as bridge

    raise typer.Exit(bridge([]))


@handle_errors
def engine_status(json_: JsonOption = False) -> None:
    """Show whether an engine serves this data directory."""
    from memory_anchor.runtime.engine import status

    answer = status(data_dir())
    if json_:
        show_json(answer or {"state": "none"})
    elif answer is None:
        print_dim("no engine runs; the first agent starts one, or `memory-anchor engine start`")
    else:
        for name, value in answer.items():
            out.print(f"[dim]{name}:[/] {escape(str(value))}")


@handle_errors
def engine_start(json_: JsonOption = False) -> None:
    """Start an engine that serves this data directory, where none runs; it ends when it is idle."""
    from memory_anchor.runtime.engine import start

    started = start(data_dir(), os.environ)
    if json_:
        show_json({"started": started})
    else:
        print_dim("started" if started else "an engine runs already")


@handle_errors
def engine_stop(json_: JsonOption = False) -> None:
    """Drain and stop the engine; connected agents start a new one with their next call."""
    from memory_anchor.runtime.engine import stop

    stopped = stop(data_dir())
    if json_:
        show_json({"stopped": stopped})
    else:
        print_dim("stopped" if stopped else "no engine was running")


@handle_errors
def install(
    client: ClientArgument, scope: ScopeOption = "user", dry_run: PlanOption = False, json_: JsonOption = False
) -> None:
    """Write a client's MCP configuration and hooks; shows the change and keeps a backup."""
    from memory_anchor.front.clients.install import install as plan_for

    _show_plan(plan_for(client, scope=scope, dry_run=dry_run), json_)


@handle_errors
def uninstall(
    client: ClientArgument, scope: ScopeOption = "user", dry_run: PlanOption = False, json_: JsonOption = False
) -> None:
    """Take our part out of a client's configuration again."""
    from memory_anchor.front.clients.install import uninstall as plan_for

    _show_plan(plan_for(client, scope=scope, dry_run=dry_run), json_)


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        show_json(plan.as_dict())
        return
    out.print(escape(plan.text()))


def statusline() -> None:
    """Print one line for a client's status bar; what it says of its session comes on standard input."""
    from memory_anchor.front.clients.hooks import main as answer_hook

    sys.exit(answer_hook("Statusline"))


@handle_errors
def hook(event: Annotated[str, typer.Argument(help="SessionStart, UserPromptSubmit, PreCompact, …")]) -> None:
    """Answer a client's hook; its JSON comes on standard input."""
    from memory_anchor.front.clients.hooks import main as answer_hook

    sys.exit(answer_hook(event))
