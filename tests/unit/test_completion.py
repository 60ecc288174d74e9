"""What a shell completes: commands, options, values, in the real shells where they are; never a memory's text."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import make_commands
import pytest
from human_seat import Seat
from typer.testing import Result

from memory_anchor.extensions.knowledge import commands as knowledge
from memory_anchor.extensions.lorebook import commands as lorebooks
from memory_anchor.extensions.transfer import commands as moving
from memory_anchor.front.cli import care, memories
from memory_anchor.front.cli.guide import packaged
from memory_anchor.front.table import ROWS
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor

Run = Callable[..., Result]
NAME = "memory-anchor"
EVIL = 'x\\"; touch evil; echo "$(touch evil)`touch evil`'


def completed(run: Run, line: str, shell: str = "bash") -> list[str]:
    """Return what a shell is told for a line that is being typed, through the command's own protocol."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    if shell == "fish":
        asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    result = run(env={**asked, "_MEMORY_ANCHOR_COMPLETE": f"complete_{shell}"})
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("list --type de", {"decision"}),
        ("list --layer L", {"L0", "L1", "L2", "L3", "L4"}),
        ("list --status d", {"disputed"}),
        ("search x --since yes", {"yesterday"}),
        ("add x --visibility us", {"user"}),
        ("install c", {"claude-code", "claude-desktop", "codex", "cursor"}),
        ("import --from m", {"mem0", "markdown"}),
        ("export out --to m", {"markdown"}),
        ("review --resolution keep", {"keep_new", "keep_old", "keep_both"}),
        ("keys create --role a", {"approver", "admin"}),
        ("knowledge add . --kind g", {"git_history"}),
        ("jobs run exp", {"expire_events"}),
        ("config budget.f", {"budget.facts"}),
        ("eval --variant budget.facts=900,budget.q", {"budget.facts=900,budget.question="}),
        ("init --client cu", {"cursor"}),
        ("sh", {"show"}),
        ("constitution app", {"approve", "approvers"}),
    ],
)
def test_what_takes_one_of_few_words_is_completed(run: Run, core: Core, line: str, values: set[str]) -> None:
    """Rule cli.completion: enumerations, settings, jobs, commands."""
    assert set(completed(run, f"{NAME} {line}")) == values


def test_ids_projects_and_books_are_completed_by_their_beginning(
    run: Run, core: Core, anchor: MemoryAnchor, project: Path
) -> None:
    """Rule cli.completion: of the newest; with some of it typed also what is archived."""
    memory_id = str(anchor.save_memory("We use uv, not pip").id)
    gone = str(anchor.save_memory("The old cache was on the left").id)
    anchor.forget(gone)
    waits = str(anchor.save_memory("Deploys go out at night", confidence=0.8).id)

    assert set(completed(run, f"{NAME} show ")) == {memory_id, waits}
    assert set(completed(run, f"{NAME} restore {gone[:12]}")) >= {gone}
    assert waits in completed(run, f"{NAME} review --accept ")
    assert memory_id in completed(run, f"{NAME} add x --replaces {memory_id[:12]}")
    own = json.loads(run("projects", "list", "--json").stdout)["projects"]
    assert set(completed(run, f"{NAME} projects move ")) == {value["id"] for value in own}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_no_text_of_a_memory_reaches_a_shell_that_evaluates_it(
    run: Run, core: Core, anchor: MemoryAnchor, tmp_path: Path, shell: str
) -> None:
    """Rule cli.completion: zsh evaluates what a completion prints, and agents write memories and name files."""
    anchor.save_memory(EVIL, key=EVIL[:40], tags=[EVIL[:20]])
    book = tmp_path / f"{EVIL.replace('/', '')}.json"
    book.write_text('{"entries": {}}')
    run("lorebook", "add", str(book))

    offered = " ".join(completed(run, f"{NAME} show ", shell) + completed(run, f"{NAME} lorebook show ", shell))

    for sign in ("'*: :((", "))'", '"', ":"):  # of zsh's own form
        offered = offered.replace(sign, "")
    assert re.fullmatch(r"[\w .,/=+@-]*", offered), offered
    assert EVIL[:3] not in offered and "; touch" not in offered


def test_every_enumeration_of_a_generated_command_is_completed() -> None:
    """Rule cli.completion: a new field of few words needs nothing more than its type."""
    seen = 0
    for command in (*memories.COMMANDS, *care.COMMANDS, *care.JOBS, *knowledge.COMMANDS, *lorebooks.COMMANDS):
        for _, name in command._fields():
            annotation = ROWS[command.call_name].request.model_fields[name].annotation
            kinds = [
                kind for kind in make_commands.kinds_in(annotation) if isinstance(kind, type) and issubclass(kind, Enum)
            ]
            if kinds:
                seen += 1
                told = packaged("options")[command.call_name]["fields"][name]
                assert {str(word.value) for word in kinds[0]} <= set(told["words"])
    assert seen >= 8
    assert moving.TOOL_NAMES


def shells() -> list[str]:
    """Return the real shells of this machine; MEMORY_ANCHOR_TEST_SHELLS adds folders to look for them in."""
    path = os.pathsep.join([os.environ["PATH"], os.environ.get("MEMORY_ANCHOR_TEST_SHELLS", "")])
    return [found for name in ("bash", "zsh", "fish") if (found := shutil.which(name, path=path))]


@pytest.mark.slow
@pytest.mark.parametrize("shell", shells())
def test_the_script_of_each_real_shell_completes_a_value(tmp_path: Path, shell: str) -> None:
    """Rule cli.completion: what `--show-completion` prints, loaded by the shell; nothing is drawn on the line."""
    seat = Seat(tmp_path)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / NAME
    start = "import sys; from memory_anchor.__main__ import main; sys.exit(main())"
    command.write_text(f"#!{sys.executable}\n{start}\n")
    command.chmod(0o755)
    name = Path(shell).name
    env = seat.env(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    env |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}  # shells that were unpacked
    script = subprocess.run([command, "--show-completion", name], env=env, capture_output=True, text=True, check=True)
    (tmp_path / "script").write_text(script.stdout)
    ask = {
        "bash": f". {tmp_path}/script; COMP_WORDS=({NAME} list --type dec); COMP_CWORD=3; f=$(complete -p {NAME} | "
        f'sed "s/.*-F \\([^ ]*\\).*/\\1/"); $f {NAME}; echo "${{COMPREPLY[@]}}"',
        "zsh": f"compdef() {{ f=$1 }}; _arguments() {{ print -r -- $* }}; . {tmp_path}/script; "
        f"words=({NAME} list --type dec); CURRENT=4; ${{f:-_memory_anchor_completion}}",
        "fish": f'source {tmp_path}/script; complete -C "{NAME} list --type dec"',
    }[name]
    result = subprocess.run([shell, "-c", ask], env=env, capture_output=True, text=True, timeout=120)
    assert "decision" in result.stdout, (script.stdout, result)

    drawn = seat.human(_MEMORY_ANCHOR_COMPLETE="complete_bash", COMP_WORDS=f"{NAME} show ", COMP_CWORD="2")[1]
    assert "loading" not in drawn
