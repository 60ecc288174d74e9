"""Many calls for one command: through the engine when one serves, else over one opened store held for the duration.

`link.call` opens and closes the store each time, which is right for one call and not for a thousand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memory_anchor.errors import StoreBusy
from memory_anchor.front.cli.link import call, data_dir, run_signed
from memory_anchor.front.cli.spinner import Spinner
from memory_anchor.json_values import Json, Record

if TYPE_CHECKING:
    from memory_anchor.identity.approval import Signer

Ask = Callable[..., Record]


@contextmanager
def session() -> Iterator[Ask]:
    """Yield what answers calls like `link.call`. Raises our errors."""
    from memory_anchor.runtime.engine import status

    if status(data_dir()) is not None:
        yield call
        return
    os.umask(0o077)
    from memory_anchor.runtime.lock import DirectoryLock

    try:
        lock = DirectoryLock.acquire(data_dir(), role="command")
    except StoreBusy:  # an engine that is loading answers when it is ready
        yield call
        return
    with lock:
        with Spinner("opening the store"):
            from memory_anchor.app import build_core, settings_of
            from memory_anchor.care import nightly

            core = build_core(settings_of(os.environ), data_dir=data_dir(), lock=lock)
            nightly.register(core)

        def ask(name: str, *, human: Signer | None = None, **arguments: Json) -> Record:
            given = {key: value for key, value in arguments.items() if value is not None}
            return run_signed(core, name, given, human)

        try:
            yield ask
        finally:
            core.close()


class Ticker:
    """Progress on stderr: one line that changes on a terminal, else one line now and then."""

    def __init__(self, what: str, *, every: int = 1_000) -> None:
        self._what = what
        self._every = every
        self._shown = 0
        self._live = sys.stderr.isatty()

    def at(self, done: int, total: int | None = None, what: str = "") -> None:
        """Say how far it is."""
        of = f" of {total}" if total else ""
        text = f"{what or self._what} {done}{of}"
        if self._live:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif done - self._shown >= self._every or done < self._shown:
            self._shown = done
            sys.stderr.write(f"{text}\n")

    def end(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
