"""`memory-anchor eval --capture`: what is kept of the bundled sessions and of one's own transcripts, under variants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memory_anchor.evaluation import runner
from memory_anchor.front.cli.app import app
from memory_anchor.settings import Settings

WORDS_ALONE = Settings.model_validate({"embedder": {"kind": "none"}})
TALK = [
    {"role": "user", "content": "We decided to use PostgreSQL 16 for the billing service because of replication."},
    {"role": "assistant", "content": "Good morning!"},
]


def test_a_bundled_session_is_scored_by_what_a_careful_reader_keeps() -> None:
    """Rule eval.capture: both languages are bundled; recall, precision and type, and what was missed by name."""
    found = runner.sessions()
    assert {one.language for one in found} == {"en", "zh"}
    assert min(len(one.messages) for one in found) >= 50

    report = runner.run_capture(found[:1], WORDS_ALONE, None, say=lambda _: None)

    row, (told,) = report["by_language"]["all"], report["sessions"]
    assert row["wanted"] == row["found"] + len(told["missed"])
    assert row["kept"] == row["right"] + len(told["too_much"])
    assert 0 < row["recall"] < 1


def test_held_back_sessions_are_told_by_their_number() -> None:
    """Rule eval.capture.held: sessions 2x and 5x train nothing, there is about as much to find in both languages."""
    held = runner.sessions("held")
    others = runner.sessions("dev") + runner.sessions("test")

    assert {one.name[0] for one in held} == set(runner.HELD_OUT_PREFIXES)
    assert not {one.name[0] for one in others} & set(runner.HELD_OUT_PREFIXES)
    assert len(held) + len(others) == len(runner.sessions())
    last = [sum(len(one.wanted) for one in held if one.name[0] == "5" and one.language == of) for of in ("en", "zh")]
    assert abs(last[0] - last[1]) <= 0.1 * min(last)


def test_what_a_session_replaced_counts_as_wrong() -> None:
    """Rule eval.capture: precision is of what holds at the end."""
    wanted = [runner.WantedItem("rule", "the port is 8080", ("8080",), 0, replaced=True)]
    item = runner.nearest("The port is 8080.", wanted)
    assert item is not None
    assert item.replaced
    assert not runner.says_item(runner.WantedItem("rule", "the port is 9090", ("9090",), 0), "The port is 8080.")


def test_the_command_tells_of_ones_own_transcript_what_each_variant_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule eval.capture: own transcripts, two write settings side by side, and nothing is stored."""
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MEMORY_ANCHOR_CONFIG_FILE", str(tmp_path / "none.yaml"))
    file = tmp_path / "talk.json"
    file.write_text(json.dumps(TALK), encoding="utf-8")
    variants = ["--variant", "embedder.kind=none", "--variant", "embedder.kind=none,gate.pending=0.9,gate.active=0.95"]

    done = CliRunner().invoke(app, ["eval", "--capture", "--transcript", str(file), *variants, "--json"])

    assert done.exit_code == 0, done.output
    open_gate, strict = json.loads(done.stdout)["runs"]
    (kept,) = open_gate["transcripts"]
    assert any("PostgreSQL 16" in one["content"] for one in kept["memories"])
    assert strict["transcripts"][0]["kept"] <= kept["kept"]
    assert not list((tmp_path / "data").glob("**/segments"))
    wrong = CliRunner().invoke(app, ["eval", "--transcript", str(file)])
    assert wrong.exit_code == 2
