"""A restore drill: a nightly backup, made while an engine serves, becomes a new data folder that goes on as the old.

Real approvals on a terminal, real writes over MCP, real commands; nothing is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent import Agent
from human_seat import Seat

from memory_anchor.testing import PASSPHRASE

pytestmark = pytest.mark.slow

GIVEN = ("assphrase", PASSPHRASE)
PLEDGE = "Never deploy on a Friday"


@contextmanager
def agent(seat: Seat) -> Iterator[Agent]:
    """An agent of one conversation, before and after."""
    command = [sys.executable, "-m", "memory_anchor", "mcp"]
    env = seat.env(MEMORY_ANCHOR_PROJECT_DIR=str(seat.project), CLAUDE_CODE_SESSION_ID="drill")
    made = Agent(command, env)
    try:
        yield made
    finally:
        made.close()
        seat.end_engine()


def answer(one: Agent, name: str, **arguments: Any) -> dict[str, Any]:
    result = one.tool(name, **arguments)["result"]
    assert not result.get("isError"), result
    told: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    return told


def approved(seat: Seat, content: str) -> None:
    said = seat.shell("constitution", "propose", content, "--reason", "agreed on Monday", "--json")
    name = json.loads(said.stdout)["proposal_id"]
    for _ in range(3):
        code, screen = seat.human("constitution", "approve", name, answers=[GIVEN])
        assert code == 0, screen


def doctor(seat: Seat) -> list[str]:
    checks = json.loads(seat.shell("doctor", "--audit", "--json").stdout)["checks"]
    return [f"{one['name']}: {one['told']}" for one in checks if one["state"] != "ok" and one["name"] != "backups"]


def test_a_nightly_backup_becomes_a_memory_that_goes_on(tmp_path: Path) -> None:
    """Rule repair: L0 served as approved, a repeated request gets its first answer, pins and audit trail hold."""
    seat = Seat(tmp_path)
    seat.init()
    approved(seat, PLEDGE)
    fact: dict[str, Any] = {"content": "The ferry leaves at nine", "request_id": "r-1"}
    event: dict[str, Any] = {"content": "Delivery one came in 第一批货到了", "request_id": "r-2"}
    with agent(seat) as one:
        first = [answer(one, "save_memory", **fact), answer(one, "log_event", **event)]
        code, screen = seat.human("pin", first[0]["id"], "--human", answers=[GIVEN])
        assert code == 0, screen
        assert seat.shell("jobs", "run", "backup").returncode == 0
        late = answer(one, "save_memory", content="The pump is serviced in May", request_id="r-3")
    assert doctor(seat) == []

    (backup,) = (seat.data / "backups").glob("nightly-*.tar.gz")
    seat.data = tmp_path / "fresh"
    restored = seat.shell("backup", "restore", str(backup), "--json")
    assert restored.returncode == 0, restored.stderr

    with agent(seat) as one:
        law = answer(one, "get_constitution")
        assert PLEDGE in [entry["content"] for entry in law["entries"]] and not law["warnings"]
        assert [answer(one, "save_memory", **fact), answer(one, "log_event", **event)] == first
        assert one.tool("save_memory", **{**fact, "content": "The ferry leaves at ten"})["result"]["isError"]
        assert answer(one, "get_memory", id=first[0]["id"])["pinned"]
        found = answer(one, "search_memory", query="when does the ferry leave")["snippets"]
        assert [snippet["id"] for snippet in found][:1] == [first[0]["id"]]
        assert len(answer(one, "search_events", query="货")["events"]) == 1
        assert one.tool("get_memory", id=late["id"])["result"]["isError"], "what came later is not in this backup"
    assert doctor(seat) == []
    approved(seat, "Keep the changelog short")
    assert "changelog" in seat.shell("constitution", "show").stdout
    assert doctor(seat) == []
