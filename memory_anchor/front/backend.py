"""The memory as an engine serves it, and as a single process serves itself.

Everything about the caller comes from its preamble; the settings of its project fill in the rest.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from memory_anchor.admin import nightly
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor
from memory_anchor.front.callers import actor_from
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.app import build_core, settings_of
from memory_anchor.process.wiring import Core
from memory_anchor.runtime import wire
from memory_anchor.runtime.engine import serve_in_thread, take_over_lock
from memory_anchor.runtime.environment import CONFIG_FILE, engine_settings, user_file_of
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Answers, Profile, Settings

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from memory_anchor.base.json_values import Record
    from memory_anchor.runtime.recording import ClientConnection

log = logging.getLogger("memory_anchor.engine")
T = TypeVar("T")
IN_PROCESS = "in-process server"


class MemoryBackend:
    """`Backend` around one `Core`; see there for what each method promises."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.idle_exit_s = float(core.settings.engine.idle_exit_s)
        self._servers: dict[tuple[Profile, bool], Server[ClientConnection]] = {}
        self._building = threading.Lock()
        self._hooks = Hooks()

    def server(self, preamble: wire.Preamble) -> Server[ClientConnection]:
        from memory_anchor.front.mcp_server import build_server

        settings = self.core.anchor(self._actor(preamble)).project.settings
        profile: Profile = _known("profile", preamble.profile or settings.profile, get_args(Profile))
        _known("answers", preamble.answers or settings.answers, get_args(Answers))
        read_only = settings.read_only or bool(preamble.read_only)
        with self._building:
            if (profile, read_only) not in self._servers:
                server = build_server(self.core, profile=profile, read_only=read_only)
                self._servers[profile, read_only] = server
            return self._servers[profile, read_only]

    def _actor(self, preamble: wire.Preamble, *, request_id: str | int | None = None) -> Actor:
        return actor_from(preamble, agent=self.core.settings.scope.agent, request_id=request_id)

    def hook(self, preamble: wire.Preamble, event: str, payload: Record) -> str:
        anchor = self.core.anchor(self._actor(preamble, request_id="hook"))
        for extension in self.core.running.values():
            extension.on_hook(event)
        with self.core.foreground:
            return self._hooks.answer(anchor, event, payload, budget_tokens=preamble.budget)

    def hook_in_background(self, preamble: wire.Preamble, event: str, payload: Record) -> None:
        learned = self._hooks.in_background(self.core.anchor(self._actor(preamble)), event, payload)
        if learned:
            log.info("%s: learned %d memories from a transcript", event, learned)

    def call(self, preamble: wire.Preamble, name: str, arguments: Record) -> Record:
        from memory_anchor.front.calls import run

        return run(self.core, preamble, name, arguments)

    def conversation_closed(self, preamble: wire.Preamble) -> None:
        self.core.end_conversation(self._actor(preamble))

    def is_live(self) -> bool:
        return self.core.has_live_context()

    def close(self) -> None:
        self.core.close()


def build(
    lock: DirectoryLock, settings: Settings | None = None, *, settled: Callable[[], None] | None = gc.freeze
) -> MemoryBackend:
    """Return the memory of the locked directory, with its background work started.

    settings: None for the user's file and the environment. settled: see `Core.start`.
    Raises BadInput, StoreDamaged, WrongEmbedder, DiskFull: as the settings and the store say.
    """
    core = build_core(settings or settings_of(os.environ), data_dir=lock.directory, lock=lock)
    nightly.register(core)
    # Whatever is loaded now stays for the life of the process. Scanning it in every full collection stopped all threads
    # for 50 to 75 ms (100,000 objects); frozen, a collection takes less than 1 ms.
    core.start(settled=settled)
    return MemoryBackend(core)


@contextmanager
def owned_core(settings: Settings, data: Path) -> Iterator[Core]:
    """Own a data directory for an HTTP server that also serves bridges, hooks and commands.

    An engine that owns it is asked to hand over. Never exits for being idle. Raises StoreBusy, and what `build` raises.
    """

    def never_idle() -> MemoryBackend:
        backend = build(lock, settings)
        backend.idle_exit_s = math.inf
        return backend

    with take_over_lock(data) as lock, serve_in_thread(lock, never_idle) as backend:
        yield backend.core


def run_in_process(env: dict[str, str] | None = None) -> int:
    """Serve one agent on this process's stdin and stdout without an engine, and return the exit code.

    The lock still holds, so a directory that an engine serves is refused. Raises StoreBusy, and what `build` raises.
    """
    import anyio

    from memory_anchor.runtime.service import serve_stdio

    environment = dict(os.environ) if env is None else env
    os.umask(0o077)
    preamble = wire.process_preamble(environment, cwd=wire.working_folder(), pid=os.getpid(), nonce=os.urandom(8).hex())
    data = wire.data_dir(environment)
    settings = settings_of(_for_this_client(environment, data))
    with DirectoryLock.acquire(Path(data), role=IN_PROCESS) as lock:
        backend = build(lock, settings)
        try:
            anyio.run(serve_stdio, backend, preamble)
        except KeyboardInterrupt:
            return 130
        finally:
            backend.close()
    return 0


def _for_this_client(env: dict[str, str], data: str) -> dict[str, str]:
    """Return the environment without what a client's configuration may not set in the user's own data directory.

    This process serves one project, so its profile, scope and budgets count; a directory of its own is its own affair.
    """
    config_file = user_file_of(env, data)
    if not config_file:
        return env
    dropped = engine_settings(env)
    if dropped:
        log.warning("not taken from the environment: %s; see %s", ", ".join(sorted(dropped)), config_file)
    return {name: value for name, value in env.items() if name not in dropped} | {CONFIG_FILE: config_file}


def _known(what: str, name: str, known: tuple[T, ...]) -> T:
    """Return the known value equal to this name. Raises BadInput: there is none."""
    for value in known:
        if value == name:
            return value
    raise BadInput(f"{what} {name[:80]!r} is unknown; allowed are {', '.join(map(str, known))}")
