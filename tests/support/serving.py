"""A live HTTP server in a thread of this process, and keys for it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.keys import AccessKey, KeyFile, new_key
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.listening import tcp_listener
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core, human_of

START_WAIT_S = 20.0
STOP_WAIT_S = 1.0
PAUSE_S = 0.002
DEADLINE_S = 30.0


class _Server(uvicorn.Server):
    """Serves as ever, but starts and stops at once: uvicorn looks each tenth of a second whether it should."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, log_level="error"))
        self.serves = threading.Event()
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self.on_tick(0)
        self.serves.set()
        await self._told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in [*self.servers, *(sockets or [])]:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(PAUSE_S)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    def stop(self) -> None:
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)


class Served:
    """A live server in a thread of this process."""

    def __init__(self, app: Any) -> None:
        self._socket = tcp_listener("127.0.0.1", 0)
        self._client = httpx2.Client(timeout=DEADLINE_S, verify=False)
        self.port = self._socket.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self._server = _Server(app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        assert self._server.serves.wait(START_WAIT_S)

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return self._client.request(method, self.base + path, **more)

    def close(self) -> None:
        self._client.close()
        self._server.stop()
        self._thread.join(START_WAIT_S)


@contextmanager
def serving(core: Core) -> Iterator[Served]:
    """Serve a memory over HTTP, and end it with the server."""
    served = Served(build_http(core, core.settings))
    try:
        yield served
    finally:
        served.close()


@contextmanager
def core_to_serve(folder: Path, project: Path, clock: ManualClock, **http: Any) -> Iterator[Core]:
    """Make a memory of one project that is served on a port of its own, without a bound on requests a minute."""
    chosen = {"http": {"port": 0, "requests_per_minute": 10_000, **http}, "project_dir": str(project)}
    core = ephemeral_core(folder, clock=clock, settings=Settings.model_validate(chosen))
    try:
        yield core
    finally:
        core.close()


def key_for(core: Core, account: str, **more: Any) -> tuple[str, AccessKey]:
    """Return a key that this memory's human made."""
    now = core.clock.now()
    key, made = new_key(human_of(core.data_dir), new_bytes=os.urandom, now=now, account=account, **more)
    return key, KeyFile.of(core.data_dir, core.audit).add(made, now)


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **more}
