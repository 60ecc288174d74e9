"""Token counts that budgets rest on: real BPE, and the estimate used without it."""

from __future__ import annotations

import inspect
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.text import tokens
from memory_anchor.text.tokens import count_tokens, cut_to_tokens, estimate_tokens

ENGLISH = (
    "Memory Anchor keeps what an agent learned outside the context window. Facts that were verified stay for ever, "
    "events fade after the days they were given, and the identity of a project is always loaded in full. When the "
    "session ends, the working notes become one event; a human confirms three times before anything reaches the top. "
) * 3
CHINESE = (
    "记忆锚点把智能体学到的东西放在上下文窗口之外。经过验证的事实永久保留，事件在给定的天数之后归档，"
    "项目的身份信息每次会话都会完整加载。会话结束时，工作笔记会变成一个事件；任何内容要进入最高层，都必须由人确认三次。"
    "检索同时使用语义和关键词，结果附带引用来源，没有相关内容时返回空列表。"
) * 3


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, inspect.getsource(json)], ids=["english", "chinese", "code"])
def test_the_estimate_is_within_ten_percent_of_the_tokenizer(text: str) -> None:
    """Rule budget.estimate: without the tokenizer, counts stay within 10 % on Chinese, English and code."""
    assert estimate_tokens(text) == pytest.approx(count_tokens(text), rel=0.10)


def test_counts_come_from_the_o200k_vocabulary() -> None:
    """Rule budget.tokens: real BPE where it is installed."""
    assert count_tokens("hello world") == 2
    assert count_tokens("") == 0


def test_without_the_tokenizer_counting_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule budget.fallback: a missing package costs precision, never an error."""
    monkeypatch.setattr(tokens, "_tokenizer", lambda: None)
    assert count_tokens(ENGLISH) == estimate_tokens(ENGLISH)
    assert 0 < count_tokens(cut_to_tokens(CHINESE, 50)) <= 50


@settings(max_examples=60)
@given(st.text(max_size=200), st.integers(0, 40))
def test_a_cut_is_a_prefix_within_the_limit(text: str, limit: int) -> None:
    """Rule budget.cut: never over the limit, never anything but a prefix, lone surrogates and all."""
    cut = cut_to_tokens(text, limit)
    assert text.startswith(cut)
    assert count_tokens(cut) <= limit
    assert cut == text or count_tokens(text) > limit
