"""Lorebooks for tests: made of a few fields, scanned with a token a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memory_anchor.extensions.lorebook.reading import Lorebook, read_lorebook
from memory_anchor.extensions.lorebook.scanning import (
    LoreMessage,
    LoreScan,
    LoreScanner,
    LoreVerdict,
)
from memory_anchor.extensions.lorebook.settings import LorebookSettings

FIXTURES = Path(__file__).parents[1] / "corpora" / "lorebook"


def words(text: str) -> int:
    return len(text.split())


def fixture(name: str) -> Lorebook:
    return read_lorebook((FIXTURES / f"{name}.json").read_bytes(), f"{name}.json", book_id=name)


def book(*entries: dict[str, Any], **own: Any) -> Lorebook:
    """Return a book of these entries, in world info's names; without a key an entry answers to its uid."""
    listed = {str(number): {"uid": number, **one} for number, one in enumerate(entries)}
    for one in listed.values():
        one.setdefault("content", f"content of {one['uid']}")
        one.setdefault("key", [] if one.get("constant") else [str(one["uid"])])
    return read_lorebook(json.dumps({**own, "entries": listed}).encode(), "book", book_id="book")


def scan(
    books: Lorebook | list[Lorebook],
    *texts: str,
    budget: int = 1_000,
    settings: LorebookSettings | None = None,
    said_by: tuple[str, ...] = (),
) -> LoreScan:
    """Scan messages of these texts, the newest last; said_by: who says them."""
    messages = [LoreMessage(text, said_by[at] if said_by else "") for at, text in enumerate(texts)]
    scanner = LoreScanner(books if isinstance(books, list) else [books], settings, count=words)
    return scanner.scan(messages, budget_tokens=budget)


def admitted(found: LoreScan) -> list[str]:
    """Return the uids in the order of their admission."""
    return [verdict.entry.uid for verdict in found.admitted]


def verdict(found: LoreScan, uid: str | int) -> LoreVerdict:
    return next(verdict for verdict in (*found.admitted, *found.dropped) if verdict.entry.uid == str(uid))


def why(found: LoreScan, uid: str | int) -> str:
    known = {verdict.entry.uid: verdict.why.value for verdict in (*found.admitted, *found.dropped)}
    return known.get(str(uid), "no key matched")
