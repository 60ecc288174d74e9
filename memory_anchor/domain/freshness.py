"""Whether what a memory cites still holds: fresh, moved, stale or gone. Pure; files come in through a port.

A citation into a repository carries the lines it read and a hash of them. On recall the lines are compared again: the
same text in the same place is fresh, somewhere else in the file or in the file it became moved (with the new path and
lines), nowhere stale; a file that is nowhere is gone. A renamed file whose text differs now is stale, at its new path;
a file of the same name counts only when the cited lines are in it. Lines are compared without their surrounding white
space, so that re-indenting and line ends change nothing. A check costs one stat of a file seen before: results are kept
by the Git blob id of the text, and blob ids by the file's stamp, so touching a file or switching branches back and
forth re-reads it but compares nothing again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from memory_anchor.base.lines import text_lines
from memory_anchor.domain.model import Citation, Freshness, Locator

LINES_MAX = 50_000
"""Longer files are compared in place only, not searched for where the lines went."""
CACHED_MAX = 4_096
_SEVERITY: dict[Freshness, int] = {"fresh": 0, "moved": 1, "stale": 2, "gone": 3}


class SourceFiles(Protocol):
    """The files a project's citations may name."""

    def stamp(self, ref: str) -> str | None:
        """Return what changes whenever the file may have changed (cheap), None when it is not there."""

    def text(self, ref: str) -> str | None:
        """Return the file's text, None when it is not there or not text."""

    def elsewhere(self, ref: str) -> Sequence[tuple[str, bool]]:
        """Return where a missing file may be now: (ref, whether it is known to be that file), likeliest first."""


@dataclass(frozen=True, slots=True)
class Checked:
    """freshness None: nothing to compare with. lines: where the cited lines are now, first and last, from 1. ref: the
    file they are in now, None for the one that was cited."""

    freshness: Freshness | None
    lines: tuple[int, int] | None = None
    ref: str | None = None


def lines_of(text: str) -> list[str]:
    """Return the lines that are compared: each stripped at both ends."""
    return [line.strip() for line in text_lines(text)]


def lines_hash(lines: Sequence[str]) -> str:
    """Return the SHA-256 of stripped lines, 64 hex digits."""
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def blob_id(text: str) -> str:
    """Return the Git blob id of a text, 40 hex digits.

    >>> blob_id("hello\\n")
    'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def with_line_hash(citation: Citation, text: str | None) -> Citation:
    """Return a file citation with the hash of the lines it names (the whole file when it names none).

    Lines past the end, and a file that is not there, leave it without a hash: there is nothing to compare with later.
    """
    if citation.kind != "file" or text is None:
        return citation
    lines, place = lines_of(text), citation.locator
    first = place.line_start or 1
    last = place.line_end or (place.line_start or len(lines))
    if not 1 <= first <= last <= len(lines):
        return citation
    return replace(citation, locator=replace(place, sha=lines_hash(lines[first - 1 : last])), freshness="fresh")


def check(locator: Locator, text: str | None) -> Checked:
    """Return how a citation into a file compares with its text now, None when the file is not there.

    Of several places where the lines now are, the nearest to the old one is returned.
    """
    if text is None:
        return Checked("gone")
    if locator.sha is None:
        return Checked(None)
    lines = lines_of(text)
    if locator.line_start is None:
        return Checked("fresh" if lines_hash(lines) == locator.sha else "stale")
    first = locator.line_start
    last = locator.line_end or first
    if last <= len(lines) and lines_hash(lines[first - 1 : last]) == locator.sha:
        return Checked("fresh", (first, last))
    size = last - first + 1
    if len(lines) <= LINES_MAX:
        for start in sorted(range(len(lines) - size + 1), key=lambda i: (abs(i - first + 1), i)):
            if lines_hash(lines[start : start + size]) == locator.sha:
                return Checked("moved", (start + 1, start + size))
    return Checked("stale")


class FreshnessChecker:
    """Checks citations against files and caches the comparisons. Thread-safe."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[str, str]] = {}
        """ref -> (stamp, blob id)"""
        self._results: dict[tuple[str, Locator], Checked] = {}

    def check(self, citation: Citation) -> Checked:
        """Return how a citation of a file with a hash of its lines compares now, in the file or the one it became."""
        result = self._compare(citation.ref, citation.locator)
        if result is not None:
            return result
        for ref, is_known in self._files.elsewhere(citation.ref):
            moved = self._compare(ref, citation.locator)
            if moved is not None and moved.freshness in ("fresh", "moved"):
                return Checked("moved", moved.lines, ref)
            if is_known and moved is not None and moved.freshness == "stale":
                return Checked("stale", None, ref)
        return Checked("gone")

    def _compare(self, ref: str, locator: Locator) -> Checked | None:
        """Return how the cited lines compare with one file, None when it is not there."""
        stamp = self._files.stamp(ref)
        if stamp is None:
            return None
        with self._lock:
            known = self._blobs.get(ref)
            if known is not None and known[0] == stamp and (result := self._results.get((known[1], locator))):
                return result
        text = self._files.text(ref)
        if text is None:
            return None
        blob = blob_id(text)
        with self._lock:
            result = self._results.get((blob, locator))
        result = result or check(locator, text)
        with self._lock:
            if len(self._results) >= CACHED_MAX:
                self._results.clear()
                self._blobs.clear()
            self._blobs[ref] = (stamp, blob)
            self._results[blob, locator] = result
        return result

    def with_freshness(self, citations: Iterable[Citation]) -> tuple[Citation, ...]:
        """Return the citations with their freshness, moved ones with the path and the lines where the text is now.

        Only citations of files with a hash can be checked; the others stay as they are.
        """
        return tuple(
            self._updated(citation) if citation.kind == "file" and citation.locator.sha is not None else citation
            for citation in citations
        )

    def with_line_hashes(self, citations: Iterable[Citation]) -> tuple[Citation, ...]:
        """Return citations with the hash of what they name now; done once, when a memory is written."""
        return tuple(with_line_hash(c, self._files.text(c.ref)) if c.kind == "file" else c for c in citations)

    def _updated(self, citation: Citation) -> Citation:
        result = self.check(citation)
        place = citation.locator
        if result.freshness == "moved" and result.lines is not None:
            place = replace(place, line_start=result.lines[0], line_end=result.lines[1])
        if result.ref is not None:
            citation = replace(citation, ref=result.ref, title=citation.title or f"was {citation.ref}")
        return replace(citation, locator=place, freshness=result.freshness)


def worst_freshness(citations: Iterable[Citation]) -> Freshness | None:
    """Return the worst freshness among citations, None when none is known: what ranking lowers a memory by."""
    known = [citation.freshness for citation in citations if citation.freshness is not None]
    return max(known, key=_SEVERITY.__getitem__, default=None)
