"""Evaluation: figures of answers, two ways compared, settings under test."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.evaluation import metrics
from memory_anchor.extensions.evaluation.golden import variant
from memory_anchor.extensions.evaluation.metrics import Answered


def test_an_unanswerable_question_is_right_only_when_nothing_comes() -> None:
    """Rule eval.unanswerable: an empty answer is found, five bad ones are not."""
    answers = [Answered("a", "penguins", frozenset(), (), 1.0), Answered("b", "penguins", frozenset(), ("x",), 1.0)]

    assert [answer.found for answer in answers] == [True, False]
    figures = metrics.figures(answers)
    assert figures["unanswerable"] == {"questions": 2, "empty": 1}
    assert figures["overall"] == {}


def figures_of(*results: tuple[str, int | None, bool]) -> dict:
    return {
        "overall": dict.fromkeys(metrics.COMPARED, 0.5),
        "results": [{"id": i, "query": f"query {i}", "rank": rank, "found": found} for i, rank, found in results],
        "ms": {"p50": 10.0},
        "answer_tokens": {"mean": 400.0},
    }


def test_a_comparison_names_the_questions_that_were_lost_and_found() -> None:
    """Rule eval.compare: question by question, because means hide a trade."""
    before = figures_of(("a", 1, True), ("b", None, False), ("c", 2, True), ("old", 1, True))
    after = figures_of(("a", None, False), ("b", 3, True), ("c", 1, True), ("new", 1, True))
    after |= {"overall": {**before["overall"], "R@5": 0.75}}
    changes = metrics.compared(before, after)

    assert [change["id"] for change in changes["lost"]] == ["a"]
    assert [(change["id"], change["was"], change["is"]) for change in changes["found"]] == [("b", None, 3)]
    assert changes["metrics"] == {"R@5": 0.25}


def test_settings_are_told_where_they_differ_and_never_a_secret() -> None:
    """Rule eval.settings: names and values that are not the default, keys and tokens left out."""
    changed = {
        "retrieval": {"priors": False, "lens": 0.0},
        "embedder": {"api_key": "s3cret"},
        "http": {"tokens": {"t": 1}},
    }
    usual = {"retrieval": {"priors": True, "lens": 0.0}, "embedder": {"api_key": ""}, "http": {"tokens": {}}}

    assert metrics.changed_settings(changed, usual) == {"retrieval.priors": False}


def test_a_variant_is_a_file_or_names_with_values(tmp_path: Path) -> None:
    """Rule eval.variant: dotted names, values read as YAML; a file with the same shape as every settings file."""
    given = variant("retrieval.priors=false,retrieval.weights.dense=0.7", {})
    file = tmp_path / "v.yaml"
    file.write_text("retrieval: {priors: false, weights: {dense: 0.7}}")

    assert not given.settings.retrieval.priors
    assert given.settings.retrieval.weights == {"dense": 0.7}
    assert variant(str(file), {}).settings == given.settings
    assert variant("as set", {}).settings.retrieval.priors


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("retrieval.wieghts=1", "unknown setting 'retrieval.wieghts'"),
        ("no-such-file.yaml", "cannot be read"),
        ("retrieval=1,retrieval.lens=0.5", "below a name"),
        ("=1", "has no value"),
    ],
)
def test_a_variant_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    """Rule eval.variant: a misspelt weight must not look like a setting without effect."""
    with pytest.raises(BadInput, match=says):
        variant(text, {})
