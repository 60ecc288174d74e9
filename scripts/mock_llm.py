"""A scripted model API for whole agent runs without an account: Anthropic Messages and OpenAI Responses.

`serve` answers every agent request with the next step of a script: a step names a tool by the end of its name (clients
prefix it with the server's) and its input, or is a text that ends the run. Which step comes next is the number of tool
results the request carries, so the agent drives it. Every request body is kept for the caller to look into.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = Mapping[str, Any]
USAGE = {"input_tokens": 100, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


class Scripted(ThreadingHTTPServer):
    """A server on a free loopback port. steps: the script; seen: the bodies of all requests so far."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps = list(steps)
        self.seen: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Scripted:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def log_message(self, *_: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._reply(b"", "text/plain")

    def do_GET(self) -> None:
        self._reply(b'{"data":[],"models":[]}', "application/json")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        self.server.seen.append(body)
        if "count_tokens" in self.path:
            self._reply(b'{"input_tokens":100}', "application/json")
        elif self.path.startswith("/v1/messages"):
            self._anthropic(body)
        elif self.path.endswith("/responses"):
            self._responses(body)
        else:
            self._reply(b"{}", "application/json")

    def _reply(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        text = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in events)
        self._reply(text.encode(), "text/event-stream")

    def _step(self, results: int, tools: Mapping[str, tuple[str, str | None]]) -> dict[str, Any]:
        """Return the step due, its tool under the name the client listed; a title request (no tools) gets a text."""
        step = dict(self.server.steps[min(results, len(self.server.steps) - 1)]) if tools else {"text": "title"}
        if "tool" in step:
            found = next((full for full in tools if full.endswith(step["tool"])), None)
            if found is None:
                return {"text": f"no tool {step['tool']}"}
            step["name"], step["namespace"] = tools[found]
        return step

    def _anthropic(self, body: dict[str, Any]) -> None:
        tools = {str(tool.get("name")): (str(tool.get("name")), None) for tool in body.get("tools", [])}
        blocks = [
            block
            for message in body.get("messages", [])
            if isinstance(message.get("content"), list)
            for block in message["content"]
        ]
        step = self._step(sum(block.get("type") == "tool_result" for block in blocks), tools)
        if "tool" in step:
            block = {"type": "tool_use", "id": f"toolu_{len(self.server.seen)}", "name": step["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step["input"])}
            stop = "tool_use"
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step["text"]}
            stop = "end_turn"
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"), "usage": USAGE}
        if not body.get("stream"):
            whole = {**block, **({"input": step["input"]} if "tool" in step else {"text": step["text"]})}
            done = {**message, "content": [whole], "stop_reason": stop, "stop_sequence": None}
            self._reply(json.dumps(done).encode(), "application/json")
            return
        start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
        self._stream(
            [
                ("message_start", {"type": "message_start", "message": start}),
                ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
                ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
                ("content_block_stop", {"type": "content_block_stop", "index": 0}),
                (
                    "message_delta",
                    {
                        "type": "message_delta",
                        "delta": {"stop_reason": stop, "stop_sequence": None},
                        "usage": {"output_tokens": 5},
                    },
                ),
                ("message_stop", {"type": "message_stop"}),
            ]
        )

    def _responses(self, body: dict[str, Any]) -> None:
        items = [item for item in body.get("input") or [] if isinstance(item, dict)]
        results = sum(str(item.get("type", "")).endswith("_output") for item in items)
        step = self._step(results, _listed(body.get("tools") or []))
        if "tool" in step:
            item: dict[str, Any] = {
                "type": "function_call",
                "id": f"fc_{results}",
                "call_id": f"call_{results}",
                "name": step["name"],
                "arguments": json.dumps(step["input"]),
                "status": "completed",
            }
            if step["namespace"]:
                item["namespace"] = step["namespace"]
        else:
            text = {"type": "output_text", "text": step["text"], "annotations": []}
            item = {"type": "message", "id": f"msg_{results}", "role": "assistant", "status": "completed"}
            item["content"] = [text]
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 15,
        }
        response = {
            "id": f"resp_{len(self.server.seen)}",
            "object": "response",
            "status": "completed",
            "model": body.get("model"),
            "output": [item],
            "usage": usage,
        }
        created = {**response, "status": "in_progress", "output": []}
        self._stream(
            [
                ("response.created", {"type": "response.created", "response": created}),
                (
                    "response.output_item.added",
                    {"type": "response.output_item.added", "output_index": 0, "item": item},
                ),
                ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
                ("response.completed", {"type": "response.completed", "response": response}),
            ]
        )


def _listed(tools: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str | None]]:
    """Return full name -> (name, namespace) of Codex's tools, which it lists flat or grouped by server."""
    found: dict[str, tuple[str, str | None]] = {}
    for tool in tools:
        name = str(tool.get("name"))
        if tool.get("type") == "namespace":
            found |= {f"{name}{one.get('name')}": (str(one.get("name")), name) for one in tool.get("tools", [])}
        else:
            found[name] = (name, None)
    return found
