"""Attack A18: connections that say nothing use up the descriptors of a server or an engine."""

from __future__ import annotations

import contextlib
import logging
import re
import resource
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from doors import COMMAND, House

from memory_anchor.extensions.service import http_limits
from memory_anchor.runtime import connections, wire

HALF_OPEN = 300
DESCRIPTORS = 256
STDERR_MOST = 64 << 10


@contextlib.contextmanager
def served(most: int, *, head_wait_s: float = 30.0, body_wait_s: float = 30.0) -> Iterator[int]:
    """Serve a small app over the real protocol in a thread; yield the port."""

    async def app(scope: dict[str, object], receive: object, send: object) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):  # type: ignore[operator]
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"ok"})  # type: ignore[operator]

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        made = http_limits.protocol(most, head_wait_s=head_wait_s, body_wait_s=body_wait_s)
        config = uvicorn.Config(app, http=made, ws="none", lifespan="off", log_level="error")  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield bound.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def said(port: int, *pieces: bytes) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=10)
    for piece in pieces:
        link.sendall(piece)
    return link


def ended(link: socket.socket) -> bool:
    try:
        return link.recv(100) == b""
    except ConnectionResetError:
        return True


def test_silent_connections_make_room_for_one_that_asks() -> None:
    """Attack A18: the oldest that has asked nothing goes; a request is answered all the same."""
    with served(8) as port, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(said(port, b"GET / HTTP/1.1\r\n")) for _ in range(40)]
        with said(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n") as asking:
            assert asking.recv(1000).startswith(b"HTTP/1.1 200")
        assert ended(silent[0])


def test_a_head_and_a_body_have_their_time_however_slowly_they_drip() -> None:
    """Attack A18: the time counts from the first moment, not from the last byte."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    with served(8, head_wait_s=0.3, body_wait_s=0.3) as port:
        for start in (b"", b"GET / HTTP/1.1\r\n", head):
            with said(port, start) as link:
                link.settimeout(10)
                dripping = time.monotonic()
                with contextlib.suppress(OSError):
                    while time.monotonic() - dripping < 0.6:
                        link.sendall(b"x")
                        time.sleep(0.05)
                assert ended(link)
        with said(port, head, b"x" * 500) as link:
            time.sleep(0.1)
            link.sendall(b"x" * 500)
            assert link.recv(1000).startswith(b"HTTP/1.1 200")


def test_what_strangers_can_make_a_process_log_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Attack A18: so many records a minute, then how many were left out."""
    logger = logging.getLogger("asyncio.test-throttle")
    throttle = connections.Throttle(limit=5)
    logger.addFilter(throttle)
    for number in range(100):
        logger.error("out of resources %d", number)
    assert len(caplog.records) == 5
    throttle._since -= connections.MINUTE_S
    logger.error("again")
    assert caplog.records[-1].getMessage() == "again (95 records before it were left out)"


@pytest.mark.slow
def test_half_open_connections_end_no_service_and_fill_no_log(tmp_path: Path) -> None:
    """Attack A18: `serve` with 256 descriptors, 300 half-open connections to HTTP and to the engine's socket."""
    house = House(tmp_path)
    server = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"],
        env=house.environment("here"),
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "stderr").open("wb"),
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    try:
        assert server.stdout is not None
        port = int(re.search(r":(\d+)/mcp", server.stdout.readline()).group(1))  # type: ignore[union-attr]
        with contextlib.ExitStack() as stack:
            for number in range(HALF_OPEN):
                stack.enter_context(said(port, b"GET / HTTP/1.1\r\n" if number % 2 else b""))
                with contextlib.suppress(OSError):  # its queue is full for a moment
                    stack.enter_context(wire.connect(str(house.data))[0])
            for _ in range(5):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=20) as answer:
                    assert answer.status == 200
                assert wire.ask(str(house.data), "ping", wire.Preamble(), timeout_s=20)["ok"]
            assert house.run("list").returncode == 0
            time.sleep(2.0)
        assert (tmp_path / "stderr").stat().st_size < STDERR_MOST
        assert server.poll() is None
    finally:
        server.terminate()
        server.wait(30)
        house.close()
