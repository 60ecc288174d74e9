"""N2, A8 through the real command line: a person at a terminal, an agent's shell, a real store."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from human_seat import Seat

from memory_anchor.testing import PASSPHRASE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
TYPED = [("Passphrase", PASSPHRASE)]


def test_a_moved_folder_is_linked_merged_and_undone_by_a_human_alone(tmp_path: Path) -> None:
    """N2: `mv project project2` without Git hid all memories and no command brought them back."""
    seat = Seat(tmp_path)
    seat.init()
    seat.shell("add", "The password lives in the blue vault.")
    (listed,) = json.loads(seat.shell("projects", "list", "--json").stdout)["projects"]
    owner = listed["id"]
    moved = tmp_path / "project2"
    shutil.copytree(seat.project, moved)
    seat.project = moved
    seat.shell("add", "The new place has a note.")
    own = next(one for one in json.loads(seat.shell("projects", "list", "--json").stdout)["projects"] if one["here"])
    assert own["id"] != owner
    assert "vault" not in seat.shell("search", "where is the password").stdout

    assert seat.shell("projects", "link", owner).returncode == 4
    code, screen = seat.human("projects", "link", owner, answers=TYPED)
    assert code == 0, screen
    assert f"projects merge {own['id']} {owner}" in screen
    assert "vault" in seat.shell("search", "where is the password").stdout
    assert "new place" not in seat.shell("search", "what has the new place").stdout

    code, screen = seat.human("projects", "merge", own["id"], owner, answers=TYPED)
    assert code == 0, screen
    assert "new place" in seat.shell("search", "what has the new place").stdout
    code, screen = seat.human("projects", "merge", own["id"], "--undo", answers=TYPED)
    assert code == 0, screen
    assert "new place" not in seat.shell("search", "what has the new place").stdout
    assert "audit" in seat.shell("doctor", "--audit").stdout


def test_an_export_is_visible_in_a_fresh_folder_of_another_machine(tmp_path: Path) -> None:
    """N2: "68 added", 66 invisible."""
    first, second = Seat(tmp_path / "one"), Seat(tmp_path / "two")
    for number in range(3):
        first.shell("add", f"The vault of floor {number} is blue.")
    file = tmp_path / "all.jsonl"
    assert first.shell("export", str(file)).returncode == 0

    done = second.shell("import", str(file), "--json")

    answer = json.loads(done.stdout)
    assert (answer["added"], [place["here"] for place in answer["went"]]) == (3, [True]), done.stderr
    assert second.shell("search", "which vault is blue").stdout.count("vault") >= 3


def test_a_folder_that_claims_a_known_project_is_asked_about_once_on_a_terminal(tmp_path: Path) -> None:
    """Attack A8: a forged remote links nothing by itself; a pipe is told once, a human asked once, and may say yes."""
    seat = Seat(tmp_path)
    seat.init()
    seat.shell("add", "The password lives in the blue vault.")
    _repository(seat.project, "first")
    (listed,) = json.loads(seat.shell("projects", "list", "--json").stdout)["projects"]
    copies = [tmp_path / "no", tmp_path / "yes"]
    for folder in copies:
        folder.mkdir()
        _repository(folder, "evil")

    seat.project = copies[0]
    told = [seat.shell("list", "--json") for _ in range(2)]
    assert [f"projects link {listed['id']}" in one.stderr for one in told] == [True, False]
    assert [json.loads(one.stdout) for one in told] == [{"memories": []}] * 2
    code, screen = seat.human("list", answers=[("Link this folder to it now?", "n", True)])
    assert (code, "may be project" in screen) == (0, True), screen
    code, screen = seat.human("list")
    assert (code, "may be project" in screen) == (0, False), screen
    assert "vault" not in seat.shell("search", "where is the password").stdout

    seat.project = copies[1]
    code, screen = seat.human("list", answers=[("Link this folder to it now?", "y", True), *TYPED])
    assert (code, f"is project {listed['id']}" in screen) == (0, True), screen
    assert "vault" in seat.shell("search", "where is the password").stdout


def _repository(folder: Path, said: str) -> None:
    for words in (
        ["init", "-q"],
        ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "--allow-empty", "-m", said],
        ["remote", "add", "origin", "git@example.org:team/app.git"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
