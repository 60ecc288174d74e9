"""Pauses that end by themselves or say nothing, the line for a status bar, and saving that stopped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory_anchor.base.pausing import FLAG, parse_duration, pause_of
from memory_anchor.domain.errors import BadInput, Refused, Unavailable
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.hooks.hooks import Hooks
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ManualClock


def anchor(core: Core, conversation: str = "c1") -> Any:
    return core.anchor(Actor(scope=Scope(conversation=conversation, agent="tester")))


def test_a_pause_ends_by_itself(core: Core, clock: ManualClock) -> None:
    """Issue 15, pause: `--for 2h` stops agents from writing for two hours."""
    assert anchor(core).maintenance.pause(lasting="2h")["until"]
    ends = f"it ends at {clock.now() + timedelta(hours=2):%Y-%m-%d %H:%M} UTC"
    with pytest.raises(Refused, match=ends):
        anchor(core).save_memory("The cache has nine nodes")
    assert "Paused until" in Hooks().answer(anchor(core), "SessionStart", {})
    clock.advance(hours=2)
    assert anchor(core).save_memory("The cache has nine nodes").id


def test_a_pause_stops_agents_and_no_human(core: Core) -> None:
    """Rule pause: what a human signs (`--human`) is written, and the refusal says so to whoever did not sign."""
    anchor(core).maintenance.pause()
    human = core.anchor(Actor(Caller.HUMAN, Scope(conversation="c1", user="me")))

    assert human.save_memory("The cache has nine nodes").outcome.value == "added"
    with pytest.raises(Refused, match="a human's own command with --human is"):
        anchor(core).save_memory("The cache has ten nodes")


def test_an_agent_ends_no_pause_by_a_shorter_one(core: Core) -> None:
    """Attack A23: neither a pause without an end nor a longer or more silent one gives way to an agent's."""
    anchor(core).maintenance.pause()
    with pytest.raises(Refused):
        anchor(core).maintenance.pause(lasting="1m")
    assert pause_of(core.data_dir, core.clock.now()) is not None


def test_a_silent_pause_recalls_nothing_unprompted(core: Core) -> None:
    """Issue 15: `--no-memory` is silence, not only a stop to writing."""
    anchor(core).save_memory("The cache keys expire after nine minutes")
    prompt = {"prompt": "when do the cache keys expire?"}
    assert "nine minutes" in Hooks().answer(anchor(core, "c2"), "UserPromptSubmit", prompt)
    anchor(core).maintenance.pause(no_memory=True, lasting="1d")
    assert Hooks().answer(anchor(core, "c3"), "UserPromptSubmit", prompt) == ""


def test_an_old_or_incomplete_flag_pauses(core: Core) -> None:
    """Issue 15, pause: whoever cannot read until when does not write."""
    for text in ("", "{", '{"until": "soon"}'):
        (core.data_dir / FLAG).write_text(text)
        assert pause_of(core.data_dir, core.clock.now()) is not None


@pytest.mark.parametrize("text", ["2", "0h", "two hours", "9999d", "-1h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    """Issue 15, pause: one sentence with what is allowed."""
    with pytest.raises(BadInput, match="30m, 2h, 1d"):
        parse_duration(text)


def test_the_status_line_shows_what_was_recalled_and_saved(core: Core, clock: ManualClock) -> None:
    """Issue 15, statusline: of this conversation alone."""
    anchor(core, "other").save_memory("The cache keys expire after nine minutes")
    hooks = Hooks()
    hooks.answer(anchor(core), "UserPromptSubmit", {"prompt": "when do the cache keys expire?"})
    anchor(core).log_event("Raised the expiry to ten minutes")
    clock.advance(seconds=12)
    assert hooks.answer(anchor(core), "Statusline", {}) == "1 loaded · 1 saved · last 12 s ago"


def test_failing_saves_are_reported(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 15: red in the status line and a sentence at the next start, until a save works again."""
    writes = anchor(core).writes

    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("the disk did not confirm")

    with monkeypatch.context() as broken:
        broken.setattr(type(writes), "log_event", refuse)
        with pytest.raises(Unavailable):
            anchor(core).log_event("Deployed")
    assert "\x1b[31m" in Hooks().answer(anchor(core), "Statusline", {})
    assert "cannot save" in Hooks().answer(anchor(core), "SessionStart", {})
    anchor(core).log_event("Deployed")
    assert "cannot save" not in Hooks().answer(anchor(core), "SessionStart", {})


def test_a_read_only_folder_costs_no_brief_and_is_reported(core: Core) -> None:
    """Issue 15: what a hook notes for itself may fail; its text comes, with the warning, from a new engine too."""
    anchor(core).save_memory("Never release on Fridays", type="instruction", tags=["todo"])
    for name in ("visits.json", "due.json"):
        (core.data_dir / name).mkdir()
    told = Hooks().answer(anchor(core, "c2"), "SessionStart", {})
    assert "Never release on Fridays" in told
    assert "Tell your user: Memory Anchor cannot save" in told
    assert "\x1b[31m" in Hooks().answer(anchor(core), "Statusline", {})
    anchor(core).log_event("Deployed")
    assert "\x1b[31m" not in Hooks().answer(anchor(core), "Statusline", {})
