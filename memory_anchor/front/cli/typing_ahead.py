"""What is typed before a hidden prompt shows does not appear on the screen; the prompt throws it away.

From the start of a command that may ask for the passphrase the terminal does not echo, until a visible question or the
command's end. Standard library only: the longest wait before the prompt is for the command line's own modules.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Sequence

ASKING = {"purge", "migrate", "review", "pause", "constitution", "projects", "keys"}
ASKING_PAIRS = {("sync", "setup"), ("sync", "revoke"), ("backup", "restore")}
"""Commands that ask without `--human`. Not `init`, which asks visibly first."""
_show: list[Callable[[], None]] = []


def may_ask(words: Sequence[str]) -> bool:
    """Return whether a command line may ask for a passphrase before it asks anything else."""
    return "--human" in words or bool({*words[:1]} & ASKING) or tuple(words[:2]) in ASKING_PAIRS


def hide_typing(words: Sequence[str]) -> None:
    """Stop the terminal's echo where the command may ask and has the terminal; not on Windows."""
    with contextlib.suppress(ImportError, AttributeError, OSError):  # no terminal, or it went away
        import termios

        if may_ask(words) and sys.stdin.isatty() and os.tcgetpgrp(0) == os.getpgrp():
            with contextlib.suppress(termios.error):
                before = termios.tcgetattr(0)
                termios.tcsetattr(0, termios.TCSANOW, [*before[:3], before[3] & ~termios.ECHO, *before[4:]])
                _show.append(lambda: termios.tcsetattr(0, termios.TCSADRAIN, before))
                atexit.register(show_typing)


def show_typing() -> None:
    """Let the terminal echo again: before a visible question, and at the end."""
    while _show:
        with contextlib.suppress(Exception):  # the terminal went away
            _show.pop()()
