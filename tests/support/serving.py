"""A live HTTP server in a thread of this process, and keys for it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from memory_anchor.core import Core
from memory_anchor.front.http_api import build_http
from memory_anchor.settings import Settings
from memory_anchor.team.keys import AccessKey, KeyFile, new_key
from memory_anchor.testing import ManualClock, ephemeral_core, human_of

START_WAIT_S = 20.0
DEADLINE_S = 30.0


class Served:
    """A live server in a thread of this process."""

    def __init__(self, app: Any) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._client = httpx2.Client(timeout=DEADLINE_S)
        self.port = self._socket.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        end = time.monotonic() + START_WAIT_S
        while not self._server.started and time.monotonic() < end:
            time.sleep(0.005)
        assert self._server.started

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return self._client.request(method, self.base + path, **more)

    def close(self) -> None:
        self._client.close()
        self._server.should_exit = True
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
