"""Measure searches by every kind of query, not only questions: statements, keywords, errors, commands.

    python scripts/bench_relevance.py [--reminding FILE ...] [--cache FOLDER] [--json FILE]

The bundled sets (`scripts/data/relevance_*.yaml`, our own) hold memories in Chinese and English and queries of six
kinds: question, statement, keyword, error, command, mixed; a query without gold has no answer in its store. Printed for
each set and kind: the share of the gold among the first five and ten, the share of it that is strong, and, where
nothing answers, the share of queries with a strong snippet. `--reminding` takes files of the shape
{memories: [{id, date, text}], queries: [{text, gold}]}, whose queries are what somebody just said.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench_recall import CachedEmbedder, Case, Turn, fill, open_store

from memory_anchor.domain.model import Actor
from memory_anchor.recall.relevance import max_weak
from memory_anchor.recall.search import SearchRequest
from memory_anchor.testing import ManualClock, make_searcher

DATA = Path(__file__).resolve().parent / "data"
LEARNED_AT = datetime(2025, 12, 1, tzinfo=UTC)
FIRST, DEPTH = 5, 10


@dataclass(frozen=True, slots=True)
class Asked:
    kind: str
    text: str
    gold: frozenset[str]


def bundled(path: Path) -> tuple[Case, list[Asked]]:
    """Return the store and the queries of one of our own sets. Raises ValueError: a query names no memory."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    turns = tuple(Turn(name, text, LEARNED_AT, "", "") for name, text in content["memories"].items())
    asked = [Asked(kind, text, frozenset(gold)) for kind, text, *gold in content["queries"]]
    if unknown := {name for one in asked for name in one.gold} - set(content["memories"]):
        raise ValueError(f"{path.name} has gold that is no memory: {sorted(unknown)}")
    return Case(path.stem, turns, ()), asked


def reminding(path: Path) -> tuple[Case, list[Asked]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    turns = tuple(
        Turn(one["id"], one["text"], datetime.fromisoformat(one["date"]).replace(tzinfo=UTC), "", "")
        for one in content["memories"]
    )
    known = {turn.id for turn in turns}
    asked = [Asked("reminding", one["text"], frozenset(one["gold"]) & known) for one in content["queries"]]
    return Case(path.stem, turns, ()), [one for one in asked if one.gold]


def measured(case: Case, asked: list[Asked], embedder: CachedEmbedder) -> dict[str, dict[str, float]]:
    """Return per kind the recall among the first five and ten, and the shares of empty and of unwanted answers."""
    clock = ManualClock()
    rows: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store("dict", folder, embedder)
        searcher = make_searcher(store, embedder, clock, cache_ttl_s=0)
        fill(store, searcher, case, now=clock.now(), without="conversation")
        for query in asked:
            gold = query.gold
            answer = searcher.search(Actor(), SearchRequest(query.text, limit=DEPTH, weak=max_weak(DEPTH)))
            found = [snippet.id for snippet in answer.snippets]
            row: dict[str, float]
            if gold:
                row = {f"R@{k}": len(gold & set(found[:k])) / len(gold) for k in (FIRST, DEPTH)}
                row["strong"] = sum(one.id in gold and not one.weak for one in answer.snippets) / len(gold)
            else:
                row = {"strong though nothing answers": float(any(not one.weak for one in answer.snippets))}
            for kind in (query.kind, "all"):
                rows[kind].append(row)
        store.close()
    figures: dict[str, dict[str, float]] = {}
    for kind, kept in rows.items():
        names = dict.fromkeys(name for row in kept for name in row)
        figures[kind] = {
            name: round(100 * float(np.mean([row[name] for row in kept if name in row])), 1) for name in names
        }
        figures[kind]["queries"] = len(kept)
    return figures


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--reminding", type=Path, nargs="*", default=[])
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    embedder = CachedEmbedder(chosen.cache)
    sets = [bundled(path) for path in sorted(DATA.glob("relevance_*.yaml"))] + [reminding(p) for p in chosen.reminding]
    figures: dict[str, Any] = {}
    for case, asked in sets:
        figures[case.name] = measured(case, asked, embedder)
        for kind, row in figures[case.name].items():
            print(case.name, kind, row, flush=True)
        embedder.save()
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
