"""Keeping memories while an engine serves: commands share it, and a killed import is completed by the next one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from homes import COMMAND, EngineHome

from memory_anchor.runtime import wire

pytestmark = pytest.mark.slow

MANY = 1_500


@pytest.fixture
def home(tmp_path: Path) -> Iterator[EngineHome]:
    made = EngineHome(tmp_path)
    yield made
    made.close()


def lines_of(many: int) -> list[str]:
    """Return exported lines of events without a store having made them."""
    from datetime import UTC, datetime

    from memory_anchor.adapters.payload import to_payload
    from memory_anchor.base.hashing import content_hash
    from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope

    at = datetime(2026, 1, 1, tzinfo=UTC)
    found = []
    for number in range(many):
        text = f"Delivery {number} arrived at gate {number % 7}"
        memory = Memory(
            f"m{number:06d}",
            text,
            Layer.EVENT_LOG,
            MemoryType.EVENT,
            Scope(),
            at,
            at,
            when=at,
            content_hash=content_hash(text),
            author="agent:a",
        )
        found.append(json.dumps(to_payload(memory)))
    return found


def test_an_engine_serves_while_memories_are_exported_backed_up_reindexed_and_examined(home: EngineHome) -> None:
    """Rule engine.shared: every one of these goes through the engine that holds the lock, which then still serves."""
    pid = home.serve()
    added = home.run("add", "The release is cut on Thursdays", "--json")
    memory_id = json.loads(added.stdout)["id"]

    exported = home.run("export", "-")
    backed = home.run("backup", "create", str(home.folder), "--json")
    reindexed = home.run("reindex", "--json")
    examined = home.run("doctor", "--audit", "--json")

    assert [json.loads(line)["id"] for line in exported.stdout.splitlines()] == [memory_id]
    assert backed.returncode == 0, backed.stderr
    assert reindexed.returncode == 0, reindexed.stderr
    assert examined.returncode == 0, examined.stdout
    checks = {check["name"]: check for check in json.loads(examined.stdout)["checks"]}
    assert str(pid) in checks["engine"]["finding"]
    assert (wire.read_state(str(home.data)) or {})["pid"] == pid
    assert home.run("export", "-").stdout == exported.stdout
    other = home.folder / "other"
    restored = home.run("backup", "restore", json.loads(backed.stdout)["file"], data=other)
    assert restored.returncode == 0, restored.stderr
    assert home.run("export", "-", data=other).stdout == exported.stdout


def test_an_import_that_is_killed_is_completed_by_running_it_again(home: EngineHome) -> None:
    """Rule import.kill: kill -9 of the command or of the engine in the middle; then once more, nothing twice."""
    file = home.folder / "many.jsonl"
    file.write_text("\n".join(lines_of(MANY)) + "\n")
    home.env["MEMORY_ANCHOR_SCOPE__PROJECT"] = "default"  # an agent brings in lines of its own project alone
    command = subprocess.Popen([*COMMAND, "import", str(file)], env=home.env, cwd=home.folder, stderr=subprocess.PIPE)
    assert command.stderr is not None
    command.stderr.readline()  # the first progress: a thousand lines are in
    command.kill()
    command.wait()

    pid = home.serve()
    again = subprocess.Popen([*COMMAND, "import", str(file)], env=home.env, cwd=home.folder, stderr=subprocess.PIPE)
    assert again.stderr is not None
    again.stderr.readline()
    os.kill(pid, 9)
    again.wait()
    done = home.run("import", str(file), "--json")

    checks = json.loads(done.stdout)
    assert (checks["added"] + checks["skipped"], checks["failed"]) == (MANY, 0)
    assert checks["skipped"] >= 1_000
    found = [json.loads(line)["id"] for line in home.run("export", "-").stdout.splitlines()]
    ids = [name for name in found if name.startswith("m0")]  # the engine's own jobs may have told a story of them
    assert len(ids) == len(set(ids)) == MANY
    assert json.loads(home.run("doctor", "--audit", "--json").stdout)["ok"]
