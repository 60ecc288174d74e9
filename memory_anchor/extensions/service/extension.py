"""A served memory: HTTP and `/v1`, access keys, limits, batches, metrics; asking one first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from memory_anchor.extensions.extension import Extension

if TYPE_CHECKING:
    from memory_anchor.extensions.extension import Call


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.service import commands

    commands.register(app)


def _calls() -> Mapping[str, Call]:
    from memory_anchor.extensions.service.calls import CALLS

    return CALLS


EXTENSION = Extension(name="service", commands=_commands, calls=_calls)
