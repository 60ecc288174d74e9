"""Golden questions asked of one's own memory, and the figures that compare variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from memory_anchor.extensions.extension import Extension

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Call


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.evaluation import commands

    commands.register(app)
    commands.register_variants(app)


def _calls() -> Mapping[str, Call]:
    from memory_anchor.extensions.evaluation.calls import CALLS

    return CALLS


EXTENSION = Extension(name="evaluation", commands=_commands, calls=_calls)
