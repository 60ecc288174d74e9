"""The commands of sync: set up in one, exchanged, shown, and a purge that is signed for the other devices."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from devicekit import WORDS, Laptop, settled, texts_of
from typer.testing import Result

from memory_anchor.extensions.devices import commands as devices
from memory_anchor.front.backend import MemoryBackend
from memory_anchor.identity.keys import Signer
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
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
    assert [device["name"] for device in shared["devices"]] == ["laptop"] and shared["versions"] == 1

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


def test_a_git_repository_carries_memories_between_two_clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule sync.git: a real bare repository; fetched before, committed and pushed after; a hook of it never runs."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    bare, ran = tmp_path / "memories.git", tmp_path / "a hook ran"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(bare)], check=True)
    there = []
    for name in ("laptop", "desktop"):
        clone = tmp_path / f"clone {name}"
        subprocess.run(["git", "clone", "--quiet", str(bare), str(clone)], check=True, capture_output=True)
        for hook in ("pre-commit", "post-merge", "pre-push", "post-checkout"):
            script = clone / ".git" / "hooks" / hook
            script.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
            script.chmod(0o755)
        there.append(Laptop(tmp_path / name, ManualClock()))
        there[-1].join(clone, name, git=True) if name == "laptop" else None
    one, other = there
    one.anchor.save_memory("Deploys go through staging first.")
    assert one.sync().notes == []
    subprocess.run(["git", "-C", str(tmp_path / "clone desktop"), "pull", "--quiet"], check=True)
    ran.unlink(missing_ok=True)  # that pull was Git's own
    other.join(tmp_path / "clone desktop", "desktop", git=True)
    other.anchor.save_memory("The gate of the orchard is green.")
    settled([one, other])
    texts = {text for device in there for every in texts_of(device.core).values() for text in every}
    assert texts == {"Deploys go through staging first.", "The gate of the orchard is green."}
    assert texts_of(one.core) == texts_of(other.core) and not ran.exists()

    bare.rename(tmp_path / "away.git")
    one.anchor.save_memory("The lantern hangs in the barn.")
    notes = one.sync().notes
    assert any("Git could not" in note and "git pu" in note for note in notes) and all("\n" not in one for one in notes)
    (tmp_path / "away.git").rename(bare)
    settled([one, other])
    assert texts_of(one.core) == texts_of(other.core) and len(texts_of(other.core)) == 3
    for device in there:
        device.close()


def test_sync_is_queued_when_a_session_starts_and_when_it_ends(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule sync.automatic: by hooks of a session, behind, and never where sync is not set up."""
    monkeypatch.setattr("os.fsync", lambda _: None)
    backend, queued = MemoryBackend(core), []
    monkeypatch.setattr(core.scheduler, "queue", queued.append)
    caller = Preamble(project_dir=str(tmp_path), cwd=str(tmp_path), conversation="c1")
    backend.hook(caller, "SessionStart", {"source": "startup"})
    assert queued == []
    (tmp_path / "stick").mkdir()
    Laptop(tmp_path / "unused", ManualClock(), core=core).join(tmp_path / "stick", "laptop")
    for event in ("SessionStart", "UserPromptSubmit", "SessionEnd"):
        backend.hook(caller, event, {"source": "startup", "prompt": "how do deploys go?"})
    assert queued == ["sync", "sync"]
