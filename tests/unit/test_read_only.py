"""Read-only mode is read alike everywhere, and what says neither yes nor no never means "may write"."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memory_anchor.base.switches import OFF, ON
from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.service import http_access
from memory_anchor.front.cli.app import app
from memory_anchor.front.clients import hooks
from memory_anchor.runtime import wire
from memory_anchor.settings import load_settings

NAME = "MEMORY_ANCHOR_READ_ONLY"
ODD = ("", " ", "2", "yess", "enabled", "maybe", "null", "[]", "-1", "真")
SHAPES = ("{}: {}\n", "profile: full\n{}: {} # why\n", '"{}": "{}"\n', "  {}: {}\n", "{{profile: full, {}: {}}}\n")


def asked(env: dict[str, str], file: Path) -> bool | None:
    return wire.read_only_of({"MEMORY_ANCHOR_CONFIG_FILE": str(file), **env})


@pytest.mark.parametrize("word", [*sorted(ON | OFF), "TRUE", "Y", "Off", *ODD])
def test_every_word_means_the_same_to_bridge_and_settings(tmp_path: Path, word: str) -> None:
    """Rule read_only.words: one table; an unknown word is refused with what is allowed."""
    file = tmp_path / "config.yaml"
    if word in ODD:
        for read in (lambda: asked({NAME: word}, file), lambda: load_settings(env={NAME: word}, user_file=None)):
            with pytest.raises(
                (wire.InvalidSetting, BadInput), match=r"setting .read_only. in environment is.*allowed are"
            ):
                read()
    else:
        assert asked({NAME: word}, file) is (word.lower() in ON)
        assert load_settings(env={NAME: word}, user_file=None).settings.read_only is (word.lower() in ON)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("word", ["true", "yes", "On", "y", "1", "false", "n", "maybe", "2"])
def test_a_users_file_means_the_same_however_it_is_written(tmp_path: Path, shape: str, word: str) -> None:
    """Rule read_only.file: the bridge reads what the settings read, also where it is no plain line."""
    file = tmp_path / "config.yaml"
    file.write_text(shape.format("read_only", word))
    if word in ("maybe", "2"):
        with pytest.raises(wire.InvalidSetting, match="allowed are"):
            asked({}, file)
        return
    assert asked({}, file) is (True if load_settings(env={}, user_file=file).settings.read_only else None)


def test_the_file_as_it_is_now_holds_unless_the_environment_speaks(tmp_path: Path) -> None:
    """Rule settings.order: the environment wins; a file that is not there says nothing."""
    file = tmp_path / "config.yaml"
    assert asked({}, file) is None
    file.write_text("# read_only: true\nprofile: full\n")
    assert asked({}, file) is None
    file.write_text("read_only: true\n")
    assert asked({}, file) is True
    assert asked({NAME: "no"}, file) is False


@pytest.mark.parametrize("word", ["yess", ""])
def test_a_bridge_with_an_unknown_word_does_not_start(tmp_path: Path, word: str) -> None:
    """Rule read_only.words: one sentence on stderr, exit code 2, nothing on stdout."""
    env = {"HOME": str(tmp_path), "MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"), NAME: word}
    result = subprocess.run(
        [sys.executable, "-m", "memory_anchor", "mcp"], input="", env=env, capture_output=True, text=True, timeout=60
    )

    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "'read_only'" in result.stderr


def test_a_command_with_an_unknown_word_asks_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule read_only.words: exit code 2."""
    monkeypatch.setattr(wire, "ask", lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setenv(NAME, "maybe")

    result = CliRunner().invoke(app, ["list"])

    assert result.exit_code == 2
    assert "setting 'read_only' in environment is 'maybe'" in result.stderr


def test_a_hook_with_an_unknown_word_says_so_and_leaves_its_client_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Rule hook.harmless: without memory, exit code 0, and nothing is delivered."""
    monkeypatch.setattr(wire, "ask", lambda *_, **__: pytest.fail("asked"))
    (tmp_path / "typed").write_text(json.dumps({"session_id": "s"}))
    monkeypatch.setattr("sys.stdin", (tmp_path / "typed").open())
    monkeypatch.setenv(NAME, "maybe")

    assert hooks.main("Stop") == 0
    assert "allowed are" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "expected"), [("read_only: true\n", True), ("read_only: maybe\n", True), ("", None)])
def test_a_request_over_http_goes_by_the_file_as_it_is_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: bool | None
) -> None:
    """Rule read_only.file: and a file that says neither forbids writing."""
    (tmp_path / "config.yaml").write_text(text)
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(tmp_path / "config.yaml"))
    monkeypatch.delenv(NAME, raising=False)

    assert http_access._read_only_by_settings() is expected
