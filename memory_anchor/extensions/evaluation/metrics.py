"""The figures of an evaluation: how they are computed, and how two ways are compared.

Metrics are arithmetic on ids: `ranked` is what came back, best first; `gold` what was wanted, at least one id. A
question that nothing answers has no gold and is counted separately. nDCG: Jarvelin and Kekalainen, 2002, with binary
gain; MRR is over the whole list. A comparison lists the questions lost and found: means hide that one answer was traded
for another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memory_anchor.base.json_values import Json, Record, number, record, records, text

Z = 1.96
"""Standard deviations of a 95 % interval."""
DEPTHS = (1, 5, 10)
NDCG_DEPTH = 10
SHOWN = 5
"""The default limit of `search_memory`: within which a question counts as found."""


def question_metrics(ranked: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Return every metric of one question, each 0 to 1: R@k, any@k, all@k for k in 1, 5, 10; MRR; nDCG@10.

    Raises ValueError: no gold.

    >>> question_metrics(["b", "a"], {"a"})["MRR"], question_metrics(["b", "a"], {"a", "c"})["R@5"]
    (0.5, 0.5)
    """
    expected = set(gold)
    if not expected:
        raise ValueError("a question without gold has no recall")
    row: dict[str, float] = {}
    for depth in DEPTHS:
        hits = len(expected.intersection(ranked[:depth]))
        row[f"R@{depth}"] = hits / len(expected)
        row[f"any@{depth}"] = float(hits > 0)
        row[f"all@{depth}"] = float(hits == len(expected))
    row["MRR"] = next((1 / rank for rank, name in enumerate(ranked, 1) if name in expected), 0.0)
    row[f"nDCG@{NDCG_DEPTH}"] = ndcg(ranked, expected)
    return row


def ndcg(ranked: Sequence[str], gold: Collection[str]) -> float:
    """Return binary nDCG of the first `NDCG_DEPTH`, 0 to 1; an id that comes twice counts once.

    >>> round(ndcg(["x", "a"], {"a"}), 4)
    0.6309
    """
    first = {name: at for at, name in reversed(list(enumerate(ranked[:NDCG_DEPTH])))}
    gained = sum(1 / math.log2(at + 2) for name, at in first.items() if name in gold)
    best = sum(1 / math.log2(at + 2) for at in range(min(len(gold), NDCG_DEPTH)))
    return gained / best


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed (nearest rank); 0 for none.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.95)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def share_interval(hits: int, tries: int) -> tuple[float, float, float]:
    """Return the share with its 95 % interval (Wilson), 0 to 1; (0, 0, 1) for no tries.

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
    """Return the median with its distribution-free 95 % interval (order statistics); zeros for no values.

    For fewer than six values the interval is all of them, which covers the median less often.

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
    """Return by which share of the questions another way is better, with its 95 % interval (paired, Agresti and Min).

    won: questions that only the other way answers. lost: only the first. both: all questions.

    >>> [round(one, 3) for one in paired_interval(6, 1, 50)]
    [0.1, -0.007, 0.2]
    """
    if not both:
        return 0.0, -1.0, 1.0
    more, fewer, count = won + 0.5, lost + 0.5, both + 2
    middle = (more - fewer) / count
    half = Z * math.sqrt(more + fewer - (more - fewer) ** 2 / count) / count
    return (won - lost) / both, middle - half, middle + half


@dataclass(frozen=True, slots=True)
class Answered:
    """gold: ids of all that answer it, empty when nothing does. ranked: ids, best first. tokens: of what a tool
    answers; beyond: those that are not the memories' own text."""

    id: str
    query: str
    gold: frozenset[str]
    ranked: tuple[str, ...]
    ms: float
    tokens: int = 0
    beyond: int = 0

    @property
    def rank(self) -> int | None:
        """Rank of the first wanted memory, from 1; None where none came."""
        return next((rank for rank, name in enumerate(self.ranked, 1) if name in self.gold), None)

    @property
    def found(self) -> bool:
        """Whether the default answer has one of the wanted memories, or is empty where there are none."""
        return not self.ranked if not self.gold else (self.rank or SHOWN + 1) <= SHOWN


def figures(answers: Sequence[Answered]) -> dict[str, Json]:
    """Return mean metrics, times and tokens with their intervals, and the rank of each question."""
    without = [answer for answer in answers if not answer.gold]
    times, tokens = [answer.ms for answer in answers], [answer.tokens for answer in answers]
    found = share_interval(sum(answer.found for answer in answers), len(answers))
    return {
        "questions": len(answers),
        "overall": mean_metrics(answers),
        "unanswerable": {"questions": len(without), "empty": sum(answer.found for answer in without)},
        "ms": {"p50": round(percentile(times, 0.5), 2), "p95": round(percentile(times, 0.95), 2)},
        "intervals": {
            "found": [round(share, 4) for share in found],
            "ms": [round(ms, 2) for ms in median_interval(times)],
            "tokens": [round(count, 1) for count in median_interval(tokens)],
        },
        "answer_tokens": _pooled(tokens),
        "answer_tokens_beyond_text": _pooled([answer.beyond for answer in answers]),
        "results": [
            {"id": answer.id, "query": answer.query, "rank": answer.rank, "found": answer.found} for answer in answers
        ],
    }


def mean_metrics(answers: Sequence[Answered]) -> dict[str, float]:
    """Return the mean of each metric over the questions that have an answer; {} where none has one."""
    rows = [question_metrics(answer.ranked, answer.gold) for answer in answers if answer.gold]
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in rows[0]} if rows else {}


def _pooled(counts: Sequence[int]) -> dict[str, float]:
    return {"mean": round(sum(counts) / len(counts), 1) if counts else 0.0, "p95": percentile(counts, 0.95)}


COMPARED = ("R@1", "R@5", "R@10", "any@5", "all@10", "MRR", "nDCG@10")


def compared(before: Record, after: Record) -> dict[str, Json]:
    """Return what changed: metrics, questions lost and found (of those in both), times and tokens."""
    old = {text(result["id"]): result for result in records(before["results"])}
    both = [(old[name], result) for result in records(after["results"]) if (name := text(result["id"])) in old]
    overall, old_overall = record(after["overall"]), record(before["overall"])
    moved = {name: _difference(overall, old_overall, name, 4) for name in COMPARED} if overall and old_overall else {}
    return {
        "metrics": {name: change for name, change in moved.items() if change},
        "lost": [_change(old, new) for old, new in both if old["found"] and not new["found"]],
        "found": [_change(old, new) for old, new in both if new["found"] and not old["found"]],
        "ms_p50": _difference(record(after["ms"]), record(before["ms"]), "p50", 2),
        "answer_tokens": _difference(record(after["answer_tokens"]), record(before["answer_tokens"]), "mean", 1),
    }


def _difference(after: Record, before: Record, name: str, digits: int) -> float:
    return round(number(after[name]) - number(before[name]), digits)


def changed_settings(settings: Mapping[str, Json], defaults: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return the settings that are not at their default, by dotted name, without secrets."""
    changed: dict[str, Json] = {}
    for name, value in settings.items():
        default = defaults.get(name)
        if any(part in name for part in ("key", "token")):
            continue
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            changed |= changed_settings(value, default, f"{prefix}{name}.")
        elif value != default:
            changed[f"{prefix}{name}"] = value
    return changed


def _change(old: Record, new: Record) -> dict[str, Json]:
    return {"id": new["id"], "query": new["query"], "was": old["rank"], "is": new["rank"]}
