"""An HTTP server on loopback whose answers a test writes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAUSE_S = 0.005
"""How often it looks whether it should end; Python's own half second is waited out at the end of each test."""


class Answering:
    """Serves what `handler` answers from a thread of this process, until it is closed."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(PAUSE_S,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
