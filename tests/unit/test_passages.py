"""The one chunker: slices of a text with their headings and lines, never cut where they must not be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from figures import figure
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_anchor.domain.model import Actor
from memory_anchor.language.passages import PASSAGE_BYTES, WHOLE_BYTES, Form, Passage, cut, format_of, plain
from memory_anchor.process.wiring import Core

ROOT = Path(__file__).resolve().parents[2]
CHINESE = "检索先按词再按义。" * 300
ENGLISH = " ".join(f"Sentence number {n} says, e.g. to Dr. No, that 3.5 is more than 2." for n in range(200))


def pieces(text: str, form: Form = "markdown") -> list[Passage]:
    return list(cut(plain(text), form))


def check_slices(text: str, found: list[Passage]) -> None:
    """Each passage stands in its lines, word for word; together they hold every word once, in order."""
    lines = plain(text).split("\n")
    for one in found:
        assert one.text in "\n".join(lines[one.line_start - 1 : one.line_end])
        assert one.text.split("\n")[0] in lines[one.line_start - 1]
        assert one.text.split("\n")[-1] in lines[one.line_end - 1]
    assert "".join("".join(one.text.split()) for one in found) == "".join(plain(text).split())


def test_headings_come_first_and_each_passage_knows_those_above_it() -> None:
    """Passages: heading path, lines from 1, a bare heading goes with what follows it."""
    text = "intro\n\n# Guide\n\n## 安装\nRun it.\n\n### Linux\napt\n\n# Other\n\nSetext\n------\nbody\n"

    found = pieces(text)

    assert [(one.heading, one.line_start, one.line_end) for one in found] == [
        ((), 1, 1),
        (("Guide", "安装"), 3, 6),
        (("Guide", "安装", "Linux"), 8, 9),
        (("Other", "Setext"), 11, 15),
    ]
    check_slices(text, found)


def test_a_mark_inside_a_fence_is_no_heading_and_front_matter_is_none() -> None:
    """Passages: what looks like a heading in code or in front matter is text."""
    found = pieces("---\ntitle: x\n---\n# Real\n```sh\n# comment\n```\n")

    assert [one.heading for one in found] == [(), ("Real",)]


@pytest.mark.parametrize("text", [CHINESE, ENGLISH, "- " + ENGLISH, "> " + ENGLISH], ids=["zh", "en", "list", "quote"])
def test_no_sentence_is_cut(text: str) -> None:
    """Passages: about 400 tokens, cut at the ends of sentences alone, in both languages."""
    found = pieces(f"# Title\n\n{text}\n")

    assert len(found) > 3
    assert all(len(one.text.encode()) <= PASSAGE_BYTES for one in found)
    assert all(re.search(r"(\d\.|。)$", one.text) for one in found)
    check_slices(f"# Title\n\n{text}\n", found)


def test_a_fence_a_row_and_a_function_are_never_cut() -> None:
    """Passages: a fence of 5,000 bytes stays whole, a table is cut between its rows."""
    fence = "```python\n" + "\n\n".join(f"print({n})  # Ends. Begins." for n in range(160)) + "\n```"
    rows = "| a | b |\n|---|---|\n" + "\n".join(f"| cell {n} | " + "text. More " * 8 + "|" for n in range(60))
    text = f"# T\n\nbefore\n\n{fence}\n\nafter\n\n## Rows\n\n{rows}\n"

    found = pieces(text)

    assert PASSAGE_BYTES < len(fence) < WHOLE_BYTES
    assert sum(fence in one.text for one in found) == 1
    cells = [line for one in found if one.heading[-1] == "Rows" for line in one.text.split("\n") if "cell" in line]
    assert len(cells) == 60
    assert all(line.startswith("| cell") and line.endswith("|") for line in cells)
    check_slices(text, found)


def test_what_is_larger_than_any_passage_is_cut_all_the_same() -> None:
    """Passages: one line of a megabyte is bounded, in Markdown and in text."""
    line = "wörter " * 150_000

    for form in ("markdown", "text", "code", "rst", "python"):
        found = pieces(line, form)
        assert all(len(one.text.encode()) <= WHOLE_BYTES for one in found)


def test_python_is_cut_at_functions_and_its_docstrings_are_documents() -> None:
    """Passages: functions and methods by name; a docstring comes with the line that names its function."""
    method = '    @x\n    def go(self):\n        """Goes."""\n        return 1\n'
    text = f'"""Module."""\n\nimport x\n\n\nclass A:\n    """Is an A."""\n\n{method}'

    assert [(one.heading, one.line_start) for one in pieces(text, "python")] == [((), 1), (("A",), 6), (("A", "go"), 9)]
    docs = pieces(text, "docstrings")
    assert [one.heading for one in docs] == [(), ("A",), ("A", "go")]
    assert docs[-1].text.endswith('def go(self):\n        """Goes."""')
    check_slices(text, pieces(text, "python"))
    assert pieces("def broken(:", "docstrings") == []


def test_restructured_text_has_headings_too() -> None:
    """Passages: a title is underlined, or has a line above it as well."""
    text = "=====\nGuide\n=====\n\nHello.\n\nInstall\n-------\n\nRun it.\n"

    assert [(one.heading, one.line_start) for one in pieces(text, "rst")] == [
        (("Guide",), 1),
        (("Guide", "Install"), 7),
    ]
    check_slices(text, pieces(text, "rst"))


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_our_own_documents_have_the_right_lines_for_every_heading(path: Path) -> None:
    """Passages: every heading outside of a fence is the last line of the path of what begins there."""
    text = path.read_text(encoding="utf-8")

    found = pieces(text)

    check_slices(text, found)
    outside = re.sub(r"^```.*?^```", lambda fence: "\n" * fence[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for number, line in enumerate(outside.split("\n"), 1):
        if head := re.match(r"#{1,6} (.*)", line):
            (holder,) = [one for one in found if one.line_start <= number <= one.line_end]
            assert head[1] in holder.heading, (path.name, number)


@settings(max_examples=figure(60, 150), deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "# A",
                "## 标题",
                "text here. More text. ",
                "中文。再一句！",
                "```",
                "    code",
                "| a | b |",
                "|---|---|",
                "- x",
                "",
            ]
        ),
        max_size=40,
    ),
    st.sampled_from(["markdown", "rst", "text", "code"]),
)
def test_every_word_is_in_one_passage_and_stands_in_its_lines(lines: list[str], form: Form) -> None:
    """Law: passages are disjoint slices that hold all of the text."""
    text = "\n".join(lines)

    check_slices(text, pieces(text, form))


def test_a_passage_of_l4_cites_its_lines(project: Path, core: Core, agent: Actor) -> None:
    """L4: the same passages and locators as all knowledge."""
    folder = project / ".ai" / "operations"
    folder.mkdir(parents=True)
    (folder / "release.md").write_text("# Release\n\n## Publish\nTag the release.\n", encoding="utf-8")

    (snippet,) = core.anchor(agent).search("how do I publish a release?").snippets

    place = snippet.citations[0].locator
    assert (place.line_start, place.line_end, place.heading) == (1, 4, ("Release", "Publish"))


def test_a_suffix_says_how_a_file_is_read() -> None:
    assert [format_of(name) for name in ("a.MD", "b.py", "c.rs", "d.rst", "e")] == [
        "markdown",
        "python",
        "code",
        "rst",
        "text",
    ]
