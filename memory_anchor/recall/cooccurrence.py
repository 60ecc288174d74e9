"""Which tags occur together: a small table that lets a question about one tag's theme find its neighbours'.

Counted by audience, so that nobody learns another's tags: a reader's answer is made of the counts of the audiences they
hold and of nothing else. A job rebuilds the table whole; one that is lost is empty until then. Nearness of two tags is
their Jaccard index over memories (shared / either), which neither rare nor everywhere tags dominate. Asking costs a few
dictionary look-ups, so that every search can.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from memory_anchor.base.json_values import Json, items, record, text, whole
from memory_anchor.domain.model import Tag
from memory_anchor.language.terms import is_compound, terms

TAGS_PER_MEMORY = 16
PAIRS_KEPT = 5_000
"""Pairs an audience keeps, the most frequent first."""
LEAST_TOGETHER = 2
"""One memory with two tags is no pattern."""
RELATED_LEAST = 0.1
NEIGHBOURS_KEPT = 64
"""Neighbours of one tag that are looked at, the most frequent first: what a question costs stays bounded."""
NAMED_MOST = 8
"""Tags that one question is taken to name, the most frequent first."""
WANTED_MOST = 16
QUESTION_TERMS = 128
"""Terms of a question that are looked at."""


@dataclass(frozen=True, slots=True)
class TagTable:
    """audience -> tag -> memories that carry it, and audience -> (tag, tag) in order -> memories that carry both."""

    tags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pairs: Mapping[str, Mapping[tuple[str, str], int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        return {
            audience: {"tags": dict(counts), "pairs": [[*pair, n] for pair, n in self.pairs.get(audience, {}).items()]}
            for audience, counts in self.tags.items()
        }


def count_tags(tagged: Iterable[tuple[str, Sequence[str]]]) -> TagTable:
    """Return the table of memories given as (audience, tags)."""
    tags: dict[str, Counter[str]] = {}
    pairs: dict[str, Counter[tuple[str, str]]] = {}
    for audience, names in tagged:
        own = sorted(set(names))[:TAGS_PER_MEMORY]
        tags.setdefault(audience, Counter()).update(own)
        pairs.setdefault(audience, Counter()).update(combinations(own, 2))
    return TagTable(
        {audience: dict(counts) for audience, counts in tags.items()},
        {
            audience: {pair: n for pair, n in counts.most_common(PAIRS_KEPT) if n >= LEAST_TOGETHER}
            for audience, counts in pairs.items()
        },
    )


def table_from_json(stored: Json) -> TagTable:
    """Return the table of its JSON form; anything that is not one gives an empty table."""
    try:
        parts = {audience: record(part) for audience, part in record(stored).items()}
        return TagTable(
            {audience: {tag: whole(n) for tag, n in record(part["tags"]).items()} for audience, part in parts.items()},
            {
                audience: {(text(a), text(b)): whole(n) for a, b, n in map(items, items(part["pairs"]))}
                for audience, part in parts.items()
            },
        )
    except (KeyError, ValueError):
        return TagTable()


@dataclass(frozen=True, slots=True)
class _Index:
    """One audience's tags as they are asked for. spelled: a term -> tags with it, and all the terms each has."""

    counts: Mapping[str, int]
    near: Mapping[str, tuple[tuple[str, int], ...]]
    spelled: Mapping[str, tuple[tuple[str, frozenset[str]], ...]]


