"""A person's seat: the real command line over a pseudo-terminal, and the same commands in an agent's shell without one.

Every command is a process of its own (`python -m memory_anchor`), with a data folder, a home and a project; nothing is
replaced. Hidden prompts are answered only once the terminal has stopped echoing, as a person would.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from memory_anchor.testing import PASSPHRASE

WAIT_S = 90
GOAL = 'version: "1"\nentries:\n  - id: goal\n    content: "Keep the greenhouse at 21 degrees"\n    priority: 0\n'
ANSWERED = ("--client", "none", "--no-history")
Answer = tuple[str, str] | tuple[str, str, bool]
"""A prompt and what is typed there; with True the prompt echoes."""


class Seat:
    def __init__(self, root: Path, *, project: str = "project", goal: str = GOAL) -> None:
        self.root, self.data = root, root / "data"
        self.project = root / project
        self.project.mkdir(parents=True, exist_ok=True)
        (root / "home").mkdir(exist_ok=True)
        (root / ".config").mkdir(exist_ok=True)
        if goal:
            (self.project / "constitution.yaml").write_text(goal, encoding="utf-8")

    def env(self, **more: str) -> dict[str, str]:
        base = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return base | {
            "HOME": str(self.root / "home"),
            "XDG_CONFIG_HOME": str(self.root / ".config"),
            "MEMORY_ANCHOR_DATA_DIR": str(self.data),
            "MEMORY_ANCHOR_EMBEDDER__KIND": "none",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "COLUMNS": "500",
            **more,
        }

    def shell(self, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command as an agent's shell does: no terminal anywhere."""
        return subprocess.run(
            self._command(words),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=WAIT_S,
            cwd=self.project,
            env=self.env(**env),
        )

    def human(self, *words: str, answers: Sequence[Answer] = (), asks_all: bool = False, **env: str) -> tuple[int, str]:
        """Run a command on a terminal of its own; return its exit code and the screen.

        asks_all: `init` asks all its questions; else for the text and the key alone, whatever is on this machine.
        """
        words += ANSWERED if words[:1] == ("init",) and "--yes" not in words and not asks_all else ()
        code, screen = on_terminal(self._command(words), self.project, self.env(**env), answers)
        return code, screen.replace("\r", "")

    def init(self, passphrase: str = PASSPHRASE, *words: str, **env: str) -> str:
        """Make the installation's key, or approve this project with it; return the screen."""
        asked = [("New passphrase", passphrase), ("Once more", passphrase)]
        code, screen = self.human("init", "--approver", "alice", *words, answers=asked, **env)
        assert code == 0, screen
        return screen

    def end_engine(self) -> None:
        self.shell("engine", "stop")

    @staticmethod
    def _command(words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "memory_anchor", *words]


def begun_on(slave: int, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command whose controlling terminal this is."""
    return subprocess.Popen(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        cwd=folder,
        env=env,
    )


def on_terminal(
    command: Sequence[str], folder: Path, env: Mapping[str, str], answers: Sequence[Answer] = (), *, columns: int = 0
) -> tuple[int, str]:
    """Run a command on a terminal of its own, of so many columns; return its exit code and the screen as it came."""
    master, slave = pty.openpty()
    if columns:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = begun_on(slave, command, folder, env)
    os.close(slave)
    try:
        screen = talk(master, list(answers))
        return child.wait(WAIT_S), screen
    finally:
        os.close(master)
        if child.poll() is None:
            child.kill()


class Engine:
    """A real engine of a seat's data folder, for the time of a block."""

    def __init__(self, seat: Seat, **env: str) -> None:
        self._seat, self._env = seat, env

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "memory_anchor.front.engine"],
            cwd=self._seat.project,
            env=self._seat.env(**self._env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + WAIT_S
        while '"serving"' not in self._seat.shell("engine", "status", "--json").stdout:
            assert time.monotonic() < until
            time.sleep(0.1)
        return self._process

    def __exit__(self, *_: object) -> None:
        self._seat.end_engine()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(WAIT_S)


def talk(master: int, answers: list[Answer]) -> str:
    """Return the screen until the child closes it, having typed each answer once its prompt showed."""
    screen, seen, until = "", 0, time.monotonic() + WAIT_S
    while True:
        assert time.monotonic() < until, f"waited for {answers[:1]} after: {screen[-500:]}"
        ready, _, _ = select.select([master], [], [], 0.02 if answers else WAIT_S)
        if ready:
            try:
                got = os.read(master, 65536)
            except OSError:  # the child closed its side
                return screen
            if not got:
                return screen
            screen += got.decode("utf-8", "replace")
        if answers and answers[0][0] in screen[seen:]:
            hidden = len(answers[0]) == 2
            if hidden and termios.tcgetattr(master)[3] & termios.ECHO:
                continue
            seen = len(screen)
            os.write(master, (answers.pop(0)[1] + "\n").encode())
