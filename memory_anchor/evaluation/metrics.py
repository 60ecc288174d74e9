"""The figures of an evaluation: how they are computed, stored, and compared with the last ones.

Metrics are arithmetic on ids: `ranked` is what came back, best first; `gold` what was wanted, at least one id. A
question that nothing answers has no gold and is counted separately. nDCG: Jarvelin and Kekalainen, 2002, with binary
gain; MRR is over the whole list.

Embeddings of memories are kept in a file, so that a second evaluation embeds only its questions, whose embedding is
part of the measured time. A row's key is a hash of the text; no text is written. An unreadable file is rebuilt.

Runs are kept by kind, which names what was asked (the bundled questions, the golden ones, one file of one content). A
comparison with the last run of the kind lists the questions lost and found: means hide that one answer was traded for
another.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.json_values import Json, Record, number, parsed, record, records, text
from memory_anchor.files import make_private, read_bounded, write_atomic

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

Z = 1.96
"""Standard deviations of a 95 % interval."""
DEPTHS = (1, 5, 10)
NDCG_DEPTH = 10


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


def mean(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric over rows with the same names; {} of no rows."""
    values = list(rows)
    return {name: sum(row[name] for row in values) / len(values) for name in values[0]} if values else {}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed (nearest rank); 0 for none.

    >>> percentile([4, 1, 3, 2], 0.5), percentile([4, 1, 3, 2], 0.95)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def pooled_tokens(counts: Sequence[int]) -> dict[str, float]:
    """Return mean and 95th percentile of token counts."""
    return {"mean": round(sum(counts) / len(counts), 1) if counts else 0.0, "p95": percentile(counts, 0.95)}


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


ROWS_MAX = 50_000
"""80 MB at 384 dimensions; beyond it further rows are not kept."""


class CachedRows:
    """An embedder that keeps its rows of documents in a file; `save` writes it."""

    def __init__(self, inner: Embedder, folder: Path) -> None:
        self._inner = inner
        self.identity = inner.identity
        self._file = folder / f"rows-{stable_hash(inner.identity.model, str(inner.identity.dimensions))[:16]}.npz"
        self._rows: dict[str, Matrix] = self._read()
        self._saved = len(self._rows)

    def available(self) -> bool:
        return self._inner.available()

    def queries(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, embedded each time."""
        return self._inner.queries(texts)

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Return one row a text, from the file where it is known."""
        if not texts:
            return self._inner.documents(texts)
        keys = [stable_hash(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        fresh = dict(zip(missing, self._inner.documents(list(missing.values())), strict=True)) if missing else {}
        rows = np.stack([fresh[key] if key in fresh else self._rows[key] for key in keys])
        self._rows.update(list(fresh.items())[: max(0, ROWS_MAX - len(self._rows))])
        return rows

    def save(self) -> None:
        """Write the file if there are new rows. Raises our errors: it cannot be written."""
        if len(self._rows) == self._saved:
            return
        archive = io.BytesIO()
        np.savez(archive, keys=np.array(list(self._rows)), rows=np.stack(list(self._rows.values())))
        make_private(self._file.parent)
        write_atomic(self._file, archive.getvalue())
        self._saved = len(self._rows)

    def _read(self) -> dict[str, Matrix]:
        try:
            with np.load(self._file) as stored:
                return dict(zip(stored["keys"].tolist(), stored["rows"], strict=True))
        except (OSError, ValueError, KeyError, BadZipFile):
            return {}


RUNS_KEPT = 20
"""Runs of one kind; older ones are removed."""
RUN_BYTES_MAX = 64 << 20
COMPARED = ("R@1", "R@5", "R@10", "any@5", "all@10", "MRR", "nDCG@10")
READ_BYTES = 1 << 20


def folder_of(data_dir: Path) -> Path:
    """Return where evaluations keep their runs, rows and golden questions."""
    return data_dir / "evaluations"


def kind_of_file(name: str, path: Path) -> str:
    """Return the kind of a data set: its name and a hash of the file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return f"{name}-{digest.hexdigest()[:12]}"


def keep(folder: Path, kind: str, figures: Mapping[str, Json], *, at: datetime) -> Path:
    """Keep one run, and only the newest `RUNS_KEPT` of its kind. Raises our errors: it cannot be written."""
    make_private(folder)
    path = folder / f"run-{kind}-{at:%Y%m%dT%H%M%S%f}.json"
    write_atomic(path, json.dumps(figures, ensure_ascii=False).encode())
    for old in _of(folder, kind)[:-RUNS_KEPT]:
        old.unlink(missing_ok=True)
    return path


def last(folder: Path, kind: str) -> Record | None:
    """Return the newest run of this kind; None where there is none that can be read."""
    for path in reversed(_of(folder, kind)):
        try:
            run = record(parsed(read_bounded(path, most_bytes=RUN_BYTES_MAX) or b""))
        except (OSError, ValueError):
            continue
        if {"overall", "results", "ms"} <= run.keys():
            return run
    return None


def compared(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return what changed: metrics, questions lost and found (of those in both runs), times, tokens, settings."""
    old_results, results = records(before["results"]), records(after["results"])
    old = {text(result["id"]): result for result in old_results}
    both = [(old[name], result) for result in results if (name := text(result["id"])) in old]
    overall, old_overall = record(after["overall"]), record(before["overall"])
    moved = {
        name: _difference(overall, old_overall, name, 4) for name in COMPARED if name in overall and name in old_overall
    }
    ms, old_ms = record(after["ms"]), record(before["ms"])
    tokens, old_tokens = record(after["answer_tokens"]), record(before["answer_tokens"])
    return {
        "since": before.get("at"),
        "metrics": {name: change for name, change in moved.items() if change},
        "lost": [_change(old, new) for old, new in both if old["found"] and not new["found"]],
        "found": [_change(old, new) for old, new in both if new["found"] and not old["found"]],
        "moved": [
            _change(old, new) for old, new in both if old["found"] == new["found"] and old["rank"] != new["rank"]
        ],
        "new_questions": len(results) - len(both),
        "gone_questions": len(old_results) - len(both),
        "ms_p50": _difference(ms, old_ms, "p50", 2),
        "ms_p95": _difference(ms, old_ms, "p95", 2),
        "answer_tokens": _difference(tokens, old_tokens, "mean", 1),
        "settings": _differences(record(before.get("settings")), record(after.get("settings"))),
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


def _change(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, Json]:
    return {"id": new["id"], "query": new["query"], "was": old["rank"], "is": new["rank"]}


def _differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, list[Json]]:
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def _of(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"run-{kind}-*.json")) if folder.is_dir() else []
