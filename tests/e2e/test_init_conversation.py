"""`init` as a person meets it: a few questions on a terminal, each with a flag, and nothing changed a second time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from human_seat import Seat

from memory_anchor.runtime import wire
from memory_anchor.testing import PASSPHRASE

NEW = [("New passphrase", PASSPHRASE), ("Once more", PASSPHRASE)]


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    """A newcomer's: a repository with one commit, two clients on the machine, nothing of ours yet."""
    seat = Seat(tmp_path, goal="")
    for folder in (".claude", ".cursor"):
        (tmp_path / "home" / folder).mkdir()
    (seat.project / "boiler.txt").write_text("21 degrees")
    git = ["git", "-C", str(seat.project), "-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Boiler: hold 21 degrees, orchids die below"]):
        subprocess.run([*git, *words], check=True)
    return seat


def files(seat: Seat) -> dict[str, bytes]:
    """Return every file that init writes beside the key and the store."""
    places = [seat.project, seat.root / "home", seat.root / ".config"]
    found = [file for place in places for file in place.rglob("*") if file.is_file() and ".git/" not in str(file)]
    return {str(file.relative_to(seat.root)): file.read_bytes() for file in found}


@pytest.mark.slow
def test_a_newcomer_answers_four_questions_and_a_second_run_changes_nothing(seat: Seat) -> None:
    """Rule init.conversation: goal, clients, capture, history, then the passphrase; history is a human's by it."""
    asked = [
        ("What is this project for", "Keep the greenhouse warm", True),
        ("Connect them", "claude-code emacs", True),
        ("Connect them", "claude-code", True),
        ("worth keeping", "n", True),
        ("commits decided", "y", True),
        *NEW,
    ]
    code, screen = seat.human("init", "--approver", "alice", answers=asked, asks_all=True)
    assert code == 0, screen
    assert "'emacs' was not found here" in screen
    served = json.loads(seat.shell("constitution", "show", "--json").stdout)["entries"]
    assert [entry["content"] for entry in served] == ["Keep the greenhouse warm"]
    assert "memory-anchor" in json.loads((seat.root / "home" / ".claude.json").read_text())["mcpServers"]
    assert not (seat.root / "home" / ".cursor" / "mcp.json").exists()
    (config,) = (seat.root / ".config").rglob("config.yaml")
    assert config.read_text() == "agents:\n  claude-code:\n    enabled: false\n"
    (source,) = json.loads(seat.shell("knowledge", "list", "--json").stdout)["sources"]
    assert (source["kind"], source["trust"], source["documents"]) == ("git_history", "semi_trusted", 1)
    assert "(semi_trusted), commits that decide something: 1" in " ".join(screen.split())

    before = files(seat)
    code, screen = seat.human("init", answers=[("Old passphrase", PASSPHRASE), ("New passphrase", "")])
    assert code == 0 and "?" not in screen, screen
    again = seat.human("init", "--yes", "--client", "none")
    assert again[0] == 0 and "assphrase" not in again[1], again
    assert files(seat) == before


@pytest.mark.slow
def test_without_a_terminal_one_sentence_names_the_flag_of_each_question(seat: Seat) -> None:
    """Rule init.conversation: an agent makes no key and approves nothing; --yes does what needs neither."""
    refused = seat.shell("init")
    assert refused.returncode == 4
    assert len(refused.stderr.strip().splitlines()) == 1
    for flag in ("--goal TEXT", "--client NAME", "--capture or --no-capture", "--history or --no-history", "--yes"):
        assert flag in refused.stderr
    assert "home/.claude.json" not in files(seat)

    done = seat.shell("init", "--yes", "--goal", "Keep it warm", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["initialised"], answer["fingerprint"]) == (0, False, None)
    assert (set(answer["clients"]), answer["capture"], answer["history"]["trust"], answer["history"]["commits"]) == (
        {"claude-code", "cursor"},
        True,
        "untrusted",
        1,
    )
    assert json.loads(seat.shell("constitution", "show", "--json").stdout)["entries"] == []
    assert re.search(r"no key was made: run `memory-anchor init` on a terminal", seat.shell("init", "--yes").stdout)
    before = files(seat)
    assert seat.shell("init", "--yes").returncode == 0
    assert files(seat) == before


@pytest.mark.slow
def test_what_cannot_be_done_is_said_and_the_rest_is(seat: Seat) -> None:
    """Rule init.conversation: a client's file that is broken, a wish that the user's file speaks of already."""
    (seat.root / "home" / ".cursor" / "mcp.json").write_text("{ not json")
    config = seat.root / ".config" / "memory-anchor" / "config.yaml"
    config.parent.mkdir()
    config.write_text("# mine\nagents:\n  codex:\n    collection: ops\n")

    done = seat.shell("init", "--yes", "--no-history")
    assert done.returncode == 2
    assert ".cursor/mcp.json" in done.stderr and "set agents.claude-code.enabled to true there yourself" in done.stderr
    assert (seat.root / "home" / ".claude.json").exists()
    assert config.read_text() == "# mine\nagents:\n  codex:\n    collection: ops\n"
    assert "allowed are claude-code, codex" in seat.shell("init", "--yes", "--client", "emacs").stderr


