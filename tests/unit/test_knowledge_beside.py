"""A passage that is cut where it matters is shown with a part of its neighbour, cited with its own lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory_anchor.extensions.knowledge.search import NEIGHBOUR_BYTES, NEIGHBOURS_MAX
from memory_anchor.extensions.knowledge.use_cases import knowledge_of
from memory_anchor.front import calls
from memory_anchor.process.wiring import Core
from memory_anchor.use_cases.memory import MemoryAnchor
from tests.unit.knowledgekit import added


@pytest.fixture
def docs(project: Path) -> Path:
    folder = project / "docs"
    folder.mkdir()
    return folder


def prose(about: str, count: int) -> str:
    said = (f"Paragraph {n} on {about} says that step {n} comes after step {n - 1}." for n in range(count))
    return "\n\n".join(" ".join([sentence] * 3) for sentence in said)


def told(anchor: MemoryAnchor, query: str) -> Any:
    (first, *_) = knowledge_of(anchor).search(query)
    return first


def test_a_passage_cut_from_its_sections_head_brings_the_end_of_the_one_before(
    docs: Path, anchor: MemoryAnchor
) -> None:
    """Rule Knowledge.beside: whole lines of the same section, within the bound, with the lines they stand on."""
    text = f"# Guide\n\n## Pumps\n{prose('pumps', 14)}\n\nThe zeppelin valve is opened last.\n\n## Other\nNothing.\n"
    (docs / "guide.md").write_text(text, encoding="utf-8")
    added(anchor, docs)

    found = told(anchor, "when is the zeppelin valve opened")

    assert "zeppelin" in found.text
    assert "## Pumps" not in found.text
    near = found.beside
    assert (near["side"], near["ref"]) == ("before", "guide.md")
    assert near["text"] == near["text"].strip()
    assert len(near["text"].encode()) <= NEIGHBOUR_BYTES
    assert near["text"] == "\n".join(text.split("\n")[near["lines"][0] - 1 : near["lines"][1]])
    assert near["lines"][1] < (found.citations[0].locator.line_start or 0)
    opened = knowledge_of(anchor).open(found.id)
    assert opened.beside == near


@pytest.mark.parametrize("mark", ["- item {n}: ", "| {n} | ", "{n}. "], ids=["list", "table", "numbers"])
def test_what_goes_on_brings_the_beginning_of_the_passage_after(docs: Path, anchor: MemoryAnchor, mark: str) -> None:
    """Rule Knowledge.beside: a list or a table that is cut is shown with how it goes on."""
    rows = [mark.format(n=n) + ("zeppelin " if n == 0 else "pump ") + "valve " * 11 + "|" for n in range(60)]
    head = ["| n | what |", "|---|---|"] if mark.startswith("|") else []
    text = "\n".join(["# Parts", "", *head, *rows, ""])
    (docs / "parts.md").write_text(text, encoding="utf-8")
    added(anchor, docs)

    found = told(anchor, "zeppelin")

    near = found.beside
    assert near["side"] == "after"
    assert near["text"] == "\n".join(text.split("\n")[near["lines"][0] - 1 : near["lines"][1]])
    assert near["lines"][0] == (found.citations[0].locator.line_end or 0) + 1


def test_a_whole_section_brings_nothing(docs: Path, anchor: MemoryAnchor) -> None:
    """Rule Knowledge.beside: what is whole needs no neighbour, and another section is none."""
    (docs / "guide.md").write_text("# Guide\n\n## A\nThe zeppelin lands.\n\n## B\nThe pump runs.\n", encoding="utf-8")
    added(anchor, docs)

    for asked in ("when does the zeppelin land", "when does the pump run"):
        found = told(anchor, asked)

        assert asked.split()[3] in found.text
        assert found.beside is None
        assert knowledge_of(anchor).open(found.id).beside is None


def test_an_answer_brings_few_of_them_and_a_memorys_none(docs: Path, core: Core, anchor: MemoryAnchor) -> None:
    """Rule Knowledge.beside: at most three, of strong passages; what joins a search of memory is the passage alone."""
    (docs / "long.md").write_text(f"# Zeppelins\n\n{prose('zeppelins', 60)}\n", encoding="utf-8")
    added(anchor, docs)

    found = knowledge_of(anchor).search("paragraph on zeppelins says that step comes after step", limit=10)

    assert 0 < sum(passage.beside is not None for passage in found) <= NEIGHBOURS_MAX
    assert all(passage.beside is None for passage in found if passage.weak)
    query = {"query": "paragraph on zeppelins says that step comes after step"}
    shaped = calls.answer("knowledge_search", anchor, query)
    (near, *_) = [snippet["beside"] for snippet in shaped["snippets"] if "beside" in snippet]
    assert set(near) == {"side", "text", "ref", "lines"}
    answer = anchor.search("paragraph on zeppelins says that step comes after step")
    assert all(snippet.beside is None for snippet in answer.snippets)
