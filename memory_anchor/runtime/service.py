"""What an engine does once it holds the lock: connections, conversations, idle exit, draining.

One asyncio loop answers greetings, pings and JSON-RPC; every call into the memory runs on a worker thread, so that a
long one does not make the engine look hung. The MCP SDK's dual-era loop reads and writes a connection through the two
streams of `connections`. The preamble is in a context variable that the SDK passes on with each message.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop

from memory_anchor.base.json_values import Json, Record, kind_of, parsed
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, NotFound, Unavailable, report
from memory_anchor.hooks.hooks import COLD_START
from memory_anchor.runtime import connections, handshake, spool, wire
from memory_anchor.runtime.cleanlog import log_bug
from memory_anchor.runtime.connections import BridgeAnswers, BridgeLines, Connection
from memory_anchor.runtime.recording import ClientConnection, memory_streams, record_handshake, repair_lines
from memory_anchor.runtime.relay import silent_line
from memory_anchor.runtime.state_file import StateFile, write_failure

log = logging.getLogger("memory_anchor.engine")

HOOKS_BY_TOOL = ("PreToolUse", "PostToolUseFailure")
"""Hooks that a client may send over its connection to the server: those of every tool call."""
HOOK_WAIT_S = 1.5
"""How long its client waits for such a hook."""
LEARNING = ("PreCompact", "Stop", "SessionEnd")
"""Hooks after whose answer the transcript may be learned from, in the background."""
GREETING_WAIT_S = 10.0
SILENT_MAX = 32
"""Connections that have not greeted; one more, and the oldest of them is closed."""
HOOKS_AT_ONCE, LEARNING_AT_ONCE = 16, 4
"""Separate threads, so that a file that is slow to read delays nobody else."""
LEARNING_WAITING = 256
"""Hooks that wait for such a thread; further ones are spooled to disk."""
GRACE_S = 20.0
"""From a bridge's end until its conversation is ended: a client that restarts its server reconnects in between."""
DRAIN_WAIT_S = 10.0
DRAIN_POLL_S = 0.02
SPOOL_EVERY_S = 60.0
IDLE_CHECKS = 4
"""How often the idle time is looked at within one idle period; at most `SPOOL_EVERY_S` apart."""
RECORD_AFTER_S = 0.5
"""The handshake is recorded this long after a bridge connects, so that its first calls go first."""
RECORD_EVERY_S = 60.0
SHOWN = 40
COLD_MAX = 1_000
"""Conversations noted whose bridge connected while the engine was loading."""


class Backend(Protocol):
    """What an engine serves. All methods may block: they run on worker threads."""

    idle_exit_s: float

    def server(self, preamble: wire.Preamble) -> Server[ClientConnection]:
        """Return the MCP server for this caller's profile and rights; the same object for the same ones."""
        ...

    def hook(self, preamble: wire.Preamble, event: str, payload: Record) -> str:
        """Return what the client's hook prints."""
        ...

    def hook_in_background(self, preamble: wire.Preamble, event: str, payload: Record) -> None:
        """Do what this hook starts and no client waits for."""
        ...

    def call(self, preamble: wire.Preamble, name: str, arguments: Record) -> Record:
        """Return the answer of one call of the command line. Raises our errors."""
        ...

    def conversation_closed(self, preamble: wire.Preamble) -> None: ...

    def is_live(self) -> bool:
        """Return whether a conversation still has active context."""
        ...

    def close(self) -> None: ...


def run(make_backend: Callable[[], Backend], *, data: Path, listener: socket.socket, state_file: StateFile) -> None:
    """Serve until idle, stopped or replaced; every conversation's active context is stored before it returns."""
    anyio.run(Service(make_backend, data=data, listener=listener, state_file=state_file).serve)