def test_where_no_project_is_the_text_is_the_memory_s_own_and_is_in_force(tmp_path: Path) -> None:
    """Rule init.conversation: a server's folder (home, or the root of a container) gets no files, and has a text."""
    seat = Seat(tmp_path, project="home", goal="")
    code, screen = seat.human(
        "init", "--approver", "alice", answers=[("What is this project for", "Keep the greenhouse warm", True), *NEW]
    )

    assert code == 0, screen
    served = json.loads(seat.shell("constitution", "show", "--json").stdout)["entries"]
    assert [entry["content"] for entry in served] == ["Keep the greenhouse warm"]
    assert files(seat) == {}


def by_uvx(tmp_path: Path, last: str) -> dict[str, str]:
    """Return the environment of what uvx runs. last: what the stand-in for uv does when it is to install a tool."""
    cache, code, uv = tmp_path / "cache", tmp_path / "code", tmp_path / "uv"
    for folder in (cache / "archive", code, tmp_path / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
    (cache / "CACHEDIR.TAG").touch()
    (code / "sitecustomize.py").write_text(f"import sys\nsys.prefix = {str(cache / 'archive')!r}\n", encoding="utf-8")
    uv.write_text(f'#!/bin/sh\n[ "$2" = dir ] && echo {tmp_path}/bin && exit 0\n{last}\n', encoding="utf-8")
    uv.chmod(0o755)
    return {"UV": str(uv), "PYTHONPATH": f"{code}:{Path(wire.__file__).parents[2]}"}


@pytest.mark.skipif(sys.platform == "win32", reason="its stand-in for uv is a shell script")
def test_what_uvx_runs_stays_whichever_clients_are_chosen(tmp_path: Path) -> None:
    """Rule install.stays: with no client too; and a file that was made elsewhere is named with its folder."""
    seat = Seat(tmp_path, project="home", goal="")
    uv = by_uvx(tmp_path, f'echo "$@" >> {tmp_path}/asked')

    done = seat.shell("init", "--yes", "--client", "none", "--goal", "Keep it warm", **uv)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text().startswith("tool install ")
    (made,) = seat.data.rglob("constitution.yaml")
    assert f"made {made}\n" in done.stdout and f"installed as {tmp_path}/bin/memory-anchor" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="its stand-in for uv is a shell script")
def test_a_command_that_another_installer_left_is_used_where_it_is_this_version(tmp_path: Path) -> None:
    """Rule install.stays: pipx and uv share a folder; another version's file ends it before anything is written."""
    seat = Seat(tmp_path, project="home", goal="")
    uv = by_uvx(tmp_path, "echo Executable already exists: memory-anchor >&2; exit 2")
    other = tmp_path / "bin" / "memory-anchor"
    other.write_text("#!/bin/sh\necho memory-anchor 0.0.1\n", encoding="utf-8")
    other.chmod(0o755)
    words = ("init", "--yes", "--client", "none", "--goal", "Keep it warm")

    done = seat.shell(*words, **uv)

    assert done.returncode == 4 and "(Executable already exists: memory-anchor); nothing was changed" in done.stderr
    assert re.search(rf"uninstall what brought {other}, or run `uv tool install .+ --force .+`", done.stderr)
    assert not list(seat.data.rglob("constitution.yaml")) and not list(seat.data.rglob("*.key"))
    other.write_text(f"#!/bin/sh\necho memory-anchor {wire.VERSION}\n", encoding="utf-8")
    done = seat.shell(*words, **uv)
    assert done.returncode == 0 and f"installed as {other}" in done.stdout


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="snaps are of Linux")
def test_in_a_terminal_of_a_snap_the_memory_is_begun_in_the_usual_folder(tmp_path: Path) -> None:
    """Rule install.stays: and one sentence says so; what commands there use next is the same memory."""
    seat = Seat(tmp_path, project="home", goal="")
    snap = tmp_path / "home" / "snap" / "code" / "185" / ".local" / "share"
    env = {"XDG_DATA_HOME": str(snap), "MEMORY_ANCHOR_DATA_DIR": ""}

    done = seat.shell("init", "--yes", "--client", "none", "--goal", "Keep it warm", **env)

    assert done.returncode == 0 and "XDG_DATA_HOME: folders that go with a snap's revision" in done.stdout
    assert (tmp_path / "home" / ".local" / "share" / "memory-anchor").is_dir() and not snap.exists()
    seat.shell("engine", "stop", **env)
