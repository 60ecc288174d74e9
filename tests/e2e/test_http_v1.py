"""The paths of /v1 on a real loopback port: batches, what is told of the server, TLS, and the document of it all."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from figures import figure
from human_seat import Seat
from serving import Served, bearer, core_to_serve, key_for

from memory_anchor.admin.waiting import BATCHES
from memory_anchor.domain.credential import Role
from memory_anchor.domain.errors import BadInput, Unavailable
from memory_anchor.extensions.service.batches import ITEMS_MAX
from memory_anchor.extensions.service.http_api import build_http, check_tls
from memory_anchor.language.terms import TERMS_VERSION
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ManualClock, ephemeral_core, human_of

ROOT = Path(__file__).resolve().parents[2]
SECRET = "path-secret"
WAIT_S = 30.0


@pytest.fixture
def held(tmp_path: Path, project: Path, clock: ManualClock) -> Iterator[Core]:
    with core_to_serve(tmp_path / "core", project, clock, requests_per_minute=1_000_000) as made:
        yield made


@pytest.fixture
def served(held: Core) -> Iterator[Served]:
    made = Served(build_http(held, held.settings, secret=SECRET))
    yield made
    made.close()


def finished(ask: Callable[[], Any]) -> dict[str, Any]:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        report: dict[str, Any] = ask().json()
        if report.get("state") == "done":
            return report
        time.sleep(0.02)
    raise AssertionError(report)


def test_the_document_that_is_committed_is_the_one_that_is_served(served: Served) -> None:
    """Issue 17: OpenAPI is generated; `python scripts/make_openapi.py` writes docs/openapi.json anew."""
    document = served.ask("GET", f"/s/{SECRET}/openapi.json").json()
    document.pop("servers", None)

    assert document == json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))


def test_a_batch_is_worked_off_once_however_often_it_is_sent(served: Served, held: Core) -> None:
    """Issue 17, ingest: every kind, idempotent by request_id; a report holds no text and is its owner's."""
    eve, bob = (key_for(held, "acme", user=user)[0] for user in ("eve", "bob"))
    items = [
        {"kind": "memory", "content": "Deploys need two reviews"},
        {"kind": "event", "content": "The whale sang", "when": "2025-12-01T09:00:00Z"},
        {"kind": "document", "name": "a.md", "text": "# Whales\n\nThey sing."},
        {"kind": "conversation", "messages": [{"role": "user", "content": "I prefer tabs over spaces in Go code."}]},
        {"kind": "memory", "content": "It is another now", "replaces": "0000000000000"},
    ]

    def push(key: str, **more: Any) -> Any:
        return served.ask("POST", "/v1/ingest", headers=bearer(key), json={"items": items, "request_id": "b1", **more})

    first = push(eve)
    assert first.status_code == 202 and first.json()["items"] == 5
    batch = first.json()["id"]
    done = finished(lambda: served.ask("GET", f"/v1/ingest/{batch}", headers=bearer(eve)))
    assert [one.get("outcome") for one in done["outcomes"][:2]] == ["added", "added"]
    assert done["outcomes"][4]["error"]["code"] == "not_found"
    assert "reviews" not in json.dumps(done) and push(eve).json() == done
    assert served.ask("GET", f"/v1/ingest/{batch}", headers=bearer(bob)).status_code == 404
    assert push(bob).json()["id"] != batch
    other = push(eve, items=items[:1])
    assert other.status_code == 400 and "came before with other items" in other.json()["message"]
    kept = held.records.read(f"{BATCHES}/{batch}.json")
    assert kept is not None and b"reviews" not in kept.content


def test_a_batch_waits_without_secrets_and_its_report_names_what_was_removed(served: Served, held: Core) -> None:
    """Rule safety.door x ingest: an item is cleaned before it is on disk, whatever its kind."""
    key, _ = key_for(held, "acme")
    secret = "ghp_" + "Wd5Xk8Qm2Zt7Rv4Np9Lb3Hc6Jf1Sg0YaTeUi"
    items = [
        {"kind": "memory", "content": f"Deploys go through staging with {secret}"},
        {"kind": "event", "content": "The whale sang", "key": secret},
        {"kind": "document", "name": "a.md", "text": f"# Whales\n\nTheir token is {secret}."},
        {
            "kind": "conversation",
            "messages": [{"role": "user", "content": f"I always deploy with {secret} on Fridays."}],
        },
    ]
    with held.upkeep.batch_item:  # nothing is worked off meanwhile
        pushed = served.ask("POST", "/v1/ingest", headers=bearer(key), json={"items": items}).json()
        kept = held.records.read(f"{BATCHES}/{pushed['id']}.json")
        waiting = kept.content.decode() if kept is not None else ""
    done = finished(lambda: served.ask("GET", f"/v1/ingest/{pushed['id']}", headers=bearer(key)))

    assert "The whale sang" in waiting and secret[4:] not in waiting
    assert [one.get("redactions") for one in done["outcomes"][:2]] == [["token"], ["token"]]


