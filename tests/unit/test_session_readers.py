"""Each agent's transcripts in their documented form: who spoke, what was called, how it ended, where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sessionkit import Machine

from memory_anchor.extensions.sessions.agents import StoreReader, reader
from memory_anchor.extensions.sessions.names import AGENTS
from memory_anchor.extensions.sessions.steps import Facts, TranscriptStep

AT = "2026-03-02T09:01:00Z"


def read(agent: str, *lines: dict[str, Any]) -> tuple[list[TranscriptStep], Facts]:
    facts = Facts(file="a-file")
    return list(reader(agent).steps(enumerate(lines), facts)), facts


def told(steps: list[TranscriptStep]) -> Iterator[tuple[str, str, int | None]]:
    return ((step.kind, step.text, step.exit) for step in steps)


def test_codex_says_how_a_command_ended_in_either_form() -> None:
    """Rule readers.codex: JSON with metadata, or a line of the output."""
    call = {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "pytest -q"}', "call_id": "c1"}
    old = {"type": "function_call_output", "call_id": "c1", "output": '{"output": "no", "metadata": {"exit_code": 5}}'}
    new = {"type": "function_call_output", "call_id": "c1", "output": "Chunk ID: 1\nProcess exited with code 127\nno"}
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n*** End Patch"
    edit = {"type": "custom_tool_call", "name": "apply_patch", "input": patch, "call_id": "c2"}
    lines = [{"type": "response_item", "timestamp": AT, "payload": item} for item in (call, old, call, new, edit)]

    steps, facts = read("codex", {"type": "session_meta", "payload": {"id": "s1", "cwd": "/w/a"}}, *lines)

    assert list(told(steps))[:2] == [("call", "pytest -q", None), ("result", "no", 5)]
    assert steps[3].exit == 127 and (facts.name, facts.cwd) == ("s1", "/w/a")
    act = steps[4].act
    assert act is not None and (act.kind, act.path, act.old, act.new) == ("edit", "a.py", "old", "new")


def test_gemini_counts_each_message_and_call_once() -> None:
    """Rule readers.gemini: a message is written again with its calls, a resumed session repeats its own."""
    context = {
        "id": "m0",
        "type": "user",
        "content": [{"text": "<session_context>\n**Workspace Directories:**\n  - /w/g\n"}],
    }
    asked = {"id": "m1", "timestamp": AT, "type": "user", "content": [{"text": "Run the tests."}]}
    response = [{"functionResponse": {"response": {"output": "3 failed"}}}]
    called = {
        "id": "c1",
        "name": "run_shell_command",
        "args": {"command": "make test"},
        "result": response,
        "status": "error",
    }
    empty = {"id": "m2", "timestamp": AT, "type": "gemini", "content": "", "thoughts": ["hm"]}
    answered = {"id": "m3", "timestamp": AT, "type": "gemini", "content": "Three fail."}

    steps, facts = read(
        "gemini",
        {"sessionId": "g1", "startTime": AT},
        {"$set": {"messages": [context]}},
        *(asked, empty, empty | {"toolCalls": [called]}, empty | {"toolCalls": [called]}, answered),
        {"$set": {"messages": [context, asked, answered]}},
    )

    assert list(told(steps)) == [
        *[("user", "Run the tests.", None), ("call", "make test", None), ("result", "3 failed", 1)],
        ("agent", "Three fail.", None),
    ]
    assert (facts.name, facts.cwd) == ("g1", "/w/g")


def test_qwen_reads_parts_and_no_thoughts() -> None:
    """Rule readers.qwen: thought parts are left out."""
    head = {"sessionId": "q1", "cwd": "/w/q", "timestamp": AT}
    answer = {"role": "model", "parts": [{"text": "secretly", "thought": True}, {"text": "Done."}]}
    asks = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "shell", "args": {"command": "ls"}}}]}
    gives = {"parts": [{"functionResponse": {"id": "c1", "response": {"output": "a.py"}}}]}

    steps, facts = read(
        "qwen",
        head | {"type": "user", "message": {"role": "user", "parts": [{"text": "List them."}]}},
        *(head | {"type": "assistant", "message": message} for message in (asks, answer)),
        head | {"type": "tool_result", "message": gives},
    )

    assert list(told(steps)) == [
        *[("user", "List them.", None), ("call", "ls", None), ("agent", "Done.", None), ("result", "a.py", 0)],
    ]
    assert (facts.name, facts.cwd) == ("q1", "/w/q")


def test_copilot_reads_events_with_the_span_that_an_edit_replaced() -> None:
    """Rule readers.copilot: the id is the event's, not the folder's."""
    edit = {
        "toolCallId": "t1",
        "toolName": "edit",
        "arguments": {"path": "a.py", "old_str": "x = 1", "new_str": "x = 2"},
    }
    failed = {"toolCallId": "t1", "success": False, "result": {"content": "no such text"}}

    steps, facts = read(
        "copilot",
        {"type": "session.start", "data": {"sessionId": "p1", "context": {"cwd": "/w/p"}}, "timestamp": AT},
        {"type": "user.message", "data": {"content": "Make it two."}, "timestamp": AT},
        {"type": "tool.execution_start", "data": edit, "timestamp": AT},
        {"type": "tool.execution_complete", "data": failed, "timestamp": AT},
        {"type": "assistant.message", "data": {"content": ""}, "timestamp": AT},
    )

    act = steps[1].act
    assert act is not None and (act.kind, act.path, act.old, act.new) == ("edit", "a.py", "x = 1", "x = 2")
    assert list(told(steps))[2:] == [("result", "no such text", 1)] and (facts.name, facts.cwd) == ("p1", "/w/p")


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if not isinstance(reader(agent), StoreReader)])
def test_no_reader_fails_at_lines_of_another_shape(agent: str) -> None:
    """Rule failures: a format that changed costs its lines, never a crash."""
    values: list[Any] = [
        None,
        1,
        "x",
        [],
        [None],
        {},
        {"parts": 3},
        {"content": [3, {"type": "tool_use"}]},
        {"type": {}},
    ]
    keys = (
        "message",
        "payload",
        "data",
        "content",
        "toolCalls",
        "$set",
        "timestamp",
        "sessionId",
        "attachment",
        "type",
    )
    kinds = ("user", "assistant", "gemini", "response_item", "session_meta", "attachment")

    for kind in kinds:
        for key in keys:
            for value in values:
                steps, _ = read(agent, {"type": kind, "timestamp": AT, key: value})
                assert all(step.kind != "result" for step in steps)


def test_every_agent_is_found_where_it_keeps_its_sessions(machine: Machine) -> None:
    """Rule adopt: one look over the home finds them all, each under its name."""
    home = machine.home
    lines: dict[Path, list[dict[str, Any]]] = {
        home / ".gemini/tmp/p/chats/session-1.jsonl": [
            {"sessionId": "gem-00001"}, {"id": "m", "type": "user", "content": "a gemini zebra", "timestamp": AT},
        ],
        home / ".qwen/projects/p/chats/q.jsonl": [
            {"type": "user", "sessionId": "qwe-00001", "timestamp": AT, "message": {"parts": [{"text": "qwen zebra"}]}},
        ],
        home / ".copilot/session-state/x/events.jsonl": [
            {"type": "user.message", "data": {"content": "a copilot zebra"}, "timestamp": AT},
        ],
    }  # fmt: skip
    for path, content in lines.items():
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
    machine.adopt()

    assert {hit["agent"] for hit in machine.found("zebra")} == {"gemini", "qwen", "copilot"}
