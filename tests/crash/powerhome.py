"""A data directory on a disk whose plug can be pulled, and who works there: agents, commands, a human at a terminal."""

from __future__ import annotations

import json
import os
import pty
import queue
import random
import select
import subprocess
import sys
import termios
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import powercut
from agent import Agent
from homes import environment

from memory_anchor.domain.model import COLLECTIONS, Memory
from memory_anchor.domain.ports import CollectionSpec
from memory_anchor.domain.where import Where
from memory_anchor.process.app import open_store
from memory_anchor.runtime import launch
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import LocalTrail

COMMAND = [sys.executable, "-m", "memory_anchor"]
CUTS = int(os.environ.get("MEMORY_ANCHOR_POWER_CUTS", "1"))
SEED = int(os.environ.get("MEMORY_ANCHOR_POWER_SEED", "12"))
PASS = "correct horse battery staple"
LONGEST_WORK_S = 2.5
COMMAND_WAIT_S = 90.0
NO_ANSWER = (AssertionError, OSError, ValueError, KeyError, queue.Empty)
"""What a call raises when the bridge died under it."""


class Home:
    """A data directory and a project on a disk whose plug can be pulled, and who works there."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = powercut.Disk(folder)
        self.data, self.project = self.disk.mount / "data", self.disk.mount / "project"
        self.project.mkdir()
        more = {"MEMORY_ANCHOR_PROJECT_DIR": str(self.project), "MEMORY_ANCHOR_TEST_CLOCK": "1"}
        self.env = environment(folder, self.data, **more)
        self.cuts = 0

    def agent(self, name: str = "power") -> Agent:
        return Agent([*COMMAND, "mcp"], {**self.env, "CLAUDE_CODE_SESSION_ID": name})

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command without a terminal; return its exit code and what it said."""
        done = subprocess.run(
            [*COMMAND, *words],
            env=self.env,
            cwd=self.disk.mount.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_WAIT_S,
            check=False,
        )
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def typed(self, *words: str) -> tuple[int, str]:
        """Run a command as a human on a terminal: the passphrase where nothing is echoed, yes where it is asked."""
        child, master = pty.fork()
        if not child:
            os.chdir(self.project)
            os.execvpe(COMMAND[0], [*COMMAND, *words], self.env)  # noqa: S606
        screen, answered = "", 0
        until = time.monotonic() + COMMAND_WAIT_S
        try:
            while time.monotonic() < until:
                if select.select([master], [], [], 0.1)[0]:
                    try:
                        got = os.read(master, 65536)
                    except OSError:
                        break
                    if not got:
                        break
                    screen += got.decode("utf-8", "replace")
                    continue
                if len(screen) > answered and screen.rstrip().endswith((":", "?", "]")):
                    hidden = not termios.tcgetattr(master)[3] & termios.ECHO
                    os.write(master, (PASS if hidden else "y").encode() + b"\n")
                    answered = len(screen)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), screen
        finally:
            os.close(master)

    def init(self) -> None:
        code, screen = self.typed("init")
        assert code == 0, screen

    def cut(self, work: Callable[[], None], *, before_s: float | None = None) -> None:
        """Start `work` on a thread, pull the plug at a random moment, end everything, and plug in again."""
        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(self.rng.uniform(0, LONGEST_WORK_S if before_s is None else before_s))
        if self.rng.random() < 0.5:
            self.disk.write_back_some(self.rng)
        self.disk.cut()
        powercut.end_all(self.data)
        worker.join(COMMAND_WAIT_S)
        assert not worker.is_alive()
        launch.reap()
        self.disk.repaired()
        self.cuts += 1

    def stored(self) -> list[Memory]:
        """Return every version there is, read from the store itself once its engine has stopped."""
        self.run("engine", "stop")
        powercut.end_all(self.data)
        versions: list[Memory] = []
        with (
            DirectoryLock.acquire(self.data, role="test") as lock,
            closing(open_store(Settings(), self.data, lock)) as store,
        ):
            for name in COLLECTIONS:
                store.open_collection(name, CollectionSpec({}))
                after: str | None = None
                while True:
                    page, after = store.scan(name, Where(), after=after)
                    versions += [entry.memory for entry in page]
                    if after is None:
                        break
        return versions

    def check_audit(self, versions: list[Memory]) -> None:
        """Every version is in the trail, what is in the trail and not in the store is named, and the chain holds."""
        with closing(LocalTrail(self.data)) as audit:
            assert audit.verify() is None
            recorded: set[tuple[str, int]] = set()
            missing: set[tuple[str, int]] = set()
            for record in audit.records():
                for memory in record["what"].get("memories", [record["what"]]):
                    if "id" in memory and "version" in memory:
                        (missing if record["kind"] == "not_stored" else recorded).add((memory["id"], memory["version"]))
        stored = {(m.id, m.version) for m in versions}
        assert stored <= recorded, f"stored without a record: {stored - recorded}"
        unnamed = recorded - missing - stored
        assert not unnamed, f"recorded, not stored, and not named: {unnamed}"

    def close(self) -> None:
        powercut.end_all(self.data)
        launch.reap()
        self.disk.unmount()


def outcome(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a tool answered. Raises ValueError: an error."""
    result = answer.get("result") or {"isError": True, "content": [{"text": str(answer)}]}
    if result.get("isError"):
        raise ValueError(result["content"][0]["text"])
    content: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    return content


def texts(versions: list[Memory]) -> Counter[str]:
    return Counter(m.content for m in versions if m.is_current)


class Writing:
    """Two agents that save and log, numbered. sent: the calls. answered: the ids of the answers that came."""

    def __init__(self, home: Home) -> None:
        self.home, self.number = home, 0
        self.sent: dict[str, tuple[str, str]] = {}
        self.answered: dict[str, str] = {}
        self.lock = threading.Lock()

    def work(self) -> None:
        threads = [threading.Thread(target=self._one, args=(name,)) for name in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _one(self, name: str) -> None:
        try:
            agent = self.home.agent(f"power-{name}")
            while True:
                with self.lock:
                    self.number += 1
                    request = f"r{self.number}"
                    text = f"Delivery {self.number} of truck {name} went to gate {self.home.rng.getrandbits(40):x}"
                    tool = "save_memory" if self.number % 2 else "log_event"
                    self.sent[request] = (tool, text)
                answer = outcome(agent.tool(tool, content=text, request_id=request))
                with self.lock:
                    self.answered[request] = answer["id"]
        except NO_ANSWER:
            return

    def repeat(self) -> None:
        """Ask once more what was asked in the last round, answered or not: each under its first name."""
        agents = {name: self.home.agent(f"power-{name}") for name in ("a", "b")}
        for request, (tool, text) in self.sent.items():
            agent = agents["a" if "truck a" in text else "b"]
            answer = outcome(agent.tool(tool, content=text, request_id=request))
            if request in self.answered:
                assert answer["id"] == self.answered[request], "another answer than the first one"

    def check(self, wanted: Counter[str]) -> None:
        """What was answered is there; what is asked once more is there once. wanted: grows by what was asked."""
        current = texts(self.home.stored())
        lost = [request for request in self.answered if self.sent[request][1] not in current]
        assert not lost, f"acknowledged and lost: {lost}"
        self.repeat()
        wanted.update(text for _, text in self.sent.values())
        assert texts(self.home.stored()) == wanted
