"""Replicas of one service: real `serve` processes with folders of their own on one store, and the human who made it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from homes import COMMAND, environment
from serving import bearer

from memory_anchor.adapters.working_copy import WorkingCopy
from memory_anchor.domain.ports import SharedRecords
from memory_anchor.extensions.service.keys import AccessKey, KeyFile, new_key
from memory_anchor.process.app import shared_of
from memory_anchor.settings import StoreSettings
from memory_anchor.testing import human_of

if TYPE_CHECKING:
    from qdrantserver import Place

START_S = 240.0
"""Of a process on a machine that does much else."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Replica:
    """One `memory-anchor serve`."""

    def __init__(self, folder: Path, place: Place, **more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._env = environment(folder, self.data, **place.env(), **more)
        self._client = httpx2.Client(timeout=30)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Replica:
        command = [*COMMAND, "serve", "--port", str(self.port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._env, cwd=self._folder, stdout=log, stderr=log)
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        end, told = time.monotonic() + START_S, ""
        while time.monotonic() < end:
            assert self._process is not None and self._process.poll() is None, self.log()
            try:
                answer = httpx2.get(f"{self.base}/v1/ready", timeout=5)
                if answer.status_code == 200:
                    return
                told = answer.text
            except httpx2.HTTPError as error:
                told = repr(error)
            time.sleep(0.05)
        raise AssertionError(f"{told} {self.log()}")

    def log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    def ask(self, method: str, path: str, key: str, **more: Any) -> httpx2.Response:
        return self._client.request(method, self.base + path, headers=bearer(key), **more)

    def kill(self) -> None:
        """End it at once, as a machine that is lost."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._client.close()


class Owner:
    """The service's human, in a folder of their own on the same store."""

    def __init__(self, folder: Path, place: Place) -> None:
        self.data = folder
        folder.mkdir(parents=True, exist_ok=True)
        store = StoreSettings.model_validate({"kind": "qdrant", "url": place.url, "records": "store"})
        shared = shared_of(store, folder)
        assert shared is not None
        self.shared: tuple[SharedRecords, WorkingCopy] = shared
        self.shared[1].fresh()
        with self.shared[1].changing():
            self.signer = human_of(folder)
        self.keys = KeyFile.of(folder, None, self.shared)

    def key(self, account: str = "acme", **more: Any) -> tuple[str, AccessKey]:
        now = datetime.now(UTC)
        key, made = new_key(self.signer, new_bytes=os.urandom, now=now, account=account, user="eve", **more)
        return key, self.keys.add(made, now)

    def revoke(self, id_: str) -> None:
        self.keys.revoke(id_, datetime.now(UTC))
