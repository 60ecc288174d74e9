"""An engine that listens and says nothing: every command ends within a bound, with one sentence and the cure."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memory_anchor.front.cli.app import app
from memory_anchor.runtime import engine, wire

SHORT_S = 0.2


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory whose state file names a socket that the kernel accepts for and nobody reads."""
    data = tmp_path / "data"
    run = Path(wire.run_dir(str(data)))
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(data))
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.setattr(wire, "SILENCE_S", SHORT_S)
    monkeypatch.setattr(engine.status, "__kwdefaults__", {"timeout_s": SHORT_S})
    monkeypatch.setattr(engine.stop, "__kwdefaults__", {"wait_s": SHORT_S})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        state = {
            "pid": 999_999_999,
            "version": wire.VERSION,
            "state": "serving",
            "address": {"unix": str(tmp_path / "s")},
        }
        (run / wire.STATE_FILE).write_text(json.dumps(state))
        yield data


@pytest.mark.parametrize("words", [("search", "the ferry"), ("engine", "status"), ("list",), ("export", "-")])
def test_a_command_ends_with_the_cure(silent: Path, words: tuple[str, ...]) -> None:
    """Attack N6: exit 5, one sentence that names the engine and what ends it."""
    result = CliRunner().invoke(app, list(words))

    assert result.exit_code == 5
    assert "does not answer" in result.stderr and "memory-anchor engine stop" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_doctor_names_the_engine_and_not_the_store(silent: Path) -> None:
    """Attack N6: the cause is the engine, the cure ends it, and nothing advises a restore."""
    result = CliRunner().invoke(app, ["doctor", "--json"])

    wrong = {check["name"]: check for check in json.loads(result.stdout)["checks"] if check["state"] == "failed"}
    assert (result.exit_code, list(wrong)) == (5, ["engine"])
    assert wrong["engine"]["fix"] == "memory-anchor engine stop"


def test_stop_kills_nobody_who_does_not_hold_the_directory(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack N6: a number in a file is no proof that its process is an engine."""
    state = wire.read_state(str(silent)) or {}
    (silent / "run" / wire.STATE_FILE).write_text(json.dumps({**state, "pid": os.getppid()}))
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))

    engine.stop(silent, wait_s=SHORT_S)

    assert killed == []
