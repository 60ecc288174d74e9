"""Rerankers: a second look that may be late, missing or wrong without costing the answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.adapters.rerankers import TimedReranker, language_model_scores, make_reranker
from memory_anchor.errors import BadInput, Unavailable
from memory_anchor.model import Layer, Memory, MemoryType, Scope
from memory_anchor.ports import ModelUsage
from memory_anchor.retrieval.assembling import Ranked
from memory_anchor.retrieval.reranking import reranked

AT = datetime(2025, 12, 15, tzinfo=UTC)


def ranked(*contents: str) -> list[Ranked]:
    return [
        Ranked(
            Memory(f"m{place}", content, Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), recorded_at=AT, valid_from=AT),
            score=0.5 - place / 100,
            place=place,
        )
        for place, content in enumerate(contents)
    ]


class Grader:
    """A language model that always fills in the same grades."""

    name = "grader"

    def __init__(self, *grades: float) -> None:
        self.grades = list(grades)
        self.prompts: list[str] = []

    def fill(self, shape: type[Any], *, system: str, prompt: str, deadline_s: float) -> tuple[Any, ModelUsage]:
        self.prompts.append(prompt)
        return shape(grades=self.grades), ModelUsage()


def test_a_reranker_may_put_another_memory_first() -> None:
    """Rule rerank: its scaled score is added, and shown in the signals."""
    reranker = TimedReranker("length", lambda _, texts: [float(len(text)) for text in texts])
    order, note = reranked(reranker, "query", ranked("short", "much longer text"), weight=0.5, deadline_s=0.5)
    assert [one.memory.id for one in order] == ["m1", "m0"]
    assert order[0].signals["rerank"]["added"] == 0.5
    assert note == ""


def test_a_late_reranker_changes_nothing_and_is_named() -> None:
    """Rule rerank.deadline: a search never waits longer; while the late call runs, the next is answered at once."""
    release = threading.Event()

    def slow(query: str, texts: Sequence[str]) -> list[float]:
        release.wait(10)
        return [0.0 for _ in texts]

    reranker = TimedReranker("slow", slow)
    try:
        assert reranker.scores("query", ["a"], deadline_s=0.01) is None
        order, note = reranked(reranker, "query", ranked("a", "b"), weight=0.5, deadline_s=0.01)
    finally:
        release.set()
    assert [one.memory.id for one in order] == ["m0", "m1"]
    assert "slow was not done" in note


def test_a_missing_model_is_said_and_survived(tmp_path: Path) -> None:
    """Rule rerank.consent: nothing is fetched; the note names the setting."""
    reranker = make_reranker("fastembed", path=str(tmp_path))
    assert reranker is not None
    order, note = reranked(reranker, "query", ranked("a", "b"), weight=0.5, deadline_s=0.5)
    assert len(order) == 2
    assert "reranker_path" in note


def test_a_language_model_grades_texts_as_data() -> None:
    """Rule rerank.llm: one grade a text, or the answer does not count."""
    grader = Grader(1.0, 9.0)
    assert language_model_scores(grader, deadline_s=1)("query", ["a", "b"]) == [1.0, 9.0]
    assert "<memory number=2>b</memory>" in grader.prompts[0]
    with pytest.raises(Unavailable, match="2 grades for 1"):
        language_model_scores(grader, deadline_s=1)("query", ["a"])


def test_an_unknown_reranker_names_what_is_allowed() -> None:
    """Rule settings.reranker: one sentence; `llm` needs a model."""
    assert make_reranker("none") is None
    with pytest.raises(BadInput, match="fastembed"):
        make_reranker("magic")
    with pytest.raises(BadInput, match=r"llm\.kind"):
        make_reranker("llm")
