"""Replicas of one memory: real `serve` processes with a data directory each, on one private PostgreSQL.

Used by the tests of `tests/e2e/test_replicas.py` and by `scripts/soak_replicas`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from memory_anchor.adapters.system import SystemClock, new_bytes
from memory_anchor.domain.credential import Role
from memory_anchor.extensions.service.keys import KeyFile, new_key
from memory_anchor.identity.keys import KeyRing, Signer
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.postgresql import Postgresql
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.shared_files import SharedFiles
from memory_anchor.testing import PASSPHRASE, cheap_keys

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ("MEMORY_ANCHOR", "CLAUDE", "CODEX", "GEMINI", "XDG_")
ANSWERS_S = 60.0
TRIES = 400
PAUSE_S = 0.1


class Replica:
    """One `serve` process. env: beside the address of the database and its own data directory."""

    def __init__(self, folder: Path, url: str, **env: str) -> None:
        self.data = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)},
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder.parent),
            "MEMORY_ANCHOR_DATA_DIR": str(folder),
            "MEMORY_ANCHOR_DATABASE__URL": url,
            "MEMORY_ANCHOR_EMBEDDER__KIND": "none",
            "MEMORY_ANCHOR_HTTP__REQUESTS_PER_MINUTE": "1000000",
            "MEMORY_ANCHOR_HTTP__AT_ONCE": "32",
            "TZ": "UTC",
            **env,
        }
        self.base = ""
        self.process: subprocess.Popen[str] | None = None
        self.client = httpx2.Client(timeout=ANSWERS_S)

    def start(self) -> Replica:
        """Start it and wait until it says where it listens."""
        command = [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"]
        self.data.parent.mkdir(parents=True, exist_ok=True)
        log = (self.data.parent / f"{self.data.name}.log").open("a")
        self.process = subprocess.Popen(
            command, env=self.env, cwd=self.data.parent, stdout=subprocess.PIPE, stderr=log, text=True
        )
        log.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://[^/\s]+", line)
        if found is None:
            raise RuntimeError(f"it does not serve: {line!r} {self.said()}")
        self.base = found[0]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        return self

    def said(self) -> str:
        path = self.data.parent / f"{self.data.name}.log"
        return path.read_text()[-2_000:] if path.exists() else ""

    def kill(self) -> None:
        """SIGKILL, as a machine that is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(ANSWERS_S)

    def close(self) -> None:
        self.client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def ask(self, path: str, body: dict[str, Any] | None = None, *, key: str) -> httpx2.Response:
        """Return the answer of `/v1/PATH`: a POST with a body, else a GET."""
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.base}/v1/{path}"
        if body is None:
            return self.client.get(url, headers=headers)
        return self.client.post(url, headers=headers, json=body)

    def answer(self, path: str, body: dict[str, Any] | None = None, *, key: str) -> Any:
        """Return what a call that succeeds answered."""
        answered = self.ask(path, body, key=key)
        assert answered.status_code == 200, (answered.status_code, answered.text, self.said())
        return answered.json()

    def found(self, query: str, *, key: str, **more: Any) -> list[str]:
        """Return the texts of a search, best first."""
        snippets = self.answer("memory/search", {"query": query, **more}, key=key)["snippets"]
        return [snippet["text"] for snippet in snippets]


class Office:
    """The data directory of whoever runs the servers: the human's key, made and used as commands do it."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data, self.database = folder, Postgresql(url)
        self.audit = SqlAudit(self.database)
        self.files = SharedFiles(folder, SqlRecords(self.database, SystemClock().now))
        self.files.begin()
        self.ring, self.keys = KeyRing(folder / "identity", self.audit), KeyFile.of(folder, self.audit)

    def human(self) -> Signer:
        with cheap_keys():
            if self.ring.own() is None:
                return self.ring.create(name="alice", passphrase=PASSPHRASE)
            return self.ring.unlock(PASSPHRASE)

    def key(self, user: str, role: Role = Role.WRITER, account: str = "local", **more: Any) -> str:
        now = SystemClock().now()
        with cheap_keys():
            key, made = new_key(
                self.human(), new_bytes=new_bytes, now=now, account=account, user=user, role=role, **more
            )
        self.keys.add(made, now)
        return key

    def close(self) -> None:
        self.files.end()
        self.database.close()


@contextmanager
def team(folder: Path, url: str, count: int = 2, **env: str) -> Iterator[tuple[Office, list[Replica]]]:
    """Run this many replicas on an empty database."""
    with closing(Office(folder / "office", url)) as office:
        replicas = [Replica(folder / f"replica{number}", url, **env) for number in range(count)]
        try:
            yield office, [replica.start() for replica in replicas]
        finally:
            for replica in replicas:
                replica.close()
