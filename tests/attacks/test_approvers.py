"""What is for the whole team waits; an approver with a signing key of their own lets it in, over a real server.

Issue 17, roles and the team: nothing is approved by an access key alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Served, bearer, key_for
from typer.testing import CliRunner

from memory_anchor.base.json_values import Record
from memory_anchor.domain.credential import Role, key_digest
from memory_anchor.domain.rights import version_stamp
from memory_anchor.front.callers import REVIEWER
from memory_anchor.front.cli import passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.identity.keys import Signer
from memory_anchor.identity.signed_requests import sign_request
from memory_anchor.process.wiring import Core
from memory_anchor.testing import PASSPHRASE, cheap_keys, human_of


@pytest.fixture
def bob(tmp_path: Path) -> Signer:
    """An approver with a passphrase and a data folder of their own, on another machine."""
    return human_of(tmp_path / "bobs machine")


def post(served: Served, key: str, path: str, **body: Any) -> Any:
    return served.ask("POST", f"/v1/{path}", headers=bearer(key), json=body)


def waiting(served: Served, eve: str) -> dict[str, Any]:
    done = post(served, eve, "memory/store", content="Deploys need two reviews", visibility="account").json()
    assert done["outcome"] == "pending"
    (item,) = post(served, eve, "review/inbox").json()["items"]
    one: dict[str, Any] = item["memory"]
    return one


def proof_of(served: Served, key: str, signer: Signer, call: str, said: Record, *, server: str = "") -> dict[str, str]:
    """Return the proof of a decision. server: an access key that the signature names instead of the one it is for."""
    challenge = post(served, key, "review/challenge").json()["challenge"]
    return sign_request(signer, call, said, REVIEWER, challenge, server=key_digest(server or key))


def decision(served: Served, key: str, signer: Signer, call: str, **said: Any) -> Any:
    return post(served, key, f"review/{call}", **said, human=proof_of(served, key, signer, call, said))


def test_a_memory_for_the_team_is_let_in_by_an_approver_who_signs(served: Served, held: Core, bob: Signer) -> None:
    """Issue 17, the team: promoted through the inbox; history says whose it is and who let it in."""
    eve, carol = (key_for(held, "acme", user=name)[0] for name in ("eve", "carol"))
    approver, _ = key_for(held, "acme", user="bob", role=Role.APPROVER, public=bob.approver.public)
    one = waiting(served, eve)
    assert not post(served, carol, "memory/search", query="how many reviews", project_id="other").json()["snippets"]

    seen = [version_stamp(one["id"], one["version"], one["content"])]
    done = decision(served, approver, bob, "accept", id=one["id"], seen=seen)

    assert done.status_code == 200 and done.json()["status"] == "active", done.text
    assert post(served, carol, "memory/search", query="how many reviews", project_id="other").json()["snippets"]
    versions = post(served, carol, "memory/history", id=one["id"]).json()["versions"]
    assert versions[-1]["scope"]["user"] == "eve"
    authors = [record.get("author") or record.get("by") for record in held.audit.records()]
    assert any("for eve" in str(name) for name in authors) and any(str(name) == "human:bob" for name in authors)


def test_nothing_is_approved_by_a_key_alone(served: Served, held: Core, bob: Signer, tmp_path: Path) -> None:
    """Attack: an agent holds the approver's access key; a signature of another, used twice, or over other words."""
    eve, _ = key_for(held, "acme", user="eve")
    approver, _ = key_for(held, "acme", user="bob", role=Role.APPROVER, public=bob.approver.public)
    unsigned, _ = key_for(held, "acme", user="dan", role=Role.APPROVER)
    foreign, _ = key_for(held, "globex", user="bob", role=Role.APPROVER, public=bob.approver.public)
    stranger = human_of(tmp_path / "somebody else")
    one = waiting(served, eve)
    said = {"id": one["id"], "seen": [version_stamp(one["id"], one["version"], one["content"])]}
    other = {**said, "content": "Deploys need no review"}
    proof = proof_of(served, approver, bob, "accept", said)
    elsewhere = proof_of(served, approver, bob, "accept", said, server=foreign)
    challenge = post(served, approver, "review/challenge").json()["challenge"]
    at_home = sign_request(bob, "accept", said, REVIEWER, challenge)
    here = proof_of(served, approver, bob, "accept", said)

    tries = [
        post(served, eve, "review/challenge"),
        post(served, eve, "review/accept", **said, human=proof),
        post(served, approver, "review/accept", **said),
        post(served, approver, "review/accept", **other, human=proof),
        post(served, approver, "review/accept", **said, human=proof),  # its challenge is used up by now
        decision(served, approver, stranger, "accept", **said),
        decision(served, approver, human_of(held.data_dir), "accept", **said),
        post(served, approver, "review/accept", **said, human=elsewhere),
        post(served, approver, "review/accept", **said, human=at_home),
        post(served, approver, "review/accept", **said, human=here, project_id="another"),
        decision(served, unsigned, bob, "accept", **said),
        decision(served, approver, bob, "accept", id=one["id"], seen=["changed@1:x"]),
    ]
    assert [one.status_code for one in tries] == [403] * len(tries), [one.text for one in tries]
    assert decision(served, foreign, bob, "accept", **said).status_code == 404
    assert post(served, eve, "memory/get", id=one["id"]).json()["status"] == "pending"


def test_an_approver_reviews_from_their_own_machine(
    served: Served, held: Core, bob: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 17, roles: `memory-anchor review --server URL --key-file FILE`; only the keyboard is played."""
    eve, _ = key_for(held, "acme", user="eve")
    approver, _ = key_for(held, "acme", user="bob", role=Role.APPROVER, public=bob.approver.public)
    one = waiting(served, eve)
    file = tmp_path / "key"
    file.write_text(f"{approver}\n")
    monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(tmp_path / "bobs machine"))
    monkeypatch.setattr(passphrase, "ask_hidden", lambda *_: PASSPHRASE)
    monkeypatch.setattr("memory_anchor.front.cli.review.check_keyboard", lambda: None)
    there = ("--server", served.base, "--key-file", str(file))

    listed = CliRunner().invoke(app, ["review", "--list", "--json", *there])
    assert [item["memory"]["id"] for item in json.loads(listed.stdout)["items"]] == [one["id"]]
    with cheap_keys():
        done = CliRunner().invoke(app, ["review", "--accept", one["id"], "--json", *there])
    assert done.exit_code == 0, done.output
    assert post(served, eve, "memory/get", id=one["id"]).json()["status"] == "active"
    wrong = CliRunner().invoke(app, ["review", "--list", "--server", served.base, "--key-file", str(tmp_path / "none")])
    assert wrong.exit_code == 2
