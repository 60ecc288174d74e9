"""The seam: what an extension adds to the core. All of it is imported when it is asked for, not before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    from memory_anchor.identity.keys import Signer


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """commands: registers its commands. purged: called in the terminal after a human purged these ids."""

    name: str
    commands: Callable[[typer.Typer], None] = lambda _: None
    purged: Callable[[Signer, Sequence[str]], None] = lambda *_: None
