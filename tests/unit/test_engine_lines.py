"""One bridge's lines at an engine: order, cancelling, progress, both protocol eras, slow and vanished readers.

The server behind is a scripted one of the SDK's, so that a test says when each call is done; the socket is a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from mcp import types
from mcp.server.lowlevel import Server

from memory_anchor.runtime import wire
from memory_anchor.runtime.recording import ClientConnection
from memory_anchor.runtime.service import Service
from memory_anchor.runtime.state_file import StateFile

WAIT_S = 10.0
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LARGE = "长" * 400_000


class Scripted:
    """A backend with one tool: `hold` waits on a thread until it is let go; the others answer at once."""

    idle_exit_s = 3600.0

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Semaphore(0), threading.Event()
        self.seen: list[str] = []

    def server(self, _: wire.Preamble) -> Server[ClientConnection]:
        return Server("scripted", version="1", lifespan=self.lifespan, on_call_tool=self.call, on_list_tools=self.tools)

    @asynccontextmanager
    async def lifespan(self, _: Server[ClientConnection]) -> AsyncIterator[ClientConnection]:
        yield ClientConnection("scripted")

    async def tools(self, *_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def call(self, context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.seen.append(f"{wire.PREAMBLE.get().conversation}:{params.name}")
        match params.name:
            case "hold":
                await anyio.to_thread.run_sync(self._hold)
            case "steps":
                for step in range(3):
                    await context.session.report_progress(step, 3)  # type: ignore[attr-defined]
            case "wrong":
                raise ZeroDivisionError
        text = LARGE if params.name == "large" else params.name
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    def _hold(self) -> None:
        self.entered.release()
        assert self.let_go.wait(WAIT_S)

    def hook(self, *_: object) -> str:
        return ""

    def hook_in_background(self, *_: object) -> None: ...

    def conversation_closed(self, _: wire.Preamble) -> None: ...

    def is_live(self) -> bool:
        return False

    def close(self) -> None: ...


class Bridge:
    """The other end of one connection, line by line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, method: str, request: int | str | None = None, **params: object) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.raw(json.dumps(message if request is None else message | {"id": request}).encode())

    def raw(self, line: bytes) -> None:
        self.writer.write(line + b"\n")

    def tool(self, name: str, request: int | str, **meta: object) -> None:
        more = {"_meta": meta} if meta else {}
        self.say("tools/call", request, name=name, arguments={}, **more)

    async def line(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\n"), WAIT_S)

    async def heard(self) -> dict[str, object]:
        message = json.loads(await self.line())
        assert isinstance(message, dict)
        return message


CLIENT = {"name": "test", "version": "1"}


class Engine:
    def __init__(self, service: Service, backend: Scripted, path: Path) -> None:
        self.service, self.backend, self.path = service, backend, path

    async def bridge(self, conversation: str = "c") -> Bridge:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=wire.MAX_LINE_BYTES)
        writer.write(wire.greeting("mcp", wire.Preamble(conversation=conversation), {}))
        bridge = Bridge(reader, writer)
        assert "pid" in await bridge.heard()
        return bridge

    async def greeted(self, conversation: str = "c") -> Bridge:
        bridge = await self.bridge(conversation)
        bridge.say("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo=CLIENT)
        assert (await bridge.heard())["id"] == 0
        bridge.say("notifications/initialized")
        return bridge

    async def entered(self) -> None:
        assert await asyncio.to_thread(self.backend.entered.acquire, True, WAIT_S)


def with_engine(work: Callable[[Engine], Awaitable[None]]) -> Callable[[Path], None]:
    """Make a test of what runs against an engine with a scripted backend; the engine has ended when it returns."""

    async def both(folder: Path) -> None:
        path = folder / "socket"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        backend = Scripted()
        service = Service(lambda: backend, data=folder, listener=listener, state_file=StateFile(folder, {}))
        serving = asyncio.create_task(service.serve())
        try:
            await asyncio.wait_for(work(Engine(service, backend, path)), 3 * WAIT_S)
        finally:
            backend.let_go.set()
            service.end("the test is over")
            await asyncio.wait_for(serving, 2 * WAIT_S)

    def test(tmp_path: Path) -> None:
        asyncio.run(both(tmp_path))

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


@with_engine
async def test_a_call_that_takes_long_keeps_no_other_of_its_bridge_waiting(engine: Engine) -> None:
    """Rule: calls of one bridge run side by side and are answered as they are done, each under its own id."""
    bridge = await engine.greeted()
    bridge.tool("hold", 1)
    await engine.entered()
    bridge.tool("quick", "two")
    assert (await bridge.heard())["id"] == "two"
    engine.backend.let_go.set()
    assert (await bridge.heard())["id"] == 1


@with_engine
async def test_a_cancelled_call_is_never_answered_and_the_next_ones_are(engine: Engine) -> None:
    """Rule: nothing more is said of a request that its client cancelled, also while it computes on a thread."""
    bridge = await engine.greeted()
    bridge.tool("hold", 1)
    await engine.entered()
    bridge.say("notifications/cancelled", requestId=1, reason="enough")
    bridge.tool("quick", 2)
    assert (await bridge.heard())["id"] == 2
    engine.backend.let_go.set()
    bridge.tool("quick", 3)
    assert (await bridge.heard())["id"] == 3


@with_engine
async def test_progress_comes_before_the_answer_under_the_token_that_was_given(engine: Engine) -> None:
    """Rule: progress of a call is told under its token, in order, and never after its answer."""
    bridge = await engine.greeted()
    bridge.tool("steps", 1, progressToken="mine")
    lines = [await bridge.heard() for _ in range(4)]
    assert [line.get("method") for line in lines] == [*["notifications/progress"] * 3, None]
    assert [line["params"]["progress"] for line in lines[:3]] == [0, 1, 2]
    assert {line["params"]["progressToken"] for line in lines[:3]} == {"mine"}
    bridge.tool("steps", 2)  # who gives no token hears of no progress
    assert (await bridge.heard())["id"] == 2


@with_engine
async def test_what_is_wrong_with_a_request_is_told_in_the_protocols_own_codes(engine: Engine) -> None:
    """Rule: a line that is no message, an unknown method, odd parameters and a bug each have their code."""
    bridge = await engine.greeted()
    bridge.raw(b'{"jsonrpc":"1.0","id":1}')
    bridge.say("no/such", 2)
    bridge.say("tools/call", 3, name=7)
    bridge.tool("wrong", 4)
    codes = {one["id"]: one["error"]["code"] for one in [await bridge.heard() for _ in range(4)]}
    assert codes == {1: -32600, 2: -32601, 3: -32602, 4: 0}


@with_engine
async def test_both_eras_are_served_and_neither_takes_the_others_requests(engine: Engine) -> None:
    """Rule: the first request decides the era of a connection; the other one's requests are refused on it."""
    modern = await engine.bridge("modern")
    modern.tool("quick", 1, **MODERN)
    assert (await modern.heard())["result"]["resultType"] == "complete"
    modern.say("initialize", 2, protocolVersion="2025-06-18", capabilities={}, clientInfo=CLIENT)
    assert (await modern.heard())["error"]["code"] == -32022
    legacy = await engine.greeted("legacy")
    legacy.tool("quick", 3, **MODERN)
    assert (await legacy.heard())["error"]["code"] == -32600
    legacy.tool("quick", 4)
    assert "resultType" not in (await legacy.heard())["result"]
    assert engine.backend.seen == ["modern:quick", "legacy:quick"]  # each in its own conversation


@with_engine
async def test_a_reader_that_is_slow_gets_every_line_whole(engine: Engine) -> None:
    """Rule: answers to one bridge never run into each other, however much of them waits."""
    bridge = await engine.greeted()
    for request in range(1, 9):
        bridge.tool("large", request)
    await asyncio.sleep(0.2)  # far more than the socket holds is waiting now
    other = await engine.greeted("other")
    other.tool("quick", 1)
    assert (await other.heard())["id"] == 1
    found = [await bridge.heard() for _ in range(8)]
    assert sorted(one["id"] for one in found) == list(range(1, 9))
    assert all(one["result"]["content"][0]["text"] == LARGE for one in found)


@with_engine
async def test_a_bridge_that_vanishes_in_the_middle_of_its_calls_disturbs_no_other(engine: Engine) -> None:
    """Rule: what a bridge that is gone had asked ends unanswered; the engine goes on serving."""
    gone, stays = await engine.greeted("gone"), await engine.greeted("stays")
    for request in range(1, 5):
        gone.tool("large", request)
    gone.tool("hold", 9)
    await engine.entered()
    gone.writer.transport.abort()
    stays.tool("quick", 1)
    assert (await stays.heard())["id"] == 1
    engine.backend.let_go.set()
    stays.tool("quick", 2)
    assert (await stays.heard())["id"] == 2


@with_engine
async def test_an_engine_that_ends_answers_what_is_in_work_and_takes_no_more(engine: Engine) -> None:
    """Rule: what came before the end is answered, then goodbye; what came after is left to the next engine."""
    bridge = await engine.greeted()
    bridge.tool("hold", 1)
    await engine.entered()
    engine.service.end("test")
    await asyncio.sleep(0.1)
    bridge.tool("quick", 2)
    await asyncio.sleep(0.1)
    engine.backend.let_go.set()
    assert (await bridge.heard())["id"] == 1
    assert await bridge.line() == wire.BYE
    with pytest.raises(asyncio.IncompleteReadError):
        await bridge.line()
    assert engine.backend.seen == ["c:hold"]


@with_engine
async def test_a_cancelled_call_does_not_hold_up_the_end(engine: Engine) -> None:
    """Rule: an engine that ends waits for what will be answered, not for what its client gave up."""
    bridge = await engine.greeted()
    bridge.tool("hold", 1)
    await engine.entered()
    bridge.say("notifications/cancelled", requestId=1)
    bridge.tool("quick", 2)
    assert (await bridge.heard())["id"] == 2
    engine.service.end("test")
    assert await bridge.line() == wire.BYE


@with_engine
async def test_the_heartbeat_is_answered_beside_a_call(engine: Engine) -> None:
    """Rule: an engine that works on a call says that it lives."""
    bridge = await engine.greeted()
    bridge.tool("hold", 1)
    await engine.entered()
    bridge.writer.write(wire.PING)
    assert await bridge.line() == wire.PONG
    engine.backend.let_go.set()
    assert (await bridge.heard())["id"] == 1


@with_engine
async def test_many_calls_at_once_are_all_answered(engine: Engine) -> None:
    """Rule: each of many requests in one write gets exactly one answer."""
    bridge = await engine.greeted()
    bridge.raw(
        b"\n".join(
            json.dumps(
                {"jsonrpc": "2.0", "id": k, "method": "tools/call", "params": {"name": f"n{k}", "arguments": {}}}
            ).encode()
            for k in range(1, 201)
        )
    )
    found = {}
    for _ in range(200):
        one = await bridge.heard()
        found[one["id"]] = one["result"]["content"][0]["text"]
    assert found == {k: f"n{k}" for k in range(1, 201)}
    with contextlib.suppress(TimeoutError):
        extra = await asyncio.wait_for(bridge.reader.readuntil(b"\n"), 0.1)
        raise AssertionError(extra)
