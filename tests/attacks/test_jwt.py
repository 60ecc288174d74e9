"""Tokens of an issuer of one's own: a real issuer on loopback, its keys fetched over a socket, nothing mocked.

Issue 17, JWT: resource server only; an issuer that is away is 503 and never a wrong token.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from issuer import OURS, IssuerNearby
from serving import Served, bearer

from memory_anchor.domain.errors import BadInput
from memory_anchor.extensions.service import issuer as issuers
from memory_anchor.extensions.service.http_api import build_http
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import ephemeral_core


@pytest.fixture
def near() -> Iterator[IssuerNearby]:
    made = IssuerNearby()
    yield made
    made.close()


@pytest.fixture
def served(near: IssuerNearby, tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(issuers, "ASK_AGAIN_S", 0.0)
    chosen = {"issuer": near.url, "audience": OURS, "jwks_url": f"{near.url}/jwks"}
    http = {"jwt": {**chosen, "account_claim": "org", "role_claim": "roles", "leeway_s": 5}}
    settings = Settings.model_validate({"http": http, "project_dir": str(project)})
    core: Core = ephemeral_core(tmp_path / "core", settings=settings)
    made = Served(build_http(core, settings))
    yield made
    made.close()
    core.close()


def search(served: Served, token: str, **body: Any) -> Any:
    return served.ask("POST", "/v1/memory/search", headers=bearer(token), json={"query": "x", **body})


def test_a_token_says_whose_memory_and_with_which_role(served: Served, near: IssuerNearby) -> None:
    """Issue 17, JWT: account, user and role come from its claims; keys are asked for once."""
    token = near.token()
    stored = served.ask("POST", "/v1/memory/store", headers=bearer(token), json={"content": "Whales sing"}).json()
    assert stored["outcome"] == "added"
    snippets = search(served, token, query="do whales sing").json()["snippets"]
    assert snippets and not search(served, near.token(org="globex"), query="do whales sing").json()["snippets"]
    assert search(served, token, account_id="globex").status_code == 403
    reader = near.token(roles=["dancer"])
    refused = served.ask("POST", "/v1/memory/store", headers=bearer(reader), json={"content": "x"})
    assert refused.status_code == 403 and search(served, reader).status_code == 200
    assert near.asked == 1


def test_a_wrong_token_is_refused_in_one_sentence(served: Served, near: IssuerNearby) -> None:
    """Attack: expired, for another server, of another issuer, unsigned, signed with a public key, cut, nameless."""
    stranger = IssuerNearby()
    public = near.keys["k1"].public_key().public_bytes_raw().hex()
    forged = jwt.encode({"sub": "eve"}, public, algorithm="HS256", headers={"kid": "k1"})
    unsigned = jwt.encode({"iss": near.url, "aud": OURS, "sub": "eve", "exp": 9_999_999_999}, None, algorithm="none")
    for token, why in (
        (near.token(exp=1), "expired"),
        (near.token(aud="https://other.example.org"), "for another server"),
        (near.token(iss="https://evil.example.org"), "another issuer's"),
        (near.token(nbf=9_999_999_999), "not in force yet"),
        (near.token(sub=None), "lacks the claim 'sub'"),
        (near.token(exp=None), "lacks the claim 'exp'"),
        (near.token(org="a|b"), "'org' is no name"),
        (near.token(org=["acme"]), "'org' is no name"),
        (stranger.token(), "not signed by its issuer"),
        (near.token()[:-8] + "AAAAAAAA", "not signed by its issuer"),
        (forged, "HS256"),
        (unsigned, "'none'"),
        ("a.b.c", "no JWT"),
    ):
        refused = search(served, token)
        assert refused.status_code == 401, (why, refused.text)
        assert why in refused.json()["message"] and "\n" not in refused.json()["message"]
        assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]
    stranger.close()


def test_an_issuer_that_is_away_is_no_wrong_token(served: Served, near: IssuerNearby) -> None:
    """Issue 17, JWT: 503 with Retry-After; a key that is known is used further, a new one as soon as it can be had."""
    for nonsense in (b"", b"[1, 2", b'{"keys": 7}', b'{"keys": []}', b"x" * (2 << 20)):
        near.answer = nonsense
        away = search(served, near.token())
        assert (away.status_code, away.json()["code"]) == (503, "unavailable") and away.headers["Retry-After"]
    near.answer = None
    assert search(served, near.token()).status_code == 200
    near.keys["k2"] = Ed25519PrivateKey.generate()
    near.answer = b""
    assert search(served, near.token("k1")).status_code == 200
    assert search(served, near.token("k2")).status_code == 503
    near.answer = None
    assert search(served, near.token("k2")).status_code == 200


def test_a_client_is_told_where_tokens_come_from(served: Served, near: IssuerNearby) -> None:
    """RFC 9728: the metadata is open, and a refusal names it."""
    lacking = served.ask("POST", "/mcp", json={})
    url = "https://memory.example.org/.well-known/oauth-protected-resource/mcp"
    assert lacking.status_code == 401 and f'resource_metadata="{url}"' in lacking.headers["WWW-Authenticate"]
    assert "invalid_token" not in lacking.headers["WWW-Authenticate"]
    metadata = served.ask("GET", "/.well-known/oauth-protected-resource/mcp").json()
    assert metadata["resource"] == OURS and metadata["authorization_servers"] == [near.url]


def test_an_issuer_over_plain_http_elsewhere_is_refused(tmp_path: Path) -> None:
    """Attack: keys fetched over a wire that anybody may write on."""
    chosen = {"issuer": "https://id.example.org", "audience": OURS, "jwks_url": "http://id.example.org/jwks"}
    core = ephemeral_core(tmp_path / "core")
    with pytest.raises(BadInput, match=r"http\.jwt\.jwks_url is 'http://id\.example\.org/jwks'"):
        build_http(core, Settings.model_validate({"http": {"jwt": chosen}}))
    core.close()
