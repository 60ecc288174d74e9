"""`config set NAME VALUE` changes one value of the user's own file and nothing else."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from memory_anchor.front.cli.app import app
from memory_anchor.front.cli.config import with_value

FILE = """\
# whose machine this is
profile: minimal   # five tools
budget:
  # tokens of a start
  facts: 1500
  events: 400

http:
    tokens: {abcdefgh: acc}
# the end
"""
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-9, 99),
    st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), max_size=12),
    st.lists(st.integers(0, 9), max_size=3),
)
FILES = st.dictionaries(NAMES, VALUES | st.dictionaries(NAMES, VALUES, min_size=1, max_size=3), max_size=4)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(tmp_path / "own" / "config.yaml"))
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "own" / "config.yaml"


def ran(*words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["config", *words, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_a_setting_is_written_and_shown_with_its_origin(file: Path) -> None:
    """Rule settings.set: the file is made where there is none, for its owner alone."""
    assert ran("set", "budget.facts", "1200")[0] == 0
    assert ran("set", "read_only", "true")[0] == 0

    rows = {row["name"]: row for row in ran()[1]["settings"]}
    assert (rows["budget.facts"]["value"], rows["budget.facts"]["origin"]) == (1200, str(file))
    assert rows["read_only"]["value"] is True
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in file.parent.iterdir()] == ["config.yaml"]


def test_a_folder_that_is_there_keeps_its_mode(file: Path) -> None:
    """Rule settings.set: the file may lie in a folder that others read too."""
    file.parent.mkdir()
    file.parent.chmod(0o755)

    assert ran("set", "profile", "full")[0] == 0

    assert file.parent.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("profile", "full", "profile: minimal   #", "profile: full   #"),
        ("budget.events", "90", "events: 400", "events: 90"),
        ("budget.identity", "90", "  events: 400\n", "  events: 400\n  identity: 90\n"),
        ("index.kind", "edge", "    tokens: {abcdefgh: acc}\n", "    tokens: {abcdefgh: acc}\nindex:\n  kind: edge\n"),
        ("http.host", "::1", "    tokens: {abcdefgh: acc}\n", "    tokens: {abcdefgh: acc}\n    host: ::1\n"),
    ],
)
def test_every_other_character_of_the_file_stays(name: str, value: str, before: str, after: str) -> None:
    """Rule settings.set: comments, blank lines and the user's own indent."""
    assert with_value(FILE, name, value) == FILE.replace(before, after)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("budget.fact", "9"), "unknown setting 'budget.fact' in {file}; known here: "),
        (("budget.facts", "many"), "setting 'budget.facts' in {file} is 'many'; "),
        (("budget", "9"), "budget is a group of settings; name one of them"),
        (("profile.x", "9"), "profile is not written as lines"),
        (("budget.facts",), "config set needs a name and a value, not 1 words"),
        (("index.api_key", "[hidden-no]"), "setting 'index.api_key' in {file} is (hidden)"),
    ],
)
def test_what_would_not_be_read_is_not_written(file: Path, words: tuple[str, ...], said: str) -> None:
    """Rule settings.set: one sentence, exit code 2, and the file as it was."""
    file.parent.mkdir()
    file.write_text(FILE)

    code, answer = ran("set", *words)

    assert code == 2
    assert said.format(file=file) in answer["message"]
    assert "hidden-no" not in answer["message"]
    assert file.read_text() == FILE


@given(before=FILES, group=NAMES, name=NAMES, value=VALUES)
def test_the_file_reads_as_before_but_for_the_one_value(
    before: dict[str, Any], group: str, name: str, value: Any
) -> None:
    """Rule settings.set, over files of any values."""
    text = yaml.safe_dump(before, allow_unicode=True, sort_keys=False) if before else ""
    inner = before.get(group, {})
    if not isinstance(inner, dict) or isinstance(inner.get(name), list):
        return
    after = with_value(text, f"{group}.{name}", json.dumps(value, ensure_ascii=False))

    assert yaml.safe_load(after) == {**before, group: {**inner, name: value}}


TEXTS = ("find #1 of", "query: ", "007", "on", "2024-13-45", "a: b", "'half", "x - y", "null", "~")


@pytest.mark.parametrize("value", TEXTS)
def test_a_text_is_kept_sign_by_sign(file: Path, value: str) -> None:
    """Rule settings.set: where text is wanted, it is none of the comment, mapping or number that YAML would read."""
    assert ran("set", "embedder.query_prompt", value)[0] == 0

    assert {row["name"]: row["value"] for row in ran()[1]["settings"]}["embedder.query_prompt"] == value


@pytest.mark.parametrize(
    ("before", "name", "value"),
    [
        ("embedder:\n  query_prompt: |\n    hello\n# keep me\n", "embedder.query_prompt", "hi"),
        ("agents:\n  claude: &c\n    enabled: true\n  codex: *c\n", "agents.codex.enabled", "false"),
        ("read_only: true\n", "read_only", "false"),
        ("budget: {facts: 1500}\n", "budget.facts", "1\n2"),
    ],
)
def test_what_cannot_be_changed_alone_is_left_to_the_human(file: Path, before: str, name: str, value: str) -> None:
    """Rule settings.set: a block, a name that two places share, a switch of safety, a value of two lines."""
    file.parent.mkdir()
    file.write_text(before)

    code, answer = ran("set", name, value)

    assert code in (2, 4) and answer["message"]
    assert file.read_text() == before


def test_a_link_to_the_file_stays_a_link(file: Path, tmp_path: Path) -> None:
    """Rule settings.set: dotfiles are kept elsewhere; a device is no settings file."""
    kept = tmp_path / "dotfiles.yaml"
    kept.write_text("profile: full\n")
    file.parent.mkdir()
    file.symlink_to(kept)

    assert ran("set", "read_only", "true")[0] == 0

    assert file.is_symlink() and kept.read_text() == "profile: full\nread_only: true\n"
    file.unlink()
    file.symlink_to(os.devnull)
    assert ran("set", "profile", "full")[0] == 2 and not Path(os.devnull).is_file()


def test_the_key_of_a_served_memory_is_in_no_error(file: Path) -> None:
    """Rule safety: whichever group a secret belongs to."""
    code, answer = ran("set", "remote.key", "[hiddenkey-123456]")

    assert code == 2 and "hiddenkey" not in answer["message"]


def test_two_writers_of_one_file_lose_nothing(file: Path) -> None:
    """Rule settings.set: six commands at once, one value each."""
    names = ("facts", "events", "identity", "operations", "question", "reserve")
    command = [sys.executable, "-m", "memory_anchor", "config", "set"]
    writers = [subprocess.Popen([*command, f"budget.{name}", str(300 + at)]) for at, name in enumerate(names)]

    assert [writer.wait(60) for writer in writers] == [0] * 6

    assert yaml.safe_load(file.read_text()) == {"budget": {name: 300 + at for at, name in enumerate(names)}}
