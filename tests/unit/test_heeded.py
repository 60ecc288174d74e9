"""Which told memories an agent used, counted from its transcript; what is never used sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_anchor.core import Core
from memory_anchor.heeded import HEEDED, SINKS_AFTER, HeededFile, Told, heeded_in, traces_of
from memory_anchor.hooks import Hooks
from memory_anchor.model import Actor, Scope
from memory_anchor.testing import ephemeral_core

RULE = "Deploys of the shop go through tools/ship.sh with --canary"


@pytest.fixture
def core(tmp_path: Path) -> Core:
    return ephemeral_core(tmp_path / "data")


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


@pytest.mark.parametrize(("did", "heeded"), [("bash tools/ship.sh --canary", 1), ("kubectl apply -f shop.yaml", 0)])
def test_a_told_memory_counts_as_heeded_when_the_agent_used_what_it_names(
    core: Core, tmp_path: Path, did: str, heeded: int
) -> None:
    """Issue 15, heeded: from the transcript, by layer and hook."""
    anchor(core, "first").save_memory(RULE, type="instruction")
    hooks, here = Hooks(), anchor(core, "second")
    assert RULE in hooks.answer(here, "UserPromptSubmit", {"prompt": "how do deploys of the shop go?"})
    hooks.behind(here, "SessionEnd", {"transcript_path": transcript(tmp_path, did=did)})
    row = {"layer": "verified_fact", "hook": "UserPromptSubmit", "told": 1, "heeded": heeded}
    assert here.heeded() == [row]
    hooks.behind(here, "SessionEnd", {"transcript_path": transcript(tmp_path, did=did)})
    assert here.heeded() == [row]


def test_what_the_user_said_is_no_trace_of_memory() -> None:
    """Issue 15, heeded: the agent may have it from there."""
    told = [Told("a", "verified_fact", "UserPromptSubmit", traces_of(RULE))]
    assert heeded_in(told, written="ran tools/ship.sh", said="") == {"a"}
    assert heeded_in(told, written="ran tools/ship.sh", said="please run tools/ship.sh") == frozenset()
    assert heeded_in(told, written="ran tools/ship.shell", said="") == frozenset()


def test_what_is_told_ten_times_and_never_heeded_sinks(tmp_path: Path) -> None:
    """Issue 15, heeded: once heeded it stays; what names nothing cannot be seen and never sinks."""
    file = HeededFile(tmp_path / HEEDED)
    useless, used = (Told(name, "verified_fact", "SessionStart", ("x-1",)) for name in ("useless", "used"))
    vague = Told("vague", "verified_fact", "SessionStart", ())
    for number in range(SINKS_AFTER):
        assert file.sunk() == frozenset()
        file.note([useless, used, vague], frozenset({"used"} if number == 3 else ()))
    assert file.sunk() == {"useless"}


def test_a_sunk_memory_is_told_where_it_is_likelier_right_than_not(core: Core, monkeypatch: Any) -> None:
    """Issue 15, heeded: it sinks, it is not lost."""
    import memory_anchor.memory as door

    saved = anchor(core).save_memory(RULE, type="instruction")
    file = HeededFile(core.data_dir / HEEDED)
    for _ in range(SINKS_AFTER):
        file.note([Told(saved.id, "verified_fact", "SessionStart", ("tools/ship.sh",))], frozenset())
    assert anchor(core).brought_up("how do deploys of the shop go?", limit=4)
    monkeypatch.setattr(door, "STRONG", 1.1)
    assert anchor(core).brought_up("how do deploys of the shop go?", limit=4) == []


def test_a_torn_tally_counts_as_empty(tmp_path: Path) -> None:
    """Issue 15, heeded: a file of counts is never worth a failure."""
    for text in ("", "[]", '{"by": 3}', '{"by": {"a/b": [1]}, "memories": {"x": "y"}}'):
        (tmp_path / HEEDED).write_text(text)
        assert HeededFile(tmp_path / HEEDED).table() == []
        assert HeededFile(tmp_path / HEEDED).sunk() == frozenset()
