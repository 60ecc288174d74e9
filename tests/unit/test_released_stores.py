"""A store that a release left opens with everything as it was: ids, texts, history, receipts, search, approvals.

`tests/stores/VERSION.tar.xz` is what that release wrote, `VERSION.json` what it exported, found and served itself
(`tests/stores/make_store.py`). A release adds its own two files; none is ever made anew.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from archives import unpack
from typer.testing import CliRunner, Result

from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.passphrase import identity
from memory_anchor.process.app import build_core, settings_of
from memory_anchor.runtime.lock import DirectoryLock

STORES = Path(__file__).resolve().parents[1] / "stores"
sys.path.insert(0, str(STORES))

from make_store import answered  # noqa: E402 - a script beside the stores

RELEASES = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))
PASSPHRASE = "lighthouse keeper 37 灯塔"
MAX_BYTES = 1_000_000
Run = Callable[..., Result]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the release wrote down about its store, which is unpacked where commands of this test look."""
    archive = STORES / f"{request.param}.tar.xz"
    assert archive.stat().st_size < MAX_BYTES
    unpack(archive, tmp_path)
    for folder, _, _ in os.walk(tmp_path / "data"):
        Path(folder).chmod(0o700)
    monkeypatch.setenv("MEMORY_ANCHOR_PROJECT_DIR", str(tmp_path / "project"))
    monkeypatch.setenv("MEMORY_ANCHOR_SCOPE__PROJECT", "lighthouse")
    monkeypatch.chdir(tmp_path / "project")
    loaded: dict[str, Any] = json.loads(archive.with_name(f"{request.param}.json").read_text("utf-8"))
    return {**loaded, "lines": [line for line in loaded["lines"] if "kind" not in line]}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def memories() -> list[dict[str, Any]]:
    result = run("export", "-", "--versions")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [line for line in lines if "content" in line and "kind" not in line]


def differing(was: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[str]:
    """Return the fields that a version had and has otherwise now.

    Left out: usage, which the searches moved on, and the event before an event, which an agent's export does not hold.
    """
    after = {(one.get("id"), one.get("version")): one for one in now}
    return [
        f"{one.get('id')}@{one.get('version')}.{name}"
        for one in was
        for name, value in one.items()
        if name not in ("usage", "context") and after.get((one.get("id"), one.get("version")), {}).get(name) != value
    ]


def test_a_store_of_each_release_opens_with_everything_as_it_was(release: dict[str, Any]) -> None:
    """Attack N4: every version, its fields and receipts; the searches find first what they found first."""
    now = memories()

    assert len(now) == len(release["lines"]) > 0
    assert differing(release["lines"], now) == []
    for query in list(release["found"])[:2]:
        snippets = json.loads(run("search", query, "--json").stdout)["snippets"]
        assert snippets[0]["id"] == release["found"][query][0], query


def test_what_humans_approved_in_each_release_is_still_in_force(release: dict[str, Any]) -> None:
    """Attack N4: the approved entries are served as they were, and the same passphrase is the human's."""
    schema = identity()
    wanted = {(one["id"], one["content"]) for one in release["constitution"]["entries"]}

    assert schema.initialised
    assert {(one.id, one.content) for one in schema.load().entries} == wanted
    assert schema.verify_passphrase(PASSPHRASE)
    assert not schema.verify_passphrase("another one entirely")
    waiting = [one.id for one in schema.proposals() if one.status.value == "open"]
    assert waiting == [release["ids"]["proposals"][1]]


def test_a_request_that_a_release_answered_gets_that_answer_again(release: dict[str, Any], tmp_path: Path) -> None:
    """Attack N4: each is known again by what was asked, whatever has become of it since; nothing new is stored."""
    if not release.get("resent"):
        pytest.skip("this release kept no list of what was asked")
    before = memories()
    data = tmp_path / "data"
    with (
        DirectoryLock.acquire(data, role="test") as lock,
        closing(build_core(settings_of(os.environ), data_dir=data, lock=lock)) as core,
    ):
        for call in release["resent"]:
            if call["name"] != "set_active_context":  # L1 did not outlive that process
                assert answered(core, call) == call, call["name"]

    assert {(one["id"], one["version"]) for one in memories()} == {(one["id"], one["version"]) for one in before}


@pytest.mark.slow
def test_after_reindex_and_backup_it_is_still_the_same(release: dict[str, Any], tmp_path: Path) -> None:
    """Attack N4: what rewrites a store of a release changes nothing of it."""
    assert run("reindex").exit_code == 0
    made = json.loads(run("backup", "create", str(tmp_path), "--json").stdout)
    assert run("backup", "restore", made["file"], "--force").exit_code in (0, 4)  # 4: it asks for the passphrase
    assert differing(release["lines"], memories()) == []
    for query, ids in release["found"].items():
        assert json.loads(run("search", query, "--json").stdout)["snippets"][0]["id"] == ids[0]
    for line in release["lines"]:
        if line.get("version") == 2:
            versions = sum(other["id"] == line["id"] for other in release["lines"])
            assert len(json.loads(run("history", line["id"], "--json").stdout)["versions"]) == versions
    assert run("doctor", "--audit", "--json").exit_code == 0
