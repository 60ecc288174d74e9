"""Which layers answer a question that a search of the store alone cannot: L0 for identity, L4 for "how do I".

By signals, not by a hard switch: what L2 and L3 found always stays, entries of L0 and passages of L4 join where the
question's own words (or meaning) point at them. L0 is never searched in the store; its few entries are compared here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from memory_anchor.model import (
    Citation,
    Constitution,
    Layer,
    Locator,
    OperationPassage,
    RetrievedSnippet,
    SearchAnswer,
    Trust,
)
from memory_anchor.retrieval.request import SearchRequest
from memory_anchor.text.terms import terms

IDENTITY_COVERED = 0.6
"""Share of the question's terms an L0 entry must hold to answer it."""
IDENTITY_NEAR = 0.58
"""Centred cosine from which an L0 entry answers without sharing words (another language)."""
IDENTITY_ASKED_NEAR = 0.4
"""The same when the question itself asks for identity."""
OPERATIONS_JOIN = 2
_ASKS_IDENTITY = re.compile(
    r"\b(who (are|am) (you|we|i)|(our|the|project'?s?) (goals?|mission|purpose|identity|constraints?|principles?)|"
    r"goals? of (this|the|our) (project|product)|project goals?|tech(nology)? stack|core constraints?|constitution|"
    r"what is this project)\b|"
    r"项目(的)?(目标|宗旨|是什么)|技术栈|核心(约束|原则)|我们?是谁|身份|宪法|红线",
    re.IGNORECASE,
)
_ASKS_HOW = re.compile(
    r"\b(how (do|to|should|can|does)|steps? (to|for)|procedure|workflow for|sop|runbook|playbook|guide (to|for))\b|"
    r"怎么|如何|怎样|步骤|流程|操作规程|指南|模板",
    re.IGNORECASE,
)

_CONCEPTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(goals?|mission|purpose|aims?)\b|目标|宗旨|使命|目的",
        r"\b(tech(nology)? stack|stack|technolog(y|ies)|frameworks?|built with)\b|技术栈|技术选型|框架",
        r"\b(constraints?|principles?|red lines?|rules we follow)\b|约束|原则|红线|底线",
    )
)
"""What an identity is asked for, in both languages: a question and an entry about the same one belong together."""

Nearness = Callable[[str, Sequence[str]], Sequence[float]]


def asks_identity(query: str) -> bool:
    return bool(_ASKS_IDENTITY.search(query))


def asks_how(query: str) -> bool:
    return bool(_ASKS_HOW.search(query))


def wants(request: SearchRequest, layer: Layer, *, signal: bool) -> bool:
    """Return whether this layer takes part: it was named, or nothing was named and the question points at it."""
    return layer in request.layers if request.layers else signal and not _filtered(request)


def with_identity(
    answer: SearchAnswer,
    request: SearchRequest,
    constitution: Callable[[], Constitution],
    nearness: Nearness,
    *,
    now: datetime,
) -> SearchAnswer:
    """Return the answer with the L0 entries that answer the question put first."""
    if not wants(request, Layer.IDENTITY_SCHEMA, signal=True):
        return answer
    entries = constitution().entries
    asked = set(terms(request.query))
    if not entries or not asked:
        return answer
    named = Layer.IDENTITY_SCHEMA in request.layers
    points = asks_identity(request.query)
    concepts = [concept for concept in _CONCEPTS if points and concept.search(request.query)]
    covered = [
        1.0
        if any(concept.search(entry.content) for concept in concepts)
        else len(asked & set(terms(entry.content))) / len(asked)
        for entry in entries
    ]
    near: Sequence[float] = [0.0] * len(entries)
    if points or named:
        near = nearness(request.query, [entry.content for entry in entries])
    bar = IDENTITY_ASKED_NEAR if points or named else IDENTITY_NEAR
    scored = [
        (max(share if share >= IDENTITY_COVERED else 0.0, close if close >= bar else 0.0), entry)
        for share, close, entry in zip(covered, near, entries, strict=True)
    ]
    best = max(score for score, _ in scored)
    # Entries are few and alike: only those about as good as the best one answer, the rest is preloaded anyway.
    chosen = sorted((pair for pair in scored if pair[0] >= max(best * 0.8, 1e-9)), key=lambda pair: -pair[0])
    if not chosen:
        return answer
    lead = answer.snippets[0].score if answer.snippets else 0.0
    snippets = tuple(
        RetrievedSnippet(
            id=entry.id,
            text=entry.content,
            score=round(lead + score, 4),
            layer=Layer.IDENTITY_SCHEMA,
            type="identity",
            when=None,
            citations=(
                Citation("file", "constitution.yaml", title=entry.id, observed_at=now, trust=Trust.TRUSTED)
                if entry.source == "yaml"
                else Citation("memory_entry", entry.id, observed_at=now, trust=Trust.TRUSTED),
            ),
            signals={"route": "identity", "coverage_or_cosine": round(score, 4)} if request.detail else None,
        )
        for score, entry in chosen
    )
    return replace(answer, snippets=(*snippets, *answer.snippets)[: request.limit])


def with_operations(
    answer: SearchAnswer,
    request: SearchRequest,
    find: Callable[..., list[OperationPassage]],
    *,
    now: datetime,
) -> SearchAnswer:
    """Return the answer with passages of L4: first when the question asks how, never pushing out more than two."""
    if not wants(request, Layer.OPERATIONAL_KNOWLEDGE, signal=asks_how(request.query)):
        return answer
    only = request.layers == (Layer.OPERATIONAL_KNOWLEDGE,)
    passages = find(request.query, limit=request.limit if only else min(OPERATIONS_JOIN, request.limit))
    if not passages:
        return answer
    lead = answer.snippets[0].score if answer.snippets else 0.0
    snippets = tuple(
        RetrievedSnippet(
            id=passage.name,
            text=passage.text,
            score=round(lead + passage.score, 4),
            layer=Layer.OPERATIONAL_KNOWLEDGE,
            type="operation",
            when=None,
            citations=(
                Citation(
                    "file",
                    passage.path,
                    title=passage.title,
                    locator=Locator(),
                    observed_at=now,
                    trust=Trust.TRUSTED,
                ),
            ),
            signals={"route": "operations", "match": passage.score} if request.detail else None,
        )
        for passage in passages
    )
    return replace(answer, snippets=(*snippets, *answer.snippets)[: request.limit])


def _filtered(request: SearchRequest) -> bool:
    """Return whether the request asks for what only stored memories have."""
    return bool(
        request.types or request.tags or request.since or request.until or request.as_of or request.who or request.where
    )
