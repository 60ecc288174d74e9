"""A passage as a point of the store: its id, its citations, the passage before it, and its vector.

In a series of short passages (turns, minutes, log entries, questions and answers) each means little by itself, so it
carries the one before it, as an event of a conversation does: those words count half and are never shown. The vector
is of the passage's own text and headings only, so that an edit embeds nothing but the passages that changed. Measured
on turns of conversations as sections of a document: R@5 .717 without and .732 with it, where memories had .736.
Rejected: carrying it for passages of any length, and for short ones after a long one, which lost a question of thirty
about `docs/` (docs/knowledge.md).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from memory_anchor.adapters.system import encode_id
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.errors import BadInput, MemoryAnchorError
from memory_anchor.domain.model import (
    Citation,
    Layer,
    Locator,
    Memory,
    MemoryType,
    Origin,
    Status,
    Tag,
    audience,
    point_id,
)
from memory_anchor.domain.where import HasVector, OneOf, Where
from memory_anchor.extensions.knowledge.catalogue import PassagePlace
from memory_anchor.extensions.knowledge.index import ACTIVE, COLLECTION, PassageIndex
from memory_anchor.extensions.knowledge.sources import Listing, Source, SourceDocument, SourceKind
from memory_anchor.language.indexing import conversation_context

if TYPE_CHECKING:
    from memory_anchor.base.quarantine import Quarantine
    from memory_anchor.domain.ports import Embedder, Matrix, MemoryStore

log = logging.getLogger("memory_anchor")
TAG = "knowledge"
"""Kinds of a passage's first citation: its own place."""
INDEX_VERSION = "2"
"""Of how passages are cut and indexed; a new one reads every source again. 2: short passages carry the one before."""
ALGO_VERSION = "hybrid-3"
CITED_MAX = 8
"""Places of a passage that its point cites; the catalogue has all of them."""
SERIES_CHARS = 400
"""A quarter of a passage: two neighbours up to this length are a series."""
SPARE = 200
"""Passages read beyond the texts asked for: a text may be in several sources."""


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document that was just read. passages: their texts and places, in order."""

    stamp: str
    document: SourceDocument
    passages: list[tuple[str, PassagePlace]]


def read_document(source: Source, listing: Listing, ref: str, quarantine: Quarantine) -> ReadDocument:
    """Return a document with its passages; one that cannot be read has none, and its title says why."""
    from memory_anchor.extensions.knowledge.reading import passages_in

    stamp = listing.stamps[ref]
    try:
        document = listing.open(ref)
        if quarantine.is_quarantined(document.text):
            stamp = ""  # so that the next sync reads it again
            raise BadInput(f"{ref!r} is left out: the engine ended while it read it")
        with quarantine.reading({ref: document.text}):
            passages = [
                (text, replace(place, passage=passage_id(source.id, text)))
                for text, place in passages_in(source, document)
            ]
        return ReadDocument(stamp, document, passages)
    except BadInput as error:
        why = str(error)
    except MemoryAnchorError:
        raise
    except Exception:  # a parser's bug must not end the thread that embeds memories
        log.exception("a document of source %s could not be parsed", source.id)
        why = f"{ascii(ref)[1:-1][:120]} is left out: it cannot be parsed; save it as plain text"
    return ReadDocument(stamp, SourceDocument(ref, "", "", title=why), [])  # see `Catalogue.problems_of`


def passage_id(source: str, text: str) -> str:
    """Return the id of a text in a source: the same for as long as the text is."""
    digest = hashlib.sha256(f"{source}\n{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}".encode())
    return encode_id(int.from_bytes(digest.digest()[:9], "big"))[::-1]


def citation_of(source: Source, place: PassagePlace) -> Citation:
    """Return the citation of a passage's place in its source."""
    lines = (place.line_start, place.line_end)
    return Citation(
        kind="url" if source.kind is SourceKind.WEB_SNAPSHOT else "knowledge_chunk",
        ref=place.ref,
        title=f"{source.kind.value} {source.id}",
        locator=Locator(*lines, place.sha, place.number, place.page, place.heading),
        trust=source.trust,
        variant=ALGO_VERSION,
        index_version=INDEX_VERSION,
    )


