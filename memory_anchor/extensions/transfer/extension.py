"""Moving memories in and out: exports, imports, other tools' data."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.transfer import commands

    commands.register(app)


EXTENSION = Extension(name="transfer", commands=_commands)
