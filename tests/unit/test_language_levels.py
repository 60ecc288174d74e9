"""What few texts in a question's language have in common with it counts for none of them (knowledge)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory_anchor.domain.model import Actor
from memory_anchor.domain.ports import EmbedderIdentity
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.language.terms import is_chinese
from memory_anchor.recall.centring import Centring
from memory_anchor.testing import ephemeral_core

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix

WIDTH = 64
NEAR_OWN, NEAR_ANSWER = 0.5, 0.32
"""Cosine of the question with every page in its own language, and with the English page that answers it."""
QUESTION = "提示词超过窗口时先丢掉什么"
ANSWER = "A prompt larger than its window loses its oldest turns first."


def aside(seed: int) -> Matrix:
    """Return a direction of its own, at right angles to the first axis."""
    row = np.random.default_rng(seed).standard_normal(WIDTH).astype(np.float32)
    row[0] = 0
    return np.asarray(row / np.linalg.norm(row), dtype=np.float32)


def at(cosine: float, seed: int) -> Matrix:
    row = np.sqrt(1 - cosine**2) * aside(seed)
    row[0] = cosine
    return np.asarray(row, dtype=np.float32)


class Aimed:
    """The question is the first axis; pages lie at set cosines to it."""

    identity = EmbedderIdentity(model="aimed", dimensions=WIDTH, roles="none")

    def available(self) -> bool:
        return True

    def queries(self, texts: Sequence[str]) -> Matrix:
        return np.stack([at(1.0, 0) for _ in texts])

    def documents(self, texts: Sequence[str]) -> Matrix:
        return np.stack([at(self._near(text), sum(text.encode())) for text in texts])

    def _near(self, text: str) -> float:
        return NEAR_OWN if is_chinese(text) else NEAR_ANSWER if ANSWER in text else 0.0


def learned(english: int, chinese: int) -> Centring:
    centring = Centring(Aimed.identity)
    for script, count, cosine in ((0, english, 0.0), (1, chinese, NEAR_OWN)):
        if count:
            rows = np.stack([at(cosine, 1000 * script + seed) for seed in range(1, count + 1)])
            centring.learn(rows, np.full(count, script, dtype=np.int8))
    return centring


@pytest.mark.parametrize(("english", "chinese"), [(0, 5), (5, 5), (5, 40), (40, 0)])
def test_texts_of_a_language_that_holds_half_of_the_store_keep_what_they_have_in_common(
    english: int, chinese: int
) -> None:
    """Rule knowledge.level: a store in one language, or in two alike, is ranked as it was."""
    assert learned(english, chinese).level(at(1.0, 0), 1) == 0.0


def test_few_texts_in_a_language_are_levelled_by_how_few_and_how_near_they_are() -> None:
    """Rule knowledge.level: at most what they have in common; one text alone hardly, since it may be the answer."""
    five, one = learned(60, 5).level(at(1.0, 0), 1), learned(60, 1).level(at(1.0, 0), 1)
    assert 0 < one < five / 2 < five < NEAR_OWN
    assert abs(learned(60, 5).level(aside(7), 1)) < five / 2


def test_few_pages_in_the_question_s_language_do_not_take_the_answer_s_place(tmp_path: Path, project: Path) -> None:
    """Rule knowledge.level: five Chinese pages near to any Chinese question do not precede the English one that
    answers this."""
    docs = project / "docs"
    docs.mkdir()
    for number, topic in enumerate(("安装方法", "入门指南", "常见故障", "面板介绍", "同步设备")):
        (docs / f"zh{number}.md").write_text(f"{topic}。这一页讲的是{topic}，别无其他。\n", encoding="utf-8")
    for number in range(40):
        text = f"Chapter {number} tells of valves, pumps and pipes in the old harbour and nothing beyond."
        (docs / f"en{number}.md").write_text(f"{text}\n", encoding="utf-8")
    (docs / "answer.md").write_text(f"{ANSWER}\n", encoding="utf-8")
    core = ephemeral_core(tmp_path / "core", embedder=Aimed())
    try:
        anchor = core.anchor(Actor(project_dir=str(project)))
        knowledge_of(anchor).add(str(docs), "files")
        while knowledge_of(anchor).sync("", False)["left"]:
            pass
        while library_of(core.services).embed(64):
            pass
        found = [one.citations[0].ref for one in knowledge_of(anchor).search(QUESTION, limit=3)]
    finally:
        core.close()
    assert found[0] == "answer.md"