def contexts_in(passages: Sequence[tuple[str, PassagePlace]]) -> dict[tuple[str, int], str]:
    """Return (document, number) -> the text before each passage of a series. passages: of one document, in order."""
    return {
        (place.ref, place.number): context
        for (previous, its_place), (text, place) in pairwise(passages)
        if (context := context_of(previous, its_place, text, place))
    }


def context_of(previous: str, its_place: PassagePlace, text: str, place: PassagePlace) -> str:
    """Return what a passage carries of the one before it in its document, "" where the two are no series.

    Both are short, and under one heading, under sibling headings, or under one heading and its subheading.
    """
    if max(len(previous), len(text)) > SERIES_CHARS:
        return ""
    follows = place.heading in (its_place.heading, (*its_place.heading, *place.heading[-1:]))
    return conversation_context(previous) if follows or its_place.heading[:-1] == place.heading[:-1] else ""


def memory_of(
    source: Source,
    text: str,
    places: Sequence[PassagePlace],
    document: SourceDocument | None,
    old: Memory | None,
    *,
    context: str,
    now: datetime,
) -> Memory:
    """Return the point of a passage. An unchanged one keeps its times.

    places: in order; the first one names it. context: see `context_of`.
    """
    written_at = document.at if document is not None else None
    first = places[0]
    return Memory(
        id=first.passage,
        content=text,
        layer=Layer.OPERATIONAL_KNOWLEDGE,
        type=MemoryType.NOTE,
        scope=source.scope,
        visibility=source.visibility,
        recorded_at=old.recorded_at if old is not None else now,
        valid_from=written_at or (old.valid_from if old is not None else now),
        key=" > ".join(first.heading) or (document.title if document is not None else old.key if old else ""),
        tags=(Tag(TAG), Tag(tag_of(source)), Tag(f"kind:{source.kind.value}"), Tag(f"trust:{source.trust.value}")),
        origin=Origin.DOCUMENT,
        where=first.ref,
        content_hash=content_hash(text),
        author=f"source:{source.id}",
        status=Status.ACTIVE,
        when=written_at or (old.when if old is not None else None),
        citations=tuple(citation_of(source, place) for place in places[:CITED_MAX]),
        context=context,
    )


def emptied(memory: Memory) -> Memory:
    """Return a retired passage without its text and without anything that a search finds."""
    bare = replace(memory, content="", content_hash=content_hash(""), key="", context="", citations=())
    return replace(bare, status=Status.ARCHIVED)


def passages_of(source: Source) -> Where:
    """Return the filter for every passage of a source."""
    return Where((OneOf("tag", (tag_of(source),)),))


def tag_of(source: Source) -> str:
    return f"source:{source.id}"


def point_of(passage: str) -> str:
    return point_id(passage, 1)


def audience_of(source: Source) -> str:
    return audience(source.scope, source.visibility)


def known_vectors(store: MemoryStore, hashes: Sequence[str]) -> dict[str, Mapping[str, Matrix]]:
    """Return content hash -> the vectors that any passage of that text has."""
    if not hashes:
        return {}
    where = Where((OneOf("content_hash", tuple(dict.fromkeys(hashes))), HasVector()))
    entries, _ = store.scan(COLLECTION, where, page=len(hashes) + SPARE, with_vectors=True)
    return {entry.memory.content_hash: dict(entry.vectors) for entry in entries}


def embed_passages(
    store: MemoryStore, index: PassageIndex, embedders: Mapping[str, Embedder], quarantine: Quarantine, limit: int
) -> int:
    """Embed a few passages that have no vector; return how many. Raises Unavailable, WrongEmbedder."""
    from memory_anchor.recall.embedding import document_rows

    count = 0
    for name, embedder in embedders.items():
        passages = store.find(COLLECTION, ACTIVE.but_not(HasVector(name)), limit=limit + quarantine.count_quarantined())
        for group in quarantine.safe_groups(passages, lambda memory: memory.content):
            with quarantine.reading({f"passage {m.id}": m.content for m in group}, step="embed"):
                rows = document_rows(embedder, group, whole=True, headed=True)
            vectors = {memory.point_id: {name: row} for memory, row in zip(group, rows, strict=True)}
            store.set_vectors(COLLECTION, vectors)
            index.set_vectors(name, {point: by_name[name] for point, by_name in vectors.items()})
            count += len(vectors)
    return count
