"""What the memory costs: model calls, tokens shown, bytes of a cached prefix, disk and memory."""

from __future__ import annotations

from typing import Any

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock
from memory_anchor.use_cases.costs import ShownCosts


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


def test_the_cost_card_counts_what_hooks_showed_and_no_model_call(core: Core, clock: ManualClock) -> None:
    """Rule sessions.cost: 0 model calls by default, tokens by event, 0 bytes of a prefix changed by us."""
    anchor(core).save_memory("npm install breaks the workspace links; use pnpm add", type="decision")
    hooks = Hooks()
    for day in range(3):
        here = anchor(core, f"s{day}")
        assert hooks.answer(here, "SessionStart", {"source": "startup"})
        for run in ("npm install left-pad", "git status", "ls"):
            hooks.answer(here, "PreToolUse", {"tool_input": {"command": run}})
        hooks.answer(here, "SessionEnd", {})
        clock.advance(days=1)
    cost = anchor(core).maintenance.stats(cost=True)["cost"]
    assert (cost["model_calls"], cost["model_tokens"], cost["prefix_bytes_changed"]) == (0, 0, 0)
    assert (cost["sessions"], cost["tool_calls"]) == (3, 9)
    assert 0 < cost["tokens_per_session"] < 200
    assert cost["disk_bytes"] > 0
    again = anchor(core).maintenance.stats(cost=True)["cost"]
    assert again["tokens_shown"] == cost["tokens_shown"]


def test_a_start_that_changes_without_a_write_is_counted_in_bytes() -> None:
    """Rule sessions.cost: from the first byte that differs; after a write another start is no cost."""
    costs = ShownCosts()
    costs.note_start(("a",), 1, "rules, 3 d old")
    costs.note_start(("a",), 1, "rules, 4 d old")
    costs.note_start(("a",), 2, "rules and more")
    assert costs._new["prefix_bytes"] == len("4 d old")


def test_counts_are_kept_over_engines_and_a_torn_file_counts_as_none(core: Core) -> None:
    """Rule sessions.cost: no tool call writes a file; the end of a session does."""
    hooks, file = Hooks(), core.services.data_dir / "costs.json"
    hooks.answer(anchor(core), "PreToolUse", {"tool_input": {"command": "ls"}})
    assert not file.exists()
    hooks.answer(anchor(core), "SessionEnd", {})
    assert ShownCosts().kept(core.services.data_dir)["asked PreToolUse"] == 1
    file.write_text('{"asked Pre')
    assert ShownCosts().kept(core.services.data_dir) == {}


def test_the_name_of_an_unknown_hook_is_not_kept(core: Core) -> None:
    """Rule safety.door: what a caller says in the place of a hook's name may be anything, a token too."""
    costs = ShownCosts()
    costs.note("ghp_Zq7Xv2Lm9Tr4Wy6Kp1Nd8Bs3", "text")
    costs.note("SessionStart", "text")

    assert set(costs.kept(core.data_dir)) == {"asked SessionStart", "tokens SessionStart"}
    assert b"ghp_" not in b"".join(file.read_bytes() for file in core.data_dir.glob("*.json"))
