"""Knowledge beside other cares: what a purge looks through of it, and its sources when projects are merged.

A PDF, a DOCX or a character card in a picture holds its text packed; each is read as it was when it came in, so that a
text that was shown out of it is found in it. What cannot be read is looked through as it stands.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from memory_anchor.care.purge import WholeFile
from memory_anchor.care.waiting import WholeRecord
from memory_anchor.errors import MemoryAnchorError
from memory_anchor.knowledge import convert
from memory_anchor.knowledge.index import COLLECTION
from memory_anchor.knowledge.library import Library
from memory_anchor.knowledge.lorebook import text_of
from memory_anchor.knowledge.points import passages_of
from memory_anchor.knowledge.reading import document

ZIP = b"PK\3\4"


@dataclass(frozen=True, slots=True)
class PlaceNames:
    """Names of headings, titles and documents beside the index, and sentences about what was left out."""

    library: Library
    name: str = "names of headings"

    def erase(self, matches: Callable[[str], bool]) -> int:
        return self.library.catalogue.forget_names(matches) if self.library.is_used else 0


@dataclass(frozen=True, slots=True)
class ProjectSources:
    """The sources of projects that are merged; see `care.merging`."""

    library: Library

    def of_project(self, project: str, target: str) -> list[str]:
        """Return the sources that go along."""
        del target
        return [source.id for source in self.library.catalogue.sources() if source.scope.project == project]

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        """Make these sources another project's, with every passage they have by now."""
        del old, back
        library = self.library
        with library.still(everywhere=True):
            library.catalogue.move(names, new)
            for source in (one for one in library.catalogue.sources() if one.id in names):
                after = None
                while True:
                    page, after = library.store.scan(COLLECTION, passages_of(source), after=after, with_vectors=True)
                    theirs = [replace(one, memory=replace(one.memory, scope=source.scope)) for one in page]
                    library.put(theirs)
                    if after is None:
                        break


def holders(library: Library, data_dir: Path) -> tuple[WholeFile | PlaceNames | PushedRecord, ...]:
    """Return what of knowledge may hold a text beside the store."""
    books = sorted((data_dir / "lorebooks").glob("*/*.book"))
    blobs = sorted(library.catalogue.blobs.glob("*"))
    shared = library.catalogue.bytes_elsewhere()
    return (
        *(WholeFile(path, partial(_unpacked, text_of)) for path in books),
        *(WholeFile(path, partial(_unpacked, _upload)) for path in blobs),
        *(PushedRecord(records, name) for records, name in shared),
        PlaceNames(library),
    )


@dataclass(frozen=True, slots=True)
class PushedRecord(WholeRecord):
    """Bytes that were pushed, on the server that replicas share: what is queued has a line before them."""

    def says(self, content: bytes) -> str:
        head, _, after = content.partition(b"\n")
        return "\n".join((_said(_upload, content), head.decode(errors="replace"), _said(_upload, after)))


def _unpacked(read: Callable[[bytes], str], path: Path) -> str:
    """Return what stands in a file and, where it can be read, what it says."""
    return _said(read, path.read_bytes())


def _said(read: Callable[[bytes], str], content: bytes) -> str:
    said = content.decode("utf-8", "surrogateescape")
    with contextlib.suppress(MemoryAnchorError):
        said = f"{said}\n{read(content)}"
    return said


def _upload(content: bytes) -> str:
    """Return what an upload says, whatever its name was. Raises BadInput."""
    text = document("upload", content, "", mime=convert.DOCX if content.startswith(ZIP) else "").text
    return f"{text}\n{html.unescape(text)}"
