"""The use cases of knowledge for one caller, and what a purge and a merge of projects do with it.

Each use case asks the one table of rights. A source is trusted no further than its owner said as a human; what an agent
adds is untrusted, a checkout too. Nothing of knowledge becomes a memory by itself.

A PDF, a DOCX or a character card in a picture holds its text packed; a purge parses each as a sync does, so that it
finds every text that a search can show. What cannot be parsed is searched as bytes.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from memory_anchor.admin.purge import WholeFile
from memory_anchor.base.json_values import Json
from memory_anchor.domain import rights
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, Refused, Unavailable
from memory_anchor.domain.model import Actor, RetrievedSnippet, Trust, Visibility
from memory_anchor.domain.requests import checks
from memory_anchor.domain.requests.fields import use_case
from memory_anchor.domain.rights import Action
from memory_anchor.extensions.knowledge import convert, requests
from memory_anchor.extensions.knowledge.catalogue import SourceState
from memory_anchor.extensions.knowledge.library import Library
from memory_anchor.extensions.knowledge.reading import checkout_of, document
from memory_anchor.extensions.knowledge.search import OpenedCitation, open_citation, search_passages
from memory_anchor.extensions.knowledge.sources import TRUST_OF_KIND, Source, SourceKind
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.search import Searcher
from memory_anchor.use_cases.memory import MemoryAnchor
from memory_anchor.use_cases.services import Services

STEP_S = 5.0
"""How long one call of `sync` reads before it reports progress."""
JOIN_MAX = 2
"""Passages in the answer of a memory search that has no result of its own."""
ZIP = b"PK\3\4"
PACKED = (ZIP, b"\x89PNG\r\n\x1a\n", b"%PDF")
"""How files begin whose text their bytes do not show."""


class KnowledgeUseCases:
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

    @use_case(requests.KnowledgeSearch)
    def search(self, request: requests.KnowledgeSearch) -> list[RetrievedSnippet]:
        """Return passages, best first; empty when nothing fits."""
        rights.check(Action.READ, self._actor.caller)
        return self._passages(request, with_neighbours=True)

    def _passages(self, request: requests.KnowledgeSearch, *, with_neighbours: bool) -> list[RetrievedSnippet]:
        self._library.note_search()
        embedder, weights = self._searcher.index.query_embedder, self._searcher.options.weights
        return search_passages(self._library, embedder, weights, self._actor, request, with_neighbours=with_neighbours)

    def strong_passages(self, query: str, limit: int = JOIN_MAX) -> tuple[RetrievedSnippet, ...]:
        """Return the first strong passages, for a search that finds no memory, or for a context."""
        if not self._library.is_used:
            return ()
        request = requests.KnowledgeSearch.model_construct(query=query, limit=limit)  # a query of any length
        passages = self._passages(request, with_neighbours=False)
        return tuple(passage for passage in passages if (passage.relevance or 0.0) >= STRONG)

    @use_case(requests.KnowledgeGet)
    def open(self, request: requests.KnowledgeGet) -> OpenedCitation:
        """Return a passage and its current state in the source. Raises NotFound."""
        rights.check(Action.READ, self._actor.caller)
        return open_citation(self._library, self._actor, request.citation, around=request.around)

    @use_case(requests.KnowledgeAdd)
    def add(self, request: requests.KnowledgeAdd) -> Source:
        """Add a source and queue it.

        Raises BadInput: no such folder. Refused: the caller may not give this trust, folder or converter.
        """
        self._check_writable()
        kind, ref = SourceKind(request.kind), request.ref
        folder = Path(self._actor.project_dir or "/", Path(ref).expanduser()).absolute()
        if not folder.exists():
            raise BadInput(f"{ref!r} is not there; allowed is a folder or a file")
        if kind is not SourceKind.FILES and not folder.is_dir():
            raise BadInput(f"{ref!r} is no folder; a file is added with --kind files")
        folder = folder.resolve()
        data = self._library.data_dir.resolve()
        if folder == data or folder.is_relative_to(data) or data.is_relative_to(folder):
            raise Refused(f"{folder} holds this memory's own files; name a folder that does not")
        if kind is not SourceKind.FILES:
            checkout_of(str(folder))
        # The engine has the user's rights to read files; the caller may not.
        root = self._actor.project_dir
        is_in_project = bool(root) and folder.is_relative_to(Path(root).resolve())
        if request.converter or not is_in_project:
            rights.check(Action.TRUST_KNOWLEDGE, self._actor.caller)
        return self._library.add(
            self._actor.scope,
            kind,
            str(folder),
            trust=self._trust(kind, request.trust),
            visibility=request.visibility or Visibility.PROJECT,
            options={"converter": request.converter} if request.converter else None,
            by_human=rights.is_human(self._actor.caller),
        )

    def _trust(self, kind: SourceKind, requested: Trust | None) -> Trust | None:
        """Return the trust of a source from now on, None to leave it unchanged."""
        if requested is None:
            return TRUST_OF_KIND[kind] if rights.is_human(self._actor.caller) else None
        if requested is not Trust.UNTRUSTED:
            rights.check(Action.TRUST_KNOWLEDGE, self._actor.caller)
        return requested if rights.is_human(self._actor.caller) else None

    @use_case(requests.KnowledgePush)
    def push(self, request: requests.KnowledgePush) -> Source:
        """Take one document that was pushed; accepted once this returns. Raises BadInput."""
        self._check_writable()
        if bool(request.text) == bool(request.base64):
            raise BadInput("a document has both text and base64, or neither; allowed is one of them")
        content = request.text.encode("utf-8") if request.text else checks.file_bytes("base64", request.base64)
        is_page = request.name.startswith(("http://", "https://"))
        kind = SourceKind.WEB_SNAPSHOT if is_page else SourceKind.UPLOAD
        mime = request.mime or ("text/html" if is_page else "")
        ref = "pages" if is_page and request.into == "uploads" else request.into
        by_human = rights.is_human(self._actor.caller)
        return self._library.upload(
            self._actor.scope, kind, ref, content, name=request.name, mime=mime, by_human=by_human
        )

    @use_case(requests.KnowledgeSources)
    def sources(self, _: requests.KnowledgeSources) -> list[SourceState]:
        """Return the state of every source that this caller may read."""
        rights.check(Action.READ, self._actor.caller)
        return self._library.states(self._actor.scope)

    @use_case(requests.KnowledgeSync)
    def sync(self, request: requests.KnowledgeSync) -> dict[str, Json]:
        """Read for up to `STEP_S`; return the progress. left: sources and documents that are still queued.

        unembedded: passages without a vector, once nothing is left to read and this call embedded some.
        """
        self._check_writable()
        library, scope = self._library, self._actor.scope
        if request.begin:
            for source in [library.source_named(request.source, scope)] if request.source else library.readable(scope):
                library.sync(source)
        until = self._monotonic() + STEP_S
        library.step(lambda: self._monotonic() < until)
        progress, now = library.progress(), library.clock.now()
        answer: dict[str, Json] = {"left": library.catalogue.count_due(now=now)}
        answer |= progress.summary(now) if progress else {}
        if request.embed and not answer["left"] and not library.has_worker:
            total = 0
            with contextlib.suppress(Unavailable):  # the embedding API is away: search works by words meanwhile
                while self._monotonic() < until and (count := library.embed()):
                    total += count
            if total and (unembedded := library.unembedded()):
                answer["unembedded"] = unembedded
        return answer

    @use_case(requests.KnowledgeRemove)
    def remove(self, request: requests.KnowledgeRemove) -> dict[str, Json]:
        """Erase a source; return the certificate. One that a human trusts, added or pushed into is a human's."""
        self._check_writable()
        source = self._library.source_named(request.source, self._actor.scope)
        if source.is_humans:
            rights.check(Action.TRUST_KNOWLEDGE, self._actor.caller)
        return self._library.remove(source, by=self._author)


