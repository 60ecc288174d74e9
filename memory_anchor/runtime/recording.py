"""JSON-RPC with a server of the SDK: in-memory streams, lines that its parser rejects, recording its handshake.

A lone surrogate (`\\ud800`) in one argument makes the SDK reject the line, and the request would never be answered.
Python's parser accepts it, so that the tool can say what is wrong with which argument. A server's handshake is recorded
in every protocol version, for the next cold start.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared._context_streams import ContextReceiveStream, ContextSendStream, create_context_streams
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from memory_anchor.base.json_values import Json, text
from memory_anchor.domain.model import Actor
from memory_anchor.runtime import handshake
from memory_anchor.runtime.relay import is_too_deep

_Inbound: TypeAlias = tuple[
    ContextSendStream[SessionMessage | Exception], ContextReceiveStream[SessionMessage | Exception]
]
_Outbound: TypeAlias = tuple[ContextSendStream[SessionMessage], ContextReceiveStream[SessionMessage]]


@dataclass(slots=True)
class ClientConnection:
    """One client's connection; the whole process on streamable HTTP and in an engine. actor: the last caller on it."""

    name: str
    actor: Actor | None = None


async def record_handshake(server: Server[ClientConnection], state: ClientConnection) -> handshake.Handshake:
    """Return the server's answers to each version's handshake, in the shape that `relay.known_result` reads."""
    answers: dict[str, dict[str, Json]] = {}
    for version in (*handshake.legacy_versions(), *handshake.modern_versions()):
        requests = handshake.requests(version)
        async with memory_streams() as ((inbound, served), (serving, outbound)), anyio.create_task_group() as tasks:
            tasks.start_soon(_serve_recorded, server, served, serving, state)
            answers[version] = {}
            for message in requests:
                await inbound.send(SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False)))
                while "id" in message:
                    reply = (await outbound.receive()).message
                    if getattr(reply, "id", None) != message["id"]:
                        continue
                    if isinstance(reply, JSONRPCResponse):
                        answers[version][text(message["method"])] = reply.result
                    break
            inbound.close()
            tasks.cancel_scope.cancel()
    return handshake.packed(answers)


async def _serve_recorded(
    server: Server[ClientConnection],
    served: ContextReceiveStream[SessionMessage | Exception],
    serving: ContextSendStream[SessionMessage],
    state: ClientConnection,
) -> None:
    options = server.create_initialization_options()
    await serve_dual_era_loop(server, served, serving, lifespan_state=state, init_options=options)


@asynccontextmanager
async def memory_streams() -> AsyncIterator[tuple[_Inbound, _Outbound]]:
    """Yield the two ends of each of two in-memory message streams, closed on leaving: towards a server, and back."""
    inbound = create_context_streams[SessionMessage | Exception](0)
    outbound = create_context_streams[SessionMessage](0)
    try:
        yield inbound, outbound
    finally:
        for stream in (*inbound, *outbound):
            stream.close()


def parse_message(line: bytes | str) -> JSONRPCMessage:
    """Return the message on a line. Raises ValueError: it is none, or nested deeper than a bridge lets pass.

    Python's own parser reads as deep as the interpreter's release allows, so its depth is bounded here.
    """
    try:
        try:
            return jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            if is_too_deep(line if isinstance(line, str) else line.decode()):
                raise
            return jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
    except RecursionError:
        raise ValueError("the line is nested too deeply") from None


async def repair_lines(
    read: ContextReceiveStream[SessionMessage | Exception], inbound: ContextSendStream[SessionMessage | Exception]
) -> None:
    """Pass on the transport's items; a line that it rejected, which arrives as an error, is parsed once more."""
    async with inbound:
        async for item in read:
            line = item.errors()[0]["input"] if isinstance(item, ValidationError) else None
            if isinstance(line, str | bytes):
                with contextlib.suppress(ValueError):
                    item = SessionMessage(parse_message(line))
            await inbound.send(item)
