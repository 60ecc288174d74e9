"""An agent as seen from the wire: starts a bridge and speaks JSON-RPC lines in either protocol era."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

MODERN = "2026-07-28"
LEGACY = "2025-06-18"
ANSWER_WAIT_S = 60.0


class Agent:
    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, modern: bool = False, greet: bool = True
    ) -> None:
        self.modern = modern
        self.started_at = time.perf_counter()
        self.process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env)
        )
        self.notes: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._answers: dict[Any, dict[str, Any]] = {}
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._last_id = 0
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._drain, daemon=True).start()
        self.greeting = self.greet() if greet else {}

    def greet(self) -> dict[str, Any]:
        if self.modern:
            return self.call("server/discover", {})
        client = {"name": "test", "version": "0"}
        answer = self.call("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def _drain(self) -> None:
        for line in self.process.stderr or ():
            self.errors.append(line.decode())

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: Mapping[str, Any]) -> int:
        """Send one request and return its id without waiting."""
        self._last_id += 1
        sent = dict(params)
        if self.modern:
            sent["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
            }
        self.send({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": sent})
        return self._last_id

    def answer(self, request: int) -> dict[str, Any]:
        """Return the answer to one request, keeping what else arrives."""
        until = time.monotonic() + ANSWER_WAIT_S
        while request not in self._answers:
            line = self._lines.get(timeout=max(until - time.monotonic(), 0.01))
            assert line is not None, f"the bridge ended: {''.join(self.errors)}"
            if "method" in line:
                self.notes.append(line)
            else:
                assert line["id"] not in self._answers, f"answered twice: {line}"
                self._answers[line["id"]] = line
        return self._answers[request]

    def call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return self.answer(self.ask(method, params))

    def start_tool(self, name: str, /, **arguments: Any) -> int:
        return self.ask("tools/call", {"name": name, "arguments": arguments})

    def tool(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.start_tool(name, **arguments))

    def close(self) -> int:
        """Close stdin, as an agent does, and return the bridge's exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(20)
