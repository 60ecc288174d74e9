"""Sources of knowledge: their kinds, the documents in them, and how far each is trusted.

Knowledge is what others wrote; memory is what happened and was decided here. A source is scanned for documents, a
document is cut into passages (`language.passages`), and a locator finds each passage again. The index is derived: a
lost part of it is read again from the source. Rejected: one kind of source with a flag for each difference; the kinds
differ in who wrote them, and that decides how far they are trusted.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import Refused
from memory_anchor.domain.model import Scope, Trust, Visibility

SKIPPED_SHOWN = 50
DEPTH_MAX = 32
"""Levels of folders that are read."""
IGNORE_FILE = ".memoryignore"
STEP_CPU_S = 60.0
"""What one step of a reading may take: the list of 100,000 files takes some 3 s, a batch of passages 4 s."""
LISTING = "the list of its documents"
SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"})


class SourceKind(StrEnum):
    REPO_DOCS = "repo_docs"
    GIT_HISTORY = "git_history"
    FILES = "files"
    UPLOAD = "upload"
    WEB_SNAPSHOT = "web_snapshot"


TRUST_OF_KIND: Mapping[SourceKind, Trust] = {
    SourceKind.REPO_DOCS: Trust.TRUSTED,
    SourceKind.GIT_HISTORY: Trust.SEMI_TRUSTED,
    SourceKind.FILES: Trust.UNTRUSTED,
    SourceKind.UPLOAD: Trust.UNTRUSTED,
    SourceKind.WEB_SNAPSHOT: Trust.UNTRUSTED,
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
    listed: bool = False
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


@dataclass(frozen=True, slots=True)
class ReadingGuard:
    """Sets a source aside whose reading ended the process twice at one place, or took too long there twice.

    A place is the listing of a source, or how many of its documents were read; to pass it clears it. Rejected: to go on
    behind such a place by itself, since a hostile folder has any number of them. cpu_s: CPU seconds of this thread.
    """

    quarantine: Quarantine
    cpu_s: Callable[[], float]

    def steps(self, source: Source, batches: Iterator[None], place: Callable[[], str]) -> Iterator[None]:
        """Read batches, each under guard. Raises Refused: the source is set aside at this place."""
        done = object()
        while True:
            self._check(source, at := place())
            with self._step(source, at):
                ended = next(batches, done) is done
            if ended:
                return
            yield

    def _check(self, source: Source, place: str) -> None:
        if self.quarantine.is_quarantined(_key(source, place)):
            again = f"memory-anchor knowledge add {shlex.quote(source.ref)} --kind {source.kind} --human"
            raise Refused(
                f"{source.ref} is set aside: twice the engine ended, or took over {STEP_CPU_S:.0f} s of CPU, while it"
                f" read {place}; `{again}` takes it up again, `memory-anchor knowledge remove {source.id}` forgets it"
            )

    @contextlib.contextmanager
    def _step(self, source: Source, place: str) -> Iterator[None]:
        """Mark a source while one step of reading it runs, and charge it for one that takes too long."""
        key, name = _key(source, place), f"source {source.id} ({ascii(source.ref)[1:-1]}, {place})"
        before, began = self.quarantine.deaths(key), self.cpu_s()
        try:
            with self.quarantine.reading({name: key}):
                yield
        finally:
            if self.cpu_s() - began > STEP_CPU_S:
                self.quarantine.charge(name, key, before + 1)

    def take_up(self, source: Source, places: Iterable[str]) -> None:
        """Let a source be read again from these places."""
        for place in places:
            self.quarantine.charge("", _key(source, place), 0)


def _key(source: Source, place: str) -> str:
    return f"source {source.id}: {place}"