class Service:
    def __init__(
        self, make_backend: Callable[[], Backend], *, data: Path, listener: socket.socket, state_file: StateFile
    ) -> None:
        self._make_backend = make_backend
        self._data, self._listener, self._state_file = data, listener, state_file
        self._backend: Backend | None = None
        self._loaded = anyio.Event()
        self._ending = anyio.Event()
        self._connections: set[Connection] = set()
        self._max_connections = connections.connections()
        self._count = 0
        self._calls = 0
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self._hooks = anyio.CapacityLimiter(HOOKS_AT_ONCE)
        self._learning = anyio.CapacityLimiter(LEARNING_AT_ONCE)
        self._open: Counter[tuple[str, str]] = Counter()
        self._states: dict[int, ClientConnection] = {}
        self._cold: set[str] = set()
        self._recorded: dict[str, float] = {}
        self._busy_at = time.monotonic()
        self._spool_at = 0.0
        self._stack = AsyncExitStack()
        self._entering = anyio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reason = ""

    async def serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # Windows ends processes outright; in another server's process, signals belong to the main thread.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self._end, f"signal {number.name}")
        connections.throttle_logs()
        unix = self._listener.family != socket.AF_INET
        start = asyncio.start_unix_server if unix else asyncio.start_server
        server = await start(self._accept, sock=self._listener, limit=wire.MAX_LINE_BYTES)
        try:
            backend = await anyio.to_thread.run_sync(self._make_backend)
        except Exception as error:
            write_failure(self._state_file.run, error)  # before the connections close: who waits on one reads why
            raise
        self._backend = backend
        self._busy_at = time.monotonic()
        self._loaded.set()
        self._state_file.publish("serving")
        log.info("serving %s, version %s, pid %d", self._data, wire.VERSION, os.getpid())
        try:
            async with self._stack, anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._tend, backend)
                await self._ending.wait()
                self._state_file.publish("draining")
                log.info("draining: %s", self._reason)
                server.close()
                await self._drain()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(backend.close)
        log.info("ended")

    def end(self, reason: str) -> None:
        """Drain and end; for other threads. Does nothing when it has ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, reason)

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._ending.set()

    async def _drain(self) -> None:
        """Answer requests in progress, then say goodbye: later ones are resent to the next engine."""
        with anyio.move_on_after(DRAIN_WAIT_S):
            while self._calls or any(connection.unanswered for connection in self._connections):
                await anyio.sleep(DRAIN_POLL_S)
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.writer.write(wire.BYE)
                connection.writer.close()

    async def _tend(self, backend: Backend) -> None:
        """Process spooled hooks, and end when idle."""
        every = min(SPOOL_EVERY_S, backend.idle_exit_s / IDLE_CHECKS)
        while True:
            now = time.monotonic()
            if not self._spool_at or now - self._spool_at >= SPOOL_EVERY_S:
                self._spool_at = now
                try:
                    await anyio.to_thread.run_sync(self._process_spool, backend)
                except Exception as bug:
                    log_bug("taking in spooled hooks", bug)
            now = time.monotonic()
            if not self._state_file.is_ours():
                self._end("its data directory is gone")
                return
            if self._connections or self._open:
                self._busy_at = now
            elif now - self._busy_at >= backend.idle_exit_s and not await anyio.to_thread.run_sync(backend.is_live):
                self._end(f"idle for {backend.idle_exit_s:g} s")
                return
            await anyio.sleep(every)

    def _process_spool(self, backend: Backend) -> None:
        for item in spool.waiting(self._data):
            try:
                backend.hook(item.preamble, item.event, item.payload)
                if item.event in LEARNING:
                    self._learn_from_spooled(backend, item)
            except MemoryAnchorError as error:
                log.warning("a spooled %s hook stays on disk: %s", item.event, error)
                item.failed()
            except Exception as bug:
                log_bug(f"a spooled {item.event} hook, which stays on disk", bug)
                item.failed()
            else:
                item.remove()

    def _learn_from_spooled(self, backend: Backend, item: spool.SpooledHook) -> None:
        try:
            backend.hook_in_background(item.preamble, item.event, item.payload)
        except (BadInput, NotFound) as error:  # the transcript is gone or is none: trying again would not help
            log.warning("nothing was learned from a spooled %s: %s", item.event, error)

    # --- connections -------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        self._silent[writer] = None
        if len(self._silent) > SILENT_MAX or self._count > self._max_connections:
            # The connection that has been silent longest is closed; the new one itself when no other is.
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        try:
            try:
                line = await self._greeted(reader, writer)
            finally:
                self._silent.pop(writer, None)
            if line is not None:
                await self._dispatch(line, reader, writer)
        except (OSError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            pass  # the other side is gone, and asks again
        except asyncio.CancelledError:
            raise
        except Exception as bug:
            log_bug("a connection", bug)
        finally:
            self._count -= 1
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Record | None:
        link = writer.get_extra_info("socket")
        uid = wire.peer_uid(link._sock if hasattr(link, "_sock") else link)
        if uid is not None and uid != os.getuid():
            log.warning("a connection of user %d was refused", uid)
            return None
        with anyio.move_on_after(GREETING_WAIT_S):
            raw = await reader.readuntil(b"\n")
            try:
                line = parsed(raw)
            except (ValueError, RecursionError):
                await _refuse(writer, "the greeting is no JSON")
                return None
            if not isinstance(line, dict) or line.get("anchor") != wire.WIRE:
                number = str(line.get("anchor") if isinstance(line, dict) else None)[:20]
                await _refuse(writer, f"the greeting is for protocol {number!r}; this engine speaks {wire.WIRE}")
                return None
            token = self._state_file.address.get("token")
            if token is not None and not hmac.compare_digest(str(line.get("token")), str(token)):
                log.warning("a connection without the token was refused")
                return None
            return line
        return None

    async def _dispatch(self, line: Record, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            preamble = wire.Preamble.from_json(line.get("preamble", {}))
        except ValueError as error:
            await _refuse(writer, str(error))
            return
        match line.get("kind"):
            case "mcp":
                await self._mcp(preamble, reader, writer)
            case "ping" | "status":
                await _say(writer, self._status())
            case "stop":
                self._end("asked to stop")  # before answering: the other side may not wait for that
                await _say(writer, self._status())
            case "hook":
                answer = await self._hook(preamble, line)
                await _say(writer, answer)
                if answer["ok"] and event_of(line) in LEARNING:
                    self._learn(preamble, line)
            case "call":
                self._calls += 1  # not drained before its answer is written
                try:
                    await _say(writer, await self._call(preamble, line))
                finally:
                    self._calls -= 1
            case other:
                known = "mcp, ping, status, stop, hook, call"
                await _refuse(writer, f"unknown kind {str(other)[:SHOWN]!r}; allowed are {known}")

    def _status(self) -> Record:
        state = "draining" if self._ending.is_set() else "serving" if self._loaded.is_set() else "loading"
        return {
            "anchor": wire.WIRE,
            "ok": True,
            "pid": os.getpid(),
            "version": wire.VERSION,
            "state": state,
            "uptime_s": round(time.time() - self._state_file.started_at, 1),
            "bridges": len(self._connections),
        }

    async def _hook(self, preamble: wire.Preamble, line: Record) -> Record:
        cold = not self._loaded.is_set()  # then this session's handshake had no constitution either
        await self._loaded.wait()
        backend = self._backend
        try:
            event, payload = event_of(line), payload_of(line)
        except BadInput as error:
            return {"anchor": wire.WIRE, "ok": False, "error": str(error)}
        if event == "SessionStart" and (cold or preamble.conversation in self._cold):
            self._cold.discard(preamble.conversation)
            payload = {**payload, COLD_START: True}
        if backend is None or self._ending.is_set():
            return {"anchor": wire.WIRE, "ok": False, "error": "the engine is ending"}
        self._busy_at = time.monotonic()
        try:
            text = await anyio.to_thread.run_sync(backend.hook, preamble, event, payload, limiter=self._hooks)
        except MemoryAnchorError as error:
            return {"anchor": wire.WIRE, "ok": False, "error": str(error)}
        except Exception as bug:
            why = log_bug(f"a {event[:SHOWN]} hook", bug)
            reason = why or f"a bug ended this hook ({type(bug).__name__}); see the engine's log"
            return {"anchor": wire.WIRE, "ok": False, "error": reason}
        return {"anchor": wire.WIRE, "ok": True, "text": text}

    async def _answer_hook(self, preamble: wire.Preamble, writer: asyncio.StreamWriter, message: Record) -> None:
        """Answer a hook that came over a bridge; whatever fails, its client is shown nothing."""
        params = message.get("params")
        arguments = params.get("arguments") if isinstance(params, dict) else None
        given: Record = arguments if isinstance(arguments, dict) else {}
        event, text = str(given.get("event")), ""
        if event in HOOKS_BY_TOOL and preamble.memory != "off":
            tool_input: Json = None
            with contextlib.suppress(ValueError, RecursionError):
                tool_input = parsed(str(given.get("tool_input") or "{}").encode())
            payload: Record = {
                "hook_event_name": event,
                "tool_input": tool_input,
                "error": given.get("error") or "",
                wire.UNTIL: time.time() + HOOK_WAIT_S,
            }
            own = preamble._replace(conversation=str(given.get("session") or preamble.conversation))
            answer = await self._hook(own, {"event": event, "payload": payload})
            text = str(answer.get("text") or "")
        request = message["id"]
        if isinstance(request, int | str):
            with contextlib.suppress(OSError):
                writer.write(silent_line(request, wire.hook_output(event, text) if text else ""))
                await writer.drain()

    def _learn(self, preamble: wire.Preamble, line: Record) -> None:
        """Start learning in the background; with too many hooks waiting it is spooled to disk."""
        if self._learning.statistics().tasks_waiting < LEARNING_WAITING:
            self._tasks.start_soon(self._hook_in_background, preamble, line)
        elif not spool.keep(str(self._data), preamble, event_of(line), payload_of(line)):
            log.warning("the spool is full; nothing is learned at one %s", event_of(line))

    async def _hook_in_background(self, preamble: wire.Preamble, line: Record) -> None:
        if self._backend is None:
            return
        try:
            learn = self._backend.hook_in_background
            await anyio.to_thread.run_sync(learn, preamble, event_of(line), payload_of(line), limiter=self._learning)
        except MemoryAnchorError as error:
            log.warning("nothing was learned at %s: %s", event_of(line), error)
        except Exception as bug:
            log_bug(f"learning at {event_of(line)}", bug)

    async def _call(self, preamble: wire.Preamble, line: Record) -> Record:
        await self._loaded.wait()
        backend, arguments = self._backend, line.get("arguments")
        self._busy_at = time.monotonic()
        try:
            if backend is None or self._ending.is_set():
                error = {"code": report(Unavailable()).code, "message": "the engine is ending; try again"}
                return {"anchor": wire.WIRE, "error": error, "ending": True}
            if not isinstance(arguments, dict | None):
                raise BadInput(f"the arguments of a call are {kind_of(arguments)}; allowed is a mapping")
            name = line.get("name")
            if not isinstance(name, str):
                raise BadInput(f"the name of a call is {kind_of(name)}; allowed is a text")
            result = await anyio.to_thread.run_sync(backend.call, preamble, name, arguments or {})
        except MemoryAnchorError as error:
            return {"anchor": wire.WIRE, "error": {"code": report(error).code, "message": str(error)}}
        except Exception as error:
            why = log_bug("a call", error)
            reason = why or f"a bug ended this call ({type(error).__name__}); see the engine's log"
            return {"anchor": wire.WIRE, "error": {"code": report(error).code, "message": reason}}
        return {"anchor": wire.WIRE, "result": result}

    async def _mcp(self, preamble: wire.Preamble, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if wire.is_newer(preamble.version, than=wire.VERSION):
            await _say(writer, {"anchor": wire.WIRE, "retiring": True, "version": wire.VERSION})
            self._end(f"a bridge of version {preamble.version} came")
            return
        if not self._loaded.is_set() and len(self._cold) < COLD_MAX:
            self._cold.add(preamble.conversation)  # its bridge answers from the packaged file, without constitution
        await self._loaded.wait()
        if self._backend is None or self._ending.is_set():
            return
        wire.PREAMBLE.set(preamble)
        try:
            server = await anyio.to_thread.run_sync(self._backend.server, preamble)
            state = await self._lifespan(server)
        except Exception as error:
            if isinstance(error, MemoryAnchorError):
                reason = str(error)
            else:
                why = f"a bug kept it from serving this project ({type(error).__name__}); see the engine's log"
                reason = log_bug("serving a connection", error) or why
            await _say(writer, {"anchor": wire.WIRE, "refused": reason})
            return
        connection = Connection(preamble, writer)
        conversation = (preamble.project_dir, preamble.conversation)
        self._connections.add(connection)
        self._open[conversation] += 1
        try:
            await _say(writer, {"anchor": wire.WIRE, "pid": os.getpid(), "version": wire.VERSION})
            self._tasks.start_soon(self._record, server, preamble, state)

            def on_hook(message: Record) -> None:
                self._tasks.start_soon(self._answer_hook, preamble, writer, message)

            incoming, outgoing = (
                BridgeLines(connection, reader, self._ending.is_set, on_hook),
                BridgeAnswers(connection),
            )
            options = server.create_initialization_options()
            await serve_dual_era_loop(server, incoming, outgoing, lifespan_state=state, init_options=options)
        finally:
            self._connections.discard(connection)
            if self._ending.is_set():
                self._leave(conversation)
            else:
                self._tasks.start_soon(self._close_later, conversation, preamble)

    async def _lifespan(self, server: Server[ClientConnection]) -> ClientConnection:
        """Return the state of the server's lifespan, entered once for all its connections."""
        async with self._entering:
            if id(server) not in self._states:
                self._states[id(server)] = await self._stack.enter_async_context(server.lifespan(server))
        return self._states[id(server)]

    # --- after a bridge ----------------------------------------------------------------------------------------

    async def _close_later(self, conversation: tuple[str, str], preamble: wire.Preamble) -> None:
        """End a conversation whose last bridge has not reconnected within `GRACE_S`."""
        with anyio.move_on_after(GRACE_S):
            await self._ending.wait()
        self._leave(conversation)
        if conversation in self._open or self._ending.is_set() or self._backend is None:
            return  # it has another bridge, or the drain stores everything anyway
        try:
            await anyio.to_thread.run_sync(self._backend.conversation_closed, preamble)
        except MemoryAnchorError as error:
            log.warning("a conversation could not be ended: %s", error)

    def _leave(self, conversation: tuple[str, str]) -> None:
        self._open[conversation] -= 1
        if self._open[conversation] <= 0:
            del self._open[conversation]

    async def _record(self, server: Server[ClientConnection], preamble: wire.Preamble, state: ClientConnection) -> None:
        """Note on disk which packaged handshake is this caller's, for the next cold start."""
        key = handshake.key(preamble)
        now = time.monotonic()
        if now - self._recorded.get(key, -RECORD_EVERY_S) < RECORD_EVERY_S:
            return
        self._recorded[key] = now
        await anyio.sleep(RECORD_AFTER_S)
        wire.PREAMBLE.set(preamble)
        try:
            profile = handshake.profile_of(await record_handshake(server, state))
            if profile:
                handshake.save(str(self._data), preamble, profile)
        except OSError as error:
            log.warning("the handshake was not recorded: %s", error.strerror)
        except Exception as bug:
            log_bug("recording the handshake", bug)


