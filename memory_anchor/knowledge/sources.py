"""Sources of knowledge: their kinds, the documents in them, and how far each is trusted.

Knowledge is what others wrote; memory is what happened and was decided here. A source is scanned for documents, a
document is cut into passages (`language.passages`), and a locator finds each passage again. The index is derived: a
lost part of it is read again from the source. Rejected: one kind of source with a flag for each difference; the kinds
differ in who wrote them, and that decides how far they are trusted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from memory_anchor.model import Scope, Trust, Visibility

SKIPPED_SHOWN = 50
DEPTH_MAX = 32
"""Levels of folders that are read."""
IGNORE_FILE = ".memoryignore"
SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})


class SourceKind(StrEnum):
    REPO_DOCS = "repo_docs"
    GIT_HISTORY = "git_history"
    FILES = "files"
    UPLOAD = "upload"
    WEB_SNAPSHOT = "web_snapshot"
    LOREBOOK = "lorebook"


TRUST_OF_KIND: Mapping[SourceKind, Trust] = {
    SourceKind.REPO_DOCS: Trust.TRUSTED,
    SourceKind.GIT_HISTORY: Trust.SEMI_TRUSTED,
    SourceKind.FILES: Trust.UNTRUSTED,
    SourceKind.UPLOAD: Trust.UNTRUSTED,
    SourceKind.WEB_SNAPSHOT: Trust.UNTRUSTED,
    SourceKind.LOREBOOK: Trust.SEMI_TRUSTED,
}
"""How far a source that a human adds is trusted unless they say otherwise."""


HUMANS = "human"
"""The option of a source that a human added or pushed into."""


@dataclass(frozen=True, slots=True)
class Source:
    """One source. ref: the folder, URL or name it was added by. scope, visibility: who may read it."""

    id: str
    kind: SourceKind
    ref: str
    trust: Trust
    scope: Scope
    added_at: datetime
    visibility: Visibility = Visibility.PROJECT
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_humans(self) -> bool:
        """Whether only a human removes it: one trusts it, added it, or pushed into it."""
        return self.trust is not Trust.UNTRUSTED or HUMANS in self.options


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One text of a source. ref: its path, URL or commit. sha: of the bytes it was read from. at: when it was written.

    pages: the line on which each page begins, for formats with pages.
    """

    ref: str
    text: str
    sha: str
    mime: str = "text/plain"
    title: str = ""
    at: datetime | None = None
    pages: tuple[int, ...] = ()


@dataclass(slots=True)
class SyncProgress:
    """The progress of a sync. read: documents that were new or changed. counted: reason -> documents left out."""

    began_at: datetime
    documents: int = 0
    read: int = 0
    passages: int = 0
    bytes: int = 0
    removed: int = 0
    took_s: float = 0.0
    skipped: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def summary(self, now: datetime) -> dict[str, float]:
        """Return the counts and the speed in megabytes of text a second."""
        took_s = self.took_s or (now - self.began_at).total_seconds()
        rate = round(self.bytes / 1e6 / took_s, 2) if took_s > 0 else 0.0
        counts = {name: getattr(self, name) for name in ("documents", "read", "passages", "bytes")}
        return counts | {"mb_s": rate}

    def note(self, sentence: str) -> None:
        """Add a sentence about the source, without repeating it."""
        if sentence not in self.skipped and len(self.skipped) < SKIPPED_SHOWN:
            self.skipped.append(sentence)

    def skip(self, sentence: str) -> None:
        """Count a document that is left out, and add the sentence that says why."""
        self.counted["skipped"] += 1
        if len(self.skipped) < SKIPPED_SHOWN:
            self.skipped.append(sentence)


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of a scan. stamps: document -> its fingerprint. cursor: the state that the next scan compares with."""

    stamps: Mapping[str, str]
    open: Callable[[str], SourceDocument]
    """Returns one document. Raises BadInput: one sentence why it is left out."""
    cursor: str = ""
    is_unchanged: bool = False
    """Whether nothing changed since the cursor; `stamps` is empty then."""


Scan = Callable[[Source, str, SyncProgress], Listing]
