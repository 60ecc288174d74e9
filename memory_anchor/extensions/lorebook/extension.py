"""Entries that a prompt's words bring in."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.lorebook import commands

    commands.register(app)


EXTENSION = Extension(name="lorebook", commands=_commands)
