"""A sign of life on the terminal while a command waits, within 300 ms of its start; nothing in a pipe.

Standard library only, since the longest wait of a short command is for the command line's own modules. It is drawn on
stderr by a thread, and its line is empty again before anything else is written.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType

BEGUN = time.monotonic()
"""When this process began, nearly: waits are counted from here, so that two short ones in a row show it too."""
DELAY_S = 0.15
FRAME_S = 0.1
SAID_S = 1.0
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PLAIN = "|/-\\"
CLEAR = "\r\x1b[K"
COMPLETING = "_MEMORY_ANCHOR_COMPLETE"
"""Set by a shell that asks for what could follow on the line being typed."""


class Spinner:
    """A context that shows a wait on the terminal; within another one, or outside of the main thread, nothing.

    current: the wait with a name of its own that goes on, or that Ctrl-C ended. It is set before anything is drawn and
        cleared last, so that Ctrl-C at any point of what is on the screen finds it.
    """

    current: Spinner | None = None
    _lock = threading.Lock()
    _active = False

    def __init__(self, what: str = "") -> None:
        self._what, self._named, self._began = what or "working", bool(what), time.monotonic()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._around = Spinner.current

    def __enter__(self) -> Spinner:
        if self._named:
            Spinner.current = self
        with Spinner._lock:
            if Spinner._active or threading.current_thread() is not threading.main_thread() or not shows():
                return self
            Spinner._active = True
        self._thread = threading.Thread(target=self._draw, daemon=True, name="spinner")
        try:
            self._thread.start()
        except KeyboardInterrupt:  # it waits until the thread runs, which may have drawn by then
            self._done.set()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            Spinner._active = False
        if self._named and kind is not KeyboardInterrupt:
            Spinner.current = self._around

    def __str__(self) -> str:
        """Return what it is for and how long it lasts by now."""
        return f"{self._what}, after {time.monotonic() - self._began:.0f} s"

    def _draw(self) -> None:
        if self._done.wait(max(0.0, DELAY_S - (time.monotonic() - BEGUN))):
            return
        frames = FRAMES if (sys.stderr.encoding or "").lower().replace("-", "") == "utf8" else PLAIN
        number, drawn = 0, False
        try:
            while not self._done.wait(FRAME_S if drawn else 0):
                lasted = time.monotonic() - self._began
                seconds = f" {lasted:.0f} s" if lasted >= SAID_S else ""
                sys.stderr.write(f"{CLEAR}{frames[number % len(frames)]} {self._what}…{seconds}")
                sys.stderr.flush()
                number, drawn = number + 1, True
            if drawn:
                sys.stderr.write(CLEAR)
                sys.stderr.flush()
        except (OSError, ValueError):  # the terminal went away
            return


def shows() -> bool:
    """Return whether somebody sees what is drawn: a terminal that can empty a line, where nobody types meanwhile."""
    if COMPLETING in os.environ:
        return False
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "")
