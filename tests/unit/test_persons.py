"""Recalled text says whose "I" it is, and changes nothing of what was written."""

from __future__ import annotations

import pytest

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.front import mcp_answers
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

EXPERIENCE = "I broke the release build by tagging before the tests had run"


def anchor(core: Core, agent: str) -> MemoryAnchor:
    return core.anchor(Actor(Caller.AGENT, Scope(agent=agent, conversation=agent), client=agent))


def shown(core: Core, agent: str, query: str = "release build") -> list[str]:
    return [snippet.text for snippet in anchor(core, agent).search(query, limit=5).snippets]


def test_anothers_experience_is_told_with_its_name_and_ones_own_as_it_stands(core: Core) -> None:
    """Rule perspective: recalled text is worded to fit; the stored text stays."""
    done = anchor(core, "codex").save_memory(EXPERIENCE, source="first-person")

    assert shown(core, "codex") == [EXPERIENCE]
    assert shown(core, "claude-code") == [f"codex: {EXPERIENCE}"]
    assert anchor(core, "claude-code").get(done.id).content == EXPERIENCE


@pytest.mark.parametrize(
    ("content", "source"),
    [
        (EXPERIENCE, "tool-call"),
        (EXPERIENCE, "factual"),
        ("The release build runs on Thursdays", "first-person"),
        ('The user said "I want the release build green" twice', "first-person"),
        ("The release build prints `I am done`", "first-person"),
        ("发布构建每周四运行", "ghostwriter"),
    ],
)
def test_what_has_no_first_person_of_its_own_is_told_as_it_stands(core: Core, content: str, source: str) -> None:
    """Rule perspective: facts, quotations and code are never touched."""
    anchor(core, "codex").save_memory(content, source=source)

    assert shown(core, "claude-code", content) == [content]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("我在发布前漏跑了测试", "codex: 我在发布前漏跑了测试"),
        ("我们的发布构建跑在周四", "codex: 我们的发布构建跑在周四"),
        ("- I tagged the release build\n- I reverted it", "codex:\n- I tagged the release build\n- I reverted it"),
    ],
)
def test_every_character_of_it_is_told(core: Core, content: str, told: str) -> None:
    """Rule perspective: a name is put before it; lists and code keep their lines."""
    anchor(core, "codex").save_memory(content, source="ghostwriter")

    assert shown(core, "claude-code", content) == [told]


def test_it_is_worded_wherever_an_agent_reads_it(core: Core) -> None:
    """Rule perspective: in a memory fetched by id, in lists of events, in contexts and in hooks."""
    done = anchor(core, "codex").save_memory(EXPERIENCE, source="first-person")
    anchor(core, "codex").log_event("I rolled the release build back", source="first-person")
    reader = anchor(core, "claude-code")

    fetched = mcp_answers.answer(reader, "get_memory", {"id": done.id})
    (event,) = mcp_answers.answer(reader, "search_events", {})["events"]
    context = reader.build_context("release build").text
    started = Hooks().answer(reader, "SessionStart", {"source": "startup"})

    assert fetched["content"] == f"codex: {EXPERIENCE}"
    assert event["content"] == "codex: I rolled the release build back"
    for text in (context, started):
        assert f"codex: {EXPERIENCE}" in text
        assert "codex: I rolled the release build back" in text
    assert mcp_answers.answer(anchor(core, "codex"), "get_memory", {"id": done.id})["content"] == EXPERIENCE