class TagNeighbours:
    """The table as searches ask it. Thread-safe: the job replaces it whole, readers keep the one they began with.

    load: returns the JSON form kept by the last run, asked once, when first needed.
    """

    def __init__(self, load: Callable[[], Json]) -> None:
        self._load = load
        self._loading = threading.Lock()
        self._indexes: Mapping[str, _Index] | None = None

    def replace(self, table: TagTable) -> None:
        """Answer from this table from now on; an empty one forgets every tag."""
        self._indexes = {audience: _indexed(table, audience) for audience in table.tags}

    def clear(self) -> None:
        """Forget every tag until the job counts them anew: what a purge asks for."""
        self.replace(TagTable())

    def wanted(self, question_terms: Iterable[str], audiences: Collection[str]) -> dict[str, float]:
        """Return tag -> how much a question wants it: 1 for a tag it names, else nearness to one, 0.1 to 1.

        A tag is named when all its terms are. audiences: those the
        reader holds (`model.audiences`); tags of other audiences are neither answered nor counted. At most
        `WANTED_MOST`, the most wanted first.
        """
        if self._indexes is None:
            with self._loading:
                if self._indexes is None:
                    self.replace(table_from_json(self._load()))
        indexes = self._indexes or {}
        readable = [indexes[audience] for audience in audiences if audience in indexes]
        if not readable:
            return {}
        named = _named(readable, question_terms)
        near = {tag: score for tag, score in _related(readable, named) if score >= RELATED_LEAST}
        ranked = sorted(near.items(), key=lambda item: (-item[1], item[0]))
        return {**dict.fromkeys(named, 1.0), **dict(ranked[: WANTED_MOST - len(named)])}


def _indexed(table: TagTable, audience: str) -> _Index:
    near: dict[str, list[tuple[str, int]]] = {}
    for (first, second), both in table.pairs.get(audience, {}).items():
        near.setdefault(first, []).append((second, both))
        near.setdefault(second, []).append((first, both))
    spelled: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for tag in table.tags[audience]:
        parts = frozenset(terms(tag))
        # `ci-cd` is meant by "ci cd" too: an identifier's parts name it.
        needed = frozenset(term for term in parts if not is_compound(term)) or parts
        for term in needed:
            spelled.setdefault(term, []).append((tag, needed))
    return _Index(
        table.tags[audience],
        {
            tag: tuple(sorted(others, key=lambda neighbour: (-neighbour[1], neighbour[0]))[:NEIGHBOURS_KEPT])
            for tag, others in near.items()
        },
        {term: tuple(tags) for term, tags in spelled.items()},
    )


def _named(indexes: Sequence[_Index], question_terms: Iterable[str]) -> tuple[str, ...]:
    """Return the tags whose terms all occur in the question, the most frequent first."""
    wanted = frozenset(islice(question_terms, QUESTION_TERMS))
    found: Counter[str] = Counter()
    for index in indexes:
        names = {tag for term in wanted for tag, needed in index.spelled.get(term, ()) if needed <= wanted}
        found.update({tag: index.counts[tag] for tag in names})
    return tuple(sorted(found, key=lambda tag: (-found[tag], tag))[:NAMED_MOST])


def _related(indexes: Sequence[_Index], named: Sequence[str]) -> Iterable[tuple[str, float]]:
    """Yield each tag that occurs with a named one, with its greatest nearness to any of them."""
    best: dict[str, float] = {}
    for tag in named:
        together: Counter[str] = Counter()
        for index in indexes:
            together.update(dict(index.near.get(tag, ())))
        alone = _carried(indexes, tag)
        for other, both in together.items():
            if other not in named:
                either = alone + _carried(indexes, other) - both
                best[other] = max(best.get(other, 0.0), both / either if either else 0.0)
    return best.items()


def _carried(indexes: Sequence[_Index], tag: str) -> int:
    return sum(index.counts.get(tag, 0) for index in indexes)


def affinity(tags: Iterable[Tag], wanted: Mapping[str, float]) -> float:
    """Return how well a memory's tags meet what a question wants, 0 to below 1; a tag counts by its weight.

    >>> round(affinity([Tag("nginx")], {"nginx": 1.0}), 2), affinity([Tag("nginx")], {"salary": 1.0})
    (0.63, 0.0)
    """
    return -math.expm1(-sum(tag.weight * wanted.get(tag.name, 0.0) for tag in tags))
