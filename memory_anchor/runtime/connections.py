"""Connections of a process: how many, how much is logged about them, and one bridge's lines as the SDK's two streams.

A connection is a file descriptor, and a process that has none left can neither accept nor write; asyncio then logs each
attempt, thousands a second. So the number of connections stays below the descriptors, and loggers that other processes
can trigger are limited by the minute.

A call costs turns of the event loop, 20 to 50 µs each. In-memory streams between socket and SDK, each with a task at
its other end, took four turns a call. So the SDK's loop reads the next line from the socket itself, and an answer is
written as one piece by the task that has it; a bridge that reads slowly delays only its own answers.
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

from memory_anchor.base.json_values import Record, parsed
from memory_anchor.runtime import wire
from memory_anchor.runtime.recording import parse_message
from memory_anchor.runtime.relay import INVALID_REQUEST, LISTEN, error_line, is_hook

DESCRIPTORS_WANTED = 4096
DESCRIPTORS_RESERVED = 128
"""For the store, logs, listening sockets and what libraries open."""
DESCRIPTORS_USUAL = 1024
MAX_CONNECTIONS, MIN_CONNECTIONS = 512, 32
RECORDS_A_MINUTE = 60
MINUTE_S = 60.0
THROTTLED_LOGGERS = ("asyncio", "uvicorn.error", "memory_anchor.front", "memory_anchor.engine", "mcp")


def connections() -> int:
    """Return how many connections one listening socket of this process may have; the soft limit is raised first.

    Half of the free descriptors: an HTTP server has the engine's socket as well as its own.
    """
    soft = DESCRIPTORS_USUAL
    try:
        import resource
    except ImportError:  # Windows has no such limit worth naming
        return MAX_CONNECTIONS
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        if soft == resource.RLIM_INFINITY:
            soft = DESCRIPTORS_WANTED
    except (OSError, ValueError):
        pass  # a sandbox forbids it: the current limit counts
    return max(MIN_CONNECTIONS, min(MAX_CONNECTIONS, (soft - DESCRIPTORS_RESERVED) // 2))


class Throttle(logging.Filter):
    """Lets so many records a minute through; the first of the next minute says how many were left out."""

    def __init__(self, limit: int = RECORDS_A_MINUTE) -> None:
        super().__init__()
        self._limit, self._since, self._count = limit, 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._since >= MINUTE_S:
            left_out = max(0, self._count - self._limit)
            self._since, self._count = now, 0
            if left_out:
                record.msg, record.args = f"{record.getMessage()} ({left_out} records before it were left out)", ()
        self._count += 1
        return self._count <= self._limit


def throttle_logs() -> None:
    """Limit what other processes can make this one log; a second call does nothing."""
    for name in THROTTLED_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(present, Throttle) for present in logger.filters):
            logger.addFilter(Throttle())


NO_MESSAGE = "the line is no message of JSON-RPC 2.0: a method with its params, or an answer"


class Connection:
    """One bridge. unanswered: ids of its requests in progress, without subscriptions, which never end."""

    def __init__(self, preamble: wire.Preamble, writer: asyncio.StreamWriter) -> None:
        self.preamble = preamble
        self.writer = writer
        self.unanswered: set[int | str] = set()

    def note_request(self, message: JSONRPCMessage) -> None:
        """Note a request as unanswered, and a cancelled one as done."""
        match message:
            case JSONRPCRequest() if message.method != LISTEN:
                self.unanswered.add(message.id)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                cancelled = (params or {}).get("requestId")
                if isinstance(cancelled, str | int):
                    self.unanswered.discard(cancelled)


class _Stream:
    """A `with` block that closes the stream; the socket is closed by the one that opened it."""

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
    """The messages a bridge sends, until it is gone. is_ending: from then on they are left to the next engine.

    on_hook: takes the calls of the client's hooks, which are no tools of the server's.
    """

    def __init__(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        is_ending: Callable[[], bool],
        on_hook: Callable[[Record], None],
    ) -> None:
        super().__init__(connection)
        self._reader, self._is_ending, self._on_hook = reader, is_ending, on_hook

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; heartbeats and invalid lines are answered here. Raises EndOfStream."""
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
            if (hook := _hook_in(line)) is not None:
                self._on_hook(hook)
                continue
            try:
                message = parse_message(line)
            except ValueError:
                writer.write(error_line(_id_of(line), INVALID_REQUEST, NO_MESSAGE))
                continue
            self._connection.note_request(message)
            return SessionMessage(message)


class BridgeAnswers(_Stream):
    """The messages to a bridge, each written in one piece."""

    async def send(self, item: SessionMessage) -> None:
        """Write a message; return when the bridge can take more. Raises ClosedResourceError, BrokenResourceError."""
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


def _hook_in(line: bytes) -> Record | None:
    """Return the call of a client's hook on a line, None for another message."""
    if wire.HOOK_TOOL.encode() not in line:
        return None
    try:
        value = parsed(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and is_hook(value) and "id" in value else None


def _id_of(line: bytes) -> int | str | None:
    """Return the id on a line that is no message, so that its sender gets an answer."""
    try:
        value = parsed(line)
    except (ValueError, RecursionError):
        return None
    request = value.get("id") if isinstance(value, dict) else None
    return request if isinstance(request, str | int) and not isinstance(request, bool) else None