@dataclass(frozen=True, slots=True)
class ProjectSources:
    """The sources of projects that are merged; see `transfer`."""

    library: Library

    def of_project(self, project: str, target: str) -> list[str]:
        """Return the ids of a project's sources."""
        del target
        return [source.id for source in self.library.catalogue.sources() if source.scope.project == project]

    def move(self, names: Sequence[str], old: str, new: str, *, back: bool = False) -> None:
        """Move these sources to another project, with all their passages."""
        del old, back
        library = self.library
        with library.frozen():
            library.catalogue.move(names, new)
            for source in library.catalogue.sources():
                for page in library.pages(source, with_vectors=True) if source.id in names else ():
                    library.put([replace(entry, memory=replace(entry.memory, scope=source.scope)) for entry in page])


# --- what a purge searches -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CatalogueTexts:
    """Headings, titles and sentences about documents left out, in the catalogue."""

    library: Library
    name: str = "names of headings"

    def erase(self, matches: Callable[[str], bool]) -> int:
        return self.library.catalogue.forget_names(matches) if self.library.is_used else 0


def text_holders(library: Library) -> tuple[WholeFile | CatalogueTexts, ...]:
    """Return the parts of knowledge outside of the store that may hold a text."""

    return (
        *(WholeFile(path, _upload_text) for path in sorted(library.catalogue.blobs.glob("*"))),
        CatalogueTexts(library),
    )


def _upload_text(path: Path) -> str:
    """Return the bytes of an upload as text and, where they can be parsed, the text in them."""
    content = path.read_bytes()
    raw = content.decode("utf-8", "surrogateescape")
    try:
        return f"{raw}\n{_upload(content)}"
    except MemoryAnchorError:
        if content.startswith(PACKED):
            raise
        return raw


def _upload(content: bytes) -> str:
    """Return the text of an upload, without its name. Raises BadInput."""
    text = document("upload", content, "", mime=convert.DOCX if content.startswith(ZIP) else "").text
    return f"{text}\n{html.unescape(text)}"


def library_of(services: Services) -> Library:
    """Return this process's library."""
    return cast("Library", services.extensions["knowledge"].part)


def knowledge_of(anchor: MemoryAnchor) -> KnowledgeUseCases:
    """Return the use cases of knowledge for this caller."""
    services = anchor.services
    return KnowledgeUseCases(
        library_of(services),
        services.searcher,
        anchor.actor,
        author=anchor.writes.author,
        check_writable=anchor.writes.check_writable,
        monotonic=services.monotonic,
    )
