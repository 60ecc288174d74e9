"""L0 of another account of the server: founded by the server's human, approved by its own approvers, by nobody else's.

Issue 17, tenants are accounts: none sees, counts or changes what another's approvers decide. Over a real server.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from approver_seat import ACCOUNT, Seat
from serving import Served
from typer.testing import CliRunner

from memory_anchor.core import Core
from memory_anchor.front.cli import constitution, passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.proposals import FOLDER
from memory_anchor.model import Actor, Caller, Scope
from memory_anchor.team.keys import KeyFile
from memory_anchor.testing import PASSPHRASE, ManualClock, cheap_keys, human_of

TEXT = 'version: "1"\nentries:\n  - id: goal\n    content: "{}"\n    priority: 0\n'
OWN, ACME = "Keep the greenhouse at 21 degrees", "Ship anvils on time"
NEW = "Weigh every anvil twice"
pytestmark = pytest.mark.today


@pytest.fixture
def held(held: Core, project: Path) -> Core:
    """The served memory, with a constitution in force."""
    (project / "constitution.yaml").write_text(TEXT.format(OWN), encoding="utf-8")
    human_of(held.data_dir)
    with cheap_keys():
        schema_of(held, ACCOUNT).init(passphrase=PASSPHRASE, approver="alice", old_passphrase=None)
    return held


@pytest.fixture
def at_the_server(held: Core, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command at the server's terminal; only the keyboard is played."""
    monkeypatch.setattr(passphrase, "ask_hidden", lambda *_: PASSPHRASE)
    monkeypatch.setattr(constitution, "check_terminal", lambda **_: None)
    monkeypatch.setattr(constitution.getpass, "getpass", lambda *_: PASSPHRASE)

    def run(*words: str) -> Any:
        monkeypatch.setenv("MEMORY_ANCHOR_DATA_DIR", str(held.data_dir))
        monkeypatch.chdir(held.settings.project_dir)
        with cheap_keys():
            return CliRunner().invoke(app, ["constitution", *words])

    return run


@pytest.fixture
def founded(at_the_server: Any, tmp_path: Path) -> Path:
    file = tmp_path / "acme.yaml"
    file.write_text(TEXT.format(ACME), encoding="utf-8")
    done = at_the_server("--account", "acme", "found", str(file), "--json")
    assert done.exit_code == 0, done.output
    return file


def schema_of(held: Core, account: str) -> IdentitySchema:
    folder = held.settings.project_dir if account == ACCOUNT else ""
    return held.anchor(Actor(Caller.AGENT, Scope(account=account), project_dir=folder)).project.identity


def told(held: Core, account: str) -> list[str]:
    schema = schema_of(held, account)
    assert not schema.load().warnings and not schema.faults()
    return [one.content for one in schema.load().entries]


def wish(held: Core, account: str) -> str:
    folder = held.settings.project_dir if account == ACCOUNT else ""
    anchor = held.anchor(Actor(Caller.AGENT, Scope(account=account), project_dir=folder))
    return anchor.propose(content=NEW, reason="asked").id


def seats_of(held: Core, served: Served, folder: Path, account: str) -> list[Seat]:
    names = ("bob", "carol", "dave")
    return [Seat(held, served, folder / f"{account} {name}", name, account=account) for name in names]


def test_an_account_is_founded_on_the_server_and_changed_by_its_own_approvers(
    held: Core, served: Served, founded: Path, at_the_server: Any, tmp_path: Path, clock: ManualClock
) -> None:
    """Issue 17: the first text by the server's human, later ones from elsewhere or with them."""
    assert told(held, "acme") == [ACME] and told(held, ACCOUNT) == [OWN]
    bob, carol, dave = seats_of(held, served, tmp_path, "acme")
    name = wish(held, "acme")
    for number, seat in enumerate((bob, carol, dave), 1):
        done = seat.sends(seat.signs(clock.now()))
        assert done.status_code == 200 and done.json()["confirmations"] == number, done.text
    assert told(held, "acme") == [ACME, NEW] and told(held, ACCOUNT) == [OWN]
    shown = at_the_server("--account", "acme", "show", "--json")
    assert [one["content"] for one in json.loads(shown.stdout)["entries"]] == [ACME, NEW]

    anchor = held.anchor(Actor(Caller.AGENT, Scope(account="acme")))
    other = anchor.propose(content="Paint no anvil", reason="asked").id
    assert bob.sends(bob.signs(clock.now())).status_code == 200
    listed = at_the_server("--account", "acme", "list")
    assert other in listed.output and "1/3" in listed.output and name not in listed.output
    for number in (2, 3):
        done = at_the_server("--account", "acme", "approve", other)
        assert done.exit_code == 0 and f"{number}/3" in done.output, done.output
    assert told(held, "acme")[-1] == "Paint no anvil" and told(held, ACCOUNT) == [OWN]
    again = anchor.propose(content="Sing to the anvils", reason="asked").id
    assert carol.refuses(carol.signs_no(clock.now())).json()["status"] == "rejected"
    assert schema_of(held, "acme").proposal(again).status.value == "rejected"


