"""The commands of sync: set up in one, exchanged, shown, and a purge that is signed for the other devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from devicekit import WORDS, Laptop, texts_of
from typer.testing import Result

from memory_anchor.core import Core
from memory_anchor.front.cli import devices
from memory_anchor.identity.approval import Signer
from memory_anchor.testing import ManualClock

Run = Callable[..., Result]


def test_sync_is_set_up_shown_and_ended_by_commands(
    run: Run, core: Core, human: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule sync.commands: setup, now, status, purge and revoke, as a person types them."""
    folder = tmp_path / "Dropbox"
    folder.mkdir()
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(devices, "ask_hidden", lambda _: WORDS)
    monkeypatch.setattr("memory_anchor.front.cli.care.ask_human", lambda: human)
    monkeypatch.setattr(devices, "ask_human", lambda: human)
    assert "not set up here" in run("sync", "status").output
    assert "name a folder" in run("sync", "setup").output
    name = json.loads(run("add", "Deploys go through staging first.", "--json").output)["id"]

    done = run("sync", "setup", str(folder), "--name", "laptop", "--project", "default", "--all")
    assert done.exit_code == 0, done.output
    assert "laptop syncs" in done.output
    shared = json.loads(run("sync", "status", "--json").output)
    assert [one["name"] for one in shared["devices"]] == ["laptop"] and shared["versions"] == 1

    other = Laptop(tmp_path / "desktop", ManualClock(core.clock.now()))
    other.join(folder, "desktop", everything=True)
    other.sync()
    assert name in texts_of(other.core)
    assert run("sync", "now").exit_code == 0
    purged = run("purge", name, "--yes")
    assert purged.exit_code == 0, purged.output
    assert "go from your other devices too" in purged.output
    run("sync", "now")
    other.sync()
    assert name not in texts_of(other.core)

    gone = run("sync", "revoke", "desktop")
    assert gone.exit_code == 0, gone.output
    assert "counts no more" in gone.output
    assert "revoked" in run("sync", "status").output
    wrong = run("sync", "revoke", "desktop")
    assert wrong.exit_code == 3 and "no device 'desktop'" in wrong.output
    other.close()
