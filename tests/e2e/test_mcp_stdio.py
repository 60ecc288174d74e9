"""The command an agent starts, over real pipes: the whole product with its real store and bundled embedder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from event_loop import DEADLINE_S, in_event_loop
from mcp import Client
from mcp.client.stdio import StdioServerParameters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def command(tmp_path: Path, **env: str) -> StdioServerParameters:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    own = {"MEMORY_ANCHOR_DATA_DIR": str(tmp_path / "data"), "MEMORY_ANCHOR_PROJECT_DIR": str(project), "TZ": "UTC"}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "memory_anchor", "mcp", "--in-process"], env={**os.environ, **own, **env}
    )


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    answer: dict[str, Any] = result.structured_content or json.loads(result.content[0].text)
    return answer


@in_event_loop
async def test_what_one_session_saves_the_next_one_finds_in_either_language(tmp_path: Path) -> None:
    """The product's promise, in both protocol eras: memory outlives the process."""
    async with Client(command(tmp_path), mode="auto") as client:
        assert "search_memory" in (client.instructions or "")
        saved = await answered(client, "save_memory", content="选择 Qdrant，因为它可以嵌入运行", type="decision")
        await answered(client, "log_event", content="Fixed the empty query bug in search_memory")
        await answered(client, "set_active_context", key="topic", value="空查询")
    async with Client(command(tmp_path), mode="legacy") as client:
        answer = await answered(client, "search_memory", query="为什么用 Qdrant")
        assert answer["snippets"][0]["id"] == saved["id"]
        events = (await answered(client, "search_events"))["events"]
        assert {one["content"] for one in events} == {"Fixed the empty query bug in search_memory", "topic: 空查询"}


@in_event_loop
async def test_settings_of_the_environment_choose_the_profile_and_read_only_mode(tmp_path: Path) -> None:
    env = {"MEMORY_ANCHOR_PROFILE": "minimal", "MEMORY_ANCHOR_READ_ONLY": "true"}
    async with Client(command(tmp_path, **env), mode="auto") as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["get_constitution", "search_memory"]


def test_serve_prints_an_address_with_a_secret_that_a_client_can_use(tmp_path: Path) -> None:
    """Contract: on loopback a secret in the path, printed by `serve`, also serves."""
    given = command(tmp_path)
    server = subprocess.Popen(
        [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"],
        env=given.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(2)]
        address = next(word for word in lines[1].split() if word.startswith("http://127.0.0.1:"))

        async def work() -> None:
            with anyio.fail_after(DEADLINE_S):
                async with Client(address) as client:
                    saved = await answered(client, "log_event", content="Served over HTTP")
                    assert saved["outcome"] == "added"

        anyio.run(work)
    finally:
        server.terminate()
        assert server.wait(DEADLINE_S) is not None
