"""A served memory: HTTP and `/v1`, access keys, limits, batches, metrics; asking one first."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.service import commands

    commands.register(app)


EXTENSION = Extension(name="service", commands=_commands)
