"""Text that others wrote: sources, passages, citations."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.knowledge import commands

    commands.register(app)


EXTENSION = Extension(name="knowledge", commands=_commands)
