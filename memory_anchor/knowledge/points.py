"""A passage as a point of the store: its vector, its id, its citations, and the passage that it is read on from.

Of a series of short passages (turns, minutes, entries of a log, questions and answers) each says little by itself, so
it carries the one before it, as an event of a conversation does: its words count half, and are never shown. Its vector
holds its own text and headings alone, so that an edit embeds nothing but the passages that changed. Measured on turns
of talks as sections of a document: R@5 .717 without and .732 with it, where memories had .736. Rejected: for passages
of any length, and for short ones behind a long one, which lost a question of thirty about `docs/` (docs/knowledge.md).

Vectors of passages: those that any passage of the same text has already, and those that are made now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from memory_anchor.hashing import content_hash
from memory_anchor.knowledge.catalogue import Place
from memory_anchor.knowledge.index import ACTIVE, COLLECTION, PassageIndex
from memory_anchor.knowledge.sources import Source, SourceDocument, SourceKind
from memory_anchor.language.indexing import conversation_context
from memory_anchor.model import (
    Citation,
    CitationKind,
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
from memory_anchor.where import HasVector, OneOf, Where

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix, MemoryStore
    from memory_anchor.quarantine import Quarantine

TAG = "knowledge"
PASSAGE_CITED: frozenset[CitationKind] = frozenset(("knowledge_chunk", "url"))
"""Kinds of what a passage cites first: its own place."""
INDEX_VERSION = "2"
"""Of how passages are cut and indexed: another one reads every source again. 2: short passages carry the one before."""
ALGO_VERSION = "hybrid-3"
CITED_MAX = 8
"""Places of one passage that its point tells of; the catalogue has all."""
SERIES_CHARS = 400
"""A quarter of a passage: two neighbours up to this long are read as a series."""
ID_LENGTH = 13


def passage_id(source: str, text: str) -> str:
    """Return the id of a text in a source: the same for as long as the text is."""
    digest = hashlib.sha256(f"{source}\n{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}".encode())
    number = int.from_bytes(digest.digest()[:9], "big")
    return "".join("0123456789abcdefghjkmnpqrstvwxyz"[number >> (5 * at) & 31] for at in range(ID_LENGTH))


def citation(source: Source, place: Place) -> Citation:
    """Return what names a passage's place in its source."""
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


def read_before(found: Sequence[tuple[str, Place]]) -> dict[tuple[str, int], str]:
    """Return (document, number) -> the text before each passage of a series. found: a document's passages in order."""
    told = {}
    for (earlier, above), (said, place) in pairwise(found):
        if context := context_of(earlier, above, said, place):
            told[place.ref, place.number] = context
    return told


def context_of(earlier: str, above: Place, said: str, place: Place) -> str:
    """Return what a passage carries of the one before it in its document, "" where it is read by itself.

    Both are short, and stand under one heading, or under headings side by side or one below the other.
    """
    if max(len(earlier), len(said)) > SERIES_CHARS:
        return ""
    beside = place.heading in (above.heading, (*above.heading, *place.heading[-1:]))
    return conversation_context(earlier) if beside or above.heading[:-1] == place.heading[:-1] else ""


def memory_of(
    source: Source,
    said: str,
    places: Sequence[Place],
    document: SourceDocument | None,
    old: Memory | None,
    *,
    context: str,
    now: datetime,
) -> Memory:
    """Return the point of a passage. An unchanged one keeps its times.

    places: in order; it is known by the first. context: as `context_of` gives it.
    """
    at = document.at if document is not None and document.at is not None else None
    first = places[0]
    return Memory(
        id=first.passage,
        content=said,
        layer=Layer.OPERATIONAL_KNOWLEDGE,
        type=MemoryType.NOTE,
        scope=source.scope,
        visibility=source.visibility,
        recorded_at=old.recorded_at if old is not None else now,
        valid_from=at or (old.valid_from if old is not None else now),
        key=" > ".join(first.heading) or (document.title if document is not None else old.key if old else ""),
        tags=(Tag(TAG), Tag(tag_of(source)), Tag(f"kind:{source.kind.value}"), Tag(f"trust:{source.trust.value}")),
        origin=Origin.DOCUMENT,
        where=first.ref,
        content_hash=content_hash(said),
        author=f"source:{source.id}",
        status=Status.ACTIVE,
        when=at if at is not None else (old.when if old is not None else None),
        citations=tuple(citation(source, place) for place in places[:CITED_MAX]),
        context=context,
    )


def emptied(memory: Memory) -> Memory:
    """Return what is left of a passage that is gone: no text, and nothing that finds it."""
    hashed = content_hash("")
    return replace(memory, content="", content_hash=hashed, key="", context="", status=Status.ARCHIVED, citations=())


def passages_of(source: Source) -> Where:
    """Return what finds every passage of a source."""
    return Where((OneOf("tag", (tag_of(source),)),))


def tag_of(source: Source) -> str:
    return f"source:{source.id}"


def point_of(passage: str) -> str:
    return point_id(passage, 1)


def audience_of(source: Source) -> str:
    return audience(source.scope, source.visibility)


SPARE = 200
"""Passages read beyond the texts asked for: one text may stand in several sources."""


def rows_of(store: MemoryStore, hashes: Sequence[str]) -> dict[str, Mapping[str, Matrix]]:
    """Return content hash -> the vectors that any passage of that text has."""
    if not hashes:
        return {}
    where = Where((OneOf("content_hash", tuple(dict.fromkeys(hashes))), HasVector()))
    entries, _ = store.scan(COLLECTION, where, page=len(hashes) + SPARE, with_vectors=True)
    return {entry.memory.content_hash: dict(entry.vectors) for entry in entries}


def embed_rows(
    store: MemoryStore, index: PassageIndex, embedders: Mapping[str, Embedder], quarantine: Quarantine, limit: int
) -> int:
    """Embed a few passages that have no row; return how many. Raises Unavailable, WrongEmbedder."""
    from memory_anchor.recall.embedding import document_rows

    done = 0
    for name, embedder in embedders.items():
        found = store.find(COLLECTION, ACTIVE.but_not(HasVector(name)), limit=limit + quarantine.count_quarantined())
        for group in quarantine.safe_groups(found, lambda memory: memory.content):
            with quarantine.reading({f"passage {m.id}": m.content for m in group}, step="embed"):
                rows = document_rows(embedder, group, whole=True, headed=True)
            made = {memory.point_id: {name: row} for memory, row in zip(group, rows, strict=True)}
            store.set_vectors(COLLECTION, made)
            index.embedded(name, {point: rows[name] for point, rows in made.items()})
            done += len(made)
    return done
