"""The files in deploy/ say only what is there: settings, paths, ports, commands, bounds. Nothing is started."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.service.http_access import BODY_BYTES_MAX
from memory_anchor.extensions.service.settings import HttpSettings
from memory_anchor.process.app import settings_of
from memory_anchor.runtime import env_names

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PORT = HttpSettings().port
PATHS = set(json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"])
REPLICAS = ("memory-1", "memory-2")
SETTING = re.compile(r"\bMEMORY_ANCHOR_[A-Z_]+")


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def test_every_setting_and_port_that_a_file_names_exists() -> None:
    """Rule settings.names: a mistyped variable would end the server at its start."""
    for path in DEPLOY.iterdir():
        named = set(SETTING.findall(path.read_text(encoding="utf-8")))
        assert env_names.unknown_setting(dict.fromkeys(named, "x")) == "", path.name
        for port in re.findall(r":(8\d{3})\b", path.read_text(encoding="utf-8")):
            assert int(port) == PORT, path.name


def test_the_compose_file_starts_what_belongs_together() -> None:
    """Two replicas with a data directory each; PostgreSQL and Qdrant are reached from inside alone, by a password."""
    whole: dict[str, Any] = yaml.safe_load(text("compose.yaml"))
    services = whole["services"]
    replicas = {name: services[name] for name in REPLICAS}
    assert set(services) == {*REPLICAS, "postgres", "qdrant", "caddy"}
    assert [name for name, one in services.items() if "ports" in one] == ["caddy"]
    assert [services[name]["networks"] for name in ("postgres", "qdrant")] == [["inside"]] * 2
    assert whole["networks"]["inside"]["internal"] is True
    assert len({one["volumes"][0] for one in replicas.values()}) == len(REPLICAS)
    for one in services.values():
        used = [volume.partition(":")[0] for volume in one.get("volumes", ())]
        assert all(name in whole["volumes"] or (DEPLOY / name).is_file() for name in used)
        assert set(one.get("networks", ())) <= set(whole["networks"])
        assert set(one.get("depends_on", ())) <= set(services)


def test_what_the_compose_file_sets_is_what_the_program_reads() -> None:
    """Rule settings.names: the replicas' environment is read as settings, and they name the other services."""
    secret = re.compile(r"\$\{(\w+):\?[^}]*\}")  # as compose fills it in, each by its own name
    services = yaml.safe_load(secret.sub(r"\1", text("compose.yaml")))["services"]
    for name in REPLICAS:
        environment = {key: value for key, value in services[name]["environment"].items() if key.startswith("MEMORY_")}
        settings = settings_of({**environment, "HOME": str(DEPLOY)})
        assert (settings.index.kind, settings.index.url) == ("qdrant", "http://qdrant:6333")
        assert (
            settings.index.api_key.get_secret_value() == services["qdrant"]["environment"]["QDRANT__SERVICE__API_KEY"]
        )
        server, made = urlsplit(settings.database.url.get_secret_value()), services["postgres"]
        assert (server.scheme, server.hostname) == ("postgresql", "postgres")
        assert (server.username, server.path) == (
            made["environment"]["POSTGRES_USER"],
            f"/{made['environment']['POSTGRES_DB']}",
        )
        assert made["environment"]["POSTGRES_PASSWORD"] == server.password
        assert environment["MEMORY_ANCHOR_DATA_DIR"] == services[name]["volumes"][0].partition(":")[2]


def test_the_proxy_shares_requests_out_to_every_replica_and_asks_whether_it_is_ready() -> None:
    caddy = text("Caddyfile")
    upstreams = re.search(r"reverse_proxy (.*) \{", caddy)
    asked = re.search(r"health_uri (\S+)", caddy)
    assert upstreams is not None and upstreams[1].split() == [f"{name}:{PORT}" for name in REPLICAS]
    assert asked is not None and asked[1] in PATHS and "lb_policy header Authorization" in caddy


