"""What is kept of an evaluation: its figures, and the rows of the memories it embedded.

An embedder whose rows of memories are kept in a file, so that a second evaluation embeds only its questions.

Questions are never kept: their embedding is part of the time that is measured. A row is found again by the model's
name and a hash of the text; no text is written. A file that cannot be read is simply made anew.

Runs that were kept, and what changed since the last one of the same kind.

A kind names what was asked (the bundled questions, the golden ones, one file of one content), so only like is compared
with like. A comparison says which questions were lost and found, question by question: means hide that one answer was
traded for another.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from memory_anchor.files import make_private, read_bounded, write_whole
from memory_anchor.hashing import stable_hash
from memory_anchor.json_values import Json, Record, number, parsed, record, records, text

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

ROWS_MAX = 50_000
"""80 MB at 384 dimensions; beyond it further rows are not kept."""


class KeptRows:
    """One file for one model. `save` writes what is new."""

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
        """Write the file if there is something new. Raises our errors: it cannot be written."""
        if len(self._rows) == self._saved:
            return
        packed = io.BytesIO()
        np.savez(packed, keys=np.array(list(self._rows)), rows=np.stack(list(self._rows.values())))
        make_private(self._file.parent)
        write_whole(self._file, packed.getvalue())
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
    write_whole(path, json.dumps(figures, ensure_ascii=False).encode())
    for old in _of(folder, kind)[:-RUNS_KEPT]:
        old.unlink(missing_ok=True)
    return path


def last(folder: Path, kind: str) -> Record | None:
    """Return the newest run of this kind; None where there is none that can be read."""
    for path in reversed(_of(folder, kind)):
        try:
            found = record(parsed(read_bounded(path, most_bytes=RUN_BYTES_MAX) or b""))
        except (OSError, ValueError):
            continue
        if {"overall", "results", "ms"} <= found.keys():
            return found
    return None


def compared(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, Json]:
    """Return what changed: metrics that moved, questions lost and found, times, tokens, and settings that differ.

    A question is told by its id; only those in both runs count as lost or found.
    """
    old_results, results = records(before["results"]), records(after["results"])
    was = {text(result["id"]): result for result in old_results}
    both = [(was[name], result) for result in results if (name := text(result["id"])) in was]
    now, then = record(after["overall"]), record(before["overall"])
    moved = {name: _grown(now, then, name, 4) for name in COMPARED if name in now and name in then}
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
        "ms_p50": _grown(ms, old_ms, "p50", 2),
        "ms_p95": _grown(ms, old_ms, "p95", 2),
        "answer_tokens": _grown(tokens, old_tokens, "mean", 1),
        "settings": _differences(record(before.get("settings")), record(after.get("settings"))),
    }


def _grown(after: Record, before: Record, name: str, digits: int) -> float:
    return round(number(after[name]) - number(before[name]), digits)


def changed_settings(settings: Mapping[str, Json], defaults: Mapping[str, Json], prefix: str = "") -> dict[str, Json]:
    """Return the settings that are not at their default, by dotted name; nothing secret."""
    told: dict[str, Json] = {}
    for name, value in settings.items():
        usual = defaults.get(name)
        if any(part in name for part in ("key", "token")):
            continue
        if isinstance(value, Mapping) and isinstance(usual, Mapping):
            told |= changed_settings(value, usual, f"{prefix}{name}.")
        elif value != usual:
            told[f"{prefix}{name}"] = value
    return told


def _change(old: Mapping[str, Json], new: Mapping[str, Json]) -> dict[str, Json]:
    return {"id": new["id"], "query": new["query"], "was": old["rank"], "is": new["rank"]}


def _differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, list[Json]]:
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def _of(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"run-{kind}-*.json")) if folder.is_dir() else []
