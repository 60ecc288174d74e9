"""nginx and Caddy with the files of deploy/ in front of a real `serve`, each on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from labs import until
from replicas import Replica

from memory_anchor.extensions.service.http_access import BODY_BYTES_MAX

pytestmark = pytest.mark.slow
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TOKEN = "a token of thirty-two letters or so"
GREETING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
NGINX = """user root; daemon off; pid {0}/pid; error_log {0}/error.log; events {{}}
http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;
uwsgi_temp_path {0}/u; scgi_temp_path {0}/s; include {0}/site.conf; }}"""
CADDY = "{{\n http_port {1}\n https_port {2}\n skip_install_trust\n admin off\n storage file_system {0}\n}}\n"


def free_port() -> int:
    with closing(socket.socket()) as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def nginx(folder: Path, server: str) -> tuple[list[str], str, Path]:
    port, certificate = free_port(), folder / "fullchain.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(folder / "privkey.pem"), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    site = (DEPLOY / "nginx.conf").read_text(encoding="utf-8").replace("/etc/ssl/memory", str(folder))
    site = site.replace("listen 443", f"listen 127.0.0.1:{port}").replace("http://127.0.0.1:8377", server)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    (folder / "nginx.conf").write_text(NGINX.format(folder), encoding="utf-8")
    return ["nginx", "-c", str(folder / "nginx.conf")], f"https://localhost:{port}", certificate


def caddy(folder: Path, server: str) -> tuple[list[str], str, Path]:
    port = free_port()
    site = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    site = site.replace("memory-1:8377 memory-2:8377", f"{server.removeprefix('http://')} 127.0.0.1:{free_port()}")
    (folder / "Caddyfile").write_text(CADDY.format(folder, free_port(), port) + site, encoding="utf-8")
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    return command, f"https://localhost:{port}", folder / "pki/authorities/local/root.crt"


@contextmanager
def behind(proxy: Any, folder: Path) -> Iterator[httpx2.Client]:
    server = Replica(folder / "data", "", MEMORY_ANCHOR_HTTP__TOKENS=json.dumps({TOKEN: "team"}))
    del server.env["MEMORY_ANCHOR_DATABASE__URL"]
    server.start()
    command, base, authority = proxy(folder, server.base)
    log = (folder / "proxy.log").open("w")
    env = {**os.environ, "MEMORY_DOMAIN": "localhost", "HOME": str(folder)}
    running = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        until(
            lambda: authority.exists() and "END CERT" in authority.read_text("ascii"), "the proxy has its certificate"
        )
        client = httpx2.Client(base_url=base, verify=ssl.create_default_context(cafile=authority), timeout=30)

        def ready() -> bool:
            try:
                return client.get("/v1/ready").status_code == 200
            except httpx2.HTTPError:
                return False

        until(ready, "the proxy reaches the server")
        with closing(client):
            yield client
    finally:
        running.kill()
        running.wait(10)
        log.close()
        server.close()


@pytest.mark.parametrize(
    "proxy",
    [
        pytest.param(made, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not here"), id=name)
        for name, made in (("nginx", nginx), ("caddy", caddy))
    ],
)
def test_a_proxy_lets_agents_in_by_their_token_and_streams(tmp_path: Path, proxy: Any) -> None:
    """Rule deploy: an MCP session works through it under its name; a wrong token and too large a body are refused."""
    with behind(proxy, tmp_path) as client:
        mine = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}

        assert client.get("/v1/health", headers={"Host": "memory.example.org"} if proxy is nginx else {}).is_success
        assert client.post("/mcp", headers={**mine, "Authorization": "Bearer wrong"}, json={}).status_code == 401
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}
        greeted = client.post("/mcp", headers=mine, json=message)
        mine["Mcp-Session-Id"] = greeted.headers["mcp-session-id"]
        client.post("/mcp", headers=mine, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        call = {"name": "save_memory", "arguments": {"content": "The harbour deploys blue-green"}}
        saved = client.post(
            "/mcp", headers=mine, json={"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        )
        with client.stream("GET", "/sse", headers=mine) as events:
            first = next(events.iter_lines())
        large = client.post("/v1/memory/search", headers=mine, content=b" " * (BODY_BYTES_MAX + 1))
        most = client.post("/v1/memory/search", headers=mine, content=b" " * BODY_BYTES_MAX)

        assert '"added' in saved.text.replace("\\", "") and re.match("event: endpoint", first)
        assert (large.status_code, most.status_code) == (413, 400)
        assert client.get("/s/secret/v1/version").status_code in (401, 404)
