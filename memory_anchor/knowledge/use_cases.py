"""What is done with knowledge from outside: the use cases of a caller, a purge, a merge of projects.

The use cases of knowledge, for one caller: search, open, add, push, list, sync, remove.

Each asks the one table of rights. A source is trusted no further than its owner said as a human; what an agent adds is
untrusted, a checkout too. Nothing of knowledge becomes a memory by itself.

Knowledge beside other cares: what a purge looks through of it, and its sources when projects are merged.

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
from typing import TYPE_CHECKING, Any

from memory_anchor import inputs, rights
from memory_anchor import knowledge_requests as asks
from memory_anchor.adapters import git
from memory_anchor.care.purge import WholeFile
from memory_anchor.care.waiting import WholeRecord
from memory_anchor.errors import BadInput, MemoryAnchorError, Refused, Unavailable
from memory_anchor.knowledge import convert, search
from memory_anchor.knowledge.catalogue import SourceState
from memory_anchor.knowledge.index import COLLECTION
from memory_anchor.knowledge.library import Library
from memory_anchor.knowledge.lorebook import text_of
from memory_anchor.knowledge.points import passages_of
from memory_anchor.knowledge.reading import document
from memory_anchor.knowledge.sources import Source, SourceKind, default_trust
from memory_anchor.model import Actor, RetrievedSnippet, Trust, Visibility
from memory_anchor.recall.relevance import STRONG
from memory_anchor.rights import Deed

if TYPE_CHECKING:
    from memory_anchor.knowledge.search import KnowledgeQuery, Opened
    from memory_anchor.recall.search import Searcher

Json = dict[str, Any]
STEP_S = 5.0
"""How long one call of `sync` reads before it says how far it came."""
JOIN_MAX = 2
"""Passages that join a search of memory in which nothing answers."""


class KnowledgeDesk:
    def __init__(
        self,
        library: Library,
        searcher: Searcher,
        actor: Actor,
        *,
        author: str,
        check_writable: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._library, self._searcher, self._actor = library, searcher, actor
        self._author, self._check_writable, self._monotonic = author, check_writable, monotonic

    def search(self, asked: asks.KnowledgeSearch) -> list[RetrievedSnippet]:
        """Return passages, best first; empty when nothing fits."""
        rights.check(Deed.READ, self._actor.caller)
        query = search.KnowledgeQuery(
            asked.query,
            limit=asked.limit,
            source=asked.source,
            trust=asked.trust.value if asked.trust is not None else "",
            path=asked.path,
            visibility=asked.scope,
            detail=asked.detail,
            beside=True,
        )
        return self._found(query)

    def _found(self, query: KnowledgeQuery) -> list[RetrievedSnippet]:
        self._library.note_search()
        return search.search(
            self._library, self._searcher.query_embedder, self._searcher.options.weights, self._actor, query
        )

    def joining(self, query: str, limit: int = JOIN_MAX) -> tuple[RetrievedSnippet, ...]:
        """Return the first strong passages, for a search in which no memory answers, or for a context."""
        if not self._library.is_used:
            return ()
        found = self._found(search.KnowledgeQuery(query, limit=limit))
        return tuple(one for one in found if (one.relevance or 0.0) >= STRONG)

    def open(self, asked: asks.KnowledgeGet) -> Opened:
        """Return a passage as its source has it now. Raises NotFound."""
        rights.check(Deed.READ, self._actor.caller)
        return search.opened(self._library, self._actor, asked.citation, around=asked.around)

    def add(self, asked: asks.KnowledgeAdd) -> Source:
        """Keep a source and queue it.

        Raises BadInput: no such folder. Refused: more trust, another place or a command than the caller may give.
        """
        self._check_writable()
        kind = SourceKind(asked.kind)
        folder = Path(self._actor.project_dir or "/", Path(asked.ref).expanduser()).absolute()
        if not folder.exists():
            raise BadInput(f"{asked.ref!r} is not there; allowed is a folder or a file")
        if kind is not SourceKind.FILES and not folder.is_dir():
            raise BadInput(f"{asked.ref!r} is no folder; a file is added with --kind files")
        self._check_folder(folder.resolve())
        is_read_here = not self._library.catalogue.is_shared  # else the library says what to do instead
        if is_read_here and kind is not SourceKind.FILES and git.find_repository(str(folder.resolve())) is None:
            raise BadInput(f"{asked.ref!r} is no Git checkout of yours; run `git init`, or add it with --kind files")
        if asked.converter or not self._is_in_project(folder.resolve()):
            rights.check(Deed.TRUST_KNOWLEDGE, self._actor.caller)
        options = {"converter": asked.converter} if asked.converter else None
        return self._library.add(
            self._actor.scope,
            kind,
            str(folder.resolve()),
            trust=self._trust(kind, asked.trust),
            visibility=asked.visibility or Visibility.PROJECT,
            options=options,
        )

    def _is_in_project(self, folder: Path) -> bool:
        """Return whether a folder lies in the caller's project: the engine reads as the user, its caller may not."""
        root = self._actor.project_dir
        return bool(root) and folder.is_relative_to(Path(root).resolve())

    def _check_folder(self, folder: Path) -> None:
        """Raise Refused for what holds our own data: keys and memories are no documents."""
        data = self._library.data_dir.resolve()
        if folder == data or folder.is_relative_to(data) or data.is_relative_to(folder):
            raise Refused(f"{folder} holds this memory's own files; name a folder that does not")

    def _trust(self, kind: SourceKind, asked: Trust | None) -> Trust | None:
        """Return how far a source is trusted from now on, None for what it was."""
        human = rights.is_human(self._actor.caller)
        if asked is None:
            return default_trust(kind, human=True) if human else None
        if asked is not Trust.UNTRUSTED:
            rights.check(Deed.TRUST_KNOWLEDGE, self._actor.caller)
        return asked

    def push(self, asked: asks.KnowledgePush) -> Source:
        """Keep one document that was pushed; accepted once this returns. Raises BadInput."""
        self._check_writable()
        if bool(asked.text) == bool(asked.base64):
            raise BadInput("a document has both text and base64, or neither; allowed is one of them")
        content = asked.text.encode("utf-8") if asked.text else inputs.file_bytes("base64", asked.base64)
        is_page = asked.name.startswith(("http://", "https://"))
        kind = SourceKind.WEB_SNAPSHOT if is_page else SourceKind.UPLOAD
        mime = asked.mime or ("text/html" if is_page else "")
        name = asked.into if asked.into != "uploads" or not is_page else "pages"
        return self._library.upload(self._actor.scope, kind, name, content, name=asked.name, mime=mime)

    def sources(self) -> list[SourceState]:
        """Return every source that this caller may read, and how far it is read."""
        rights.check(Deed.READ, self._actor.caller)
        return self._library.states(self._actor.scope)

    def sync(self, asked: asks.KnowledgeSync) -> Json:
        """Read on for a moment; return how far it came. left: sources and documents that wait still.

        unembedded: passages that wait for a vector, once nothing is left to read and one was made in this moment.
        """
        self._check_writable()
        if asked.begin:
            readable = self._library.readable(self._actor.scope)
            chosen = [self._library.named(asked.source, self._actor.scope)] if asked.source else readable
            for source in chosen:
                self._library.sync(source)
        until = self._monotonic() + STEP_S
        self._library.step(lambda: self._monotonic() < until)
        progress = self._library.progress()
        told: Json = {"left": self._library.catalogue.due(now=self._library.clock.now())}
        if progress is not None:
            told |= progress.told(self._library.clock.now())
        if asked.embed and not told["left"] and not self._library.is_worked_behind:
            done = 0
            with contextlib.suppress(Unavailable):  # an embedding API that is away: found by words until it is back
                while self._monotonic() < until and (made := self._library.embed()):
                    done += made
            if done and (waits := self._library.unembedded()):
                told["unembedded"] = waits
        return told

    def remove(self, asked: asks.KnowledgeRemove) -> Json:
        """Erase a source; return the certificate. A source that a human trusts is a human's to remove."""
        self._check_writable()
        source = self._library.named(asked.source, self._actor.scope)
        if source.trust is not Trust.UNTRUSTED:
            rights.check(Deed.TRUST_KNOWLEDGE, self._actor.caller)
        return self._library.remove(source, by=self._author)


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
    """The sources of projects that are merged; see `care.transfer`."""

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
