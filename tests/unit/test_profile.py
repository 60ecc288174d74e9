"""The profile: one derived page, each line with its fact; what conversations are expected to show comes from it."""

from __future__ import annotations

from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.front import mcp_answers
from memory_anchor.front.table import ROWS, shaped_memory
from memory_anchor.ingest.profile import LINE_CHARS, PAGE_LINES
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor


@pytest.fixture
def here(core: Core) -> MemoryAnchor:
    return core.anchor(Actor(scope=Scope(conversation="c", agent="tester")))


def called(name: str, **arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"name": name, "arguments": arguments}]}


def test_the_profile_is_one_page_and_each_line_cites_a_live_fact(here: MemoryAnchor) -> None:
    """Rule profile: derived, sorted by person and project; what is superseded or forgotten is gone from it at once."""
    likes = here.save_memory("Lena likes short answers. She said so twice.", type="preference", visibility="user")
    rule = here.save_memory("Every change needs a test.", type="instruction")
    gone = here.save_memory("Deploys go out on Fridays.", type="decision")
    here.save_memory("Maybe the cache is cold.", confidence=0.8)
    here.log_event("The build broke.")
    for number in range(60):
        here.save_memory(
            f"Service {number} is written by team {number} " + "and " * 60, type="decision", key=str(number)
        )
    here.forget(gone.id)

    lines = here.profile()

    cites = {line.id: line for line in lines}
    assert (cites[likes.id].of, cites[likes.id].text) == ("person", "Lena likes short answers.")
    assert (cites[rule.id].of, cites[rule.id].section) == ("project", "rules")
    assert gone.id not in cites
    assert len(lines) <= PAGE_LINES
    assert all(len(line.text) <= LINE_CHARS and here.get(line.id).status.value == "active" for line in lines)


def test_each_project_and_account_has_its_own_page(core: Core, here: MemoryAnchor) -> None:
    """Rule profile: nobody reads a line of what they may not read."""
    here.save_memory("Every change needs a test.", type="instruction")
    other = core.anchor(Actor(scope=Scope(account="another", agent="tester")))
    assert here.profile()
    assert other.profile() == ()


def test_the_page_is_a_call_and_a_resource_in_the_language_of_its_lines(here: MemoryAnchor) -> None:
    """Rule profile: `memory-anchor profile` and `memory://profile` tell the same."""
    here.save_memory("用户喜欢简短的回答。", type="preference", visibility="user")
    row = ROWS["profile"]
    answer = row.answer(here, row.request())
    assert answer["text"].startswith("# 用户\n## 喜好\n- 用户喜欢简短的回答。 [")
    assert answer["lines"][0]["id"] in mcp_answers.read(here, "memory://profile", stats=dict).text


def test_usually_vintage_and_this_time_cyberpunk_is_one_memory_of_a_changed_taste(here: MemoryAnchor) -> None:
    """Rule gap (the seed's example): five calls, one memory; its kind and size are shown."""
    here.save_memory("The user usually picks the vintage filter.", type="preference", visibility="user")
    talk = [
        {"role": "user", "content": "Make this ready for Instagram."},
        called("load_image", path="/tmp/cat.jpg"),
        called("apply_filter", filter="cyberpunk"),
        called("crop", ratio="1:1"),
        called("export", format="png"),
        called("share", target="instagram"),
    ]

    done, _ = here.remember_conversation(talk)

    (memory,) = [here.get(one.outcome.id) for one in done if one.outcome.id]
    assert "cyberpunk" in memory.content
    assert (memory.type.value, memory.status.value) == ("preference", "pending")
    shown = shaped_memory(memory, here)["gap"]
    assert (shown["type"], shown["importance"]) == ("preference_shift", 0.6)
    assert "vintage" in shown["predicted"]
    assert here.remember_conversation([talk[0], called("apply_filter", filter="vintage")])[0] == []


def test_npm_where_pnpm_is_the_rule_is_a_gap_and_a_slip_among_many_is_none(here: MemoryAnchor) -> None:
    """Rule gap: below 0.3 nothing is added."""
    here.save_memory("Always use pnpm in this repository.", type="instruction")
    slip = [called("Bash", command="pnpm install")] * 2 + [called("Bash", command="npm run lint")]
    assert [one for one in here.remember_conversation(slip)[0] if "npm" in one.quote] == []

    done, _ = here.remember_conversation([called("Bash", command="npm install left-pad")])

    (memory,) = [here.get(one.outcome.id) for one in done]
    assert "`npm`" in memory.content
    assert memory.gap is not None
    assert (memory.gap["type"], memory.gap["importance"] > 0.3) == ("new_behavior", True)
