"""What of a memory is embedded and which words find it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from memory_anchor.domain.model import Citation, Layer, Memory, MemoryType, Scope, Tag
from memory_anchor.language.indexing import (
    CONTEXT_CHARS,
    conversation_context,
    embedded_text,
    embedded_with_context,
    phrase_text,
    searched_words,
)
from memory_anchor.language.terms import term_id

MAY = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def event(content: str, **more: Any) -> Memory:
    return fact(content, **{"layer": Layer.EVENT_LOG, "type": MemoryType.EVENT, "when": MAY, **more})


def fact(content: str, **more: Any) -> Memory:
    return replace(Memory("m1", content, Layer.VERIFIED_FACT, MemoryType.FACT, Scope(), MAY, MAY), **more)


def weight(memory: Memory, term: str) -> float:
    words = searched_words(memory)
    return dict(zip(words.indices, words.values, strict=True)).get(term_id(term), 0.0)


def test_an_event_is_embedded_with_its_date_and_people() -> None:
    """Rule dense.lead: `[date] who: content`, in the content's language."""
    assert embedded_text(event("I went camping", who=("Anna",))) == "[8 May 2023] Anna: I went camping"
    assert embedded_text(event("修复了空查询的问题")) == "[2023年5月8日] 修复了空查询的问题"


def test_a_fact_is_embedded_with_its_key() -> None:
    """Rule dense.lead: a fact's subject is its key; facts carry no date."""
    assert embedded_text(fact("30 seconds", key="default timeout")) == "default timeout: 30 seconds"


def test_a_lead_the_content_opens_with_is_not_repeated() -> None:
    """Rule dense.lead: text that already says its date and speaker is embedded as it is."""
    said = event("[8 May 2023] Anna: I went camping", who=("Anna",))
    assert embedded_text(said) == said.content
    assert embedded_text(event("2023-05-08 met Tom")) == "2023-05-08 met Tom"


def test_the_event_before_is_read_along_after_the_date() -> None:
    """Rule dense.context: the previous event's text stands between the date and the event's own text."""
    told = event("Yes, last week!", who=("Anna",), context="Did you go camping?")
    assert embedded_with_context(told) == "[8 May 2023] Did you go camping?\nAnna: Yes, last week!"
    assert embedded_with_context(event("Yes")) == embedded_text(event("Yes"))


def test_context_words_have_half_the_weight() -> None:
    """Rule words.context: neighbouring text helps to find a memory, at a lower weight than its own words."""
    told = event("Yes, in the mountains", context="Did you go camping?")
    assert 0 < weight(told, "camp") < weight(told, "mountain")


def test_key_tags_place_people_files_and_questions_are_searched() -> None:
    """Rule words.fields: everything a memory may be asked by finds it."""
    memory = fact(
        "set to 30 seconds",
        key="timeout",
        tags=(Tag("network"),),
        where="backend/api",
        who=("marcus",),
        citations=(Citation("file", "src/http_client.py"),),
        questions=("How long do we wait?",),
    )
    for term in ("timeout", "network", "backend/api", "marcus", "http_client.py", "wait"):
        assert weight(memory, term) > 0, term


def test_the_context_of_an_event_is_the_text_before_without_its_date() -> None:
    """Rule events.context: bounded, and empty for the first event."""
    assert conversation_context("") == ""
    assert conversation_context("[8 May 2023] Anna: hello") == "Anna: hello"
    assert len(conversation_context("x" * 5000)) == CONTEXT_CHARS


def test_phrases_are_searched_in_the_memory_not_in_its_context() -> None:
    """Rule words.phrase: a quoted phrase must stand in the memory's own text or fields."""
    text = phrase_text(event("Ship  IT now", context="secret plan", tags=(Tag("release"),)))
    assert "ship it now" in text
    assert "release" in text
    assert "secret" not in text
