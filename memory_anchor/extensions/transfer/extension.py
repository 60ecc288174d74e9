"""Moving memories in and out: exports, imports, other tools' data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from memory_anchor.extensions.extension import Extension

if TYPE_CHECKING:
    from memory_anchor.front.rows import Row


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.transfer import commands

    commands.register(app)


def _rows() -> Sequence[Row]:
    from memory_anchor.extensions.transfer.rows import ROWS

    return ROWS


EXTENSION = Extension(name="transfer", commands=_commands, rows=_rows)
