"""The passphrase: asked for on the terminal only, never taken from a pipe, an argument or the environment."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from memory_anchor.errors import Refused

_TERMINAL = "/dev/tty"


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


def passphrase_beside_input() -> str:
    """Return what is typed on the terminal while standard input is a pipe. Raises Refused: there is no terminal."""
    try:
        with Path(_TERMINAL).open("rb"):  # getpass would fall back to the pipe
            pass
    except OSError:
        raise Refused("this needs a human at a terminal, and there is none beside the pipe") from None
    return getpass.getpass("Passphrase: ")
