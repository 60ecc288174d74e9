"""Each tutorial of the documentation typed out: its console blocks run in a fresh folder and say what the page shows.

A page's `…` stands for anything: for lines where it stands alone, for part of a line elsewhere. Commands that ask for a
passphrase get a terminal of their own; all others run as in an agent's shell. The engine is real, the embedder is none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from human_seat import WAIT_S, Engine, Seat, on_terminal

from memory_anchor.testing import PASSPHRASE, cheap_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("tutorials/*.md"))
CHINESE = [pytest.param(page, marks=pytest.mark.nightly) for page in PAGES if "zh" in page.parts]
"""They have the commands of the English ones, as a quick test holds."""
ENGLISH = [page for page in PAGES if "zh" not in page.parts]
ELLIPSIS = "…"
NEW = [("New passphrase", PASSPHRASE), ("Once more", PASSPHRASE)]
SYNCED = "sync correct horse battery staple"
ASKED = {
    "init": NEW,
    "keys create": [("Passphrase", PASSPHRASE)],
    "sync setup": [("Passphrase", PASSPHRASE), ("Sync passphrase", SYNCED), ("Once more", SYNCED)],
}
"""Command -> what it asks on a terminal, in order; what is not asked after all is not typed."""


def steps(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a page's console blocks with the lines that it is to say."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *output = part.rstrip("\n").split("\n")
            yield command, output


def shape(lines: list[str]) -> re.Pattern[str]:
    """Return what a command's output has to look like."""
    parts = [
        "(?:.*\n)*?" if line.strip() == ELLIPSIS else re.escape(line).replace(re.escape(ELLIPSIS), ".*") + "\n"
        for line in lines
    ]
    return re.compile("".join(parts))


def typed(command: str, seat: Seat, env: dict[str, str]) -> tuple[int, str]:
    """Run one command in the shell of a seat and return its exit code and what it said."""
    asked = next((answers for name, answers in ASKED.items() if f"memory-anchor {name}" in command), None)
    if asked is None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=seat.project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        return done.returncode, done.stdout + done.stderr
    answers = list(asked) * (5 if command.startswith("for ") else 1)
    code, screen = on_terminal(["bash", "-c", command], seat.project, env, answers)
    return code, screen.replace("\r", "")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[tuple[Seat, dict[str, str]]]:
    with cheap_keys():
        seat = Seat(tmp_path, project="greenhouse", goal="")
        command = tmp_path / "bin" / "memory-anchor"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m memory_anchor "$@"\n', encoding="utf-8")
        command.chmod(0o755)
        who = {f"GIT_{role}_{what}": f"ana{'@example.org' if what == 'EMAIL' else ''}"
               for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}  # fmt: skip
        env = seat.env(COLUMNS="160", PATH=f"{command.parent}:{os.environ['PATH']}", **who)
        with Engine(seat):
            yield seat, env


def test_there_are_tutorials() -> None:
    """Issue 18: first memory, a team of five, knowledge, moving, two devices; the first in Chinese too."""
    assert len(PAGES) >= 6
    assert all(len(list(steps(page))) >= 3 for page in PAGES)


@pytest.mark.parametrize("page", [*ENGLISH, *CHINESE], ids=lambda page: "/".join(page.relative_to(ROOT / "docs").parts))
def test_a_tutorial_does_what_it_says(page: Path, shell: tuple[Seat, dict[str, str]]) -> None:
    """Issue 18: each tutorial run as a test."""
    seat, env = shell
    for command, lines in steps(page):
        code, output = typed(command, seat, env)
        assert code == 0, f"{command}\n{output}"
        printed = "\n".join(line.rstrip() for line in output.splitlines() if line.strip()) + "\n"
        assert not lines or shape([*lines]).search(printed), f"{command}\n{output}"
