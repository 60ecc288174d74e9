"""Measure whether the newest of its kind comes first: `extensions/evaluation/data/recency.yaml` over other memories.

    python scripts/bench_recency.py [--cache FOLDER] [--others 70] [--part train|test]

Each series is told 3 and 10 times, three days apart, all series in one store beside memories of the bundled case.
Printed: how often the newest (or the oldest, where that is asked for) stands first, by part, language and count.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

from bench_recall import CachedEmbedder, Case, Turn, fill, open_store
from evaluation import cases as questions

from memory_anchor.domain.model import Actor
from memory_anchor.recall.search import SearchRequest
from memory_anchor.testing import ManualClock, make_searcher

VERSIONS = (3, 10)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--others", type=int, default=70)
    options.add_argument("--part", choices=("train", "test"))
    chosen = options.parse_args()
    embedder, clock = CachedEmbedder(chosen.cache), ManualClock(questions.bundled().now)
    others = random.Random(3).sample(questions.bundled().memories, chosen.others)
    hits: dict[str, list[bool]] = defaultdict(list)
    for versions in VERSIONS:
        for one in questions.series():
            if chosen.part and one.part != chosen.part:
                continue
            told = one.memories(versions, before=clock.now())
            turns = [Turn(m.name, m.text, m.on, "", "") for m in (*others, *told)]
            turns = random.Random(one.id).sample(turns, len(turns))
            with tempfile.TemporaryDirectory() as folder:
                store = open_store("dict", folder, embedder)
                searcher = make_searcher(store, embedder, clock, cache_ttl_s=0)
                fill(
                    store,
                    searcher,
                    Case(one.id, tuple(turns), ()),
                    now=clock.now() - timedelta(1),
                    without="conversation",
                )
                for end, ask in one.ask:
                    gold = told[-1 if end == "newest" else 0].name
                    found = searcher.search(Actor(), SearchRequest(ask)).snippets
                    right = bool(found) and found[0].id == gold
                    for key in ("all", one.part, one.language, f"{versions} versions", end):
                        hits[key].append(right)
                    hits["strong when right"].append(right and not found[0].weak)
                    if not right:
                        print("  missed", versions, ask, "->", [one.text for one in found[:2]])
                store.close()
    embedder.save()
    for key, kept in hits.items():
        print(f"{key:20} {100 * sum(kept) / len(kept):5.1f} of {len(kept)}")


if __name__ == "__main__":
    main()
