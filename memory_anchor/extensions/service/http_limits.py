"""uvicorn's HTTP connection with two bounds that it lacks: open connections, and the time a request may take to arrive.

uvicorn waits for ever for the head of a request, so some hundred silent connections used up the descriptors. Here the
head and the body each have a deadline, however slowly bytes drip in, and with too many connections the oldest one
without a request is closed. An answer may stream without limit.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from memory_anchor.domain.errors import Unavailable
from memory_anchor.runtime import connections
from memory_anchor.runtime.listening import tcp_listener

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HEAD_WAIT_S = 10.0
BODY_WAIT_S = 60.0


def listen(host: str, port: int, option: str) -> socket.socket:
    """Return a listening socket. option: that sets the port. Raises Unavailable: host or port cannot be had."""
    try:
        return tcp_listener(host, port)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise Unavailable(
            f"{host}:{port} cannot be served ({why}); choose another {option}, 0 for any free one"
        ) from error


def run_server(
    app: ASGIApp,
    listener: socket.socket,
    *,
    stop_wait_s: int,
    lifespan: Literal["auto", "off"] = "auto",
    backlog: int = 2048,
    tls_cert: str = "",
    tls_key: str = "",
) -> None:
    """Serve until interrupted, then for at most `stop_wait_s` more."""
    connections.throttle_logs()
    config = uvicorn.Config(
        app,
        http=protocol(connections.connections()),
        ws="none",
        lifespan=lifespan,
        backlog=backlog,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=stop_wait_s,
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
    )
    uvicorn.Server(config).run(sockets=[listener])


def protocol(most: int, *, head_wait_s: float = HEAD_WAIT_S, body_wait_s: float = BODY_WAIT_S) -> type[H11Protocol]:
    """Return the protocol class for `uvicorn.Config(http=...)`. most: connections open at once."""

    class Limited(H11Protocol):
        _due: asyncio.TimerHandle | None = None
        _waits_for: type[h11.IDLE | h11.SEND_BODY] | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            silent.append(self)
            if len(self.connections) > most:
                _make_room(self)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            if self in silent:
                silent.remove(self)
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Set the deadline of what this connection waits for, unless it is set already."""
            state = self.conn.their_state
            if state is not h11.IDLE and self in silent:
                silent.remove(self)
            waits_for = state if state in (h11.IDLE, h11.SEND_BODY) else None
            if state is h11.IDLE and self.timeout_keep_alive_task is not None:
                waits_for = None  # between two requests uvicorn's own timeout applies
            if waits_for is self._waits_for and (waits_for is None or self._due is not None):
                return
            self._stop()
            self._waits_for = waits_for
            if waits_for is not None:
                wait = head_wait_s if waits_for is h11.IDLE else body_wait_s
                self._due = self.loop.call_later(wait, self._late)

        def _stop(self) -> None:
            if self._due is not None:
                self._due.cancel()
                self._due = None

        def _late(self) -> None:
            self._due = None
            self.transport.abort()

    def _make_room(newcomer: Limited) -> None:
        oldest = silent[0] if silent and silent[0] is not newcomer else newcomer
        oldest.transport.abort()

    silent: list[Limited] = []
    return Limited
