"""A page about the person and one about the project, derived from live facts.

Nothing is stored: each line is a fact's first sentence with its id, so what is forgotten or superseded leaves the page
at once. Extraction takes from these lines what a conversation is expected to show.
Rejected: a page that a model rewrites at night (it drifts from its sources, and a stale line cites nothing).
Invariant: every line names a live fact that its reader may read; the page is at most `PAGE_LINES` lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_anchor.domain.model import SEARCHABLE_STATES, Memory, MemoryType, Visibility
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import is_chinese

LINE_CHARS = 140
SECTION_LINES = 6
PAGE_LINES = 30
_ENDS = late(r"(?<=[.!?])\s|(?<=[。！？；])|\n")
_WHO = frozenset({Visibility.USER, Visibility.AGENT, Visibility.ACCOUNT})

SECTIONS: Mapping[str, tuple[tuple[str, str, frozenset[MemoryType]], ...]] = {
    "person": (
        ("who", "是谁", frozenset({MemoryType.FACT})),
        ("likes", "喜好", frozenset({MemoryType.PREFERENCE})),
        ("how they work", "做事方式", frozenset({MemoryType.INSTRUCTION, MemoryType.WORKFLOW, MemoryType.DECISION})),
    ),
    "project": (
        ("what holds", "现状", frozenset({MemoryType.FACT, MemoryType.PROJECT_STATE})),
        ("what was decided", "决定", frozenset({MemoryType.DECISION})),
        ("rules", "规则", frozenset({MemoryType.INSTRUCTION, MemoryType.PREFERENCE})),
        ("how work is done", "做法", frozenset({MemoryType.WORKFLOW, MemoryType.BUGFIX, MemoryType.REFACTOR})),
    ),
}
"""Of each page: (section, in Chinese, types of facts)."""


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """One line of a page. of: person or project. id: the fact it cites."""

    of: str
    section: str
    text: str
    id: str


def profile_of(facts: Sequence[Memory]) -> tuple[ProfileLine, ...]:
    """Return both pages from facts that one reader may read, the most important of each section first.

    Pending claims are left out; both sides of a dispute are shown, since each is believed by somebody.
    """
    lines: list[ProfileLine] = []
    searchable = [fact for fact in facts if fact.state in SEARCHABLE_STATES]
    searchable.sort(key=lambda fact: (-fact.pinned, -fact.priority * fact.confidence, -fact.happened_at.timestamp()))
    for page, sections in SECTIONS.items():
        of_page = [fact for fact in searchable if (fact.visibility in _WHO) is (page == "person")]
        for name, _, types in sections:
            id_of: dict[str, str] = {}
            for fact in of_page:
                if fact.type in types:
                    id_of.setdefault(_first_sentence(fact.content), fact.id)
            cited = list(id_of.items())[:SECTION_LINES]
            lines += [ProfileLine(page, name, text, memory_id) for text, memory_id in cited if text]
    return tuple(lines[:PAGE_LINES])


def told(lines: Sequence[ProfileLine]) -> str:
    """Return the page as Markdown, in Chinese where most of it is; "" for an empty one."""
    chinese = is_chinese("".join(line.text for line in lines))
    titles = {"person": "用户" if chinese else "The user", "project": "项目" if chinese else "The project"}
    named = {(page, name): han if chinese else name for page, parts in SECTIONS.items() for name, han, _ in parts}
    page = section = ""
    markdown: list[str] = []
    for line in lines:
        if line.of != page:
            page, section = line.of, ""
            markdown.append(f"# {titles[page]}")
        if line.section != section:
            section = line.section
            markdown.append(f"## {named[page, section]}")
        markdown.append(f"- {line.text} [{line.id}]")
    return "\n".join(markdown)


def _first_sentence(text: str) -> str:
    first = next((part.strip() for part in _ENDS.split(text) if part.strip()), "")
    return first if len(first) <= LINE_CHARS else f"{first[: LINE_CHARS - 1].rstrip()}…"
