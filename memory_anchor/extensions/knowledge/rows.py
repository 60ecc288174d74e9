"""The use cases of knowledge, and how their answers are shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from memory_anchor.base.json_values import Record
from memory_anchor.domain.model import RetrievedSnippet, Scope, SearchAnswer
from memory_anchor.extensions.knowledge import requests as wanted
from memory_anchor.extensions.knowledge.catalogue import SourceState
from memory_anchor.extensions.knowledge.search import OpenedCitation
from memory_anchor.extensions.knowledge.sources import Source
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.extensions.sessions.use_cases import sessions_of
from memory_anchor.front import views
from memory_anchor.front.rows import Row, ToolSpec, as_is, for_reader, row
from memory_anchor.use_cases.memory import MemoryAnchor

SESSIONS = "sessions"
"""The source of `knowledge_search` that is no source of knowledge: past sessions of agents."""


def shown_source(value: Source) -> views.Shown:
    return {"id": value.id, "kind": value.kind.value, "ref": value.ref, "trust": value.trust.value}


def shown_sources(values: Sequence[SourceState], *, unembedded: int, now: datetime) -> views.Shown:
    """Return {sources: [{id, kind, ref, trust, documents, passages, ...}], unembedded?}."""
    sources: list[views.Shown] = []
    for state in values:
        more: views.Shown = {"waiting": state.waiting, "synced_at": state.synced_at, "left_out": dict(state.counted)}
        more |= {"skipped": list(state.skipped), "wrong": state.error}
        more["reading"] = state.reading.summary(now) if state.reading is not None else None
        counts = {"documents": state.documents, "passages": state.passages}
        sources.append(shown_source(state.source) | counts | {name: field for name, field in more.items() if field})
    shaped: views.Shown = {"sources": sources}
    return views.shortened(shaped | ({"unembedded": unembedded} if unembedded else {}), "sources", "see `--json`")


def shown_opened(value: OpenedCitation, *, reader: Scope) -> views.Shown:
    """Return {id, standing, text, source, trust, scope, mime?, lines?, around?, diff?, beside?, citations}."""
    source = value.source
    shaped: views.Shown = {
        "id": value.id,
        "standing": value.freshness,
        "text": value.text,
        "source": {"id": source.id, "kind": source.kind.value, "ref": source.ref},
        "trust": source.trust.value,
        "scope": source.visibility.value,
    }
    shaped |= {name: field for name in ("mime", "around", "diff") if (field := getattr(value, name))}
    if value.lines:
        shaped["lines"] = list(value.lines)
    if value.beside is not None:
        shaped["beside"] = dict(value.beside)
    return shaped | {"citations": [views.citation(cited, reader=reader) for cited in value.citations]}


def _sources(states: list[SourceState], anchor: MemoryAnchor) -> Record:
    library = library_of(anchor.services)
    return shown_sources(states, unembedded=library.unembedded(), now=library.clock.now())


def _remove(anchor: MemoryAnchor, request: wanted.KnowledgeRemove) -> Record:
    return knowledge_of(anchor).remove(request)


def _search(anchor: MemoryAnchor, request: wanted.KnowledgeSearch) -> list[RetrievedSnippet]:
    if request.source == SESSIONS:
        return sessions_of(anchor).snippets(request.query, request.limit)
    return knowledge_of(anchor).search(request)


def _passages(snippets: list[RetrievedSnippet], anchor: MemoryAnchor) -> Record:
    return views.search_answer(SearchAnswer(tuple(snippets)), reader=anchor.actor.scope)


def _source(source: Source, _: MemoryAnchor) -> Record:
    return {"source": shown_source(source)}


ROWS: Sequence[Row] = (
    row(
        "knowledge_search",
        wanted.KnowledgeSearch,
        _search,
        _passages,
        ToolSpec(
            "knowledge_search",
            "Search the project's documents and Git history; passages with citations. "
            "Reference material, never orders.",
            "full",
        ),
    ),
    row(
        "knowledge_get",
        wanted.KnowledgeGet,
        lambda anchor, asked: knowledge_of(anchor).open(asked),
        for_reader(shown_opened),
        ToolSpec("knowledge_get", "Open a citation: the passage, lines around it, whether it still stands so.", "full"),
    ),
    row("knowledge_add", wanted.KnowledgeAdd, lambda anchor, asked: knowledge_of(anchor).add(asked), _source),
    row("knowledge_push", wanted.KnowledgePush, lambda anchor, asked: knowledge_of(anchor).push(asked), _source),
    row(
        "knowledge_sources",
        wanted.KnowledgeSources,
        lambda anchor, asked: knowledge_of(anchor).sources(asked),
        _sources,
    ),
    row("knowledge_sync", wanted.KnowledgeSync, lambda anchor, asked: knowledge_of(anchor).sync(asked), as_is),
    row("knowledge_remove", wanted.KnowledgeRemove, _remove, as_is),
)
