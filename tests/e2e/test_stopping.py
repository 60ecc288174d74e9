"""Ctrl-C on a terminal: a long command says how far it is, stops with a word, and is run again without harm."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import crowd
import pytest
from human_seat import GOAL, Answer, Seat, begun_on, on_terminal

from memory_anchor.testing import PASSPHRASE, cheap_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
MANY = 3_000
CTRL_C = "\x03"


@pytest.fixture
def seat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Seat]:
    made = Seat(tmp_path / "seat", project="shop", goal="")
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(made.data))
    with cheap_keys():
        crowd.fill(made, MANY)
    yield made
    made.end_engine()


def interrupted(seat: Seat, *words: str, at: str) -> tuple[int, str]:
    """Run a command on a terminal and press Ctrl-C once it shows this; return its exit code and the screen."""
    command = [sys.executable, "-m", "memory_anchor", *words]
    code, screen = on_terminal(command, seat.project, seat.env(COLUMNS="100"), [(at, CTRL_C, True)], columns=100)
    assert "Traceback" not in screen
    return code, " ".join(screen.split())


def ids_in(file: Path) -> set[str]:
    return {json.loads(line)["id"] for line in file.read_text("utf-8").splitlines() if '"id"' in line}


def test_an_export_that_is_stopped_leaves_no_half_file_and_is_run_again(seat: Seat) -> None:
    """Rule stop: it says at which line it was; the file is whole or not there."""
    file = seat.root / "all.jsonl"
    code, screen = interrupted(seat, "export", str(file), at="export_lines 1")
    assert code == 130 and "stopped" in screen and "run the same command again" in screen
    assert list(seat.root.glob("*.jsonl*")) == [] and list(seat.root.glob(".all*")) == []

    again = seat.shell("export", str(file))
    assert again.returncode == 0, again.stderr
    assert len(ids_in(file)) == MANY


def test_an_import_that_is_stopped_says_how_far_it_is_and_goes_on_from_there(seat: Seat, tmp_path: Path) -> None:
    """Rule stop: what came in stays, and the second run passes over it; in the end all is there, once."""
    file = seat.root / "all.jsonl"
    assert seat.shell("export", str(file)).returncode == 0
    other = Seat(tmp_path / "other", project="shop", goal="")
    try:
        code, screen = interrupted(other, "import", str(file), "--project", "here", at="line ")
        assert code == 130 and "stopped" in screen and "run the same command again" in screen
        again = other.shell("import", str(file), "--project", "here")
        assert again.returncode == 0, again.stderr
        third = json.loads(other.shell("import", str(file), "--project", "here", "--json").stdout)
        assert (third["added"], third["written"], third["pending"], third["failed"]) == (0, 0, 0, 0)
    finally:
        other.end_engine()


def test_a_command_without_steps_stops_with_a_word_too(seat: Seat) -> None:
    """Rule stop: no traceback while it waits for an engine that does not answer."""
    assert seat.shell("engine", "start").returncode == 0
    assert seat.shell("stats").returncode == 0
    engine = json.loads(seat.shell("engine", "status", "--json").stdout)["pid"]
    os.kill(engine, signal.SIGSTOP)
    try:
        code, screen = interrupted(seat, "stats", at="working…")
    finally:
        os.kill(engine, signal.SIGCONT)
    assert code == 130 and "stopped" in screen


SIGNED = ("Passphrase", PASSPHRASE)
LONG = {
    "import": ((), r"line \d+", True),
    "export": ((), r"export_lines \d+", True),
    "reindex": ((), r"\d+ of \d+|working…", False),
    "backup create": ((), r"writing the backup…", True),
    "backup restore": ((SIGNED,), r"restored \d+", True),
    "purge": ((SIGNED,), r"erasing…", True),
    "doctor --salvage": ((), r"reading what the store still gives…", True),
    "adopt": ((), r"files \d+ of \d+", True),
    "knowledge add": ((), r"working…|\d+ of \d+ documents", False),
    "sync now": ((), r"exchanging with your other devices…", True),
}
"""Commands that take seconds on a large store: what is typed, what is seen meanwhile, and whether a stop names it.
`migrate` is stopped in tests/unit/test_moving.py: it needs a server."""


@pytest.mark.parametrize("name", LONG)
def test_a_long_command_shows_how_far_it_is_and_stops_with_a_word_that_is_true(seat: Seat, name: str) -> None:
    """Rule stop: a line that moves, a word at Ctrl-C, and the same command again ends well."""
    answers, sign, named = LONG[name]
    words = _prepared(seat, name)
    command, seen = [sys.executable, "-m", "memory_anchor", *words], re.compile(sign)
    code, screen = stopped(command, seat, answers, seen)
    assert seen.search(screen), screen[-600:]
    assert "Traceback" not in screen
    if code == 130:  # on a fast machine it had ended
        said = " ".join(screen.split())
        assert "run the same command again" in said if named else "stopped" in said, screen[-600:]
    code, screen = on_terminal(command, seat.project, seat.env(COLUMNS="100"), list(answers), columns=100)
    assert code == 0, screen[-600:]


def _prepared(seat: Seat, name: str) -> list[str]:
    """Return the words of a command, and put there what it works on."""
    kept = seat.root / "kept"
    if name in ("backup restore", "purge", "sync now"):
        (seat.project / "constitution.yaml").write_text(GOAL, "utf-8")
        seat.init()
    match name:
        case "import":
            assert seat.shell("export", str(kept)).returncode == 0
            seat.end_engine()
            shutil.rmtree(seat.data)
            return ["import", str(kept), "--project", "here"]
        case "export":
            return ["export", str(kept)]
        case "backup create":
            return ["backup", "create", str(seat.root)]
        case "backup restore":
            assert seat.shell("backup", "create", str(kept)).returncode == 0
            return ["backup", "restore", str(kept), "--force"]
        case "purge":
            return ["purge", "c0000001", "c0000003", "--yes"]
        case "doctor --salvage":
            seat.end_engine()
            return ["doctor", "--salvage"]
        case "adopt":
            talks = seat.root / "home" / ".claude" / "projects" / "-shop"
            talks.mkdir(parents=True)
            for number in range(400):
                line = {"type": "user", "sessionId": str(number), "timestamp": "2026-11-01T10:00:00Z", "cwd": "/shop"}
                line["message"] = {"role": "user", "content": f"Where does hall {number} keep its labels?"}
                (talks / f"{number}.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
            return ["adopt", "--yes"]
        case "knowledge add":
            (docs := seat.project / "docs").mkdir()
            for number in range(600):
                (docs / f"{number}.md").write_text(f"# Hall {number}\n\nIts door is {number}.\n", "utf-8")
            return ["knowledge", "add", str(docs)]
        case "sync now":
            kept.mkdir()
            secret = ("Sync passphrase", PASSPHRASE)
            code, screen = seat.human("sync", "setup", str(kept), answers=[SIGNED, secret, ("Once more", PASSPHRASE)])
            assert code == 0, screen
            for number in range(3):
                assert seat.shell("add", f"Lamp {number} is new", "--confidence", "0.95").returncode == 0
            return ["sync", "now"]
    return name.split()


def stopped(command: list[str], seat: Seat, answers: Sequence[Answer], seen: re.Pattern[str]) -> tuple[int, str]:
    """Run a command on a terminal, type the answers, and press Ctrl-C once this is seen; return code and screen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    child = begun_on(slave, command, seat.project, seat.env(COLUMNS="100"))
    os.close(slave)
    screen, left, until = "", list(answers), time.monotonic() + 120
    try:
        while time.monotonic() < until:
            if select.select([master], [], [], 0.02)[0]:
                try:
                    screen += os.read(master, 65536).decode("utf-8", "replace")
                except OSError:  # it has ended
                    break
            if left and left[0][0] in screen and not termios.tcgetattr(master)[3] & termios.ECHO:
                os.write(master, f"{left.pop(0)[1]}\n".encode())
            elif not left and seen.search(screen):
                seen = re.compile("(?!)")
                os.write(master, CTRL_C.encode())
        return child.wait(60), screen
    finally:
        os.close(master)
        if child.poll() is None:
            child.kill()
