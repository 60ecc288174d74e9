"""How large L0 may be, and how a text is cleaned before it stands in a file for Git."""

from __future__ import annotations

from collections.abc import Sequence

from memory_anchor.errors import BadInput, MemoryAnchorError
from memory_anchor.identity.constitution_text import FILE_NAME, MAX_ENTRIES, PLACEHOLDER, Document
from memory_anchor.inputs import telling
from memory_anchor.inputs import text as checked_text
from memory_anchor.language.tokens import count_tokens
from memory_anchor.model import ConstitutionEntry


def check_limits(document: Document, error: type[MemoryAnchorError], *, budget_tokens: int) -> None:
    """Raise `error` unless a text is usable and within its bounds."""
    if document.problems:
        raise error(f"{FILE_NAME} would not be usable: {document.problems[0]}")
    entries = document.entries
    if len(entries) > MAX_ENTRIES:
        raise error(f"there would be {len(entries)} entries; allowed are {MAX_ENTRIES}")
    tokens = count_tokens(joined(entries))
    if tokens > budget_tokens:
        raise error(f"the entries would cost {tokens} tokens; allowed are {budget_tokens} (budget.identity)")


def check_first(document: Document, *, budget_tokens: int) -> None:
    """Raise BadInput unless a text may be the first one: usable, within its bounds, and somebody's own words."""
    check_limits(document, BadInput, budget_tokens=budget_tokens)
    if any(PLACEHOLDER in one.content for one in document.entries):
        raise BadInput(f"{FILE_NAME} says {PLACEHOLDER!r}: say it first, `init --goal TEXT`")


def told(what: str, value: str, *, most: int) -> str:
    """Return a text without secrets and private parts. Raises BadInput: empty or too long."""
    return telling(what, checked_text(what, value, most=most)).text


def joined(entries: Sequence[ConstitutionEntry]) -> str:
    return "\n".join(one.content for one in entries)
