"""The store that a program of its own opens, where no engine serves it yet: one a data directory in a process.

Calls of this process go straight to it. A thread serves it on the engine's socket meanwhile, so that other processes,
agents and commands use it as they would an engine's; who finds neither opens it next. When the program ends, or an
engine is asked to take over, calls in progress are answered first. Rejected: starting an engine, which outlives a
program that only wanted a memory; refusing a second process, which every web server with workers would meet.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from memory_anchor.domain.errors import StoreBusy
from memory_anchor.runtime.engine import lock_for_engine, serve_in_thread, status

if TYPE_CHECKING:
    from memory_anchor.base.json_values import Record
    from memory_anchor.front.backend import MemoryBackend
    from memory_anchor.runtime.lock import DirectoryLock
    from memory_anchor.runtime.wire import Preamble

END_WAIT_S = 60.0
WAIT_S = 30.0
"""How long a call waits for a process that holds the store and does not serve it (yet)."""
PAUSE_S = 0.1
_OPEN: dict[Path, OwnStore] = {}
_OPENING = threading.Lock()
_USERS: dict[Path, WeakSet[object]] = {}
_LEFT: list[OwnStore] = []
"""A forked child's copies: the store is the parent's, and nothing of it may be closed or written here."""


class OwnStore:
    """One open store. Made by `own_store` alone."""

    def __init__(self, backend: MemoryBackend, lock: DirectoryLock) -> None:
        self._backend, self._lock = backend, lock
        self._changed = threading.Condition()
        self._calls = 0
        self._closed = False
        self._leaving = threading.Event()
        backend.idle_exit_s = math.inf
        close_backend = backend.close

        def close() -> None:  # whoever closes it: an engine that takes over, or this process at its end
            self._refuse_calls()
            close_backend()

        backend.close = close  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._serve, name="memory", daemon=True)
        self._thread.start()

    def call(self, preamble: Preamble, name: str, arguments: Record) -> Record | None:
        """Return the answer of one call, None where the store was closed. Raises our errors."""
        with self._changed:
            if self._closed:
                return None
            self._calls += 1
        try:
            return self._backend.call(preamble, name, arguments)
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Answer what is in progress, then close the store and let go of its directory. Idempotent."""
        self._leaving.set()
        self._thread.join(END_WAIT_S)

    def _refuse_calls(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._calls, END_WAIT_S)

    def _serve(self) -> None:
        with self._lock, serve_in_thread(self._lock, lambda: self._backend, when_ended=self._leaving.set):
            self._leaving.wait()


def own_store(data: Path, user: object) -> OwnStore | None:
    """Return this process's own store of a data directory, None where it has none.

    user: closes it with `close_store`; the last of them does.
    """
    if user not in (users := _USERS.setdefault(data, WeakSet())):
        users.add(user)
    return _OPEN.get(data)


def make_ready(data: Path) -> None:
    """Return once something serves a data directory: an engine, another process, or this one, which then opens it.

    One thread at a time looks, the others wait for it. Raises StoreBusy: another process holds it and does not serve.
    Raises Refused, DiskFull, Unavailable, StoreDamaged, WrongEmbedder, BadInput: as lock, store and settings say.
    """
    until = time.monotonic() + WAIT_S
    with _OPENING:
        while True:
            if (known := _OPEN.get(data)) is not None:
                if not known.is_closed:
                    return
                known.close()  # an engine took over: wait until everything is let go of
                del _OPEN[data]
            running = status(data)
            if running is not None and running.get("state") != "draining":
                return
            busy: StoreBusy | None = None
            try:
                lock = lock_for_engine(data)
            except StoreBusy as error:  # of a command, for a moment
                lock, busy = None, error
            if lock is not None:
                _OPEN[data] = _opened(lock)
                return
            if time.monotonic() > until:
                raise busy or StoreBusy(f"{data} is held by a process that does not answer; nothing was changed")
            time.sleep(PAUSE_S)


def _opened(lock: DirectoryLock) -> OwnStore:
    from memory_anchor.front.backend import build
    from memory_anchor.process.app import settings_of
    from memory_anchor.runtime.threads import one_for_algebra

    one_for_algebra()
    try:
        return OwnStore(build(lock, settings_of(os.environ), settled=None), lock)
    except BaseException:
        lock.release()
        raise


def close_store(data: Path, user: object) -> None:
    """Close this process's store of a data directory, unless something else in this process uses it."""
    with _OPENING:
        users = _USERS.get(data, WeakSet())
        users.discard(user)
        if not users and (store := _OPEN.pop(data, None)) is not None:
            store.close()


def _close_all() -> None:
    with _OPENING:
        while _OPEN:
            _OPEN.popitem()[1].close()


def _leave_to_parent() -> None:
    _LEFT.extend(_OPEN.values())
    _OPEN.clear()
    globals()["_OPENING"] = threading.Lock()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
