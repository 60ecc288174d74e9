"""Ways of recall side by side: chosen by header or address over `/v1` and MCP, told in every citation, compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Served, bearer, key_for
from typer.testing import CliRunner

from memory_anchor.domain.credential import Role
from memory_anchor.extensions.knowledge.use_cases import library_of
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.extensions.service.http_v1 import PATHS
from memory_anchor.front.cli.app import app
from memory_anchor.front.table import ROWS
from memory_anchor.front.tool_specs import TOOLS, schema_of
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core

PLAIN = {"conversation": False, "fold_duplicates": False, "priors": False}
WHALES = "Whales sing at night in the bay, see docs/whales-9.md"
VERSIONS = {"variant", "index_version", "algo_version"}
MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "codex", "version": "0"},
}


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    chosen = {"http": {"requests_per_minute": 1_000_000}, "variants": {"plain": {"retrieval": PLAIN}}}
    settings = Settings.model_validate({**chosen, "project_dir": str(project), "profile": "full"})
    made = ephemeral_core(tmp_path / "core", clock=clock, settings=settings)
    yield made
    made.close()


class Client:
    """One person's client. talk: the conversation it names, "" for none."""

    def __init__(self, served: Served, key: str) -> None:
        self.served, self.key = served, key

    def v1(self, path: str, *, way: str = "", at: str = "", talk: str = "", **body: Any) -> Any:
        head = bearer(self.key) | ({"X-KM-Variant": way} if way else {})
        body |= {"conversation_id": talk} if talk else {}
        return self.served.ask("POST", f"{at}/v1/{path}", headers=head, json=body)

    def rpc(self, method: str, named: str, *, way: str = "", at: str = "", talk: str = "", **params: Any) -> Any:
        head = bearer(self.key, **MCP, **{"Mcp-Method": method, "Mcp-Name": named})
        head |= {"X-KM-Variant": way} if way else {}
        meta = META | ({"memory-anchor/conversation_id": talk} if talk else {})
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        return self.served.ask("POST", f"{at}/mcp", headers=head, json=body).json()

    def tool(self, name: str, arguments: dict[str, Any], **where: str) -> Any:
        return self.rpc("tools/call", name, name=name, arguments=arguments, **where)


@pytest.fixture
def client(held: Core) -> Iterator[Client]:
    served = Served(build_http(held, held.settings))
    made = Client(served, key_for(held, "acme", user="eve", role=Role.APPROVER)[0])
    for day in ("2025-12-01", "2025-12-02"):
        assert made.v1("memory/log", content=WHALES, files=["a.py"], when=f"{day}T09:00:00Z").status_code == 200
    yield made
    served.close()


def citations(answer: Any) -> list[dict[str, Any]]:
    """Return every citation anywhere in an answer, and every cost report."""
    cited: list[dict[str, Any]] = []
    if isinstance(answer, dict):
        cited += [one for one in answer.get("citations", ()) if isinstance(one, dict)]
        cited += [answer] if "estimated_tokens" in answer else []
        for inner in answer.values():
            cited += citations(inner)
    elif isinstance(answer, list):
        for inner in answer:
            cited += citations(inner)
    return cited


def structured(answer: Any) -> Any:
    """Return what a tool's or a resource's answer says in JSON."""
    result = answer["result"]
    if "structuredContent" in result:
        return result["structuredContent"]
    text = result["content"][0]["text"] if "content" in result else result["contents"][0]["text"]
    return json.loads(text) if text.startswith(("{", "[")) else {"text": text}


def went_by(answer: Any) -> set[str]:
    cited = citations(answer)
    assert cited
    return {one["variant"] for one in cited}


def test_a_conversation_over_mcp_goes_by_the_variant_that_it_named_last(client: Client) -> None:
    """Rule variants: X-KM-Variant over MCP selects, holds until another is named, and is no mere echo."""
    asked = {"query": "when do whales sing", "limit": 5}

    def found(way: str = "", talk: str = "") -> Any:
        return structured(client.tool("search_memory", asked, way=way, talk=talk))

    assert went_by(found()) == {"default"}
    assert went_by(found("plain")) == {"plain"}
    assert len(found("plain")["snippets"]) == 2 > len(found()["snippets"])
    assert went_by(found("plain", "t1")) == {"plain"} == went_by(found("", "t1"))
    assert went_by(found("default", "t1")) == {"default"} == went_by(found("", "t1"))
    assert went_by(found("plain", "t1")) == {"plain"}
    assert went_by(client.v1("memory/search", query="when do whales sing", talk="t1").json()) == {"plain"}
    assert went_by(found("", "t2")) == {"default"}
    wrong = client.tool("search_memory", asked, way="v9")["result"]
    assert wrong["isError"] and "X-KM-Variant is 'v9'; allowed are default, plain" in wrong["content"][0]["text"]


def test_an_address_of_a_variant_needs_no_header(client: Client) -> None:
    """Issue 17, variants: several base addresses (KM_V1_URL, KM_V2_URL), or one with the header."""
    at = "/variants/plain"
    asked = {"query": "when do whales sing"}
    assert went_by(client.v1("memory/search", at=at, **asked).json()) == {"plain"}
    assert went_by(structured(client.tool("search_memory", asked, at=at))) == {"plain"}
    both = client.v1("memory/search", at=at, way="default", **asked)
    assert both.status_code == 400 and "the address names the variant 'plain'" in both.json()["message"]
    unknown = client.v1("memory/search", at="/variants/v9", **asked)
    assert unknown.status_code == 400 and "allowed are default, plain" in unknown.json()["message"]


