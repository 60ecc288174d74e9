"""A tiny MCP server for process tests: `lab.py engine` and `lab.py bridge` are the real engine and bridge around it.

Its backend writes what happened to `lab.log` in the data directory, one JSON object a line, and knows a few tools that
show who calls and that misbehave on request.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from memory_anchor.runtime import bridge, engine, wire


class LabBackend:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.idle_exit_s = float(os.environ.get("LAB_IDLE_S", "600"))
        self._servers: dict[str, Any] = {}
        self.note(loaded=os.getpid())

    def note(self, **what: Any) -> None:
        with (self.data / "lab.log").open("a") as log:
            log.write(json.dumps(what) + "\n")

    def server(self, preamble: wire.Preamble) -> Any:
        if preamble.profile not in self._servers:
            self._servers[preamble.profile] = self._build(preamble.profile)
        return self._servers[preamble.profile]

    def _build(self, profile: str) -> Any:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Context

        globals()["Context"] = Context  # the SDK looks the annotation up here

        mcp = MCPServer("lab", version="1", instructions=f"profile {profile}", log_level="WARNING")

        @mcp.tool()
        def whoami(ctx: Context) -> dict[str, Any]:
            """Say who calls and who answers."""
            caller = wire.PREAMBLE.get()
            return {
                "pid": os.getpid(),
                "conversation": caller.conversation,
                "project": caller.project_dir,
                "nonce": wire.call_nonce(caller, ctx.request_id),
                "protocol": ctx.protocol_version,
            }

        @mcp.tool()
        def slow(name: str, ms: int) -> str:
            """Note the start, take a while, answer."""
            self.note(slow=name, pid=os.getpid())
            time.sleep(ms / 1000)
            return f"{name} by {os.getpid()}"

        @mcp.tool()
        def die(name: str) -> str:
            """Note it and end the engine at once."""
            self.note(die=name, pid=os.getpid())
            os.kill(os.getpid(), 9)
            return "never"

        @mcp.tool()
        def write(name: str) -> str:
            """Write one line that a test counts."""
            self.note(write=name)
            return "written"

        return mcp._lowlevel_server

    def hook(self, preamble: wire.Preamble, event: str, payload: dict[str, Any]) -> str:
        self.note(hook=event, conversation=preamble.conversation, payload=payload)
        return f"context for {event}"

    def hook_in_background(self, preamble: wire.Preamble, event: str, payload: dict[str, Any]) -> None:
        self.note(behind=event)

    def call(self, preamble: wire.Preamble, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name != "echo":
            from memory_anchor.domain.errors import BadInput

            raise BadInput(f"no call {name!r}")
        return {"echo": arguments, "project": preamble.project_dir}

    def conversation_closed(self, preamble: wire.Preamble) -> None:
        self.note(closed=preamble.conversation)

    def is_live(self) -> bool:
        return False

    def close(self) -> None:
        self.note(ended=os.getpid())


def _backend(lock: Any) -> LabBackend:
    if os.environ.get("LAB_FAIL"):
        from memory_anchor.domain.errors import StoreDamaged

        raise StoreDamaged("the lab store is damaged; run the lab doctor")
    return LabBackend(lock.directory)


if __name__ == "__main__":
    if sys.argv[1] == "engine":
        sys.exit(engine.main(_backend))
    sys.exit(bridge.main(sys.argv[2:], engine=[sys.executable, __file__, "engine"]))
