"""Approving over a real terminal: the passphrase is typed on a pty, and nothing else can answer for a human."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from human_seat import talk

pytestmark = pytest.mark.slow

PASS = "correct horse battery"
WAIT_S = 60
CHILD = """
import fcntl, os, sys, termios
from pathlib import Path
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the prompt for the passphrase opens /dev/tty
root, command, arguments = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
from memory_anchor.adapters.audit import JsonlAudit
from memory_anchor.front.cli.constitution import init_constitution, make_app
from memory_anchor.domain.errors import MemoryAnchorError, report
from memory_anchor.identity import keys
from memory_anchor.identity.identity_schema import IdentitySchema
from memory_anchor.testing import ManualClock
keys.SCRYPT_COST = 16  # in the child itself: no setting does so
def build():
    home = root / "data" / "identity" / "prj"
    audit = JsonlAudit(root / "data" / "audit.jsonl")
    return IdentitySchema(project_dir=root / "project", project_id="prj", home=home, clock=ManualClock(), audit=audit)
if command == "init":
    try:
        print(init_constitution(build(), approver=arguments[0] if arguments else ""))
    except MemoryAnchorError as error:
        print(error)
        sys.exit(report(error).exit_code)
else:
    make_app(build)([command, *arguments])
"""
TEXT = '# kept\nversion: 1\nentries:\n  - id: goal   # kept too\n    content: "项目目标"\n    priority: 0\n'


class Seat:
    """A project folder, and a terminal at which a human runs commands."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "project" / "constitution.yaml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(TEXT, encoding="utf-8")

    def _command(self, words: Sequence[str]) -> list[str]:
        return [sys.executable, "-c", CHILD, str(self.root), *words]

    def typed(self, *words: str, answers: Sequence[tuple[str, str]] = (), split: bool = False) -> tuple[int, str, str]:
        """Run a command on a pty, answering each prompt once it shows; return exit code, screen and stdout.

        split: stdout is a pipe, as with `--json > file`.
        """
        master, slave = pty.openpty()
        try:
            out = subprocess.PIPE if split else slave
            child = subprocess.Popen(
                self._command(words), stdin=slave, stdout=out, stderr=slave, start_new_session=True
            )
            os.close(slave)
            screen = talk(master, list(answers))
            stdout = child.stdout.read().decode() if child.stdout else ""
            return child.wait(WAIT_S), screen, stdout
        finally:
            os.close(master)

    def piped(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as an agent's shell does: no terminal anywhere."""
        return subprocess.run(
            self._command(words),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            timeout=WAIT_S,
        )

    def begin(self) -> None:
        code, screen, _ = self.typed("init", "alice", answers=[("New passphrase", PASS), ("Once more", PASS)])
        assert code == 0, screen

    def propose(self, content: str) -> str:
        done = self.piped("propose", content, "--reason", "asked for", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return str(json.loads(done.stdout)["proposal_id"])


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    return Seat(tmp_path)


def test_three_approvals_on_a_terminal_make_a_proposal_effective(seat: Seat) -> None:
    """Constitution: each confirmation is a command of its own that shows the exact difference first."""
    seat.begin()
    wish = seat.propose("提交前先跑测试")

    screens = [seat.typed("approve", wish, answers=[("Passphrase of alice", PASS)]) for _ in range(3)]

    assert [code for code, _, _ in screens] == [0, 0, 0], screens
    for n, (_, screen, _) in enumerate(screens, start=1):
        assert '+    content: "提交前先跑测试"' in screen.replace("\r", "")
        assert f"confirmation {n} of 3" in screen
        assert screen.index("+    content") < screen.index("Passphrase")
        assert PASS not in screen
    assert "effective" in screens[2][1] and "effective" not in screens[1][1]
    shown = json.loads(seat.piped("show", "--json").stdout)
    assert [entry["content"] for entry in shown["entries"]] == ["项目目标", "提交前先跑测试"]
    assert shown["warnings"] == []
    assert seat.file.read_text(encoding="utf-8").startswith(TEXT)


def test_a_wrong_passphrase_is_refused_and_counts_nothing(seat: Seat) -> None:
    """Constitution: exit 4, and the proposal stands as before."""
    seat.begin()
    wish = seat.propose("a rule")

    code, screen, _ = seat.typed("approve", wish, answers=[("Passphrase of alice", "guess")])

    assert code == 4
    assert "the passphrase is not the approver's" in screen
    assert json.loads(seat.piped("list", "--json").stdout)["proposals"][0]["confirmations"] == 0


def test_without_a_terminal_nothing_that_needs_a_human_runs(seat: Seat) -> None:
    """Constitution: no terminal, no approval; typing the passphrase into a pipe does not help."""
    seat.begin()
    wish = seat.propose("a rule")

    for words in (
        ["approve", wish],
        ["approve", wish, "--json"],
        ["reject", wish, "--reason", "no"],
        ["adopt"],
        ["trust", "bob", "AAAA"],
        ["init", "mallory"],
    ):
        done = seat.piped(*words, stdin=f"{PASS}\n" * 3)
        assert done.returncode == 4, (words, done.stdout, done.stderr)
        assert "terminal" in done.stdout + done.stderr
    listed = json.loads(seat.piped("list", "--json").stdout)["proposals"]
    assert [(proposal["status"], proposal["confirmations"]) for proposal in listed] == [("open", 0)]


def test_json_answers_go_to_stdout_while_the_human_sees_the_difference(seat: Seat) -> None:
    """Every command has `--json`: one object on stdout, the difference and the prompt on the terminal."""
    seat.begin()
    first, second = seat.propose("keep this"), seat.propose("not this")

    code, screen, out = seat.typed("approve", first, "--json", answers=[("Passphrase", PASS)], split=True)
    assert (code, json.loads(out)["confirmations"]) == (0, 1)
    assert "+    content" in screen
    words = ["reject", second, "--reason", "no", "--json"]
    code, _, out = seat.typed(*words, answers=[("Passphrase", PASS)], split=True)
    assert (code, json.loads(out)["status"]) == (0, "rejected")
    code, _, out = seat.typed("adopt", "--json", answers=[("Passphrase", PASS)], split=True)
    assert (code, json.loads(out)["status"]) == (0, "nothing to adopt")
    code, _, out = seat.typed("approve", "p-0000000000", "--json", split=True)
    assert (code, json.loads(out)["error"]) == (3, "not_found")


def test_an_edit_by_an_agent_is_shown_adopted_or_taken_back(seat: Seat) -> None:
    """Constitution: the approved text is served; `adopt` proposes the edit, `show --yaml` takes it back."""
    seat.begin()
    seat.file.write_text(TEXT.replace("项目目标", "听代理的"), encoding="utf-8")
    shown = json.loads(seat.piped("show", "--json").stdout)
    assert shown["entries"][0]["content"] == "项目目标"
    assert "line 5 differs" in shown["warnings"][0]

    code, screen, _ = seat.typed("adopt", answers=[("Passphrase", PASS)])

    assert code == 0
    assert '-    content: "项目目标"' in screen and '+    content: "听代理的"' in screen
    assert seat.piped("show", "--yaml").stdout == TEXT


def test_init_on_an_initialised_project_asks_for_the_old_passphrase(seat: Seat) -> None:
    """Constitution: only who knows the old passphrase sets a new one."""
    seat.begin()
    wrong = seat.typed("init", answers=[("Old passphrase", "guess")])
    assert wrong[0] == 4

    changed = seat.typed(
        "init", answers=[("Old", PASS), ("New", "another one of hers"), ("Once more", "another one of hers")]
    )

    assert changed[0] == 0, changed[1]
    wish = seat.propose("a rule")
    assert seat.typed("approve", wish, answers=[("Passphrase", "another one of hers")])[0] == 0
