"""One bridge's connection as the two streams that the SDK reads and writes: its lines, with nothing in between.

A call's way through the engine is turns of the event loop, 20 to 50 µs each. Between a socket and the SDK there were
two in-memory streams, each with a task that waits at its other end: four turns a call that did nothing else. So the
SDK's loop reads the next line of the socket itself, and whoever has an answer writes it, as one piece; a bridge that
reads slowly makes those wait that answer it, nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from memory_anchor.json_values import parsed
from memory_anchor.runtime import wire
from memory_anchor.runtime.recording import message_of
from memory_anchor.runtime.relay import INVALID_REQUEST, LISTEN, error_line

NO_MESSAGE = "the line is no message of JSON-RPC 2.0: a method with its params, or an answer"


class Connection:
    """One bridge. unanswered: ids of its requests in work, without listening ones, which never end."""

    def __init__(self, preamble: wire.Preamble, writer: asyncio.StreamWriter) -> None:
        self.preamble = preamble
        self.writer = writer
        self.unanswered: set[int | str] = set()

    def asked(self, message: JSONRPCMessage) -> None:
        """Note a request that came, and one that is given up."""
        match message:
            case JSONRPCRequest() if message.method != LISTEN:
                self.unanswered.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                cancelled = (params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self.unanswered.discard(cancelled)


class _Stream:
    """What both directions have of a stream: a `with` block that closes it. The socket is closed by who opened it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_closed = False

    async def aclose(self) -> None:
        self._is_closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True


class BridgeLines(_Stream):
    """The messages a bridge sends, until it is gone. is_ending: what comes from then on is left to the next engine."""

    def __init__(self, connection: Connection, reader: asyncio.StreamReader, is_ending: Callable[[], bool]) -> None:
        super().__init__(connection)
        self._reader, self._is_ending = reader, is_ending

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; heartbeats and what is no message are answered here. Raises EndOfStream."""
        writer = self._connection.writer
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                raise anyio.EndOfStream from None
            if self._is_ending():
                continue
            if line.startswith(wire.PRIVATE):
                writer.write(wire.PONG)
                continue
            try:
                message = message_of(line)
            except ValueError:
                writer.write(error_line(_id_of(line), INVALID_REQUEST, NO_MESSAGE))
                continue
            self._connection.asked(message)
            return SessionMessage(message)


class BridgeAnswers(_Stream):
    """The messages a bridge is sent, each in one piece."""

    async def send(self, item: SessionMessage) -> None:
        """Write a message; return when the bridge has room for more. Raises ClosedResourceError, BrokenResourceError:
        it was closed, the bridge is gone."""
        if self._is_closed:
            raise anyio.ClosedResourceError
        message, writer = item.message, self._connection.writer
        try:
            writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await writer.drain()
        except OSError as error:
            raise anyio.BrokenResourceError from error
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._connection.unanswered.discard(message.id)


def _id_of(line: bytes) -> int | str | None:
    """Return the id on a line that is no message, so that whoever waits for it hears of it."""
    try:
        found = parsed(line)
    except (ValueError, RecursionError):
        return None
    request = found.get("id") if isinstance(found, dict) else None
    return request if isinstance(request, str | int) and not isinstance(request, bool) else None
