"""Whether what a memory cites still stands: fresh, moved, stale or gone. Pure; files come in through a port.

A citation into a repository carries the lines it read and a hash of them. On recall the lines are looked at again: the
same text in the same place is fresh, elsewhere in the file or in the file it became moved (with the new path and
lines), nowhere stale; a file that is nowhere is gone. A renamed file that says something else now is stale, at its new
path; a namesake counts only when the cited lines stand in it. Lines are compared without their surrounding white space,
so that re-indenting and line ends change nothing. An answer costs one stat of a file seen before: results are kept by
the Git blob id of the text, and blob ids by the file's stamp, so touching a file or switching branches back and forth
re-reads it but compares nothing again.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from memory_anchor.model import Citation, Freshness, Locator

LINES_MAX = 50_000
"""Longer files are compared in place only, not searched for where the lines went."""
CACHED_MAX = 4_096
_SEVERITY: dict[Freshness, int] = {"fresh": 0, "moved": 1, "stale": 2, "gone": 3}


class SourceFiles(Protocol):
    """The files a project's citations may name."""

    def stamp(self, ref: str) -> str | None:
        """Return what changes whenever the file may have changed (cheap), None when it is not there."""
        ...

    def text(self, ref: str) -> str | None:
        """Return the file's text, None when it is not there or not text."""
        ...

    def elsewhere(self, ref: str) -> Sequence[tuple[str, bool]]:
        """Return where a file that is not there may be now: (ref, whether it is known to be that file), likeliest
        first."""
        ...


@dataclass(frozen=True, slots=True)
class Checked:
    """freshness None: nothing to compare with. lines: where the cited lines are now, first and last, from 1. ref: the
    file they are in now, None for the one that was cited."""

    freshness: Freshness | None
    lines: tuple[int, int] | None = None
    ref: str | None = None


def lines_of(text: str) -> list[str]:
    """Return the lines that are compared: each stripped at both ends."""
    return [line.strip() for line in text.splitlines()]


def lines_hash(lines: Sequence[str]) -> str:
    """Return the SHA-256 of stripped lines, 64 hex digits."""
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def blob_id(text: str) -> str:
    """Return the Git blob id of a text, 40 hex digits.

    >>> blob_id("hello\\n")
    'ce013625030ba8dba906f756967f9e9ca394464a'
    """
    stored = text.encode("utf-8", "surrogatepass")
    return hashlib.sha1(b"blob %d\0" % len(stored) + stored, usedforsecurity=False).hexdigest()


def sealed(citation: Citation, text: str | None) -> Citation:
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
    """Return how a citation into a file stands now. text: the file as it is, None when it is not there.

    Of several places where the lines now are, the nearest to the old one is given.
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
    if len(lines) > LINES_MAX:
        return Checked("stale")
    for start in sorted(range(len(lines) - size + 1), key=lambda i: (abs(i - first + 1), i)):
        if lines_hash(lines[start : start + size]) == locator.sha:
            return Checked("moved", (start + 1, start + size))
    return Checked("stale")


class FreshnessChecker:
    """Checks citations against files, remembering what it compared. Thread-safe."""

    def __init__(self, files: SourceFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[str, str]] = {}
        """ref -> (stamp, blob id)"""
        self._results: dict[tuple[str, Locator], Checked] = {}

    def check(self, citation: Citation) -> Checked:
        """Return how a citation of a file stands, one with a hash of its lines."""
        found = self._compared(citation.ref, citation.locator)
        return self._followed(citation) if found is None else found

    def _followed(self, citation: Citation) -> Checked:
        """Return how a citation stands whose file is not there: in the file it became, if it can be found."""
        for ref, is_known in self._files.elsewhere(citation.ref):
            found = self._compared(ref, citation.locator)
            if found is None or found.freshness not in ("fresh", "moved", "stale"):
                continue
            if found.freshness != "stale":
                return Checked("moved", found.lines, ref)
            if is_known:
                return Checked("stale", None, ref)
        return Checked("gone")

    def _compared(self, ref: str, locator: Locator) -> Checked | None:
        """Return how lines stand in one file, None when it is not there."""
        stamp = self._files.stamp(ref)
        if stamp is None:
            return None
        with self._lock:
            known = self._blobs.get(ref)
            if known is not None and known[0] == stamp:
                result = self._results.get((known[1], locator))
                if result is not None:
                    return result
        text = self._files.text(ref)
        if text is None:
            return None
        blob = blob_id(text)
        with self._lock:
            result = self._results.get((blob, locator))
        if result is None:
            result = check(locator, text)
        with self._lock:
            if len(self._results) >= CACHED_MAX:
                self._results.clear()
                self._blobs.clear()
            self._blobs[ref] = (stamp, blob)
            self._results[blob, locator] = result
        return result

    def with_freshness(self, citations: Iterable[Citation]) -> tuple[Citation, ...]:
        """Return the citations with their freshness, moved ones with the path and the lines where the text is now.

        Only citations of files with a hash can be told; the others stay as they are.
        """
        return tuple(
            self._checked(one) if one.kind == "file" and one.locator.sha is not None else one for one in citations
        )

    def with_line_hashes(self, citations: Iterable[Citation]) -> tuple[Citation, ...]:
        """Return citations with the hash of what they name now; done once, when a memory is written."""
        return tuple(sealed(c, self._files.text(c.ref)) if c.kind == "file" else c for c in citations)

    def _checked(self, citation: Citation) -> Citation:
        found = self.check(citation)
        place = citation.locator
        if found.freshness == "moved" and found.lines is not None:
            place = replace(place, line_start=found.lines[0], line_end=found.lines[1])
        if found.ref is not None:
            was = citation.title or f"was {citation.ref}"
            return replace(citation, ref=found.ref, title=was, locator=place, freshness=found.freshness)
        return replace(citation, locator=place, freshness=found.freshness)


def worst_freshness(citations: Iterable[Citation]) -> Freshness | None:
    """Return the worst freshness among citations, None when none can be told: what ranking lowers a memory by."""
    told = [c.freshness for c in citations if c.freshness is not None]
    return max(told, key=_SEVERITY.__getitem__, default=None)
