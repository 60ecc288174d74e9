"""Lines of JSON-RPC: what no parser may leave unanswered."""

import json

import anyio
import pytest
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from memory_anchor.runtime.recording import mended, message_of

LINE = (
    '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"save_memory","arguments":{"content":"a\\ud800"}}}'
)


def test_a_line_with_a_lone_surrogate_is_read_so_that_its_request_is_answered():
    for line in (LINE, LINE.encode()):
        message = message_of(line)
        assert message.id == 7
        assert message.params["arguments"]["content"] == "a\ud800"


def test_an_ordinary_line_is_read_as_ever():
    line = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "ping"})
    assert message_of(line) == jsonrpc_message_adapter.validate_json(line)


@pytest.mark.parametrize("line", ["", "not json", "[]", '{"jsonrpc":"1.0"}', b"\xff\xfe", "[" * 100_000])
def test_what_is_no_message_stays_an_error(line):
    with pytest.raises(ValueError):
        message_of(line)


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
        await mended(given, passed_in)
        first, second = await passed.receive(), await passed.receive()
        assert isinstance(first, SessionMessage)
        assert first.message.id == 7
        assert second is odd
        passed.close()

    anyio.run(work)
