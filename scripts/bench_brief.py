"""Measure the brief for a conversation's first prompt: the share of its lines about the task, and its size.

    python scripts/bench_brief.py [--cache FOLDER] [--lines]

One store for each language: what `scripts/data/brief.yaml` says of its 15 subjects among the bundled memories of
`memory-anchor eval`. Each task comes in a conversation of its own. A line is about the task when its memory was written
for its subject.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml
from bench_recall import CachedEmbedder
from bench_unasked import bundled_store, prompted, save

from memory_anchor.hooks.hooks import Hooks
from memory_anchor.language.tokens import count_tokens

DATA = Path(__file__).resolve().parent / "data" / "brief.yaml"
LINE = re.compile(r"^- \[[^\]\n]*, (\w+)\] .*$", re.MULTILINE)


def measured(tasks: list[dict[str, Any]], embedder: CachedEmbedder, *, lines: bool) -> dict[str, float]:
    with bundled_store(embedder) as (core, actor, project):
        anchor = core.anchor(actor)
        own = [[save(anchor, kind, text) for kind, text in one["memories"]] for one in tasks]
        while core.services.searcher.index.embed_pending(64):
            pass
        right = told = found = 0
        sizes = []
        for number, one in enumerate(tasks):
            text = prompted(core, Hooks(), actor, project, f"t{number}", one["task"])
            ids = LINE.findall(text)
            told += len(ids)
            right += sum(name in own[number] for name in ids)
            found += len(set(ids) & set(own[number]))
            sizes.append(count_tokens(text))
            if lines:
                print(f"\n{one['task']}\n{text}")
    return {
        "lines_about_the_task": round(100 * right / max(told, 1), 1),
        "of_what_is_known_told": round(100 * found / sum(map(len, own)), 1),
        "lines_a_brief": round(told / len(tasks), 1),
        "tokens": round(sum(sizes) / len(sizes)),
        "most_tokens": max(sizes),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--lines", action="store_true", help="print every brief")
    chosen = options.parse_args()
    embedder = CachedEmbedder(chosen.cache)
    for language, tasks in yaml.safe_load(DATA.read_text(encoding="utf-8")).items():
        print(language, measured(tasks, embedder, lines=chosen.lines), flush=True)
        embedder.save()


if __name__ == "__main__":
    main()
