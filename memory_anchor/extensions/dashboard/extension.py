"""Pages on loopback for a human: what waits, search, history, health."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.dashboard import commands

    app.command()(commands.dashboard)


EXTENSION = Extension(name="dashboard", commands=_commands)
