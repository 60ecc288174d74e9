"""JSON-RPC lines that the SDK's parser refuses whole, read after all.

A lone surrogate (`\\ud800`) in one argument makes it refuse the line, and the request on it would never be answered: an
agent waits for ever. Python's own parser takes it, so that the tool can say what is wrong with which argument.
"""

from __future__ import annotations

import contextlib
import json

from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError


def message_of(line: bytes | str) -> JSONRPCMessage:
    """Return the message on a line. Raises ValueError: it is none."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        try:
            return jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
        except RecursionError:
            raise ValueError("the line is nested too deeply") from None


async def mended(
    read: ContextReceiveStream[SessionMessage | Exception], inbound: ContextSendStream[SessionMessage | Exception]
) -> None:
    """Pass on what the SDK's transport reads; a line it could not read, in whose place it puts an error, once more."""
    async with inbound:
        async for item in read:
            line = item.errors()[0]["input"] if isinstance(item, ValidationError) else None
            if isinstance(line, str | bytes):
                with contextlib.suppress(ValueError):
                    item = SessionMessage(message_of(line))
            await inbound.send(item)