def test_a_report_is_read_by_the_project_and_the_user_that_made_the_batch(served: Served, held: Core) -> None:
    """Issue 17, ingest: a key of one project learns nothing of another's batches, not even that there is one."""
    bound = [
        {"project": "tools"},
        {"project": "shop"},
        {"user": "eve"},
        {"user": "bob"},
        {"project": "tools", "user": "eve"},
    ]
    keys = [key_for(held, "acme", **one)[0] for one in bound]
    body = {"items": [{"kind": "memory", "content": "Deploys need two reviews"}]}
    batches = [served.ask("POST", "/v1/ingest", headers=bearer(key), json=body).json()["id"] for key in keys]

    def reads(key: str, batch: str) -> bool:
        return served.ask("GET", f"/v1/ingest/{batch}", headers=bearer(key)).status_code == 200

    seen = {
        maker: {reader for reader, key in enumerate(keys) if reads(key, batch)} for maker, batch in enumerate(batches)
    }
    assert seen == {0: {0}, 1: {1}, 2: {2}, 3: {3}, 4: {0, 2, 4}}
    assert not any(reads(key_for(held, "other")[0], batch) for batch in batches)
    assert all(reads(key_for(held, "acme")[0], batch) for batch in batches)  # a key of the whole account


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "items is no list"),
        ({"items": []}, "items is no list"),
        ({"items": [{"kind": "memory", "content": "x"}] * (ITEMS_MAX + 1)}, "items is no list"),
        ({"items": [{"kind": "memory", "content": "x"}, {"kind": "song"}]}, "items[1] has the kind 'song'"),
        ({"items": [{"kind": "memory"}]}, "items[0]: memory lacks the argument 'content'"),
        ({"items": [{"kind": "event", "content": "x", "account_id": "b"}]}, "items[0]: event got the unknown"),
        ({"items": [7]}, "items[0] has the kind"),
        ({"items": [{"kind": "memory", "content": "x"}], "colour": 1}, "unknown argument 'colour'"),
    ],
)
def test_a_batch_is_taken_whole_or_not_at_all(served: Served, held: Core, body: Any, why: str) -> None:
    """Issue 17, bad input: one sentence with the item's place, nothing half-done."""
    key, _ = key_for(held, "acme")
    answer = served.ask("POST", "/v1/ingest", headers=bearer(key), json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_input")
    assert why in answer.json()["message"]
    assert not held.records.listed(BATCHES)


def test_the_server_tells_what_it_is_and_whether_its_store_answers(
    served: Served, held: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17: health needs nothing, ready needs the store, version names schema, index and algorithm."""
    version = served.ask("GET", "/v1/version").json()
    assert set(version) == {"version", "wire", "schema_version", "index_version", "algo_version"}
    assert served.ask("GET", "/v1/ready").json() == {"status": "ready"}

    def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("the store's server is away")

    monkeypatch.setattr(held.services.store, "get", away)
    gone = served.ask("GET", "/v1/ready")
    assert (gone.status_code, gone.json()["code"]) == (503, "unavailable") and gone.headers["Retry-After"]
    assert served.ask("GET", "/v1/health").status_code == 200


def test_what_is_counted_names_no_account_and_no_key(served: Served, held: Core) -> None:
    """Issue 17, telemetry: Prometheus text, for an admin's key and the path secret alone."""
    pytest.importorskip("prometheus_client")
    admin, _ = key_for(held, "acme-corp", role=Role.ADMIN)
    writer, made = key_for(held, "acme-corp", user="eve-smith")
    served.ask("POST", "/v1/memory/search", headers=bearer(writer), json={"query": "x"})
    assert served.ask("GET", "/metrics", headers=bearer(writer)).status_code == 403
    for path, headers in (("/metrics", bearer(admin)), (f"/s/{SECRET}/metrics", {})):
        metrics = served.ask("GET", path, headers=headers).text
        assert 'memory_anchor_requests_total{method="POST",path="/v1/memory/search",status="200"} 1.0' in metrics
        assert not any(one in metrics for one in ("acme-corp", "eve-smith", made.id, SECRET))


def test_a_conversation_goes_on_with_its_variant_until_it_names_another_and_every_citation_names_it(
    tmp_path: Path, project: Path
) -> None:
    """Variants: chosen by X-KM-Variant, kept while a conversation names none; citations and reports have versions."""
    plain = {"conversation": False, "fold_duplicates": False, "priors": False}
    settings = Settings.model_validate({"project_dir": str(project), "variants": {"plain": {"retrieval": plain}}})
    core = ephemeral_core(tmp_path / "core", settings=settings)
    made = Served(build_http(core, settings))
    try:
        key, _ = key_for(core, "acme", user="eve")

        def ask(path: str, variant: str = "", talk: str = "", **body: Any) -> Any:
            head = bearer(key) | ({"X-KM-Variant": variant} if variant else {})
            return made.ask("POST", f"/v1/{path}", headers=head, json={"conversation_id": talk, **body})

        for text in ("Whales sing at night in the bay", "Whales sing at night in the bay, said Ann"):
            assert ask("memory/store", content=text, files=["a.py"], type="note").status_code == 200

        def went_by(variant: str = "", talk: str = "") -> tuple[int, set[str]]:
            found = ask("memory/search", variant, talk, query="when do whales sing").json()["snippets"]
            cited = [one for snippet in found for one in snippet["citations"]]
            assert cited and all(one["index_version"] == f"hash-test/64+terms{TERMS_VERSION}" for one in cited)
            return len(found), {one["variant"] for one in cited}

        assert went_by()[1] == {"default"} and went_by("plain")[1] == {"plain"}
        assert went_by("plain", "t1")[1] == {"plain"} == went_by("", "t1")[1]
        assert went_by("default", "t1")[1] == {"default"} == went_by("", "t1")[1]
        assert went_by("", "t2")[1] == {"default"} and went_by("plain", "t2")[1] == {"plain"} == went_by("", "t2")[1]
        report = ask("context", "plain", "t3", messages=[], task="when do whales sing").json()["report"]
        assert report["variant"] == "plain" and {"index_version", "algo_version"} <= report.keys()
        assert all(one["variant"] == "plain" for one in report["citations"])
        wrong = ask("memory/search", "v9", query="x")
        assert wrong.status_code == 400 and "allowed are default, plain" in wrong.json()["message"]
    finally:
        made.close()
        core.close()


def test_a_certificate_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    """Issue 17, TLS: two files of one key, or neither."""
    (tmp_path / "cert.pem").write_text("no certificate")
    for cert, key in (("cert.pem", ""), ("", "cert.pem"), ("cert.pem", "cert.pem"), ("none.pem", "none.pem")):
        with pytest.raises(BadInput, match=r"http\.tls_cert") as wrong:
            check_tls(cert and str(tmp_path / cert), key and str(tmp_path / key))
        assert "\n" not in str(wrong.value)


@pytest.mark.slow
def test_a_batch_that_was_accepted_outlives_a_kill(tmp_path: Path) -> None:
    """Issue 17, ingest: accepted means durable; a server that is killed at once works it off after its next start."""
    seat = Seat(tmp_path)
    human_of(seat.data)
    env = seat.env()
    command = [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"]
    items = [{"kind": "memory", "content": f"Service {n} listens on port {8000 + n}"} for n in range(60)]
    batch = ""
    for round_ in range(3):
        process = subprocess.Popen(command, env=env, cwd=seat.project, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        base = next(line.split()[-1] for line in process.stdout if "/s/" in line).removesuffix("/mcp")
        if not batch:
            batch = httpx2.post(f"{base}/v1/ingest", json={"items": items}, timeout=60).json()["id"]
        if round_ < 2:
            time.sleep(0.3 * round_)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            continue
        done = finished(partial(httpx2.get, f"{base}/v1/ingest/{batch}", timeout=60))
        assert len({one["id"] for one in done["outcomes"]}) == len(items)
        listed = httpx2.post(f"{base}/v1/memory/list", json={"limit": 1000}, timeout=60).json()["memories"]
        assert len(listed) == len(items)
        process.terminate()
        process.wait(30)


@pytest.mark.slow
def test_tls_is_served_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    """Issue 17: `--tls-cert` and `--tls-key`."""
    seat = Seat(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *made, *names], check=True, capture_output=True)
    command = [sys.executable, "-m", "memory_anchor", "serve", "--port", "0"]
    command += ["--tls-cert", str(cert), "--tls-key", str(key)]
    process = subprocess.Popen(command, env=seat.env(), cwd=seat.project, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        base = next(line.split()[-1] for line in process.stdout if "/s/" in line).removesuffix("/mcp")
        trusted = ssl.create_default_context(cafile=str(cert))
        assert base.startswith("https://") and httpx2.get(f"{base}/v1/ready", verify=trusted).status_code == 200
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_that_the_document_allows_is_a_server_error(tmp_path: Path, held: Core) -> None:
    """Issue 17: schemathesis over docs/openapi.json, 0 server errors."""
    pytest.importorskip("schemathesis")
    key, _ = key_for(held, "acme", user="eve", role=Role.ADMIN)
    phases = figure("examples,fuzzing", "examples,coverage,fuzzing")
    made = Served(build_http(held, held.settings))
    try:
        command = [sys.executable, "-m", "schemathesis.cli", "run", str(ROOT / "docs" / "openapi.json")]
        command += ["--url", made.base, "-H", f"Authorization: Bearer {key}", "--checks", "not_a_server_error"]
        command += ["--max-examples", str(figure(4, 100)), "--phases", phases, "--no-color"]
        result = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"}, check=False
        )
    finally:
        made.close()
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
