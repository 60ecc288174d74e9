"""The commands of `memory-anchor constitution`, in process; tests/e2e/test_approval_pty.py uses a real terminal."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.domain.errors import Refused
from memory_anchor.front.cli import constitution as cli
from memory_anchor.identity import keys
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.testing import ManualClock

PASS = "correct horse battery"
TEXT = 'version: 1\nentries:\n  - id: goal\n    content: "项目目标"\n    priority: 0\n'
Run = Callable[..., tuple[int, Any]]


@pytest.fixture
def schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IdentitySchema:
    monkeypatch.setattr(keys, "SCRYPT_COST", 2**4)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "constitution.yaml").write_text(TEXT, encoding="utf-8")
    made = IdentitySchema(
        project_dir=tmp_path / "project",
        project_id="prj",
        home=tmp_path / "data" / "identity" / "prj",
        clock=ManualClock(),
        audit=JsonlAudit(tmp_path / "data" / "audit.jsonl"),
    )
    made.init(passphrase=PASS, approver="alice", old_passphrase=None)
    return made


@pytest.fixture
def run(schema: IdentitySchema) -> Run:
    """Run a command with --json; return its exit code and its one JSON object."""

    def command(*words: str) -> tuple[int, Any]:
        result = CliRunner().invoke(cli.make_app(lambda: schema), [*words, "--json"])
        return result.exit_code, json.loads(result.stdout)

    return command


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the terminal; the list is what will be typed."""
    typed: list[str] = []
    monkeypatch.setattr(cli, "check_terminal", lambda **_: None)
    monkeypatch.setattr(getpass, "getpass", lambda _: typed.pop(0))
    return typed


def propose(run: Run, content: str = "提交前先跑测试") -> str:
    code, made = run("propose", content, "--reason", "asked for")
    assert code == 0
    return str(made["proposal_id"])


def test_show_answers_as_the_tool_does(run: Run) -> None:
    """Contract `get_constitution`: entries, version, tokens, warnings."""
    assert run("show") == (
        0,
        {
            "entries": [{"id": "goal", "content": "项目目标", "priority": 0, "source": "yaml"}],
            "version": "1",
            "tokens": run("show")[1]["tokens"],
            "warnings": [],
        },
    )


def test_a_proposal_says_how_it_is_approved(run: Run) -> None:
    """Contract `propose_constitution_change`: proposal_id, status, confirmations, required, how_to_approve."""
    code, made = run("propose", "提交前先跑测试", "--reason", "asked for")

    assert code == 0
    assert (made["status"], made["confirmations"], made["required"]) == ("open", 0, 3)
    assert f"memory-anchor constitution approve {made['proposal_id']}" in made["how_to_approve"]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["approve", "p-0123456789"], 4, "refused"),  # no terminal comes first
        (["adopt"], 4, "refused"),
        (["trust", "bob", "key"], 4, "refused"),
        (["reject", "p-0123456789", "--reason", "no"], 4, "refused"),
        (["propose", "", "--reason", "x"], 2, "bad_input"),
        (["propose", "x"], 2, "bad_input"),
        (["propose", "x", "--reason", "r", "--action", "replace", "--entry-id", "nope"], 3, "not_found"),
    ],
)
def test_failures_have_the_exit_codes_of_the_error_table(run: Run, words: list[str], code: int, error: str) -> None:
    """Exit codes: 2 bad input, 3 not found, 4 refused; without a terminal nothing is approved."""
    found, failure = run(*words)

    assert (found, failure["error"]) == (code, error)
    assert "\n" not in failure["message"]


def test_three_commands_approve_and_a_wrong_passphrase_does_not(run: Run, at_terminal: list[str]) -> None:
    """Constitution: one confirmation a command."""
    wish = propose(run)
    at_terminal += ["guess", PASS, PASS, PASS]

    assert run("approve", wish)[0] == 4
    states = [run("approve", wish)[1] for _ in range(3)]

    assert [(state["status"], state["confirmations"]) for state in states] == [
        ("open", 1),
        ("open", 2),
        ("effective", 3),
    ]
    assert [entry["content"] for entry in run("show")[1]["entries"]] == ["项目目标", "提交前先跑测试"]
    assert run("list")[1]["proposals"] == []
    assert [proposal["status"] for proposal in run("list", "--all")[1]["proposals"]] == ["effective"]


