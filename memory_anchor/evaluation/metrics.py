"""Retrieval metrics as arithmetic on ids: recall, any and all hit, reciprocal rank, nDCG, percentiles.

`ranked` is what came back, best first; `gold` what was wanted, at least one id. A question that nothing answers has no
gold: there the one right answer is nothing at all, so it counts apart (`quiet`) and never in the means.
Source of nDCG: Jarvelin and Kekalainen, 2002, with binary gain; MRR over the whole list that came back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

Z = 1.96
"""Standard deviations of a 95 % interval."""
DEPTHS = (1, 5, 10)
NDCG_DEPTH = 10


def of_one(ranked: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Return every metric of one question, each 0 to 1: R@k, any@k, all@k for k in 1, 5, 10; MRR; nDCG@10.

    Raises ValueError: no gold.

    >>> of_one(["b", "a"], {"a"})["MRR"], of_one(["b", "a"], {"a", "c"})["R@5"]
    (0.5, 0.5)
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("a question without gold has no recall; see `quiet`")
    row: dict[str, float] = {}
    for depth in DEPTHS:
        hits = len(wanted.intersection(ranked[:depth]))
        row[f"R@{depth}"] = hits / len(wanted)
        row[f"any@{depth}"] = float(hits > 0)
        row[f"all@{depth}"] = float(hits == len(wanted))
    row["MRR"] = next((1 / place for place, found in enumerate(ranked, 1) if found in wanted), 0.0)
    row[f"nDCG@{NDCG_DEPTH}"] = ndcg(ranked, wanted)
    return row


def ndcg(ranked: Sequence[str], gold: Collection[str], *, depth: int = NDCG_DEPTH) -> float:
    """Return binary nDCG of the first `depth`, 0 to 1; an id that came twice gains once.

    >>> round(ndcg(["x", "a"], {"a"}), 4)
    0.6309
    """
    first = {found: place for place, found in reversed(list(enumerate(ranked[:depth])))}
    gained = sum(1 / math.log2(place + 2) for found, place in first.items() if found in gold)
    best = sum(1 / math.log2(place + 2) for place in range(min(len(gold), depth)))
    return gained / best


def mean(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over rows with the same names; {} of no rows."""
    known = list(rows)
    return {name: sum(row[name] for row in known) / len(known) for name in known[0]} if known else {}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed (nearest rank); 0 of none.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.95)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def pooled_tokens(counts: Sequence[int]) -> dict[str, float]:
    """Return mean and 95th percentile of token counts."""
    return {
        "mean": round(sum(counts) / len(counts), 1) if counts else 0.0,
        "p95": percentile(counts, 0.95),
    }


def share_interval(hits: int, tries: int) -> tuple[float, float, float]:
    """Return the share with its 95 % interval (Wilson), 0 to 1; (0, 0, 1) of no tries.

    >>> [round(one, 3) for one in share_interval(8, 10)]
    [0.8, 0.49, 0.943]
    """
    if not tries:
        return 0.0, 0.0, 1.0
    share, spread = hits / tries, Z * Z / tries
    middle = (share + spread / 2) / (1 + spread)
    half = Z * math.sqrt((share * (1 - share) + spread / 4) / tries) / (1 + spread)
    return share, max(0.0, middle - half), min(1.0, middle + half)


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median with a 95 % interval that asks nothing of how the values lie (order statistics); 0s of none.

    Of fewer than six values the interval is all of them, which holds the median less often.

    >>> median_interval([5, 1, 4, 2, 3, 6, 7, 8, 9, 10])
    (5, 2, 9)
    """
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return 0.0, 0.0, 0.0
    half = Z * math.sqrt(count) / 2
    low, high = round(count / 2 - half) - 1, round(count / 2 + half)
    return percentile(ordered, 0.5), ordered[max(0, low)], ordered[min(count - 1, high)]


def paired_interval(won: int, lost: int, both: int) -> tuple[float, float, float]:
    """Return by how much of the questions another way is better, with its 95 % interval (paired, Agresti and Min).

    won: questions that only the other way answers. lost: that only the first one does. both: all questions.

    >>> [round(one, 3) for one in paired_interval(6, 1, 50)]
    [0.1, -0.007, 0.2]
    """
    if not both:
        return 0.0, -1.0, 1.0
    more, fewer, count = won + 0.5, lost + 0.5, both + 2
    middle = (more - fewer) / count
    half = Z * math.sqrt(more + fewer - (more - fewer) ** 2 / count) / count
    return (won - lost) / both, middle - half, middle + half
