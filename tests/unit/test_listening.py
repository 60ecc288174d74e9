"""The sockets that our servers listen on: each answer is sent at once, and a port that is taken is said."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from memory_anchor.extensions.dashboard import app as dashboard
from memory_anchor.extensions.service import http_limits
from memory_anchor.runtime import engine, listening, wire


def _of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    monkeypatch.setenv("ANCHOR_WIRE", "tcp")
    return engine.listen(tmp_path)[0]


def _of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    return http_limits.listen("127.0.0.1", 0, "http.port")


def _of_the_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """Return what the dashboard hands its server, which is not started."""
    import uvicorn

    handed: list[socket.socket] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda _, sockets: handed.extend(sockets))
    monkeypatch.setattr(dashboard, "_warm", lambda: None)
    monkeypatch.setattr(dashboard.actions, "wake", lambda: None)
    dashboard.serve(0, announce=lambda _: None)
    return handed[0]


@pytest.mark.parametrize("made", [_of_the_engine, _of_the_server, _of_the_dashboard])
def test_an_answer_leaves_at_once_and_waits_for_no_acknowledgement(
    made: Callable[[Path, pytest.MonkeyPatch], socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule listening.at_once: an answer of two pieces waited 40 ms for the caller's kernel on every kept connection."""
    listener = made(tmp_path, monkeypatch)
    gathers: list[int] = []

    async def once() -> None:
        asked = asyncio.Event()

        async def answer(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
            gathers.append(out.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            out.close()
            asked.set()

        async with await asyncio.start_server(answer, sock=listener):
            _, caller = await asyncio.open_connection(*listener.getsockname())
            await asyncio.wait_for(asked.wait(), 10)
            caller.close()

    asyncio.run(once())

    assert gathers
    assert all(gathers)


def test_a_line_to_an_engine_leaves_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule listening.at_once: a second line on the same connection waits for no answer to the first."""
    listener = listening.tcp_listener("127.0.0.1", 0)
    monkeypatch.setattr(wire, "read_state", lambda _: {"address": {"tcp": listener.getsockname()[1]}})

    link, _ = wire.connect(str(tmp_path))

    assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    link.close()
    listener.close()


def test_a_taken_port_is_refused_and_its_owner_keeps_it() -> None:
    """Rule listening.alone: no second program listens where one does already."""
    first = listening.tcp_listener("127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        listening.tcp_listener("127.0.0.1", first.getsockname()[1])
    first.close()
