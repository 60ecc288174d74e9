"""The passphrase: asked for on the terminal only, never taken from a pipe, an argument or the environment."""

from __future__ import annotations

import getpass
import sys

from memory_anchor.errors import Refused


def human_passphrase(wanted: bool) -> str | None:
    """Return the passphrase a human types, None for an agent's call. Raises Refused: no terminal."""
    if not wanted:
        return None
    return ask_passphrase()


def ask_passphrase(prompt: str = "Passphrase: ") -> str:
    """Return what is typed. Raises Refused: standard input is not a terminal."""
    if not sys.stdin.isatty():
        raise Refused("this needs a human at a terminal; run it in your own shell, not through an agent")
    return getpass.getpass(prompt)
