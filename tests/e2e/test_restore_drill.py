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

TYPED = ("assphrase", PASSPHRASE)
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


def answer(client: Agent, name: str, **arguments: Any) -> dict[str, Any]:
    result = client.tool(name, **arguments)["result"]
    assert not result.get("isError"), result
    answered: dict[str, Any] = result.get("structuredContent") or json.loads(result["content"][0]["text"])
    return answered


def approved(seat: Seat, content: str) -> None:
    proposed = seat.shell("constitution", "propose", content, "--reason", "agreed on Monday", "--json")
    name = json.loads(proposed.stdout)["proposal_id"]
    for _ in range(3):
        code, screen = seat.human("constitution", "approve", name, answers=[TYPED])
        assert code == 0, screen


def doctor(seat: Seat) -> list[str]:
    checks = json.loads(seat.shell("doctor", "--audit", "--json").stdout)["checks"]
    return [f"{c['name']}: {c['finding']}" for c in checks if c["state"] != "ok" and c["name"] != "backups"]


def test_a_nightly_backup_becomes_a_memory_that_goes_on(tmp_path: Path) -> None:
    """Rule repair: L0 served as approved, a repeated request gets its first answer, pins and audit trail hold."""
    seat = Seat(tmp_path)
    seat.init()
    approved(seat, PLEDGE)
    fact: dict[str, Any] = {"content": "The ferry leaves at nine", "request_id": "r-1"}
    event: dict[str, Any] = {"content": "Delivery one came in 第一批货到了", "request_id": "r-2"}
    with agent(seat) as client:
        first = [answer(client, "save_memory", **fact), answer(client, "log_event", **event)]
        code, screen = seat.human("pin", first[0]["id"], "--human", answers=[TYPED])
        assert code == 0, screen
        assert seat.shell("jobs", "run", "backup").returncode == 0
        late = answer(client, "save_memory", content="The pump is serviced in May", request_id="r-3")
    assert doctor(seat) == []

    (backup,) = (seat.data / "backups").glob("nightly-*.tar.gz")
    seat.data = tmp_path / "fresh"
    restored = seat.shell("backup", "restore", str(backup), "--json")
    assert restored.returncode == 0, restored.stderr

    with agent(seat) as client:
        constitution = answer(client, "get_constitution")
        assert PLEDGE in [entry["content"] for entry in constitution["entries"]] and not constitution["warnings"]
        assert [answer(client, "save_memory", **fact), answer(client, "log_event", **event)] == first
        assert client.tool("save_memory", **{**fact, "content": "The ferry leaves at ten"})["result"]["isError"]
        assert answer(client, "get_memory", id=first[0]["id"])["pinned"]
        snippets = answer(client, "search_memory", query="when does the ferry leave")["snippets"]
        assert [snippet["id"] for snippet in snippets][:1] == [first[0]["id"]]
        assert len(answer(client, "search_events", query="货")["events"]) == 1
        assert client.tool("get_memory", id=late["id"])["result"]["isError"], "what came later is not in this backup"
    assert doctor(seat) == []
    approved(seat, "Keep the changelog short")
    assert "changelog" in seat.shell("constitution", "show").stdout
    assert doctor(seat) == []
