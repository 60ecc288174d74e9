"""A server takes the data directory over from an engine, and from nobody else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.errors import StoreBusy
from memory_anchor.runtime import engine, wire
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.runtime.state_file import StateFile


class Holder:
    """An engine in this process, as others see it: it holds the lock and says so in the state file."""

    def __init__(self, data: Path) -> None:
        self.lock = DirectoryLock.acquire(data, role=engine.ROLE)
        self.state_file = StateFile(Path(wire.run_dir(str(data))), {"unix": "/nowhere"})
        self.state_file.publish("serving")

    def leave(self) -> None:
        self.state_file.remove()
        self.lock.release()


def test_an_engine_that_took_the_lock_in_the_gap_is_asked_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule serve.hand_over: until the bound, whoever gets the lock first."""
    holders = [Holder(tmp_path)]
    kinds: list[str] = []

    def ask(data: str, kind: str, preamble: wire.Preamble, *, timeout_s: float) -> dict[str, Any]:
        kinds.append(kind)
        if len(kinds) == 1:
            raise TimeoutError("it is still loading")
        holders.pop().leave()
        if len(kinds) == 2:
            holders.append(Holder(tmp_path))
        return {}

    monkeypatch.setattr(wire, "ask", ask)

    with engine.take_over_lock(tmp_path, wait_s=10) as lock:
        assert lock.held
    assert kinds == ["stop"] * 3


@pytest.mark.parametrize("role", ["command", "in-process server"])
def test_nothing_but_an_engine_is_asked_to_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """Rule serve.hand_over: a command finishes its work; who holds the directory is said at once."""
    monkeypatch.setattr(wire, "ask", lambda *_, **__: pytest.fail("it was asked"))
    wire.write_private(
        str(Path(wire.run_dir(str(tmp_path))) / wire.STATE_FILE), json.dumps({"pid": 1, "role": "engine"})
    )
    with (
        DirectoryLock.acquire(tmp_path, role=role),
        pytest.raises(StoreBusy, match=rf"pid {os.getpid()} \({role}, .*Let it finish"),
        engine.take_over_lock(tmp_path),
    ):
        pass


def test_a_server_does_not_take_over_from_a_server(tmp_path: Path) -> None:
    """Rule serve.hand_over: the address of the first one is in use; the sentence says how to end it."""
    told = rf"in use by pid {os.getpid()} \(HTTP server, .*address it printed.*memory-anchor engine stop"
    with engine.take_over_lock(tmp_path), pytest.raises(StoreBusy, match=told), engine.take_over_lock(tmp_path):
        pass
    with engine.take_over_lock(tmp_path) as lock:
        assert lock.held


def test_no_engine_starts_while_a_server_waits_for_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule serve.hand_over: bridges that lost theirs wait for the server, and start one again when it has gone."""
    holder = Holder(tmp_path)
    elected: list[object] = []

    def ask(*_: object, **__: object) -> dict[str, Any]:
        holder.leave()
        elected.append(engine.lock_for_engine(tmp_path))
        return {}

    monkeypatch.setattr(wire, "ask", ask)
    with engine.take_over_lock(tmp_path):
        assert elected == [None]
        assert engine.lock_for_engine(tmp_path) is None
    with engine.lock_for_engine(tmp_path) or pytest.fail("nobody holds it"):
        pass


def test_an_engine_that_does_not_leave_is_named_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule serve.hand_over: the wait is bounded, and the engine is asked once."""
    asked: list[str] = []
    monkeypatch.setattr(wire, "ask", lambda *given, **_: asked.append(given[1]) or {})
    holder = Holder(tmp_path)
    told = rf"pid {os.getpid()} \(engine, .*within 0.2 s.*memory-anchor engine stop"
    with pytest.raises(StoreBusy, match=told), engine.take_over_lock(tmp_path, wait_s=0.2):
        pass
    assert asked == ["stop"]
    holder.leave()


def test_a_copied_data_directory_never_leads_to_the_engine_of_the_original(tmp_path: Path) -> None:
    """Rule engine.own_folder: a copy, or a folder moved from under a new one, has no engine until it starts its own."""
    first, copy, moved, link = (tmp_path / name for name in ("first", "copy", "moved", "link"))
    first.mkdir()
    link.symlink_to(first)
    holder = Holder(first)
    shutil.copytree(first, copy)

    assert (wire.read_state(str(first)) or {}).get("pid") == os.getpid()
    assert wire.read_state(str(link)) == wire.read_state(str(first))
    assert wire.read_state(str(copy)) is None
    with pytest.raises(ConnectionRefusedError):
        wire.connect(str(copy))
    assert not engine.stop(copy, wait_s=1)

    holder.lock.release()
    first.rename(moved)
    assert (wire.read_state(str(moved)) or {}).get("pid") == os.getpid()
    first.mkdir()
    assert wire.read_state(str(moved)) is None
