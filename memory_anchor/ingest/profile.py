"""Who is this, what do they use, how do they work: one page per person and per project, derived from live facts.

Nothing is stored: the page is made from the facts when it is asked for, each line is a fact's opening sentence with the
id that it cites, so what is forgotten or superseded is gone from it at once. What a conversation is expected to show
(`prediction gap`) is taken from these lines.
Rejected: a page that a model rewrites at night (it drifts from its sources, and a stale line cites nothing).
Invariant: every line names a live fact that its reader may read; the page is at most `PAGE_LINES` lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory_anchor.language.terms import is_chinese
from memory_anchor.model import FOUND_STATES, Memory, MemoryType, Visibility

LINE_CHARS = 140
SECTION_LINES = 6
PAGE_LINES = 30
_ENDS = re.compile(r"(?<=[.!?])\s|(?<=[。！？；])|\n")
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
    """Return both pages from facts that one reader may read, the weightiest of each section first.

    Only what stands counts: no pending claim; both sides of a dispute, since each is believed by somebody.
    """
    lines: list[ProfileLine] = []
    standing = [one for one in facts if one.state in FOUND_STATES]
    for page, sections in SECTIONS.items():
        own = [one for one in standing if (one.visibility in _WHO) is (page == "person")]
        for name, _, types in sections:
            chosen = [one for one in own if one.type in types]
            chosen.sort(key=lambda one: (-one.pinned, -one.priority * one.confidence, -one.happened_at.timestamp()))
            seen: dict[str, str] = {}
            for one in chosen:
                seen.setdefault(_opening(one.content), one.id)
            lines += [ProfileLine(page, name, text, of) for text, of in list(seen.items())[:SECTION_LINES] if text]
    return tuple(lines[:PAGE_LINES])


def told(lines: Sequence[ProfileLine]) -> str:
    """Return the page as Markdown, in Chinese where most of it is; "" for an empty one."""
    chinese = is_chinese("".join(one.text for one in lines))
    titles = {"person": "用户" if chinese else "The user", "project": "项目" if chinese else "The project"}
    named = {(page, name): han if chinese else name for page, parts in SECTIONS.items() for name, han, _ in parts}
    page = section = ""
    said: list[str] = []
    for line in lines:
        if line.of != page:
            page, section = line.of, ""
            said.append(f"# {titles[page]}")
        if line.section != section:
            section = line.section
            said.append(f"## {named[page, section]}")
        said.append(f"- {line.text} [{line.id}]")
    return "\n".join(said)


def _opening(text: str) -> str:
    first = next((part.strip() for part in _ENDS.split(text) if part.strip()), "")
    return first if len(first) <= LINE_CHARS else f"{first[: LINE_CHARS - 1].rstrip()}…"
