"""Traces over OTLP: a real collector on loopback gets one span a request, without a word of what was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from answering import Answering
from serving import Served, bearer, key_for

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ephemeral_core

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """Takes spans as an OpenTelemetry collector does. status: what it answers."""

    def __init__(self, status: int = 200) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.raw = b""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.raw += body
                outer.bodies.append(json.loads(body))
                assert (self.path, self.headers["content-type"]) == ("/v1/traces", "application/json")
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = Answering(Handler)
        self.url = f"{self._server.url}/v1/traces"

    def spans(self) -> list[dict[str, Any]]:
        resources = [resource for body in self.bodies for resource in body["resourceSpans"]]
        return [span for resource in resources for scope in resource["scopeSpans"] for span in scope["spans"]]

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def served(tmp_path: Path, url: str) -> tuple[Core, Served]:
    core = ephemeral_core(tmp_path / "core", settings=Settings.model_validate({"http": {"traces_url": url}}))
    return core, Served(build_http(core, core.settings))


def attributes_of(span: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_each_request_is_a_span_in_the_callers_trace_and_tells_no_text(tmp_path: Path, collector: Collector) -> None:
    """Issue 17, OTLP: route, method, status, time; no account, user, key, query or answer in anything that is sent."""
    core, made = served(tmp_path, collector.url)
    key, record = key_for(core, "acme-corp", user="eve-smith")
    head = bearer(key, traceparent=f"00-{TRACE}-{PARENT}-01")
    made.ask("POST", "/v1/memory/store", headers=head, json={"content": "The vault of Ostrava opens at nine"})
    made.ask("POST", "/v1/memory/search", headers=bearer(key), json={"query": "Ostrava"})
    made.ask("POST", "/v1/memory/search", headers=bearer("ma_wrong"), json={"query": "Ostrava"})
    made.close()
    core.close()

    spans = collector.spans()
    assert [one["name"] for one in spans] == ["POST /v1/memory/store", "POST /v1/memory/search", "POST other"]
    assert (spans[0]["traceId"], spans[0]["parentSpanId"]) == (TRACE, PARENT)
    assert "parentSpanId" not in spans[1] and len(spans[1]["traceId"]) == 32 and len(spans[1]["spanId"]) == 16
    assert [attributes_of(one)["http.response.status_code"] for one in spans] == ["200", "200", "401"]
    assert attributes_of(spans[0])["http.route"] == "/v1/memory/store"
    assert all(int(one["startTimeUnixNano"]) <= int(one["endTimeUnixNano"]) for one in spans)
    words = (b"Ostrava", b"acme", b"eve", record.id.encode(), key.encode(), b"127.0.0.1", b"ma_wrong")
    assert not [word for word in words if word in collector.raw]


def test_a_collector_that_is_away_costs_nobody_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 17, OTLP: requests are answered, one line says that traces are dropped; a wrong address is one sentence."""
    core, made = served(tmp_path, "http://127.0.0.1:9/v1/traces")
    try:
        key, _ = key_for(core, "acme")
        began = time.thread_time()
        codes = {
            made.ask("POST", "/v1/memory/search", headers=bearer(key), json={"query": "x"}).status_code
            for _ in range(9)
        }
        assert codes == {200} and time.thread_time() - began < 5
    finally:
        made.close()
        core.close()
    assert sum("traces are dropped" in one.message for one in caplog.records) == 1
    with pytest.raises(BadInput, match=r"http\.traces_url is 'ftp://x'"):
        served(tmp_path / "other", "ftp://x")


def test_nothing_is_traced_unless_a_collector_is_named(tmp_path: Path) -> None:
    """Issue 17, OTLP: off by default; no thread, no span."""
    before = {one.name for one in threading.enumerate()}
    core, made = served(tmp_path, "")
    try:
        made.ask("GET", "/v1/health")
        assert "traces" not in {one.name for one in threading.enumerate()} - before
    finally:
        made.close()
        core.close()
