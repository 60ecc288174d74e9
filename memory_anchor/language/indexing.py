"""The text of a memory that is embedded, and the words that find it.

A bare turn such as "Yes, last week!" is found by neither meaning nor words, so a memory is indexed together with its
date, its subject and, at a lower weight, the text before it in its conversation (measured: date and speaker +6 points
of R@10 for words and +36 for meaning, the turn before +2; docs/retrieval.md). Both channels get the same lead. None of
it is ever shown: a snippet's text is the memory's content alone.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from memory_anchor.domain.model import Layer, Memory
from memory_anchor.domain.ports import SparseVector
from memory_anchor.language.due_dates import may_be_due
from memory_anchor.language.safe_regex import late
from memory_anchor.language.terms import is_chinese, normal, term_id, terms, weighted
from memory_anchor.language.words import listed

WORDS_DIFFER = 1e-4
"""Relative difference of a weight after it was stored in 32 bits."""
_DUE_TERM = "\x1fdue"
"""A term that no text has: it is among the words of every fact and event that may be due."""
DATED = SparseVector((term_id(_DUE_TERM),), (1.0,))
"""The query that finds these, however many there are besides."""
CONTEXT_WEIGHT = 0.5
"""Weight of an occurrence in the text before, relative to one in the memory's own words."""
CONTEXT_CHARS = 600
"""Characters of the event before that are stored as context."""
_MONTH_NAMES = listed("calendar", "months")
_LEAD = late(r"\A\s*+[\[【(（][^\]】)）\n]{1,40}[\]】)）]\s*+")
_LEAD_SEARCH_CHARS = 60


def date_words(at: datetime, *, chinese: bool) -> str:
    """Return the UTC date as people write it: `8 May 2023` or `2023年5月8日`."""
    if chinese:
        return f"{at.year}年{at.month}月{at.day}日"
    return f"{at.day} {_MONTH_NAMES[at.month - 1]} {at.year}"


def embedded_text(memory: Memory) -> str:
    """Return the memory's own text to embed: `[8 May 2023] who or key: content`.

    An event starts with its date and people, a fact with its key, unless the content itself opens with them.
    """
    opening = normal(memory.content[:_LEAD_SEARCH_CHARS])
    chinese = is_chinese(memory.content)
    parts: list[str] = []
    if memory.layer is Layer.EVENT_LOG and memory.when is not None:
        dates = (
            date_words(memory.when, chinese=True),
            date_words(memory.when, chinese=False),
            f"{memory.when:%Y-%m-%d}",
        )
        if not any(normal(date) in opening for date in dates):
            parts.append(f"[{date_words(memory.when, chinese=chinese)}]")
    subject = ", ".join(name for name in memory.who if normal(name) not in opening) or memory.key
    if subject and normal(subject) not in opening:
        parts.append(f"{subject}:")
    return " ".join([*parts, memory.content]).strip()


def embedded_with_context(memory: Memory) -> str:
    """Return the text to embed together with the event before; `embedded_text` when there is none."""
    own = embedded_text(memory)
    if not memory.context:
        return own
    date = _LEAD.match(own)
    opening = date.group() if date else ""
    return f"{opening}{memory.context}\n{own[len(opening) :]}"


def searched_words(memory: Memory) -> SparseVector:
    """Return the document vector of every text that may find the memory; its context has half the weight.

    Of a passage of knowledge: its own words, its headings and its path; its tags name a source, not a subject.
    """
    if memory.layer is Layer.OPERATIONAL_KNOWLEDGE:
        text = f"{memory.content}\n{memory.key}\n{memory.where or ''}"
    else:
        searched = [embedded_text(memory), *(tag.name for tag in memory.tags), *memory.questions]
        searched += [memory.key, memory.where or "", *memory.who]
        searched += [citation.ref for citation in memory.citations if citation.kind in ("file", "url")]
        own = normal(searched[0])
        text = searched[0] + "\n" + "\n".join(extra for extra in searched[1:] if normal(extra) not in own)
    counts: Counter[str] = Counter(terms(text))
    weights: dict[str, float] = {term: float(count) for term, count in counts.items()}
    for term, count in Counter(terms(memory.context)).items():
        weights[term] = weights.get(term, 0.0) + CONTEXT_WEIGHT * count
    if memory.layer in (Layer.VERIFIED_FACT, Layer.EVENT_LOG) and may_be_due(memory):
        weights[_DUE_TERM] = 1.0
    return weighted(weights)


def phrase_text(memory: Memory) -> str:
    """Return the normalised text in which a quoted phrase must occur: content, key, tags, place, people and files."""
    parts = [memory.content, memory.key, memory.where or "", *memory.who, *(tag.name for tag in memory.tags)]
    parts += [citation.ref for citation in memory.citations]
    return " ".join(normal("\n".join(parts)).split())


def conversation_context(before: str) -> str:
    """Return the text of the event before without its date, as `Memory.context` of the next one; at most 600 chars.

    Without the date: both events have it, and repeated it would outweigh the text.
    """
    return _LEAD.sub("", before, count=1).strip()[:CONTEXT_CHARS]
