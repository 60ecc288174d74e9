"""Contexts through the whole memory: a real store, a real search, one door."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from memory_anchor.context.context_reports import owner_of
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.extensions.prompts.assembly import assemble
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

FACT = "We chose Qdrant because it runs embedded and offline"


@pytest.fixture
def remembered(anchor: MemoryAnchor) -> MemoryAnchor:
    anchor.save_memory(content=FACT, type="decision")
    anchor.log_event(content="修复了 search_memory 空查询返回 None 的 Bug")
    anchor.set_active("current_topic", "优化 search_memory 性能")
    return anchor


def test_a_context_recalls_what_was_saved_logged_and_set(core: Core, remembered: MemoryAnchor) -> None:
    """Strategy 5.1 end to end; the report reads back by its id."""
    built = remembered.build_context("why did we choose Qdrant", budget_tokens=600)

    assert all(text in built.text for text in (FACT, "空查询", "current_topic"))
    assert count_tokens(built.text) == built.report.estimated_tokens["total"] <= 600
    assert core.reports.load(built.report_id, owner_of(remembered.actor.scope)).report == built.report


def test_a_context_holds_nothing_of_another_project(core: Core, remembered: MemoryAnchor) -> None:
    """Scope is decided by the calls a builder is handed, never by the builder."""
    stranger = core.anchor(Actor(Caller.AGENT, Scope(account="other", user="someone", conversation="c9")))

    assert "Qdrant because" not in stranger.build_context("why did we choose Qdrant").text


def test_a_whole_prompt_gets_its_context(core: Core, remembered: MemoryAnchor) -> None:
    """POST /v1/context and `context build FILE`: the task is what the user said last."""
    prompt: Mapping[str, Any] = {
        "messages": [{"role": "user", "content": "Why did we choose Qdrant?"}],
        "tools": [{"name": "read_file"}],
        "context_window_tokens": 8000,
        "reserved_output_tokens": 1000,
    }

    made = assemble(remembered, **prompt)

    assert made.messages == prompt["messages"]
    assert FACT in made.text
    assert made.report.estimated_tokens["total"] <= 7000
    assert core.reports.load(made.report_id, owner_of(remembered.actor.scope)).report == made.report


def test_a_message_with_a_nul_or_of_blanks_is_searched_for_without_harm(core: Core, remembered: MemoryAnchor) -> None:
    """What a tool or a paste put into a conversation never refuses a prompt its context."""
    for text in ("why Qdrant\x00?", "=" * 20_000, "  \n ", '"' * 300):
        prompt = {"messages": [{"role": "user", "content": text}], "context_window_tokens": 8000}
        assert assemble(remembered, **prompt).report.decisions == ()


def test_a_prompt_that_cannot_be_read_is_refused(core: Core, remembered: MemoryAnchor) -> None:
    """Bad messages are the caller's to mend."""
    with pytest.raises(BadInput, match=r"messages\[0\]\.role"):
        assemble(remembered, **{"messages": [{"role": "x", "content": ""}], "context_window_tokens": 100})
