"""Which told memories an agent used, counted from its transcript; what is never used sinks."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.domain.model import Actor, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.used_memories import (
    SESSIONS_KEPT,
    SHOWN_SESSIONS_FILE,
    UNUSED_SHOWINGS_MAX,
    USED_MEMORIES_FILE,
    ShownMemory,
    ShownSessions,
    UsedMemories,
    traces_in,
    used_ids,
)

AT = datetime(2026, 3, 3, tzinfo=UTC)
RULE = "Deploys of the shop go through tools/ship.sh with --canary"


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


def transcript(folder: Path, *, did: str) -> str:
    """Return the path of a transcript as Claude Code writes it, in which the agent ran one command."""
    lines = [
        {"type": "user", "message": {"role": "user", "content": "how do deploys of the shop go?"}},
        {
            "type": "assistant",
            "message": {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": did}}],
            },
        },
    ]
    path = folder / "transcript.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("did", "used"), [("bash tools/ship.sh --canary", 1), ("kubectl apply -f shop.yaml", 0)])
def test_a_memory_counts_as_used_when_the_agent_used_what_it_names(
    core: Core, tmp_path: Path, did: str, used: int
) -> None:
    """Issue 15, heeded: from the transcript, by layer and hook."""
    anchor(core, "first").save_memory(RULE, type="instruction")
    hooks, here = Hooks(), anchor(core, "second")
    assert RULE in hooks.answer(here, "UserPromptSubmit", {"prompt": "how do deploys of the shop go?"})
    hooks.in_background(here, "SessionEnd", {"transcript_path": transcript(tmp_path, did=did)})
    row = {"layer": "verified_fact", "hook": "UserPromptSubmit", "shown": 1, "heeded": used}
    assert here.maintenance.stats(heeded=True)["heeded"] == [row]
    hooks.in_background(here, "SessionEnd", {"transcript_path": transcript(tmp_path, did=did)})
    assert here.maintenance.stats(heeded=True)["heeded"] == [row]


def test_what_the_user_said_is_no_trace_of_memory() -> None:
    """Issue 15, heeded: the agent may have it from there."""
    shown = [ShownMemory("a", "verified_fact", "UserPromptSubmit", traces_in(RULE))]
    assert used_ids(shown, by_agent="ran tools/ship.sh", by_user="") == {"a"}
    assert used_ids(shown, by_agent="ran tools/ship.sh", by_user="please run tools/ship.sh") == frozenset()
    assert used_ids(shown, by_agent="ran tools/ship.shell", by_user="") == frozenset()


def test_what_is_shown_ten_times_and_never_used_is_held_back(tmp_path: Path) -> None:
    """Issue 15, heeded: once used it stays; what names nothing cannot be seen and is never held back."""
    file = UsedMemories(tmp_path / USED_MEMORIES_FILE)
    useless, used = (ShownMemory(name, "verified_fact", "SessionStart", ("x-1",)) for name in ("useless", "used"))
    vague = ShownMemory("vague", "verified_fact", "SessionStart", ())
    for number in range(UNUSED_SHOWINGS_MAX):
        assert file.never_used() == frozenset()
        file.note([useless, used, vague], frozenset({"used"} if number == 3 else ()))
    assert file.never_used() == {"useless"}


def test_an_unused_memory_is_shown_where_it_is_likelier_right_than_not(core: Core, monkeypatch: Any) -> None:
    """Issue 15, heeded: it is held back, not lost."""
    import memory_anchor.use_cases.memory as door

    saved = anchor(core).save_memory(RULE, type="instruction")
    file = UsedMemories(core.data_dir / USED_MEMORIES_FILE)
    for _ in range(UNUSED_SHOWINGS_MAX):
        file.note([ShownMemory(saved.id, "verified_fact", "SessionStart", ("tools/ship.sh",))], frozenset())
    assert anchor(core).recall_unprompted("how do deploys of the shop go?", limit=4)
    monkeypatch.setattr(door, "STRONG", 1.1)
    assert anchor(core).recall_unprompted("how do deploys of the shop go?", limit=4) == []


def test_a_torn_tally_counts_as_empty(tmp_path: Path) -> None:
    """Issue 15, heeded: a file of counts is never worth a failure."""
    for text in ("", "[]", '{"by": 3}', '{"by": {"a/b": [1]}, "memories": {"x": "y"}}'):
        (tmp_path / USED_MEMORIES_FILE).write_text(text)
        assert UsedMemories(tmp_path / USED_MEMORIES_FILE).table() == []
        assert UsedMemories(tmp_path / USED_MEMORIES_FILE).never_used() == frozenset()


def test_the_last_sessions_are_kept_by_project_with_what_they_used(tmp_path: Path) -> None:
    """Rule: what a session was shown and used is listed for its own project, ids without text, torn or not."""
    file = ShownSessions(tmp_path / SHOWN_SESSIONS_FILE)
    shop, other = Scope(project="shop", agent="codex"), Scope(project="other")
    shown = [ShownMemory(name, "verified_fact", "PreToolUse", ("x-1",)) for name in ("a", "b")]
    for scope in (shop, other):
        file.note(scope, AT, shown, frozenset({"b"}))
    file.note(shop, AT, [], frozenset())
    lines = [{"id": "a", "hook": "PreToolUse", "used": False}, {"id": "b", "hook": "PreToolUse", "used": True}]

    assert [(one["agent"], one["shown"]) for one in file.of(shop)] == [("codex", lines)]
    for number in range(SESSIONS_KEPT + 5):
        file.note(replace(shop, agent=str(number)), AT, shown, frozenset())
    assert [one["agent"] for one in file.of(shop)][:2] == [str(SESSIONS_KEPT + 4), str(SESSIONS_KEPT + 3)]
    assert len(file.of(shop)) == SESSIONS_KEPT and file.of(other) == []
    (tmp_path / SHOWN_SESSIONS_FILE).write_text("[1, {")
    assert file.of(shop) == []