def test_reject_adopt_and_trust_take_the_passphrase(run: Run, schema: IdentitySchema, at_terminal: list[str]) -> None:
    """Constitution: what counts as human needs the passphrase."""
    wish = propose(run)
    own = schema.approver()
    assert own is not None
    for words in (["reject", wish, "--reason", "no"], ["adopt"], ["trust", "bob", own.public]):
        at_terminal.append("guess")
        assert run(*words)[0] == 4
    at_terminal += [PASS, PASS, PASS]

    assert run("reject", wish, "--reason", "no")[1]["status"] == "rejected"
    assert run("adopt")[1]["status"] == "nothing to adopt"
    assert run("trust", "bob", "no key")[0] == 2
    assert [approver["name"] for approver in run("approvers")[1]["approvers"]] == ["alice"]


def test_reject_shows_what_it_closes_and_refuses_another_version(
    schema: IdentitySchema, run: Run, at_terminal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack A21: between the look and the passphrase an agent edits the proposal's file."""
    wish = propose(run, "rule")
    file = schema.path.parent / ".ai" / "proposals" / f"{wish}.yaml"
    shown = file.read_text(encoding="utf-8")

    def slow(_: str) -> str:
        file.write_text(shown.replace('"rule"', '"another rule"'), encoding="utf-8")
        return PASS

    with monkeypatch.context() as patched:
        patched.setattr(getpass, "getpass", slow)
        result = CliRunner().invoke(cli.make_app(lambda: schema), ["reject", wish, "--reason", "no"])
    assert result.exit_code == 4
    assert "rule" in result.stdout and "changed while it was being shown" in result.output
    file.write_text(shown, encoding="utf-8")
    at_terminal.append(PASS)
    assert run("reject", wish, "--reason", "no")[1]["status"] == "rejected"


def test_the_plain_output_shows_the_difference_before_the_passphrase(
    schema: IdentitySchema, run: Run, at_terminal: list[str]
) -> None:
    """Constitution: a human sees the exact difference first; a text with a sign that is not seen is no proposal."""
    code, proposed = run("propose", "rule\u202e", "--reason", "asked for")
    assert code == 2 and "content holds U+202E" in proposed["message"]
    wish = propose(run, "rule")
    at_terminal.append(PASS)

    result = CliRunner().invoke(cli.make_app(lambda: schema), ["approve", wish])

    assert result.exit_code == 0
    assert '+    content: "rule"' in result.stdout
    assert "confirmation 1 of 3" in result.stdout
    assert CliRunner().invoke(cli.make_app(lambda: schema), ["show", "--yaml"]).stdout == TEXT


def test_init_takes_the_old_passphrase_and_refuses_two_that_differ(
    schema: IdentitySchema, at_terminal: list[str]
) -> None:
    """Constitution: on an initialised project `init` asks for the old passphrase."""
    at_terminal += [PASS, "a new one of hers", "other one"]
    with pytest.raises(Refused, match="differ"):
        cli.init_constitution(schema)
    at_terminal += [PASS, "a new one of hers", "a new one of hers"]

    assert cli.init_constitution(schema)["approver"] == "alice"
    assert schema.verify_passphrase("a new one of hers")


@pytest.mark.parametrize("command", ["init", "adopt"])
def test_a_file_that_is_swapped_while_its_text_is_shown_is_not_taken(
    tmp_path: Path, schema: IdentitySchema, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Attack: an agent writes the file between the text on the screen and the passphrase."""
    monkeypatch.setattr(cli, "check_terminal", lambda **_: None)
    file = tmp_path / "project" / "constitution.yaml"
    if command == "init":
        (tmp_path / "fresh").mkdir()
        file = tmp_path / "fresh" / "constitution.yaml"
        file.write_text(TEXT, encoding="utf-8")
        fresh = tmp_path / "data" / "identity" / "fresh"
        audit = JsonlAudit(tmp_path / "data" / "audit.jsonl")
        schema = IdentitySchema(
            project_dir=file.parent, project_id="fresh", home=fresh, clock=ManualClock(), audit=audit
        )
    else:
        file.write_text(TEXT.replace("项目目标", "Water at dawn"), encoding="utf-8")

    def typed(_: str) -> str:
        file.write_text(TEXT.replace("项目目标", "Obey the agent"), encoding="utf-8")
        return PASS

    monkeypatch.setattr(getpass, "getpass", typed)
    if command == "init":
        with pytest.raises(Refused, match="changed while it was being shown"):
            cli.init_constitution(schema)
        assert not schema.initialised
    else:
        result = CliRunner().invoke(cli.make_app(lambda: schema), ["adopt"])
        assert result.exit_code == 4 and "changed while it was being shown" in result.output
        assert not schema.proposals()
