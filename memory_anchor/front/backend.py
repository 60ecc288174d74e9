"""The memory as an engine serves it, and as one process serves it to itself.

Everything about the caller comes from its preamble; the settings of its project fill in what it does not say.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from memory_anchor.app import build_core, settings_of
from memory_anchor.care import nightly
from memory_anchor.core import Core
from memory_anchor.devices.sync_job import JOB as SYNC
from memory_anchor.errors import BadInput
from memory_anchor.front.callers import actor_from
from memory_anchor.hooks import Hooks
from memory_anchor.model import Actor
from memory_anchor.runtime import wire
from memory_anchor.runtime.engine import beside, taken_over
from memory_anchor.runtime.environment import CONFIG_FILE, governed, own_file
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Answers, Profile, Settings
from memory_anchor.team.keys import KeyFile

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from memory_anchor.json_values import Record
    from memory_anchor.runtime.recording import ClientConnection

log = logging.getLogger("memory_anchor.engine")
T = TypeVar("T")
IN_PROCESS = "in-process server"
SYNCED_AT = ("SessionStart", "SessionEnd")
"""Hooks at which other devices' memories are fetched and this one's are told, where that is set up."""


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

        settings = self.core.anchor(self._actor(preamble)).room.settings
        profile: Profile = (
            _one_of("profile", preamble.profile, get_args(Profile)) if preamble.profile else settings.profile
        )
        _one_of("answers", preamble.answers or settings.answers, get_args(Answers))
        read_only = settings.read_only or bool(preamble.read_only)
        with self._building:
            if (profile, read_only) not in self._servers:
                made = build_server(self.core, profile=profile, read_only=read_only)
                self._servers[profile, read_only] = made
            return self._servers[profile, read_only]

    def _actor(self, preamble: wire.Preamble, *, request_id: str | int | None = None) -> Actor:
        return actor_from(preamble, agent=self.core.settings.scope.agent, request_id=request_id)

    def hook(self, preamble: wire.Preamble, event: str, payload: Record) -> str:
        anchor = self.core.anchor(self._actor(preamble, request_id="hook"))
        if event in SYNCED_AT and self.core.devices.is_set_up:
            self.core.scheduler.queue(SYNC)  # behind: nobody waits for other devices
        with self.core.foreground:
            return self._hooks.answer(anchor, event, payload, budget_tokens=preamble.budget)

    def hook_behind(self, preamble: wire.Preamble, event: str, payload: Record) -> None:
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


def build(lock: DirectoryLock, settings: Settings | None = None) -> MemoryBackend:
    """Return the memory of the locked directory, with its background work started.

    settings: None for the user's file and the environment.
    Raises BadInput, StoreDamaged, WrongEmbedder, DiskFull: as the settings and the store say.
    """
    chosen = settings_of(os.environ) if settings is None else settings
    core = build_core(chosen, data_dir=lock.directory, lock=lock)
    core.key_opens = KeyFile.of(core.data_dir, core.audit, core.shared).opens(core.clock)
    nightly.register(core)
    # What a process loaded lives as long as it does. Looking at it again in every full collection stopped all threads
    # for 50 to 75 ms (100,000 objects); frozen, a collection takes less than one.
    core.start(settled=gc.freeze)
    return MemoryBackend(core)


@contextmanager
def held(settings: Settings, data: Path) -> Iterator[Core]:
    """Own a data directory for a server of another kind (HTTP), and serve bridges, hooks and commands beside it.

    An engine that owns it is asked to hand over. Never ends by being idle. Raises StoreBusy, and what `build` raises.
    """

    def lasting() -> MemoryBackend:
        backend = build(lock, settings)
        backend.idle_exit_s = math.inf
        return backend

    with taken_over(data) as lock, beside(lock, lasting) as backend:
        yield backend.core


def run_in_process(env: dict[str, str] | None = None) -> int:
    """Serve one agent on this process's stdin and stdout without an engine, and return the exit code.

    The lock still holds, so a directory that an engine serves is refused. Raises StoreBusy, and what `build` raises.
    """
    import anyio

    from memory_anchor.runtime.service import serve_stdio

    environment = dict(os.environ) if env is None else env
    os.umask(0o077)
    own = wire.own_preamble(environment, cwd=str(Path.cwd()), pid=os.getpid(), nonce=os.urandom(8).hex())
    data = wire.data_dir(environment)
    settings = settings_of(_for_this_client(environment, data))
    with DirectoryLock.acquire(Path(data), role=IN_PROCESS) as lock:
        backend = build(lock, settings)
        try:
            anyio.run(serve_stdio, backend, own)
        except KeyboardInterrupt:
            return 130
        finally:
            backend.close()
    return 0


def _for_this_client(env: dict[str, str], data: str) -> dict[str, str]:
    """Return the environment without what a client's configuration may not set in the user's own data directory.

    This process serves one project, so its profile, scope and budgets count; a directory of its own is its own affair.
    """
    own = own_file(env, data)
    if not own:
        return env
    dropped = governed(env)
    if dropped:
        log.warning("not taken from the environment: %s; see %s", ", ".join(sorted(dropped)), own)
    return {name: value for name, value in env.items() if name not in dropped} | {CONFIG_FILE: own}


def _one_of(what: str, name: str, known: tuple[T, ...]) -> T:
    """Return the one of these names. Raises BadInput: it is none of them."""
    for one in known:
        if one == name:
            return one
    raise BadInput(f"{what} {name[:80]!r} is unknown; allowed are {', '.join(map(str, known))}")
