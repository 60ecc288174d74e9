"""Lines of JSON-RPC: what no parser may leave unanswered."""

import contextlib
import json
from collections.abc import Callable

import anyio
import pytest
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from memory_anchor.runtime.recording import parse_message, repair_lines

LINE = (
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"save_memory","arguments":{"content":"a\\ud800"}}}'
)
SPARE = (*range(3, 60), 100, 300)
"""Frames that the stack still has room for: from nearly none to plenty."""


def test_a_line_with_a_lone_surrogate_is_read_so_that_its_request_is_answered():
    for line in (LINE, LINE.encode()):
        message = parse_message(line)
        assert message.id == 7
        assert message.params["arguments"]["content"] == "a\ud800"


def test_an_ordinary_line_is_read_as_ever():
    line = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "ping"})
    assert parse_message(line) == jsonrpc_message_adapter.validate_json(line)


@pytest.mark.parametrize("line", ["", "not json", "[]", '{"jsonrpc":"1.0"}', b"\xff\xfe", "[" * 100_000])
def test_what_is_no_message_stays_an_error(line):
    with pytest.raises(ValueError):
        parse_message(line)


@pytest.mark.parametrize("levels", [1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("told", ["bytes", "text", "surrogate"])
def test_a_line_nested_too_deeply_is_one_error_at_every_depth_of_the_stack(levels, closed, told):
    """Rule messages.deep: how deep a line is nested, or who calls, never makes it another error than "no message"."""
    nested = "[" * levels + "]" * (levels * closed)
    line = LINE.replace('"a\\ud800"', f'"a\\ud800","more":{nested}') if told == "surrogate" else nested
    given = line.encode() if told == "bytes" else line
    assert near_the_limit(lambda: outcome(given)) == dict.fromkeys(SPARE, "no message")


def test_a_parser_that_finds_no_room_is_no_other_error_than_one_that_cannot_read(monkeypatch):
    """Rule messages.deep: of either parser, the SDK's own and Python's."""

    def out_of_room(*_given: object, **_named: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(type(jsonrpc_message_adapter), "validate_json", out_of_room)
    assert outcome(LINE) == "no message"


def outcome(line: bytes | str) -> str:
    try:
        parse_message(line)
    except ValueError:
        return "no message"
    return "read"


def near_the_limit(call: Callable[[], str]) -> dict[int, str]:
    """Return what a call returns by how many more frames the stack has room for at it."""
    seen: dict[int, str] = {}
    spare = 0

    def down() -> None:
        nonlocal spare
        with contextlib.suppress(RecursionError):
            down()
        spare += 1
        if spare in SPARE:
            seen[spare] = call()

    down()
    return seen


def test_what_the_transport_could_not_read_is_read_once_more_and_the_rest_passes_through():
    async def work():
        given_in, given = create_context_streams(4)
        passed_in, passed = create_context_streams(4)
        try:
            jsonrpc_message_adapter.validate_json(LINE)
        except ValueError as error:
            await given_in.send(error)
        odd = RuntimeError("x")
        await given_in.send(odd)
        await given_in.aclose()
        await repair_lines(given, passed_in)
        first, second = await passed.receive(), await passed.receive()
        assert isinstance(first, SessionMessage)
        assert first.message.id == 7
        assert second is odd
        passed.close()

    anyio.run(work)
