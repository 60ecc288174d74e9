"""Several devices of one person over a shared folder: sealed segments, merged versions."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from memory_anchor.extensions.extension import Extension
from memory_anchor.identity.keys import Signer


def _commands(app: typer.Typer) -> None:
    from memory_anchor.extensions.devices import commands

    commands.register(app)


def _purged(signer: Signer, ids: Sequence[str]) -> None:
    from memory_anchor.extensions.devices import commands

    commands.sign_purge(signer, ids)


EXTENSION = Extension(name="devices", commands=_commands, purged=_purged)
