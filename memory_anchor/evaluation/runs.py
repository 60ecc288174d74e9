"""Runs that were kept, and what changed since the last one of the same kind.

A kind names what was asked (the bundled questions, the golden ones, one file of one content), so only like is compared
with like. A comparison says which questions were lost and found, question by question: means hide that one answer was
traded for another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from memory_anchor.files import make_private, read_bounded, write_whole
from memory_anchor.json_values import Json, Record, number, parsed, record, records, text

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
