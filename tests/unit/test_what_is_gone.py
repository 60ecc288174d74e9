"""What earlier versions had: whoever names it is told in one sentence what serves instead."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from memory_anchor.front import gone
from memory_anchor.front.cli.app import app

CALLS = [[*words, *([option, "http://127.0.0.1:9"] if option else ["--list"])] for words, option, _ in gone.COMMANDS]


@pytest.mark.parametrize(("line", "sentence"), list(zip(CALLS, (entry[2] for entry in gone.COMMANDS), strict=True)))
def test_a_command_that_is_gone_is_answered_by_one_sentence(line: list[str], sentence: str) -> None:
    """Rule: it says what to do instead, in text and in JSON, and fails as any usage error."""
    said = CliRunner().invoke(app, line)
    assert said.exit_code == 2 and sentence.split(":")[0] in " ".join(said.output.replace("│", "").split()), said.output
    as_json = CliRunner().invoke(app, [*line, "--json"])
    assert as_json.exit_code == 2 and json.loads(as_json.stdout)["message"] == sentence


def test_a_command_that_was_never_there_is_not_called_gone() -> None:
    """Rule: an unknown word stays an unknown word."""
    assert not gone.about_command(["constitution", "revise"]) and not gone.about_path("/v1/memory/x")


def test_every_path_that_is_gone_says_so() -> None:
    """Rule: by the beginning of the path."""
    assert all(gone.about_path(path + "x") == sentence for path, sentence in gone.PATHS)
