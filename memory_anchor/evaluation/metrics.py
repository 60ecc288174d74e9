"""Retrieval metrics as arithmetic on ids: recall, any and all hit, reciprocal rank, nDCG, percentiles.

`ranked` is what came back, best first; `gold` what was wanted, at least one id. A question that nothing answers has no
gold: there the one right answer is nothing at all, so it counts apart (`quiet`) and never in the means.
Source of nDCG: Jarvelin and Kekalainen, 2002, with binary gain; MRR over the whole list that came back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

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