def event_of(line: Record) -> str:
    """Return the hook's event name. Raises BadInput: it is no text."""
    event = line.get("event")
    if not isinstance(event, str):
        raise BadInput(f"the event of a hook is {kind_of(event)}; allowed is a text")
    return event


def payload_of(line: Record) -> Record:
    """Return the hook's payload, {} when there is none. Raises BadInput: it is no object."""
    payload = line.get("payload", {})
    if not isinstance(payload, dict):
        raise BadInput(f"the payload of a hook is {kind_of(payload)}; allowed is a mapping")
    return payload


async def _say(writer: asyncio.StreamWriter, line: Record) -> None:
    writer.write(wire.line_of(line))
    await writer.drain()


async def _refuse(writer: asyncio.StreamWriter, reason: str) -> None:
    """Say why in both forms: a bridge reads `refused`, a hook or command `error`."""
    error = {"code": report(BadInput()).code, "message": reason}
    await _say(writer, {"anchor": wire.WIRE, "ok": False, "error": error, "refused": reason})


async def serve_stdio(backend: Backend, preamble: wire.Preamble) -> None:
    """Serve one agent on this process's stdin and stdout with the SDK's transport, until stdin closes."""
    from mcp.server.stdio import stdio_server

    wire.PREAMBLE.set(preamble)
    server = backend.server(preamble)
    async with (
        server.lifespan(server) as state,
        stdio_server() as (read, write),
        memory_streams() as ((inbound, served), _),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(repair_lines, read, inbound)
        options = server.create_initialization_options()
        await serve_dual_era_loop(server, served, write, lifespan_state=state, init_options=options)
