"""Text that others wrote: sources, passages, citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from memory_anchor.extensions.extension import Extension

if TYPE_CHECKING:
    from memory_anchor.front.rows import Row


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.knowledge import commands

    commands.register(app)


def _rows() -> Sequence[Row]:
    from memory_anchor.extensions.knowledge.rows import ROWS

    return ROWS


EXTENSION = Extension(name="knowledge", commands=_commands, rows=_rows)
