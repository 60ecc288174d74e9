"""A question in one language finds memories in the other by words too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain.model import Actor
from memory_anchor.language import questions
from memory_anchor.language.questions import CONCEPTS_MAX, phrases_in_other_language
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, memory_store


@pytest.fixture
def core(tmp_path: Path) -> Core:
    """Return a memory that finds by words alone."""
    return build_core(Settings(), data_dir=tmp_path, clock=ManualClock(), store=memory_store(), embedder=None)


@pytest.mark.parametrize(
    ("question", "right", "others"),
    [
        (
            "订单的缓存多久过期？",
            "The cache of orders expires after nine minutes",
            ["Invoices are rendered at night", "Anna owns the billing service"],
        ),
        (
            "who approves a database migration?",
            "数据库迁移由老周批准",
            ["发票在夜里生成", "前端用两个空格缩进", "监控面板在走廊尽头的屏幕上"],
        ),
    ],
)
def test_a_question_finds_what_the_other_language_says_by_words_alone(
    core: Core, question: str, right: str, others: list[str]
) -> None:
    """Rule search.across: 缓存 meets "cache" without any embedding, and "migration" 迁移."""
    anchor = core.anchor(Actor())
    for text in (*others, right):
        anchor.save_memory(text)

    assert anchor.search(question).snippets[0].text == right


def test_a_statement_is_not_looked_up(core: Core) -> None:
    """Rule search.across: what somebody tells names more than it asks for; it answers by meaning as before."""
    anchor = core.anchor(Actor())
    saved = anchor.save_memory("The cache of orders expires after nine minutes")
    statement = anchor.why_not(saved.id, "我今天给订单加了缓存，用户觉得快多了。")
    question = anchor.why_not(saved.id, "订单的缓存多久过期？")

    assert "abroad" not in statement.get("signals", {})
    assert "abroad" in question["signals"]


def test_every_line_of_the_glossary_has_both_languages() -> None:
    """Rule search.across: a line that is cut or turned round would teach nothing, or wrong words."""
    lines = Path(questions.__file__).with_name("glossary.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" = ") for line in lines if line and not line.startswith("#")]

    assert all(len(pair) == 2 for pair in pairs)
    assert all(not han.isascii() and latin.isascii() for han, latin in pairs)


@given(st.text(max_size=200))
def test_any_text_is_looked_up_within_bounds(text: str) -> None:
    """Rule search.across: at most so many words, and each says something."""
    found = phrases_in_other_language(text)
    assert len(found) <= CONCEPTS_MAX
    assert all(phrase for phrases in found for phrase in phrases)
