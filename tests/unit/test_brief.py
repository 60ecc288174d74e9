"""The briefs: what a session and its first prompt are told, and what is due."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.brief import names_in
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import count_tokens
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import UNTIL
from memory_anchor.testing import ManualClock

PROMPT = {"prompt": "tidy up the parser a little"}
MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MONDAY)


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


# --- briefs --------------------------------------------------------------------------------------------------------


def test_a_session_is_told_what_changed_since_its_agent_was_last_here(core: Core, clock: ManualClock) -> None:
    """Issue 15, brief: what another wrote meanwhile, and not what was known before."""
    anchor(core, "first").log_event("The old cluster was switched off")
    Hooks().answer(anchor(core, "first"), "SessionStart", {})
    clock.advance(days=1)
    Hooks().answer(anchor(core, "second"), "SessionStart", {})
    clock.advance(days=1)
    anchor(core, "other").log_event("The queue was moved to the new broker")

    text = Hooks().answer(anchor(core, "third"), "SessionStart", {})

    assert "since you were last here" in text
    assert "new broker" in text
    assert "old cluster" not in text


def test_a_session_starts_with_the_same_bytes_for_the_same_state(core: Core, clock: ManualClock) -> None:
    """Rule sessions.bytes: no clock, no counter, no order by time of asking; what is due comes with a prompt."""
    anchor(core).save_memory("Never push to main without a review", type="instruction")
    anchor(core).save_memory("Rotate the signing key", tags=["todo"], type="project_state")
    anchor(core).log_event("The old cluster was switched off")
    anchor(core).save_memory("The queue may be lost", confidence=0.8)
    first = Hooks().answer(anchor(core, "c2"), "SessionStart", {})
    clock.advance(days=1, hours=3)
    hooks = Hooks()
    assert hooks.answer(anchor(core, "c3"), "SessionStart", {}).encode() == first.encode()
    assert "Rotate the signing key" in hooks.answer(anchor(core, "c3"), "UserPromptSubmit", PROMPT)
    clock.advance(days=40)
    assert Hooks().answer(anchor(core, "c4"), "SessionStart", {"source": "resume"}).encode() == first.encode()
    assert "Never push" in first and "due" not in first and " old, " not in first


def test_a_first_prompt_is_told_what_names_its_files(core: Core) -> None:
    """Issue 15, brief: decisions about the files that the prompt names, whatever else it says."""
    anchor(core).save_memory("src/billing/round.py rounds half to even because the auditors want it", type="decision")
    prompt = {"prompt": "tidy up src/billing/round.py a little"}
    assert "half to even" in Hooks().answer(anchor(core, "c2"), "UserPromptSubmit", prompt)


def test_a_brief_stays_below_its_tokens(core: Core) -> None:
    """Issue 15, brief: at most 800 tokens, whatever is stored."""
    for number in range(12):
        anchor(core).save_memory(f"Rule {number} of src/a.py: " + "the parser keeps every comment it reads " * 9)
    text = Hooks().answer(anchor(core, "c2"), "UserPromptSubmit", {"prompt": "change the parser in src/a.py"})
    assert 0 < count_tokens(text) <= 800


def test_what_came_too_late_does_not_count_as_told(core: Core, clock: ManualClock) -> None:
    """Issue 15: a client that had stopped waiting was told nothing, and is told with its next prompt."""
    anchor(core).save_memory("The cache keys expire after nine minutes")
    hooks, late = Hooks(), clock.now().timestamp() - 1
    prompt = {"prompt": "when do the cache keys expire?"}
    hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late})
    assert "nine minutes" in hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late + 5})
    assert hooks.answer(anchor(core, "c2"), "UserPromptSubmit", prompt | {UNTIL: late + 5}) == ""


# --- due -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("The staging certificate expires on 2026-12-05", 11),
        ("预发证书 2026年12月5日 到期", 11),
        ("Hand in the audit report next Wednesday", 1),
        ("下周三之前交审计报告", 8),
        ("The certificate must be renewed by 2026-12-05.", 11),
        ("护照要在 2026-12-06 之前去取", 11),
        ("12月6日前续签合同", 11),
        ("The audit report is due on Thursday", 2),
        ("周四之前交审计报告", 1),
        ("周四前把稿子交上去", 1),
        ("周四前提交稿子", 1),
        ("车险 12 月 5 日到期", 11),
        ("Register before tomorrow", 0),
    ],
)
def test_a_date_in_a_memory_is_told_the_day_before(core: Core, clock: ManualClock, text: str, days: int) -> None:
    """Issue 15, due: a date that lay ahead is told when it is near, and not before."""
    anchor(core).save_memory(text)
    if days > 1:
        assert anchor(core).due() == []
    clock.advance(days=days)
    (due,) = anchor(core).due()
    assert due.memory.content == text
    if "12" in text:
        assert f"{due.at:%m-%d}" == "12-05"


def test_a_date_that_is_long_over_or_was_past_when_written_is_never_due(core: Core, clock: ManualClock) -> None:
    """Issue 15, due: a report of what was is no task, and nobody is reminded for ever."""
    anchor(core).save_memory("On 3 November 2026 the cache cluster fell over")
    anchor(core).save_memory("The licence ends on 2026-11-25")
    anchor(core).log_event("We met on Friday, the fee was due on 3 November")
    anchor(core).log_event("周五前端改了样式，三天前换了滤芯")
    anchor(core).log_event("周一构建失败是因为锁文件丢了")
    anchor(core).log_event("On Monday we lost the lock file")
    assert anchor(core).due() == []
    clock.advance(days=40)
    assert anchor(core).due() == []


def test_what_is_due_is_told_once_a_day_until_it_is_done(core: Core, clock: ManualClock) -> None:
    """Issue 15, due: once a day at most, in whichever session; `due --done` ends it."""
    saved = anchor(core).save_memory("Rotate the signing key", tags=["todo"], type="project_state")
    hooks = Hooks()
    assert "due: open task" in hooks.answer(anchor(core, "c2"), "UserPromptSubmit", PROMPT)
    assert "due: open task" not in hooks.answer(anchor(core, "c3"), "UserPromptSubmit", PROMPT)
    clock.advance(days=1)
    assert "due: open task" in hooks.answer(anchor(core, "c4"), "UserPromptSubmit", PROMPT)
    clock.advance(days=1)
    assert anchor(core).due(done=saved.id) == []
    assert "due: open task" not in hooks.answer(anchor(core, "c5"), "UserPromptSubmit", PROMPT)


def test_the_names_in_a_prompt_are_read() -> None:
    """Issue 15: what is looked for in memories."""
    assert names_in("edit src/api/a.py and getUserName") == ["src/api/a.py"]
