"""A proxy on loopback that spoils connections: refuses, cuts, delays, garbles, drips, or never answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

FAULTS = ("pass", "refuse", "silent", "late", "cut", "garble", "half_json", "error", "drip", "huge_head")
LATE_S = 5.0


class FaultyProxy:
    """Listens on `url`; `fault` says what happens to each connection. to: the port of the real server."""

    def __init__(self, to: int, fault: Callable[[], str] = lambda: "pass") -> None:
        self._to = to
        self.fault = fault
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.met: list[str] = []
        self.asked = bytearray()
        """Every byte that came from clients."""
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, self.fault()), daemon=True).start()

    def _serve(self, client: socket.socket, fault: str) -> None:
        self.met.append(fault)
        with contextlib.suppress(OSError), client:
            client.settimeout(30)
            if fault == "refuse":
                return
            if fault == "silent":
                self._closed.wait(LATE_S * 2)
                return
            request = client.recv(65536)
            self.asked += request
            if fault == "late":
                self._closed.wait(LATE_S)
            elif fault == "garble":
                client.sendall(b"\x00\xff\x13 not http at all \r\n\r\n" * 20)
                return
            elif fault == "error":
                client.sendall(b"HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n{}")
                return
            elif fault == "huge_head":
                with contextlib.suppress(OSError):
                    client.sendall(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 200_000)
                return
            answer = self._answer_to(request, client)
            if fault == "cut":
                client.sendall(answer[: len(answer) // 2])
            elif fault == "half_json":
                client.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n{"snippets": [{}')
            elif fault == "drip":
                for byte in answer:
                    client.sendall(bytes([byte]))
                    time.sleep(0.05)
            else:
                client.sendall(answer)

    def _answer_to(self, request: bytes, client: socket.socket) -> bytes:
        with socket.create_connection(("127.0.0.1", self._to), timeout=30) as server:
            server.sendall(request)
            head, _, body = request.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            while len(body) < length and (more := client.recv(65536)):
                self.asked += more
                server.sendall(more)
                body += more
            whole = b""
            while piece := server.recv(65536):
                whole += piece
        return whole
