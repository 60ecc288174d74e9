"""Transcripts: Claude Code, Codex and plain JSON become messages; junk is refused in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memory_anchor.domain.errors import BadInput, NotFound
from memory_anchor.ingest.transcripts import parse_transcript, read_transcript


def lines(*rows: object) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows).encode()


def claude(role: str, content: object, **more: object) -> dict[str, object]:
    return {"type": role, "message": {"role": role, "content": content}, "uuid": "u", "sessionId": "s", **more}


def codex(kind: str, **payload: object) -> dict[str, object]:
    return {"timestamp": "2026-11-21T00:00:00Z", "type": "response_item", "payload": {"type": kind, **payload}}


def test_a_claude_code_transcript_is_read_without_what_the_client_put_in() -> None:
    """Rule: meta turns, side chains, summaries and inserted text are nobody's words."""
    messages, form = parse_transcript(
        lines(
            {"type": "summary", "summary": "x"},
            {"type": "file-history-snapshot"},
            claude("user", "Caveat: The messages below were generated", isMeta=True),
            claude("user", "I prefer tabs."),
            claude(
                "assistant",
                [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "Ok."},
                    {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
                ],
            ),
            claude("user", [{"type": "tool_result", "content": [{"type": "text", "text": "a.py"}]}]),
            claude("user", "side", isSidechain=True),
            claude("user", "This session is being continued from a previous conversation"),
        )
    )
    assert form == "claude-code"
    assert [(message.role, message.content) for message in messages] == [
        ("user", "I prefer tabs."),
        ("assistant", "Ok."),
        ("tool", "a.py"),
    ]
    assert messages[1].tool_calls[0].arguments == {"command": "ls"}
    assert [message.seq for message in messages] == [0, 1, 2]


def queued(prompt: object, **more: object) -> dict[str, object]:
    return {"type": "attachment", "attachment": {"type": "queued_command", "prompt": prompt, **more}, "uuid": "u"}


def test_what_is_typed_while_the_client_works_is_read_as_the_users() -> None:
    """Rule: a prompt that waits for the running turn is the user's, in its place; a queued report is nobody's words."""
    report = "<task-notification>agent done</task-notification>"
    messages, _ = parse_transcript(
        lines(
            claude("user", "Start the build.", origin={"kind": "human"}),
            claude("user", [{"type": "tool_result", "content": "built"}]),
            queued("Never edit proto/gen by hand; run make proto.", humanTurn=True, origin={"kind": "human"}),
            queued([{"type": "text", "text": "周五不发版。"}], humanTurn=True),
            queued("Agent a1 has found that we always use yarn.", commandMode="task-notification"),
            queued("What a side chain was told.", humanTurn=True) | {"isSidechain": True},
            {"type": "attachment", "attachment": {"type": "hook_additional_context", "content": ["We use tabs."]}},
            claude("user", report, origin={"kind": "task-notification"}),
            claude("user", "The agent a1 says that we use yarn.", origin={"kind": "task-notification"}),
            claude("assistant", "Built."),
        )
    )
    assert [(message.role, message.content) for message in messages] == [
        ("user", "Start the build."),
        ("tool", "built"),
        ("user", "Never edit proto/gen by hand; run make proto."),
        ("user", "周五不发版。"),
        ("assistant", "Built."),
    ]


@pytest.mark.parametrize(
    "inserted",
    [
        "<hook_prompt id='1'>Remember to save.</hook_prompt>",
        "<system-reminder>We use tabs.</system-reminder>",
        "<local-command-caveat>We use tabs.</local-command-caveat>",
        "<bash-stderr>We use tabs.</bash-stderr>",
        "<environment_context>cwd</environment_context>",
    ],
)
def test_what_a_client_says_in_the_users_place_is_not_the_users(inserted: str) -> None:
    claude_said, _ = parse_transcript(lines(claude("user", inserted), claude("user", "I prefer tea.")))
    content = [{"type": "input_text", "text": inserted}]
    codex_said, _ = parse_transcript(
        lines(
            codex("message", role="user", content=content),
            codex("message", role="user", content=[{"type": "input_text", "text": "I prefer tea."}]),
        )
    )
    for messages in (claude_said, codex_said):
        assert [message.content for message in messages] == ["I prefer tea."]


def test_a_codex_transcript_is_read() -> None:
    messages, form = parse_transcript(
        lines(
            {"type": "session_meta", "payload": {"id": "x"}},
            codex(
                "message",
                role="user",
                content=[{"type": "input_text", "text": "<environment_context>cwd</environment_context>"}],
            ),
            codex("message", role="developer", content=[{"type": "input_text", "text": "rules"}]),
            codex("message", role="user", content=[{"type": "input_text", "text": "我喜欢简短的回答。"}]),
            codex("function_call", name="shell", arguments='{"command": ["pytest", "-q"]}'),
            codex("function_call_output", output="ok"),
            codex("reasoning", encrypted_content="x"),
            codex("message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
        )
    )
    assert form == "codex"
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].tool_calls[0].arguments == {"command": ["pytest", "-q"]}


@pytest.mark.parametrize(
    "raw",
    [
        b'[{"role": "user", "content": "I prefer tea."}]',
        b'{"messages": [{"role": "user", "content": "I prefer tea."}]}',
        b'{"role": "user", "content": "I prefer tea."}\n{"role": "assistant", "content": "ok"}',
        '\ufeff[{"role": "user", "content": "I prefer tea."}]'.encode(),
    ],
)
def test_plain_json_is_read(raw: bytes) -> None:
    messages, form = parse_transcript(raw)
    assert form == "json"
    assert messages[0].content == "I prefer tea."


def test_a_broken_last_line_is_what_a_killed_client_leaves() -> None:
    messages, _ = parse_transcript(lines(claude("user", "I prefer tea."), '{"type": "user", "mess'))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\xff\xfe\x00binary", "no JSON"),
        (b"a\x00b", "no JSON"),
        (b"just some text", "no JSON"),
        (b"", "no transcript"),
        (b"[]", "0 turns"),
        (b'{"a": 1}', "no transcript"),
        (b'{"type": "user", "message": {"role": "user", "content": []}}', "no message"),
        (b"x\ny\nz\nw\n", "no JSON"),
        (b'[{"role": "robot", "content": "x"}]', "robot"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_transcript_is_refused_in_one_sentence(raw: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        parse_transcript(raw, name="talk.jsonl")
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        read_transcript(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="no regular file"):
        read_transcript(tmp_path)
