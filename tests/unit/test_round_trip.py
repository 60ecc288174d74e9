"""A store of a thousand memories of every kind, in both languages, goes out as pages or lines and comes back equal.

The texts are drawn from a seed: markup, front matter, fences, quotation marks, several lines, letters of both
languages. The quick run takes a sample; MEMORY_ANCHOR_FULL_FIGURES=1 takes the thousand.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import words
from figures import figure

from memory_anchor.domain.model import LAYER_OF_TYPE, Actor, Caller, Layer, Scope
from memory_anchor.extensions.transfer import other_tools, transfer_files
from memory_anchor.extensions.transfer.transfer_files import export_lines, import_file
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.testing import ephemeral_core
from memory_anchor.use_cases.memory import MemoryAnchor

WORDS = words("""
    uv pip 锅炉 温度 orchids `make check` release 每周一 "quoted" 'single' --- # not - item * star [link](x) 「引」
""")
LINES = (
    "",
    "- item",
    "# heading",
    "```",
    "---",
    "> quote",
    "| a | b |",
    "  indented",
    "<!-- x@1 -->",
    "key: value",
    "…—–",
    "\\b",
)
KINDS = [kind for kind, home in LAYER_OF_TYPE.items() if home in (Layer.VERIFIED_FACT, Layer.EVENT_LOG)]


ODD = (
    *("# not a heading\n- not an item", "two\n\n\nparagraphs  \n", "```\ncode\n```"),
    *("  led by blanks", "- a\n  - b", "引号“与”—破折号"),
)


def texts(count: int, seed: int = 7) -> Iterator[str]:
    yield from ODD
    draw = random.Random(seed)
    for number in range(count - len(ODD)):
        lines = [" ".join(draw.choices(WORDS, k=draw.randint(2, 9))) for _ in range(draw.choice((1, 1, 2, 4)))]
        lines[draw.randrange(len(lines) + 1) : 0] = draw.sample(LINES, k=draw.choice((0, 0, 1, 2)))
        yield "\n".join(lines).strip() + f" №{number}"


@pytest.fixture
def mine(core: Core, project: Path, human: object) -> MemoryAnchor:
    return core.anchor(Actor(Caller.HUMAN, Scope(), client="cli", project_dir=str(project)))


def asked_of(core: Core, actor: Actor) -> Any:
    """Return what answers calls as an engine would, with JSON both ways."""

    def ask(name: str, **given: Any) -> Any:
        told = {key: value for key, value in given.items() if value is not None and key != "human"}
        return json.loads(json.dumps(calls.answer(name, core.anchor(actor), json.loads(json.dumps(told)))))

    return ask


def filled(mine: MemoryAnchor, count: int) -> int:
    """Save memories of every kind, some edited, pinned or archived; return how many were kept."""
    draw, kept = random.Random(3), []
    for number, text in enumerate(texts(count)):
        kind = KINDS[number % len(KINDS)]
        tags = tuple(draw.sample(("ops", "发布", "a b", "x:y", "锅炉"), k=number % 3))
        if LAYER_OF_TYPE[kind] is Layer.EVENT_LOG:
            told = mine.log_event(
                text, type=kind, tags=tags, where="温室 3", who=("Ada", "小王"), ttl_days=number % 2 * 90
            )
        else:
            told = mine.save_memory(text, type=kind, key=text[: number % 40], tags=tags, importance=number % 11 / 10)
        if told.id is not None:
            kept.append(str(told.id))
    mine.curation.edit(kept[0], "The gate opens at ten")
    for id in kept[::17]:
        mine.curation.pin(id)
    for id in kept[5::29]:
        mine.forget(id)
    return len(set(kept))


@pytest.mark.parametrize("form", ["jsonl", "okf", "markdown"])
def test_a_store_of_every_kind_comes_back_equal(core: Core, mine: MemoryAnchor, tmp_path: Path, form: str) -> None:
    """Rule moving.out: export, import into a fresh store, export again: equal files; a second import adds none."""
    kept = filled(mine, figure(120, 1_000))
    one, two = tmp_path / "one", tmp_path / "two"
    lines = list(out_of(core, mine))
    assert len(lines) == kept > figure(100, 900)
    written(form, lines, one)

    fresh = ephemeral_core(tmp_path / "fresh")
    for added in (kept, 0):
        done = taken_in(fresh, mine, form, one, str(tmp_path))
        assert (done.added, done.failed, done.pending, done.written) == (added, 0, 0, 0), done.errors[:3]
    written(form, list(out_of(fresh, mine)), two)
    fresh.close()

    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert [name for name in files if (one / name).read_bytes() != (two / name).read_bytes()] == []


def out_of(core: Core, mine: MemoryAnchor) -> Iterator[str]:
    return export_lines(asked_of(core, mine.actor), core.data_dir, versions=False, own_project=False, everything=True)


def written(form: str, lines: list[str], folder: Path) -> None:
    if form == "jsonl":
        folder.mkdir()
        plain = (json.loads(line) for line in lines)
        kept = [{name: value for name, value in one.items() if name != "project_aliases"} for one in plain]
        kept.sort(key=lambda one: one["id"])
        (folder / "out.jsonl").write_text("".join(f"{json.dumps(one, sort_keys=True)}\n" for one in kept))
    else:
        transfer_files.write_pages(form, lines, folder)


def taken_in(core: Core, mine: MemoryAnchor, form: str, folder: Path, project: str) -> Any:
    """Import what lies in a folder, as a human does, into the project that it was of."""
    if form == "jsonl":
        lines = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    else:
        found = list(other_tools.read_items(form, folder, home=folder))
        assert [one for one in found if one.problem] == []
        lines = [one.line or {} for one in found]
    (home,) = {str(one["project"]) for one in lines}
    file = io.BytesIO("".join(f"{json.dumps(one)}\n" for one in lines).encode())
    ask = asked_of(core, mine.actor)
    return import_file(ask, file, core.data_dir, project_dir=project, human=1, tick=lambda _: None, to={"": home})
