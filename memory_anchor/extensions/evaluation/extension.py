"""Golden questions asked of one's own memory, and the figures that compare variants."""

from __future__ import annotations

import typer

from memory_anchor.extensions.extension import Extension


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.evaluation import commands

    commands.register(app)
    commands.register_variants(app)


EXTENSION = Extension(name="evaluation", commands=_commands)
