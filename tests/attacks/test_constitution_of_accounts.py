"""L0 of another account of the server: founded and changed by the server's human, in no other account's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory_anchor.domain.model import Actor, Caller, Scope
from memory_anchor.front.cli import constitution, passphrase
from memory_anchor.front.cli.app import app
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.identity.proposals import FOLDER
from memory_anchor.process.wiring import Core
from memory_anchor.settings import Settings
from memory_anchor.testing import PASSPHRASE, cheap_keys, human_of

ACCOUNT = Settings().scope.account
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


def test_an_account_is_founded_and_changed_on_the_server(held: Core, founded: Path, at_the_server: Any) -> None:
    """Rule: its first text and every later one are the server's human's to approve; no other is touched."""
    assert told(held, "acme") == [ACME] and told(held, ACCOUNT) == [OWN]
    name = wish(held, "acme")
    for number in (1, 2, 3):
        done = at_the_server("--account", "acme", "approve", name)
        assert done.exit_code == 0 and f"{number}/3" in done.output, done.output
    assert told(held, "acme") == [ACME, NEW] and told(held, ACCOUNT) == [OWN]
    shown = at_the_server("--account", "acme", "show", "--json")
    assert [one["content"] for one in json.loads(shown.stdout)["entries"]] == [ACME, NEW]

    again = held.anchor(Actor(Caller.AGENT, Scope(account="acme"))).propose(content="Sing to anvils", reason="asked").id
    closed = at_the_server("--account", "acme", "reject", again, "--reason", "not our way")
    assert closed.exit_code == 0, closed.output
    assert schema_of(held, "acme").proposal(again).status.value == "rejected"


def test_founding_is_refused_in_one_sentence(
    held: Core, at_the_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: once, by a human, a whole text, another account; what was refused left nothing behind."""
    good, torn = tmp_path / "good.yaml", tmp_path / "torn.yaml"
    good.write_text(TEXT.format(ACME), encoding="utf-8")
    torn.write_bytes(b"entries: [\xff")
    for words, code, says in (
        (("found", str(good)), 2, "--account is missing"),
        (("--account", ACCOUNT, "found", str(good)), 2, "own account"),
        (("--account", "ac|me", "found", str(good)), 2, "account is"),
        (("--project", "shop", "list"), 2, "without --account"),
        (("review", "--server", "http://127.0.0.1:9"), 2, "over HTTP are gone"),
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


def test_confirmations_of_one_account_count_for_no_other(held: Core, founded: Path, at_the_server: Any) -> None:
    """Attack: a proposal of the same words and id, and the other account's confirmed file put in its place."""
    name = wish(held, "acme")
    assert wish(held, ACCOUNT) == name  # the same words, proposed at the same instant
    for _ in range(2):
        assert at_the_server("--account", "acme", "approve", name).exit_code == 0
    acmes = schema_of(held, "acme").path.parent / FOLDER / f"{name}.yaml"
    mains = Path(held.settings.project_dir) / FOLDER / f"{name}.yaml"
    mains.write_bytes(acmes.read_bytes())
    assert not schema_of(held, ACCOUNT).proposal(name).confirmations
    assert at_the_server("--account", "acme", "approve", name).exit_code == 0
    assert NEW in told(held, "acme") and NEW not in told(held, ACCOUNT)
