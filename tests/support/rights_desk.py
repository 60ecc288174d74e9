"""A desk to try rights at: a memory, a human with a key, an agent on MCP, and the doors that they go through.

`Desk` is made of real processes; `NearDesk` is in this one, with the same doors and a clock moved by hand.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
from agent import Agent
from human_seat import Seat

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.domain.rights import Principal, version_stamp
from memory_anchor.front import calls, mcp_answers
from memory_anchor.front.cli import link
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import ManualClock, human_of, signed_call

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
}
DONE, REFUSED, WAITS = "done", "refused", "waits"


class Desk:
    """A memory with a real engine, a human's key, and an agent on MCP."""

    def __init__(self, seat: Seat, agent: Agent) -> None:
        self.seat, self.mcp, self.human = seat, agent, human_of(seat.data)
        self.http = ""
        self.base = ""

    def ask(self, who: Principal, name: str, /, **given: Any) -> dict[str, Any]:
        """Return the engine's answer to a command of this caller, `refused` with its sentence where it is one."""
        try:
            return link.call(name, human=self.human if who is Principal.TERMINAL else None, **given)
        except MemoryAnchorError as error:
            return {"refused": str(error), "exit": report(error).exit_code}

    def make(self, who: Principal, name: str, /, **given: Any) -> dict[str, Any]:
        """Do what makes a subject: where it is tried, unless it is carried there."""
        return self.ask(who, name, **given)

    def carry(self) -> None:
        """Bring what was made to where it is tried."""

    def v1(self, path: str, **given: Any) -> dict[str, Any]:
        """Return what /v1 answers to an agent that came with the path's secret."""
        answer = httpx2.post(f"{self.base}/v1/{path}", json=given, timeout=60)
        told: dict[str, Any] = answer.json()
        if answer.status_code < 400:
            return told
        return {"refused": told["message"], "exit": 4 if answer.status_code == 403 else 2}

    def tool(self, name: str, /, **given: Any) -> dict[str, Any]:
        answer = (self._by_http(name, given) if self.http else self.mcp.tool(name, **given))["result"]
        text = answer["content"][0]["text"]
        return {"refused": text} if answer.get("isError") else answer.get("structuredContent") or json.loads(text)

    def _by_http(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the server's /mcp answers to a call that needs no session."""
        sent = {"name": name, "arguments": dict(given), "_meta": MODERN}
        head = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": MODERN["io.modelcontextprotocol/protocolVersion"],
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sent}
        raw = httpx2.post(f"{self.http}/mcp", json=body, headers=head, timeout=60).text
        line = next((one.removeprefix("data:") for one in raw.splitlines() if one.startswith("data:")), raw)
        told: dict[str, Any] = json.loads(line)
        assert "result" in told, raw
        return told

    def hook(self, event: str, **payload: Any) -> subprocess.CompletedProcess[str]:
        """Run a hook as the client does: a process of its own, its payload on stdin."""
        return self.seat.shell("hook", event, stdin=json.dumps({"hook_event_name": event, **payload}))

    # --- subjects -----------------------------------------------------------------------------------------------

    def fact(self, who: Principal = Principal.AGENT, **more: Any) -> dict[str, Any]:
        """Return a fresh memory, told by no other."""
        done = self.ask(who, "add", content=f"Fact {word()}", **more)
        return self.show(done["id"])

    def show(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(Principal.AGENT, "show", id=name)["memory"]
        return found

    def held(self, *, guarded: bool) -> dict[str, Any]:
        return self.fact(Principal.TERMINAL if guarded else Principal.AGENT)

    def pinned(self, who: Principal) -> dict[str, Any]:
        made = self.fact()
        assert "refused" not in self.ask(who, "pin", id=made["id"])
        return self.show(made["id"])

    def disputed(self, *, guarded: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        old = self.fact()
        self.ask(Principal.TERMINAL, "pin", id=old["id"])
        new = self.ask(Principal.AGENT, "add", content=f"Fact {word()}", replaces=old["id"])
        assert new["outcome"] == "needs_review", new
        if not guarded:
            self.ask(Principal.TERMINAL, "unpin", id=old["id"])
        return self.show(new["id"]), self.show(old["id"])

    def line(self, **claims: Any) -> list[list[Any]]:
        """Return a line of an import: of a memory that is not here."""
        name = self.fact()["id"]
        page = self.ask(Principal.AGENT, "export_page", collection="verified_fact", instant="2999-01-01T00:00:00+00:00")
        while name not in [one["id"] for one in page["lines"]]:
            more = {"collection": "verified_fact", "instant": "2999-01-01T00:00:00+00:00", "after": page["after"]}
            page = self.ask(Principal.AGENT, "export_page", **more)
        (found,) = [one for one in page["lines"] if one["id"] == name]
        text = word()
        given = {
            **found,
            "id": f"0{uuid.uuid4().hex[:12].upper()}",
            "content": text,
            "content_hash": content_hash(text),
        }
        return [[1, json.dumps({**given, **claims})]]


def outcome(answer: Mapping[str, Any]) -> str:
    if "refused" in answer:
        return REFUSED
    if answer.get("outcome") in ("pending", "needs_review"):
        return WAITS if answer["outcome"] == "pending" else REFUSED
    return DONE


def stamped(*memories: Mapping[str, Any]) -> list[str]:
    return [version_stamp(one["id"], one["version"], one["content"]) for one in memories]


def word() -> str:
    """Return a text that shares no word, and so no subject, with any other."""
    return " ".join(
        "".join(random.choice("bdfgklmnprstvz") + random.choice("aeiou") for _ in range(4)) for _ in "12345"
    )


@contextmanager
def served(seat: Seat) -> Iterator[str]:
    """Yield the address of a real server, which also serves commands and bridges of this seat."""
    env = seat.env(MEMORY_ANCHOR_PROFILE="full", MEMORY_ANCHOR_PROJECT_DIR=str(seat.project))
    command = [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=env, cwd=seat.project, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        yield next(found[0] for line in lines if (found := re.search(r"http://127[^ ]*/s/[^ ]*?(?=/mcp)", line)))
    finally:
        process.terminate()
        process.wait(60)


class NearDesk(Desk):
    """The same doors in this process: calls, tools and a live HTTP server over one memory.

    made_at: the memory where subjects are made, another device's where a folder carries them here.
    """

    def __init__(self, core: Core, project_dir: str, clock: ManualClock, *, made_at: Core | None = None) -> None:
        self.core, self.project_dir, self.made_at, self.clock = core, project_dir, made_at or core, clock
        self.humans = {id(one): human_of(one.data_dir) for one in (core, self.made_at)}
        self.base = ""

    def ask(self, who: Principal, name: str, /, **given: Any) -> dict[str, Any]:
        return self._ask(self.core, who, name, given)

    def make(self, who: Principal, name: str, /, **given: Any) -> dict[str, Any]:
        return self._ask(self.made_at, who, name, given)

    def _ask(self, core: Core, who: Principal, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        caller = Preamble(client="cli", project_dir=self.project_dir)
        sent = json.loads(json.dumps({key: value for key, value in given.items() if value is not None}))
        self.clock.advance(seconds=1)
        try:
            if who is Principal.TERMINAL:
                return dict(signed_call(core, caller, name, sent, self.humans[id(core)]))
            return dict(calls.run(core, caller, name, sent))
        except MemoryAnchorError as error:
            return {"refused": str(error), "exit": report(error).exit_code}

    def tool(self, name: str, /, **given: Any) -> dict[str, Any]:
        self.clock.advance(seconds=1)
        actor = Actor(Caller.AGENT, Scope(agent="desk", conversation="c-1"), client="mcp", project_dir=self.project_dir)
        try:
            answer: dict[str, Any] = json.loads(mcp_answers.run(self.core.anchor(actor), name, given))
        except MemoryAnchorError as error:
            return {"refused": str(error), "exit": report(error).exit_code}
        return answer
