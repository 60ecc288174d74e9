"""`memory-anchor doctor --server URL`: each thing that can be wrong is named, with the next step. Real servers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from answering import Answering
from serving import Served, key_for
from typer.testing import CliRunner

from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.front.cli.app import app
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ephemeral_core


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Core]:
    made = ephemeral_core(tmp_path / "core", settings=Settings())
    yield made
    made.close()


def looked(url: str, key: str = "") -> tuple[int, dict[str, Any], str]:
    words = ["doctor", "--json", "--server", url, *(("--key-file", "-") if key else ())]
    result = CliRunner().invoke(app, words, input=key)
    checks = json.loads(result.stdout)["checks"]
    return result.exit_code, {check["name"]: check for check in checks}, result.stdout


def test_a_served_memory_is_well_or_its_first_failure_is_named(held: Core) -> None:
    """Issue 17: what is wrong, from a client's side; the key is in no finding."""
    key, _ = key_for(held, "local")
    made = Served(build_http(held, held.settings))
    try:
        code, by_name, output = looked(made.base, f"{key}\n")
        assert code == 0 and {check["state"] for check in by_name.values()} <= {"ok", "warning"}, output
        assert list(by_name)[-1] == "mcp" and key not in output
        code, by_name, output = looked(made.base, key[:-3])
        assert code == 4 and "it was cut" in by_name["key"]["finding"] and key[:20] not in output
        assert looked(made.base)[1]["key"]["state"] == "warning"
    finally:
        made.close()


def test_an_address_that_is_no_server_is_one_finding(held: Core) -> None:
    """Issue 17: nobody there, somebody else there, no address at all."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_: Any) -> None:
            return

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = free.getsockname()[1]
    other = Answering(Other)
    try:
        for url, name, exits in (
            (f"http://127.0.0.1:{nobody}", "connection", 5),
            (other.url, "server", 2),
            ("memory.example.org", "address", 2),
        ):
            code, by_name, _ = looked(url, "x")
            assert code == exits and by_name[name]["state"] == "failed" and by_name[name]["fix"]
            assert "\n" not in by_name[name]["finding"]
    finally:
        other.close()
