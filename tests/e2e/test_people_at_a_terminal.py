"""What a person sees on a real terminal of 60 and 120 columns, in Chinese and English, and the same in a pipe."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from human_seat import Answer, Seat, begun_on, on_terminal
from rich.cells import cell_len

from memory_anchor.domain.model import ProposalAction
from memory_anchor.identity.keys import RefusedTries
from memory_anchor.testing import PASSPHRASE, human_of

pytestmark = pytest.mark.slow
TEXTS = (
    "We use uv, not pip, for environments; 部署在星期四，由李雷负责，回滚由韩梅梅负责，先跑测试再发布",
    "The tank is green",
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(seat: Seat, *words: str, columns: int, answers: list[Answer] | None = None, **env: str) -> str:
    """Return what a terminal of so many columns showed, with its escapes."""
    given = seat.env(TERM="xterm-256color", **env)
    given.pop("COLUMNS", None)
    command = [sys.executable, "-m", "memory_anchor", *words]
    code, screen = on_terminal(command, seat.project, given, answers or [], columns=columns)
    assert code == 0, screen
    return screen


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    made = Seat(tmp_path)
    human_of(made.data)
    for text in TEXTS:
        assert made.shell("add", text).returncode == 0
    return made


@pytest.mark.parametrize("columns", [60, 120])
def test_a_list_fits_the_terminal_and_shows_its_texts(seat: Seat, columns: int) -> None:
    """N10: at 60 columns the text was one sign wide; no line is wider than the terminal, also with Chinese."""
    screen = ESCAPE.sub("", at_terminal(seat, "list", columns=columns, NO_COLOR="1").replace("\r\n", "\n"))
    lines = [line.rpartition("\r")[2] for line in screen.split("\n")]

    assert all(cell_len(line) <= columns for line in lines), lines
    assert all(text[:18] in screen for text in TEXTS)
    assert len([line for line in lines if line.strip()]) <= (8 if columns == 60 else 6), lines


def test_a_wait_shows_a_sign_of_life_on_stderr_and_a_pipe_stays_plain(seat: Seat) -> None:
    """N14: three seconds of silence without an engine; now a line within 300 ms, and none in a pipe or in --json."""
    screen = at_terminal(seat, "stats", columns=80)
    assert "…" in screen and screen.index("…") < screen.index("memories in")
    assert "\x1b[K" in screen[: screen.index("memories in")]

    piped = seat.shell("list")
    assert (piped.stderr, "\x1b" in piped.stdout) == ("", False)
    assert [line.split("  ")[-1] for line in piped.stdout.splitlines()] == list(reversed(TEXTS))


def test_no_colour_means_none(seat: Seat) -> None:
    """NO_COLOR: no colour is set on a terminal that could."""
    screen = at_terminal(seat, "search", "uv environments", columns=100, NO_COLOR="1")
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?(?:3|4|9|10)[0-7]m", screen)


@pytest.mark.parametrize("locale", [{"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "cp1252"}])
def test_what_is_written_is_utf8_whatever_the_locale(seat: Seat, locale: dict[str, str]) -> None:
    """N10: a code page gave tracebacks; arguments, pipes and answers are UTF-8."""
    env = {**seat.env(PYTHONUTF8="0"), **locale}
    words = [sys.executable, "-m", "memory_anchor"]
    done = subprocess.run(
        [*words, "add", "-"], input="韩梅梅养鱼".encode(), env=env, cwd=seat.project, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    listed = subprocess.run([*words, "list"], env=env, cwd=seat.project, capture_output=True)
    assert "韩梅梅养鱼" in listed.stdout.decode("utf-8") and b"Traceback" not in listed.stderr
    foreign = subprocess.run(
        [*words, "add", "-"], input="部署".encode("gbk"), env=env, cwd=seat.project, capture_output=True
    )
    assert (foreign.returncode, foreign.stderr.count(b"\n")) == (2, 1), foreign.stderr


def test_shell_completion_knows_the_commands_and_the_clients(seat: Seat) -> None:
    """Completion: the shell asks the program itself."""
    asked = {"_MEMORY_ANCHOR_COMPLETE": "complete_bash", "COMP_WORDS": "memory-anchor rev", "COMP_CWORD": "1"}
    script = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0]='memory-anchor'; from memory_anchor.front.cli.app import app; app()",
    ]
    done = subprocess.run(script, env=seat.env(**asked), capture_output=True, text=True)
    assert done.stdout.split() == ["review"]


def test_review_shows_why_and_takes_an_edited_text_and_gives_it_back(seat: Seat) -> None:
    """Review in the terminal: why it waits, edit in the line, accept, undo of the last action, then all of the rest."""
    for text in ("Deploys need two reviews", "We ship on Fridays", "蓝绿发布之前先备份"):
        seat.shell("add", text, "--confidence", "0.75")

    screen = at_terminal(
        seat,
        "review",
        columns=80,
        answers=[
            ("Passphrase", PASSPHRASE),
            ("(a)ccept", "e", True),
            ("> ", " of two people", True),
            ("2/3", "u", True),
            ("1/3", "A", True),
            ("these 3?", "y", True),
            ("(q)uit", "q", True),
        ],
    )

    assert "confidence 0.75, so it waits" in screen and "saved by" in screen
    assert "undone:" in screen
    memories = json.loads(seat.shell("list", "--json").stdout)["memories"]
    assert {proposal["content"] for proposal in memories if proposal["status"] == "active"} >= {
        "Deploys need two reviews",
        "蓝绿发布之前先备份",
    }
    assert not any("of two people" in row["content"] for row in memories)
    assert json.loads(seat.shell("review", "--json").stdout)["items"] == []


def test_review_sets_a_contradiction_side_by_side_and_merges_into_typed_words(seat: Seat) -> None:
    """N10: a merge joined both texts, which contradict each other; a human says the one that holds."""
    seat.shell("add", "The release train leaves on Monday")
    disputed = json.loads(seat.shell("add", "The release train leaves on Thursday", "--json").stdout)
    assert disputed["outcome"] == "needs_review", disputed

    screen = at_terminal(
        seat,
        "review",
        columns=120,
        answers=[
            ("Passphrase", PASSPHRASE),
            ("keep (n)ew", "m", True),
            ("> ", "\x15It leaves on Monday and Thursday", True),
        ],
    )

    assert re.search(r"Monday[^\n]*Thursday", ESCAPE.sub("", screen)), screen
    (merged,) = [
        memory
        for memory in json.loads(seat.shell("list", "--json").stdout)["memories"]
        if "Thursday" in memory["content"]
    ]
    assert (merged["content"], merged["status"]) == ("It leaves on Monday and Thursday", "active")


def test_review_confirms_a_proposal_and_says_which_of_three_it_is(tmp_path: Path) -> None:
    """Review: the exact difference, its number, and the passphrase again for what becomes L0."""
    seat = Seat(tmp_path)
    seat.init()
    asked = (
        "propose",
        "Keep the greenhouse at 22 degrees",
        "--action",
        ProposalAction.REPLACE.value,
        "--entry-id",
        "goal",
    )
    wish = json.loads(seat.shell("constitution", *asked, "--reason", "warmer", "--json").stdout)["proposal_id"]

    screen = at_terminal(
        seat,
        "review",
        columns=100,
        answers=[("Passphrase", PASSPHRASE), ("(c)onfirm", "c", True), ("Passphrase", PASSPHRASE)],
    )

    plain = ESCAPE.sub("", screen)
    assert "confirmation 1 of 3" in plain and '+    content: "Keep the greenhouse at 22 degrees"' in plain
    assert "\x1b[4;32m22\x1b[0m" in screen
    (after,) = json.loads(seat.shell("review", "--json").stdout)["proposals"]
    assert (after["proposal_id"], after["confirmations"]) == (wish, 1)


def test_wrong_passphrases_are_slowed_down(seat: Seat) -> None:
    """Review: the tries on the passphrase are limited as everywhere."""
    seat.shell("add", "Deploys need two reviews", "--confidence", "0.75")
    for _ in range(6):
        RefusedTries(seat.data / "identity").note(datetime.now(UTC))
    begun = time.monotonic()
    code, _screen = seat.human("review", answers=[("Passphrase", "a wrong one, twice")])
    assert code == 4
    code, screen = seat.human("review", answers=[("Passphrase", PASSPHRASE), ("(a)ccept", "a", True)])
    assert code == 0 and time.monotonic() - begun > 16  # 8 s, then 16
    assert "since passphrases were refused" in screen and "7 refused tries" in screen


@pytest.mark.parametrize("words", [("purge", "GONE", "--yes"), ("forget", "GONE", "--human"), ("pause", "--off")])
def test_what_is_typed_before_the_prompt_is_not_shown(seat: Seat, words: tuple[str, ...]) -> None:
    """Passphrases: nothing echoes from the sign of life on; the prompt forgets it, the end echoes again."""
    gone = json.loads(seat.shell("add", "The pump is grey", "--json").stdout)["id"]
    assert words[0] != "pause" or seat.shell("pause").returncode == 0
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "memory_anchor", *(gone if word == "GONE" else word for word in words)]
    child = begun_on(slave, command, seat.project, seat.env(TERM="xterm-256color"))
    screen = os.read(master, 65536)  # the sign of life
    while b"Passphrase" not in screen:
        os.write(master, b"\xc2\xa7")
        screen += os.read(master, 65536) if select.select([master], [], [], 0.01)[0] else b""
    os.write(master, b"\x15" + PASSPHRASE.encode() + b"\n")  # Ctrl-U: what came between the prompt and its reading
    while child.poll() is None:
        screen += os.read(master, 65536) if select.select([master], [], [], 0.05)[0] else b""

    assert child.returncode == 0, screen.decode()
    assert b"\xc2\xa7" not in screen and PASSPHRASE.encode() not in screen
    assert termios.tcgetattr(slave)[3] & termios.ECHO
    os.close(master)
    os.close(slave)
