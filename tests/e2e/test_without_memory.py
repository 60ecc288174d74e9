"""One agent's session without memory, beside others that have it: real hooks, bridge and engine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from human_seat import Seat

from memory_anchor.runtime import bridge, handshake, wire

RULE = "No release on Friday: the on-call is away"
PROMPT = "can we ship the new build on friday evening?"


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    made = Seat(tmp_path / "seat")
    made.shell("add", RULE, "--type", "instruction")
    return made


def hooked(seat: Seat, event: str, conversation: str, payload: dict[str, Any], **env: str) -> str:
    given = {"session_id": conversation, "cwd": str(seat.project), "hook_event_name": event, **payload}
    done = seat.shell("hook", event, stdin=json.dumps(given), **env)
    assert done.returncode == 0
    return done.stdout


def said(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


def test_a_session_without_memory_is_told_and_keeps_nothing_while_another_goes_on(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule session.no_memory: silent hooks, refusing tools, nothing kept; the session beside it has its memory."""
    off = {wire.NO_MEMORY_NAME: "1"}
    monkeypatch.chdir(seat.project)
    without = Agent(seat._command(("mcp", "--no-memory")), seat.env(CLAUDE_CODE_SESSION_ID="quiet"))
    refused = without.tool("save_memory", content="The quiet session must leave no trace")
    searched = without.tool("search_memory", query=PROMPT)
    without.close()

    assert "runs without memory" in without.greeting["result"]["instructions"]
    assert refused["result"]["isError"]
    assert searched["result"]["isError"]
    assert "runs without memory" in said(refused)
    assert RULE not in said(searched)
    start = hooked(seat, "SessionStart", "quiet", {"source": "startup"}, **off)
    assert start + hooked(seat, "UserPromptSubmit", "quiet", {"prompt": PROMPT}, **off) == ""
    assert hooked(seat, "SessionEnd", "quiet", {"reason": "other"}, **off) == ""
    assert "no trace" not in seat.shell("export", "-").stdout

    assert RULE in hooked(seat, "SessionStart", "loud", {"source": "startup"})
    other = Agent(seat._command(("mcp",)), seat.env(CLAUDE_CODE_SESSION_ID="loud"))
    assert RULE in said(other.tool("search_memory", query=PROMPT))
    other.close()


def test_what_the_package_says_before_any_engine_runs_is_that_there_is_no_memory(tmp_path: Path) -> None:
    """Rule session.no_memory: a cold start tells of no memory to search and to save, in either era's words."""
    with_it = handshake.load(str(tmp_path), wire.Preamble())
    without = handshake.load(str(tmp_path), wire.Preamble(memory="off"))

    assert with_it is not None
    assert without is not None
    told = [one["instructions"] for one in without["results"] if isinstance(one, dict) and "instructions" in one]
    assert len(told) >= 2
    assert all("runs without memory" in str(one) and "save_memory" not in str(one) for one in told)
    assert "save_memory" in json.dumps(with_it["results"][: len(told)])


def test_a_word_that_is_neither_is_no_memory_switch() -> None:
    """Rule session.no_memory: "perhaps" is no answer; the empty word and "off" are memory as ever."""
    assert bridge.arguments(["--no-memory"]) == {wire.NO_MEMORY_NAME: "true"}
    told = [wire.is_without_memory({wire.NO_MEMORY_NAME: word}) for word in ("1", "true", "", "off", "0")]
    assert told == [True, True, False, False, False]
    with pytest.raises(wire.InvalidSetting, match="perhaps"):
        wire.process_preamble({**os.environ, wire.NO_MEMORY_NAME: "perhaps"}, cwd="/", pid=1, nonce="n")
