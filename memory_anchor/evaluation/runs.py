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
from typing import Any

from memory_anchor.files import make_private, read_bounded, write_whole

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


def keep(folder: Path, kind: str, figures: Mapping[str, Any], *, at: datetime) -> Path:
    """Keep one run, and only the newest `RUNS_KEPT` of its kind. Raises our errors: it cannot be written."""
    make_private(folder)
    path = folder / f"run-{kind}-{at:%Y%m%dT%H%M%S%f}.json"
    write_whole(path, json.dumps(figures, ensure_ascii=False).encode())
    for old in _of(folder, kind)[:-RUNS_KEPT]:
        old.unlink(missing_ok=True)
    return path


def last(folder: Path, kind: str) -> dict[str, Any] | None:
    """Return the newest run of this kind; None where there is none that can be read."""
    for path in reversed(_of(folder, kind)):
        try:
            found = json.loads(read_bounded(path, most_bytes=RUN_BYTES_MAX) or b"")
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and {"overall", "results", "ms"} <= found.keys():
            return found
    return None


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changed: metrics that moved, questions lost and found, times, tokens, and settings that differ.

    A question is told by its id; only those in both runs count as lost or found.
    """
    was = {result["id"]: result for result in before["results"]}
    both = [(was[result["id"]], result) for result in after["results"] if result["id"] in was]
    moved = {
        name: round(after["overall"][name] - before["overall"][name], 4)
        for name in COMPARED
        if name in after["overall"] and name in before["overall"]
    }
    return {
        "since": before.get("at"),
        "metrics": {name: change for name, change in moved.items() if change},
        "lost": [_change(old, new) for old, new in both if old["found"] and not new["found"]],
        "found": [_change(old, new) for old, new in both if new["found"] and not old["found"]],
        "moved": [
            _change(old, new) for old, new in both if old["found"] == new["found"] and old["rank"] != new["rank"]
        ],
        "new_questions": len(after["results"]) - len(both),
        "gone_questions": len(before["results"]) - len(both),
        "ms_p50": round(after["ms"]["p50"] - before["ms"]["p50"], 2),
        "ms_p95": round(after["ms"]["p95"] - before["ms"]["p95"], 2),
        "answer_tokens": round(after["answer_tokens"]["mean"] - before["answer_tokens"]["mean"], 1),
        "settings": _differences(before.get("settings", {}), after.get("settings", {})),
    }


def changed_settings(settings: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings that are not at their default, by dotted name; nothing secret."""
    told: dict[str, Any] = {}
    for name, value in settings.items():
        usual = defaults.get(name)
        if any(part in name for part in ("key", "token")):
            continue
        if isinstance(value, Mapping) and isinstance(usual, Mapping):
            told |= changed_settings(value, usual, f"{prefix}{name}.")
        elif value != usual:
            told[f"{prefix}{name}"] = value
    return told


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": new["id"], "query": new["query"], "was": old["rank"], "is": new["rank"]}


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    names = sorted({*before, *after})
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def _of(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"run-{kind}-*.json")) if folder.is_dir() else []
