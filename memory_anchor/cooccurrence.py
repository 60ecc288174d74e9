"""Which tags occur together: a small table that lets a search for one tag's theme find its neighbours'. Pure.

Counted by audience, so that nobody learns another's tags, and rebuilt whole by a job; a table that is lost is empty
until then. Nearness of two tags is their Jaccard index over memories (shared / either), which neither rare nor
everywhere tags dominate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

TAGS_PER_MEMORY = 16
PAIRS_KEPT = 5_000
"""Pairs an audience keeps, the most frequent first."""
LEAST_TOGETHER = 2
"""One memory with two tags is no pattern."""
RELATED_LEAST = 0.1


@dataclass(frozen=True, slots=True)
class TagTable:
    """audience -> tag -> memories that carry it, and audience -> (tag, tag) in order -> memories that carry both."""

    tags: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    pairs: Mapping[str, Mapping[tuple[str, str], int]] = field(default_factory=dict)

    def related(self, tags: Sequence[str], audiences: Iterable[str], *, limit: int = 5) -> list[tuple[str, float]]:
        """Return tags that occur with these for a reader of these audiences, with nearness 0 to 1, nearest first."""
        together: Counter[tuple[str, str]] = Counter()
        alone: Counter[str] = Counter()
        for audience in audiences:
            together.update(self.pairs.get(audience, {}))
            alone.update(self.tags.get(audience, {}))
        asked, near = set(tags), dict[str, float]()
        for (one, other), both in together.items():
            if (one in asked) == (other in asked):
                continue
            found = other if one in asked else one
            either = alone[one] + alone[other] - both
            near[found] = max(near.get(found, 0.0), both / either if either else 0.0)
        ranked = sorted(near.items(), key=lambda item: (-item[1], item[0]))
        return [(tag, score) for tag, score in ranked if score >= RELATED_LEAST][:limit]

    def as_json(self) -> dict[str, Any]:
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


def table_from_json(stored: Any) -> TagTable:
    """Return the table of its JSON form; anything that is not one gives an empty table."""
    try:
        return TagTable(
            {audience: dict(part["tags"]) for audience, part in stored.items()},
            {audience: {(a, b): int(n) for a, b, n in part["pairs"]} for audience, part in stored.items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return TagTable()
