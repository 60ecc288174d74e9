"""What a message tells the user to type can be typed: commands and options named anywhere in the package exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

from memory_anchor.front.cli.app import app

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "memory_anchor"
SOURCES = sorted(PACKAGE.rglob("*.py"))
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("README*.md")])
DISPATCHED = {"hook": set()}
"""Commands that start before the command line is imported, and their options."""
HOLE = "\0"
"""Stands for what is filled in when the message is made."""
_QUOTED = re.compile(r"`memory-anchor((?: [^`\n]*)?)`")
_BARE = re.compile(r"(?<![`\w./-])memory-anchor((?: +(?:--[a-z][a-z-]*|[a-z][a-z-]*))+)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PROSE = frozenset("into reads proposal rejection approver approved sealed confirmation and is".split())  # noqa: SIM905
"""Words that follow the product's name in sentences and in the headings of its files."""


def texts(path: Path) -> Iterator[str]:
    """Yield the string constants of a module, adjacent and formatted ones as one, docstrings too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def raised(path: Path) -> Iterator[str]:
    """Yield what a module says when it raises."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@cache
def commands() -> Any:
    """Return the tree of commands; a group has `commands`."""
    return get_command(app)


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }


def trouble(words: list[str]) -> str:
    """Return what is wrong with the words behind `memory-anchor`, "" when they can be typed."""
    command: Any = commands()
    if words and words[0] in DISPATCHED:
        unknown = set(filter(_OPTION.fullmatch, words)) - DISPATCHED[words[0]]
        return f"no option {sorted(unknown)} of {words[0]}" if unknown else ""
    for place, word in enumerate(words):
        if not hasattr(command, "commands") or word.startswith("-"):
            unknown = [word for word in words[place:] if _OPTION.fullmatch(word) and word not in options_of(command)]
            return f"no option {unknown} of {command.name}" if unknown else ""
        if HOLE in word or not re.fullmatch(r"[a-z][a-z-]*", word):
            return ""
        if word not in command.commands:
            return f"no command {word!r}"
        command = command.commands[word]
    return ""


def split(text: str) -> list[str]:
    return [word.strip(",.;:()'\"") for word in text.replace("|", " ").split()]


def misnamed(path: Path) -> Iterator[str]:
    """Yield what a module or page tells the user to type and cannot be typed."""
    for text in texts(path) if path.suffix == ".py" else [path.read_text(encoding="utf-8")]:
        asked = [split(quoted) for quoted in _QUOTED.findall(text)]
        if path.suffix == ".py":
            bare = [split(dispatched) for dispatched in _BARE.findall(text)]
            asked += [[words[0], *filter(_OPTION.fullmatch, words[1:])] for words in bare if words[0] not in _PROSE]
        yield from (f"{path.relative_to(ROOT)}: memory-anchor {' '.join(words)}" for words in asked if trouble(words))


def test_every_command_that_is_named_exists() -> None:
    """Rule messages.commands: a user can type what a message, a docstring or a page quotes."""
    assert [line for path in (*SOURCES, *PAGES) for line in misnamed(path)] == []


def all_options() -> set[str]:
    dispatched = set().union(*DISPATCHED.values())
    waiting: list[Any] = [commands()]
    while waiting:
        command = waiting.pop()
        dispatched |= options_of(command)
        waiting.extend(getattr(command, "commands", {}).values())
    return dispatched


def test_every_option_that_an_error_names_exists() -> None:
    """Rule messages.options: an error never asks for an option that no command has."""
    known = all_options()
    for path in SOURCES:
        for text in raised(path):
            assert set(_OPTION.findall(text)) <= known, f"{path.name}: {text}"


def test_what_cannot_be_typed_is_noticed() -> None:
    """Rule messages.commands: the check itself sees a wrong command, subcommand and option."""
    wrong = ("fetch", "context list", "doctor --fetch", "context show ID --yaml", "mcp --out-process")
    assert all(trouble(split(command)) for command in wrong)
    assert not any(
        trouble(split(command)) for command in ("", "context show ID", "doctor --fetch-model", "jobs run NAME")
    )
