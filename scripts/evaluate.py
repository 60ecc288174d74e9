"""Measure recall and capture on bundled questions and sessions, documents, and public data sets, as JSON.

    python scripts/evaluate.py                                 the bundled year, the own week, what happens repeatedly
    python scripts/evaluate.py knowledge | capture             passages of docs/ | what is kept of the bundled sessions
    python scripts/evaluate.py locomo FILE [--stores 2]        a LoCoMo file (or `longmemeval FILE`)
    python scripts/evaluate.py week --variant "as set" --variant retrieval.priors=false
    python scripts/evaluate.py week --against before.json      an earlier output: what was lost and found since

Settings are those of this machine and folder, changed by `--variant` (as in `memory-anchor eval`). Rows of the bundled
embedder are kept in --cache, so a second run embeds nothing again. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench_recall import CachedEmbedder
from evaluation import cases, runner
from evaluation.cases import Case

from memory_anchor.extensions.evaluation.golden import Variant, as_set, variant
from memory_anchor.extensions.evaluation.metrics import changed_settings, compared
from memory_anchor.process.app import embedder_of
from memory_anchor.runtime.wire import data_dir
from memory_anchor.settings import Settings

DOCS = Path(__file__).resolve().parents[1] / "docs"
OWN: dict[str, Callable[[], Iterable[Case]]] = {
    "bundled": lambda: [cases.bundled()],
    "week": lambda: [cases.week()],
    "newest": lambda: [cases.repeated(times) for times in cases.TOLD],
}
FILES = {"locomo": cases.locomo, "longmemeval": cases.longmemeval}


def say(line: str) -> None:
    print(f"· {line}", file=sys.stderr)


def measured(kind: str, chosen: Variant, embedder: Any, files: dict[str, Callable[[], Iterable[Case]]]) -> list[Any]:
    """Return the runs of one kind under one variant."""
    say(f"{kind} ({chosen.name})")
    if kind == "knowledge":
        return runner.run_knowledge(DOCS, chosen.settings, embedder)
    if kind == "capture":
        return [{"kind": kind, **runner.run_capture(runner.sessions(), chosen.settings, embedder, say=say)}]
    settings = changed_settings(chosen.settings.model_dump(mode="json"), Settings().model_dump(mode="json"))
    run = {**OWN, **files}[kind]()
    return [{"kind": kind, "settings": settings, **runner.run(run, chosen.settings, embedder, say=say)}]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", nargs="?", choices=(*OWN, "knowledge", "capture", *FILES))
    options.add_argument("file", nargs="?", type=Path)
    options.add_argument("--stores", type=int)
    options.add_argument("--variant", action="append")
    options.add_argument("--against", type=Path)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    chosen = options.parse_args()
    if chosen.kind in FILES and chosen.file is None:
        options.error(f"{chosen.kind} needs its FILE")
    files = {kind: partial(load, chosen.file, stores=chosen.stores) for kind, load in FILES.items()}
    variants = [variant(text, os.environ) for text in chosen.variant] if chosen.variant else [as_set(os.environ)]
    rows = CachedEmbedder(chosen.cache)
    runs: list[Any] = []
    for kind in [chosen.kind] if chosen.kind else OWN:
        for way in variants:
            embedder: Any = embedder_of(way.settings, Path(data_dir(os.environ)))
            if embedder is not None and embedder.identity == rows.identity:
                embedder = rows
            runs += [{"variant": way.name, **run} for run in measured(kind, way, embedder, files)]
            rows.save()
    if chosen.against:
        before = {run["kind"]: run for run in json.loads(chosen.against.read_text(encoding="utf-8"))["runs"]}
        for run in runs:
            if "results" in run and run["kind"] in before:
                run["compared"] = compared(before[run["kind"]], run)
    print(json.dumps({"runs": runs}, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