def test_versions_stand_in_every_citation_and_report_of_every_answer(client: Client, held: Core) -> None:
    """Issue 17: variant, index and algorithm in every citation and report of each path, tool and resource."""
    memory = client.v1("memory/list").json()["memories"][0]["id"]
    event = client.v1("memory/log", content="The whale sang", files=["b.py"]).json()["id"]
    document = client.v1("knowledge/add", name="w.md", text="# Whales\n\nWhales sing at night.").json()
    while library_of(held.services).step(lambda: False):
        pass
    passage = client.v1("knowledge/search", query="whales").json()["snippets"][0]["id"]
    given: dict[str, Any] = {
        "query": "whales", "id": memory, "event_id": event, "content": "Seals bark", "citation": passage,
        "source": document["source"]["id"], "task": "when do whales sing", "name": "v.md", "text": "# Seals\n\nBark.",
        "messages": [{"role": "user", "content": "when do whales sing"}], "reason": "x", "key": "topic", "value": "x",
        "resolution": "keep_new", "history": True, "detail": True,
    }  # fmt: skip
    answers: dict[str, Any] = {}
    for path in PATHS:
        known = ROWS[path.row].request.model_fields
        body = {name: value for name, value in given.items() if name in known}
        if path.method == "POST" and path.row not in ("forget", "knowledge_remove"):
            answers[path.path] = client.v1(path.path, way="plain", **body).json()
    context = {"messages": given["messages"], "task": given["task"]}
    answers["context"] = client.v1("context", way="plain", **context).json()
    for spec in TOOLS:
        body = {name: value for name, value in given.items() if name in schema_of(spec)["properties"]}
        if spec.effect != "removes":
            answers[f"tool {spec.name}"] = structured(client.tool(spec.name, body, way="plain"))
    for uri in (f"memory://memories/{memory}", "memory://profile"):
        answers[uri] = structured(client.rpc("resources/read", uri, uri=uri, way="plain"))

    cited = {name: citations(told) for name, told in answers.items()}
    walked = [(name, one) for name, many in cited.items() for one in many]
    wrong = [(name, one) for name, one in walked if not one.keys() >= VERSIONS or one["variant"] != "plain"]
    assert len(walked) > 20 and wrong == []
    with_some = {name for name, many in cited.items() if many}
    assert with_some >= {"memory/search", "memory/get", "context", "knowledge/search", "tool search_memory"}
    assert with_some >= {"tool build_context", "tool get_memory", f"memory://memories/{memory}"}


def test_what_a_variant_told_and_the_agent_used_is_counted(client: Client, held: Core) -> None:
    """Issue 17, variants report: searches, times, tokens, and heeded memories from the transcript that is pushed."""
    for talk, way in (("t1", "plain"), ("t2", "plain"), ("t3", "default")):
        client.v1("memory/search", query="when do whales sing", talk=talk, way=way)
    said = {"role": "user", "content": "when do they sing?"}
    for talk, words in (("t1", "I read docs/whales-9.md: at night."), ("t2", "No idea."), ("t3", "No idea.")):
        messages = [said, {"role": "assistant", "content": words}]
        items = [{"kind": "conversation", "messages": messages}]
        batch = client.v1("ingest", items=items, talk=talk).json()["id"]
        until = time.monotonic() + 30
        while client.served.ask("GET", f"/v1/ingest/{batch}", headers=bearer(client.key)).json()["state"] != "done":
            assert time.monotonic() < until
            time.sleep(0.02)
    client.served.close()

    counted = json.loads((held.data_dir / "team" / "variants.json").read_text())
    assert "whales" not in json.dumps(counted)
    plain, default = counted["plain"], counted["default"]
    assert (plain["searches"], plain["shown"], plain["heeded"]) == (2, 4, 2)
    assert (default["searches"], default["shown"], default["heeded"]) == (1, 1, 0)
    assert len(plain["ms"]) == 2 == len(plain["tokens"]) and min(plain["tokens"]) > min(default["tokens"])


def test_the_report_compares_variants_with_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 17, `variants report` and `eval --variant NAME`: golden questions, tokens and times, each with its span."""
    monkeypatch.setenv("MEMORY_ANCHOR_EMBEDDER__KIND", "none")
    monkeypatch.setenv("MEMORY_ANCHOR_VARIANTS", json.dumps({"plain": {"retrieval": PLAIN}}))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout[done.stdout.index("{") :])

    added = run("add", "The staging database listens on port 6543.")["id"]
    run("eval", "--save", "staging database port", "--expects", added)
    run("eval", "--save", "who bakes bread", "--expects", added)
    default, plain = run("variants", "report")["variants"]

    assert (default["variant"], plain["variant"]) == ("default", "plain")
    assert default["index_version"] == plain["index_version"] and default["algo_version"] != plain["algo_version"]
    assert (default["golden"]["found"], plain["golden"]["found"]) == (1, 1)
    share, low, high = plain["golden"]["share"]
    assert 0 <= low < share == 0.5 < high <= 1
    assert plain["golden"]["against_default"]["won"] == 0 == plain["golden"]["against_default"]["lost"]
    table = CliRunner().invoke(app, ["variants", "report"]).output
    assert "plain against default: 0 won, 0 lost" in table and "50 % (" in table
    runs = run("eval", "--golden", "--variant", "as set", "--variant", "plain")["runs"]
    assert [one["variant"] for one in runs] == ["as set", "plain"]
    assert runs[1]["settings"]["retrieval.priors"] is False and "found" in runs[1]["intervals"]
