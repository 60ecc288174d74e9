"""Connections of a process: how many, and the lines that are read from one.

How many connections a process may hold, and how much it may say about them.

A connection is a file descriptor, and a process that has none left can neither accept nor write; asyncio then logs each
try, thousands a second. So the number is bounded below the descriptors, and the loggers that strangers can make speak
are bounded by the minute.

One bridge's connection as the two streams that the SDK reads and writes: its lines, with nothing in between.

A call's way through the engine is turns of the event loop, 20 to 50 µs each. Between a socket and the SDK there were
two in-memory streams, each with a task that waits at its other end: four turns a call that did nothing else. So the
SDK's loop reads the next line of the socket itself, and whoever has an answer writes it, as one piece; a bridge that
reads slowly makes those wait that answer it, nobody else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from memory_anchor.json_values import parsed
from memory_anchor.runtime import wire
from memory_anchor.runtime.recording import parse_message
from memory_anchor.runtime.relay import INVALID_REQUEST, LISTEN, error_line

DESCRIPTORS_WANTED = 4096
DESCRIPTORS_RESERVED = 128
"""For the store, logs, sockets that listen and what libraries open."""
DESCRIPTORS_USUAL = 1024
MOST_CONNECTIONS, LEAST_CONNECTIONS = 512, 32
RECORDS_A_MINUTE = 60
MINUTE_S = 60.0
SPEAKS_OF_STRANGERS = ("asyncio", "uvicorn.error", "memory_anchor.front", "memory_anchor.engine", "mcp")


def connections() -> int:
    """Return how many connections one listening socket of this process may hold; the soft limit is raised first.

    Half of what is left of the descriptors: an HTTP server holds the engine's socket beside its own.
    """
    soft = DESCRIPTORS_USUAL
    try:
        import resource
    except ImportError:  # Windows has no such limit worth naming
        return MOST_CONNECTIONS
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        if soft == resource.RLIM_INFINITY:
            soft = DESCRIPTORS_WANTED
    except (OSError, ValueError):
        pass  # a sandbox forbids it: what there is counts
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, (soft - DESCRIPTORS_RESERVED) // 2))


class Throttle(logging.Filter):
    """Lets `RECORDS_A_MINUTE` records through, then says how many were left out."""

    def __init__(self, most: int = RECORDS_A_MINUTE) -> None:
        super().__init__()
        self._most, self._since, self._said, self._left = most, 0.0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._since >= MINUTE_S:
            left, self._since, self._said, self._left = self._left, now, 0, 0
            if left:
                record.msg, record.args = f"{record.getMessage()} ({left} records before it were left out)", ()
        self._said += 1
        self._left += self._said > self._most
        return self._said <= self._most


def throttle_logs() -> None:
    """Bound what strangers can make this process write; more than once does nothing more."""
    for name in SPEAKS_OF_STRANGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Throttle) for one in logger.filters):
            logger.addFilter(Throttle())


NO_MESSAGE = "the line is no message of JSON-RPC 2.0: a method with its params, or an answer"


class Connection:
    """One bridge. unanswered: ids of its requests in work, without listening ones, which never end."""

    def __init__(self, preamble: wire.Preamble, writer: asyncio.StreamWriter) -> None:
        self.preamble = preamble
        self.writer = writer
        self.unanswered: set[int | str] = set()

    def note_request(self, message: JSONRPCMessage) -> None:
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
                message = parse_message(line)
            except ValueError:
                writer.write(error_line(_id_of(line), INVALID_REQUEST, NO_MESSAGE))
                continue
            self._connection.note_request(message)
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
