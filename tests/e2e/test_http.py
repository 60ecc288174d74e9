"""The HTTP front end on a real loopback port: who may come in, MCP on both transports, whole prompts."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from event_loop import in_event_loop
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from serving import DEADLINE_S, Served

from memory_anchor.domain.errors import Refused, Unavailable
from memory_anchor.domain.model import Actor
from memory_anchor.extensions.knowledge.use_cases import library_of
from memory_anchor.extensions.prompts import assembly
from memory_anchor.extensions.service import http_access, http_api
from memory_anchor.extensions.service.http_access import is_loopback
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.keys import KeyFile
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core

EVERYWHERE = "0.0.0.0"  # noqa: S104 - only named here; the socket is bound to loopback
SECRET = "path-secret"
TOKENS = {"token-of-local": "local", "token-of-acme": "acme"}
LOCAL = {"Authorization": "Bearer token-of-local"}
ACME = {"Authorization": "Bearer token-of-acme"}


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    settings = Settings.model_validate({"http": {"tokens": TOKENS, "port": 0}, "project_dir": str(project)})
    made = ephemeral_core(tmp_path / "core", clock=clock, settings=settings)
    yield made
    made.close()


@pytest.fixture
def served(held: Core) -> Iterator[Served]:
    made = Served(build_http(held, held.settings, secret=SECRET, zone="Asia/Shanghai"))
    yield made
    made.close()


def run(work: Callable[[], Any]) -> Any:
    async def bounded() -> Any:
        with anyio.fail_after(DEADLINE_S):
            return await work()

    return anyio.run(bounded)


async def answered(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    answer: dict[str, Any] = result.structured_content or json.loads(result.content[0].text)
    return answer


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@in_event_loop
async def test_mcp_is_served_over_streamable_http_in_both_protocol_eras(served: Served, mode: str) -> None:
    async with httpx2.AsyncClient(headers=LOCAL, timeout=DEADLINE_S) as http:
        transport = streamable_http_client(f"{served.base}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            assert len((await client.list_tools()).tools) == 14
            assert "save_memory" in (client.instructions or "")
            saved = await answered(client, "log_event", content="Deployed.", when="2025-12-15T08:00")
            memory = await answered(client, "get_memory", id=saved["id"])
            assert memory["when"] == "2025-12-15T00:00:00Z"
            assert memory["scope"]["account"] == "local"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@in_event_loop
async def test_the_path_secret_opens_the_same_server_without_a_token(served: Served, mode: str) -> None:
    async with Client(f"{served.base}/s/{SECRET}/mcp", mode=mode) as client:
        assert (await answered(client, "search_events")) == {"events": []}


@in_event_loop
async def test_mcp_is_served_over_sse_and_a_closed_connection_leaves_its_active_context_as_an_event(
    served: Served,
) -> None:
    async with Client(sse_client(f"{served.base}/sse", headers=LOCAL), mode="legacy") as client:
        await answered(client, "set_active_context", key="topic", value="sse")
    async with Client(sse_client(f"{served.base}/s/{SECRET}/sse"), mode="legacy") as client:
        assert await answered(client, "get_active_context") == {"values": {}, "expires_in_s": {}}
        while not (events := (await answered(client, "search_events"))["events"]):
            await anyio.sleep(0.01)
        assert events[0]["content"] == "topic: sse"


JSON_RPC = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def opened(served: Served) -> dict[str, str]:
    """Return the headers of a session."""
    hello = served.ask("POST", "/mcp", headers=LOCAL | JSON_RPC, json=HELLO)
    return LOCAL | JSON_RPC | {"Mcp-Session-Id": hello.headers["mcp-session-id"]}


@pytest.mark.parametrize(
    ("body", "version", "code", "sentence"),
    [
        ([LIST], "2025-06-18", -32600, "batches are not served"),
        ([], "", -32600, "batches are not served"),
        (LIST, "1999-01-01", -32022, "unsupported MCP-Protocol-Version '1999-01-01'; allowed are 2024-11-05"),
        ({**LIST, "params": 5}, "", -32602, "params is a number; allowed is an object"),
        ({**LIST, "jsonrpc": "1.0"}, "", -32600, "jsonrpc is '1.0'; allowed is '2.0'"),
        ({"jsonrpc": "2.0", "id": 1}, "", -32600, "neither a method nor a result"),
        (7, "", -32600, "a number is not served"),
    ],
)
def test_what_is_no_message_is_refused_in_our_words(
    served: Served, body: Any, version: str, code: int, sentence: str
) -> None:
    """Rule input: one sentence, the protocol's code, nothing of a library's."""
    head = opened(served) | ({"MCP-Protocol-Version": version} if version else {})

    answer = served.ask("POST", "/mcp", headers=head, json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    assert sentence in answer.json()["error"]["message"]
    assert "validation" not in answer.text and "\\n" not in answer.text


def test_a_stream_that_is_resumed_begins_anew(served: Served) -> None:
    """Rule input: events are not stored, so any Last-Event-ID gets the stream."""
    head = opened(served) | {"Accept": "text/event-stream", "Last-Event-ID": "nope"}
    with (
        httpx2.Client(base_url=served.base, timeout=DEADLINE_S) as http,
        http.stream("GET", "/mcp", headers=head) as stream,
    ):
        assert stream.status_code == 200


@in_event_loop
async def test_legacy_sessions_are_conversations_of_their_own(served: Served) -> None:
    async with httpx2.AsyncClient(headers=LOCAL, timeout=DEADLINE_S) as http:
        url = f"{served.base}/mcp"
        async with (
            Client(streamable_http_client(url, http_client=http), mode="legacy") as one,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as two,
        ):
            await answered(one, "set_active_context", key="k", value=1)
            assert (await answered(one, "get_active_context"))["values"] == {"k": 1}
            assert (await answered(two, "get_active_context"))["values"] == {}


@in_event_loop
async def test_accounts_never_see_each_others_memories(served: Served) -> None:
    """Rule: a token is bound to an account, and every query passes through its scope."""
    async with (
        httpx2.AsyncClient(headers=LOCAL, timeout=DEADLINE_S) as mine,
        httpx2.AsyncClient(headers=ACME, timeout=DEADLINE_S) as theirs,
    ):
        url = f"{served.base}/mcp"
        async with (
            Client(streamable_http_client(url, http_client=mine)) as local,
            Client(streamable_http_client(url, http_client=theirs)) as acme,
        ):
            saved = await answered(local, "save_memory", content="Our launch is on Friday.")
            assert (await answered(acme, "search_memory", query="launch Friday"))["snippets"] == []
            refused = await acme.call_tool("get_memory", {"id": saved["id"]})
            assert refused.is_error
            with pytest.raises(MCPError, match="own account may read"):
                await acme.read_resource("memory://stats")
            assert "unembedded" in (await local.read_resource("memory://stats")).contents[0].text
            found = await answered(local, "search_memory", query="launch Friday")
            assert found["snippets"][0]["id"] == saved["id"]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/mcp", {}, 401),
        ("/sse", {}, 401),
        ("/openapi.json", {}, 401),
        ("/mcp", {"Authorization": "Bearer wrong"}, 401),
        ("/mcp", {"Authorization": "Basic token-of-local"}, 401),
        ("/s/wrong/mcp", {}, 401),
        (f"/s/{SECRET}/openapi.json", {}, 200),
        ("/openapi.json", LOCAL, 200),
        ("/v1/health", {}, 200),
        ("/v1/version", {}, 200),
        ("/v1/health", {"Host": "evil.example"}, 421),
        ("/v1/health", {"Origin": "https://evil.example"}, 403),
        ("/v1/health", {"Origin": "http://localhost:3000"}, 200),
        ("/v1/nothing", LOCAL, 404),
        ("/v1/context", LOCAL, 405),
    ],
)
def test_only_known_callers_from_the_right_place_come_in(
    served: Served, path: str, headers: dict[str, str], status: int
) -> None:
    answer = served.ask("GET", path, headers=headers)
    assert answer.status_code == status
    if status >= 400:
        assert set(answer.json()) == {"code", "message"}
        assert "\n" not in answer.json()["message"]


def test_a_prompt_comes_back_with_what_memory_knows_and_what_it_costs(served: Served, held: Core) -> None:
    async def save() -> None:
        async with Client(f"{served.base}/s/{SECRET}/mcp") as client:
            await answered(client, "save_memory", content="We chose Qdrant because it runs embedded.", type="decision")

    run(save)
    messages = [{"role": "user", "content": "Why did we choose Qdrant?"}]
    answer = served.ask(
        "POST",
        "/v1/context",
        headers=LOCAL,
        json={
            "account_id": "local",
            "messages": messages,
            "tools": [],
            "context_window_tokens": 8000,
            "reserved_output_tokens": 1000,
            "task": "why Qdrant embedded",
        },
    )
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["messages"] == messages
    assert "We chose Qdrant because it runs embedded." in made["text"]
    assert made["report"]["context_window_tokens"] == 8000
    assert made["report"]["estimated_tokens"]["total"] > 0


@pytest.mark.parametrize(
    ("body", "headers", "status", "why"),
    [
        ({"messages": []}, LOCAL, 400, "account_id is missing"),
        ({"account_id": "acme", "messages": []}, LOCAL, 403, "not the account"),
        ({"account_id": "local", "colour": 1}, LOCAL, 400, "colour is unknown; allowed are messages"),
        ({"account_id": "local", "messages": "hi"}, LOCAL, 400, "messages"),
        ({"account_id": "local", "messages": [{"role": "user", "content": "x"}], "context_window_tokens": 0}, LOCAL,
         400, "context_window_tokens is 0"),
        ({"account_id": "local"}, {**LOCAL, "X-KM-Variant": "v2"}, 400, "X-KM-Variant is 'v2'; allowed are default"),
        ("not an object", LOCAL, 400, "the body"),
    ],
)  # fmt: skip
def test_a_wrong_prompt_is_refused_in_one_sentence(
    served: Served, body: Any, headers: dict[str, str], status: int, why: str
) -> None:
    answer = served.ask("POST", "/v1/context", headers=headers, json=body)
    assert answer.status_code == status, answer.text
    assert why in answer.json()["message"]
    assert "\n" not in answer.json()["message"]


@pytest.mark.parametrize("where", ["messages", "task", "conversation_id", "tools"])
def test_a_lone_surrogate_in_a_prompt_is_bad_input_and_no_bug(served: Served, where: str) -> None:
    body: dict[str, Any] = {"account_id": "local", "messages": [{"role": "user", "content": "hi"}]}
    lone = "a\ud800b"
    body |= {
        "messages": {"messages": [{"role": "user", "content": lone}]},
        "task": {"task": lone},
        "conversation_id": {"conversation_id": lone},
        "tools": {"tools": [{"name": "t", "description": lone, "input_schema": {"type": "object"}}]},
    }[where]
    headers = {**LOCAL, "Content-Type": "application/json"}
    answer = served.ask("POST", "/v1/context", headers=headers, content=json.dumps(body).encode())
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] == "bad_input"
    assert "nicode" in answer.json()["message"]


@pytest.mark.parametrize(("body", "sentence"), [(b'{"account_id": ', "character 15"), (b"[1", "no JSON"), (b"", "")])
def test_a_body_that_is_no_json_is_one_sentence(served: Served, body: bytes, sentence: str) -> None:
    """Failure table: what, and what is allowed."""
    headers = {**LOCAL, "Content-Type": "application/json"}
    answer = served.ask("POST", "/v1/context", headers=headers, content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")
    assert sentence in answer.json()["message"] and "cannot be taken" not in answer.json()["message"]


def test_a_body_too_large_is_refused_before_it_is_parsed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    size = http_access.BODY_BYTES_MAX + 1
    answer = served.ask(
        "POST", "/v1/context", headers={**LOCAL, "Content-Type": "application/json"}, content=b" " * size
    )
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_whoever_opens_the_address_itself_is_told_where_the_doors_are(served: Served) -> None:
    """Rule http.root: programs and agents are sent to their paths, people to a dashboard that only they open (A5)."""
    assert served.ask("GET", "/").status_code == 401
    answer = served.ask("GET", "/", headers=LOCAL)
    assert answer.status_code == 200
    assert "/openapi.json" in answer.text and "memory-anchor dashboard" in answer.text


def test_a_bug_answers_500_and_quotes_nothing(
    served: Served, held: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(anchor: Any, prompt: Any) -> Any:
        raise KeyError("my diary")

    monkeypatch.setattr(assembly, "assemble", broken)
    answer = served.ask("POST", "/v1/context", headers=LOCAL, json={"account_id": "local", "messages": []})
    assert (answer.status_code, answer.json()["code"]) == (500, "failure")
    assert "diary" not in answer.text
    served.close()  # the log line comes after the answer
    assert "KeyError at" in caplog.text
    assert "diary" not in caplog.text


def test_another_account_gets_neither_rules_nor_how_tos_of_this_machines_project(
    served: Served, held: Core, project: Path, approve: Any
) -> None:
    (project / "constitution.yaml").write_text("version: '1'\nentries:\n  - {id: a, content: Ours, priority: 1}\n")
    approve(held.anchor(Actor(project_dir=str(project))))

    async def entries(headers: dict[str, str]) -> list[str]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http,
            Client(streamable_http_client(f"{served.base}/mcp", http_client=http)) as client,
        ):
            return [one["content"] for one in (await answered(client, "get_constitution"))["entries"]]

    assert run(lambda: entries(LOCAL)) == ["Ours"]
    assert run(lambda: entries(ACME)) == []


def test_other_addresses_than_loopback_need_tokens_and_get_no_path_secret(held: Core) -> None:
    assert not is_loopback(EVERYWHERE)
    with pytest.raises(Refused, match=r"no key and http\.tokens is empty"):
        build_http(held, Settings.model_validate({"http": {"host": EVERYWHERE}}))
    open_to_all = Settings.model_validate({"http": {"host": EVERYWHERE, "tokens": TOKENS}})
    made = Served(build_http(held, open_to_all, secret=SECRET))
    try:
        assert made.ask("GET", f"/s/{SECRET}/openapi.json").status_code == 401
        assert made.ask("GET", "/openapi.json", headers=LOCAL).status_code == 200
    finally:
        made.close()


def test_a_taken_port_is_one_sentence(held: Core) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = Settings.model_validate({"http": {"port": port}})
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port} cannot be served"):
            http_api.open_listener(settings, KeyFile.of(held.data_dir, held.audit), held.clock.now())


def test_a_pushed_document_is_searched_and_opened_over_http(served: Served, held: Core) -> None:
    """POST /v1/knowledge/ingest, search and get: bound to the credential's account; no path of the server is taken."""

    def ask(path: str, **body: Any) -> Any:
        return served.ask("POST", f"/v1/knowledge/{path}", headers=LOCAL, json={"account_id": "local", **body})

    taken = ask("ingest", name="https://example.org/a", text="<main><h1>Whales</h1><p>Whales sing at night.</p></main>")
    assert taken.json()["source"]["kind"] == "web_snapshot"
    while library_of(held.services).step(lambda: False):
        pass
    (found, *_) = ask("search", query="when do whales sing").json()["snippets"]
    cited = found["citations"][0]
    assert (found["text"], cited["ref"], cited["trust"]) == (
        "# Whales\n\nWhales sing at night.",
        "https://example.org/a",
        "untrusted",
    )
    assert ask("get", citation=found["id"]).json()["standing"] == "fresh"

    assert ask("get", citation="0000000000000").status_code == 404
    assert ask("ingest", ref="/etc").status_code == 400
    assert ask("search").json()["message"].startswith("search lacks the argument 'query'")
    other = served.ask("POST", "/v1/knowledge/search", headers=LOCAL, json={"account_id": "other", "query": "whales"})
    assert other.status_code == 403