def test_founding_is_refused_in_one_sentence(
    held: Core, served: Served, at_the_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: once, by a human, a whole text, another account; what was refused left nothing behind."""
    good, torn = tmp_path / "good.yaml", tmp_path / "torn.yaml"
    good.write_text(TEXT.format(ACME), encoding="utf-8")
    torn.write_bytes(b"entries: [\xff")
    (bob, *_) = seats_of(held, served, tmp_path, "acme")
    early = bob.post("constitution/proposals")
    assert early.status_code == 403 and "never approved" in early.json()["message"], early.text
    for words, code, says in (
        (("found", str(good)), 2, "--account is missing"),
        (("--account", ACCOUNT, "found", str(good)), 2, "own account"),
        (("--account", "ac|me", "found", str(good)), 2, "account is"),
        (("--project", "shop", "list"), 2, "without --account"),
        (("--account", "acme", "review", "--server", "http://127.0.0.1:9"), 2, "the access key says whose"),
        (("--account", "acme", "--project", "../x", "found", str(good)), 2, "project"),
        (("--account", "acme", "found", str(tmp_path / "none.yaml")), 2, "none.yaml"),
        (("--account", "acme", "found", str(torn)), 2, "not UTF-8"),
        (("--account", "acme", "found", str(tmp_path)), 2, "cannot be"),
    ):
        done = at_the_server(*words)
        assert done.exit_code == code and says in done.output, (words, done.output)
    monkeypatch.setattr(constitution.getpass, "getpass", lambda *_: "wrong horse battery")
    wrong = at_the_server("--account", "acme", "found", str(good))
    assert wrong.exit_code == 4 and "passphrase" in wrong.output, wrong.output
    assert told(held, ACCOUNT) == [OWN] and not schema_of(held, "acme").initialised
    monkeypatch.setattr(constitution.getpass, "getpass", lambda *_: PASSPHRASE)
    assert at_the_server("--account", "acme", "found", str(good)).exit_code == 0
    twice = at_the_server("--account", "acme", "found", str(good))
    assert twice.exit_code == 4 and "already" in twice.output, twice.output


def test_no_accounts_approver_sees_or_counts_for_another(
    held: Core, served: Served, founded: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Attack: approvers of the main account and of a third one, one person in both, a file that is carried over."""
    acme, main = (seats_of(held, served, tmp_path, account) for account in ("acme", ACCOUNT))
    bob, carol, dave = acme
    name = wish(held, "acme")
    (mallory, *_) = seats_of(held, served, tmp_path, "globex")
    for other in (main[0], mallory):
        foreign = other.post("constitution/proposals").text
        assert name not in foreign and ACME not in foreign

    body = bob.signs(clock.now())
    for other in (main[0], mallory):
        summarized_ids = other.sends(body)
        assert summarized_ids.status_code in (403, 404), summarized_ids.text
        assert other.refuses(bob.signs_no(clock.now())).status_code in (403, 404)
        crossed = other.post("constitution/approve", **body, human=bob.proof(body))
        assert crossed.status_code == 403, crossed.text
    twin = wish(held, ACCOUNT)  # the same words, proposed at the same instant: even its id is the same
    assert twin == name
    both = Seat(held, served, bob.home, "bob", account=ACCOUNT)  # bob's own signing key in a key of the main account
    crossed = both.sends(bob.signs(clock.now()))
    assert crossed.status_code == 403 and "not signed by this approver's key" in crossed.json()["message"], crossed.text
    assert [len(schema_of(held, one).proposal(name).confirmations) for one in ("acme", ACCOUNT)] == [0, 0]

    for seat in (bob, carol):
        assert seat.sends(seat.signs(clock.now())).status_code == 200
    acmes = schema_of(held, "acme").path.parent / FOLDER / f"{name}.yaml"
    mains = Path(held.settings.project_dir) / FOLDER / f"{name}.yaml"
    mains.write_bytes(acmes.read_bytes())
    assert not schema_of(held, ACCOUNT).proposal(name).confirmations
    assert dave.sends(dave.signs(clock.now())).json()["status"] == "effective"
    assert NEW in told(held, "acme") and NEW not in told(held, ACCOUNT)


def test_a_file_with_another_accounts_approvals_counts_nothing(
    held: Core, served: Served, founded: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Attack: a repository brings a proposal that three approvers of another account signed for this very project."""
    name = wish(held, ACCOUNT)
    schema = schema_of(held, ACCOUNT)
    file = Path(held.settings.project_dir) / FOLDER / f"{name}.yaml"
    strangers = seats_of(held, served, tmp_path, "globex")
    own = seats_of(held, served, tmp_path, ACCOUNT)
    signed = own[0].sends(own[0].signs(clock.now()))
    assert signed.status_code == 200
    listed = own[0].listed()
    body = strangers[1].signs(clock.now(), told={**listed, "by": "carol"})
    text = file.read_text(encoding="utf-8")
    assert "globex" not in text
    first = schema._book.find(name)
    record = KeyFile.of(held.data_dir, held.audit).record(strangers[1].record.id)
    planted = replace(
        first.proposal.confirmations[0], by="carol", at=clock.now(), signature=body["signature"], credential=record
    )
    second = replace(first.proposal, confirmations=(*first.proposal.confirmations, planted))
    schema._book.write(replace(first, proposal=second))
    assert "globex" in file.read_text(encoding="utf-8")
    assert len(schema.proposal(name).confirmations) == 1
