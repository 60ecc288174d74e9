"""Ctrl-C on a terminal: a long command says how far it is, stops with a word, and is run again without harm."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import crowd
import pytest
from human_seat import Seat, on_terminal

from memory_anchor.testing import cheap_keys

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