def test_the_kubernetes_manifest_is_whole() -> None:
    """Deploy: readiness, no root, replicas on one database with a volume each; probes ask paths that exist."""
    parts = {one["kind"]: one for one in yaml.safe_load_all(text("kubernetes.yaml"))}
    assert set(parts) == {"Secret", "StatefulSet", "Service"}
    spec = parts["StatefulSet"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels == parts["Service"]["spec"]["selector"]
    pod = spec["template"]["spec"]
    (one,) = pod["containers"]
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert one[probe]["httpGet"]["path"] in PATHS and one[probe]["httpGet"]["port"] == one["ports"][0]["name"]
    assert one["ports"][0]["containerPort"] == PORT and pod["securityContext"]["runAsNonRoot"] is True
    mounted = {mount["name"] for mount in one["volumeMounts"]}
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} | claims and claims == {"data"}
    assert spec["replicas"] > 1 and spec["serviceName"] == parts["Service"]["metadata"]["name"]
    named = {env["name"] for env in one["env"]}
    assert named >= {"MEMORY_ANCHOR_DATA_DIR", "MEMORY_ANCHOR_DATABASE__URL"}, "replicas without one database"
    (secret,) = [env["valueFrom"]["secretKeyRef"] for env in one["env"] if "valueFrom" in env]
    assert secret["key"] in parts["Secret"]["stringData"] and secret["name"] == parts["Secret"]["metadata"]["name"]


def test_proxies_take_what_the_server_takes_and_let_streams_through() -> None:
    """Issue 17, TLS by a proxy in front: the same bound for a body, no buffering of /sse and /mcp."""
    nginx, caddy = text("nginx.conf"), text("Caddyfile")
    most = BODY_BYTES_MAX >> 20
    assert f"client_max_body_size {most}m;" in nginx and f"max_size {most}MiB" in caddy
    assert "proxy_buffering off;" in nginx and "flush_interval -1" in caddy
    assert nginx.count("{") - nginx.count("http { }") == nginx.count("}") - nginx.count("http { }")
    assert caddy.count("{") == caddy.count("}")


def test_the_unit_and_the_image_start_the_server() -> None:
    """Issue 17, deploy: a systemd unit and a container of the same command."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text("memory-anchor.service"))
    assert unit["Service"]["ExecStart"].endswith("memory-anchor serve") and unit["Service"]["UMask"] == "0077"
    assert unit["Service"]["SuccessExitStatus"] == str(128 + signal.SIGTERM), "an orderly end is no failure"
    image = text("Dockerfile")
    asked = re.search(r"127\.0\.0\.1:(\d+)(/v1/\w+)", image)
    assert asked is not None and int(asked[1]) == PORT and asked[2] in PATHS
    assert 'ENTRYPOINT ["memory-anchor"]' in image and '"serve", "--host", "0.0.0.0"' in image


def test_the_manifest_keeps_to_the_schemas_of_kubernetes() -> None:
    """Rule deploy: each part by the strict schema of the newest Kubernetes that the package knows."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate, with its schemas, is not here")
    for one in yaml.safe_load_all(text("kubernetes.yaml")):
        kubernetes.validate(one, kubernetes.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here; it renders deploy/kustomization.yaml")
def test_kustomize_renders_the_manifest_whole() -> None:
    """Issue container: what `kubectl kustomize` makes has every part, in one namespace."""
    done = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True, check=True)
    plain = [one["kind"] for one in yaml.safe_load_all(text("kubernetes.yaml"))]
    made = list(yaml.safe_load_all(done.stdout))

    assert sorted(one["kind"] for one in made) == sorted(plain)
    assert {one["metadata"]["namespace"] for one in made} == {"memory-anchor"}


def test_settings_out_of_reach_are_a_sentence_and_the_unit_keeps_its_own_elsewhere() -> None:
    """Rule deploy: with ProtectHome the home folder is closed to the server, which was a traceback at its start."""
    with pytest.raises(BadInput, match=r"settings file .* cannot be read \(File name too long\)"):
        settings_of({"HOME": "/", "XDG_CONFIG_HOME": f"/{'a' * 300}"})  # asked about, it fails as a closed folder does
    unit = text("memory-anchor.service")
    assert "ProtectHome=true" in unit and "Environment=XDG_CONFIG_HOME=/etc" in unit
