"""Measure how often a question that the store does not answer gets an unmarked line, and how often one that it does.

    python scripts/bench_sure.py [--cache FOLDER] [--misses | --lens]

Questions and what they are about: `scripts/data/sure.yaml`, over stores of 20, 200 and 2,000 memories in either
language; the rest of a store is what other sets of ours hold. Half a: its misses are printed (`--misses`); half b is
only scored. Printed for each size and half: the share of unanswered questions with an unmarked line, by kind, and of
answered ones how often the right line is first, among the first five, and unmarked. --lens: instead how often it is
first and among the first five under a topic, for each share of it in the query (`retrieval.lens`).
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from bench_recall import CachedEmbedder, Case, Turn, fill, open_store
from bench_relevance import DATA, LEARNED_AT

from memory_anchor.domain.model import Actor
from memory_anchor.recall.ranking import SearchOptions
from memory_anchor.recall.search import Searcher, SearchRequest
from memory_anchor.testing import ManualClock, make_searcher

SIZES = (20, 200, 2_000)
LIMIT = 5
ANSWERS = re.compile(
    r"(?i)\blogs\b.*kept|keep logs|Redis|日志.*保留|tokens? (is valid|expire)|migration.*review|review.*migration"
    r"|index.*rebuilt|索引每晚|负责数据库迁移|^[=+]|>>"
)
"""What would answer one of the questions, or states nothing."""


def others() -> Iterator[str]:
    """Yield statements of the other sets, each once."""
    for name in ("unasked_train_en.txt", "unasked_train_zh.txt"):
        for line in (DATA / name).read_text().splitlines():
            yield [*line.split("|"), ""][1].strip()
    for part in yaml.safe_load((DATA / "prompts_train.yaml").read_text()).values():
        yield from (text for _, text, _ in part["decides"])
    for part in yaml.safe_load((DATA / "brief.yaml").read_text()).values():
        yield from (text for task in part for _, text in task["memories"])
    for name in ("writer_train", "writer_near", "writer_pairs", "writer_crossed", "writer_moved"):
        for line in (DATA / f"{name}.tsv").read_text().splitlines():
            yield from line.split("\t")[2:4] if not line.startswith("#") else ()


@contextmanager
def asking(
    texts: Mapping[str, str], embedder: CachedEmbedder, options: SearchOptions | None = None
) -> Iterator[Searcher]:
    """Give a searcher over a store of these memories."""
    clock, turns = ManualClock(), tuple(Turn(name, text, LEARNED_AT, "", "") for name, text in texts.items())
    with tempfile.TemporaryDirectory() as folder, closing(open_store("dict", folder, embedder)) as store:
        searcher = make_searcher(store, embedder, clock, options, cache_ttl_s=0)
        fill(store, searcher, Case("", turns, ()), now=clock.now(), without="conversation")
        yield searcher


def filled(part: Mapping[str, Any], rest: Sequence[str], size: int) -> dict[str, str]:
    """Return the memories of a store of this size, those of a language first."""
    texts = dict(list(part["memories"].items())[:size])
    return texts | {f"rest{number}": text for number, text in enumerate(rest[: size - len(texts)])}


def under_topics(part: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield kind, topic, question and the right memory."""
    about = {gold: topic for topic, _, gold in part["vague"]}
    topics = list(about.values())
    yield from (("leaves it out", *one) for one in part["vague"])
    for number, (text, gold) in enumerate(part["answered"]):
        if gold in about:
            yield "says all", about[gold], text, gold
        if (other := topics[(7 * number + 3) % len(topics)]) != about.get(gold):
            yield "another topic", other, text, gold


def lens(embedder: CachedEmbedder, rest: Sequence[str], sets: Mapping[str, Any]) -> None:
    for share in (0.0, 0.1, 0.2, 0.3):
        found: dict[str, list[tuple[bool, bool]]] = {}
        for (language, part), size in product(sets.items(), SIZES[1:]):
            with asking(filled(part, rest, size), embedder, SearchOptions(lens=share)) as searcher:
                for kind, topic, text, gold in under_topics(part):
                    ids = [one.id for one in searcher.search(Actor(), SearchRequest(text, topic=topic)).snippets]
                    found.setdefault(f"{kind}, {language}", []).append((ids[:1] == [gold], gold in ids[:LIMIT]))
            embedder.save()
        print(
            share, {kind: (*map(sum, zip(*each, strict=True)), len(each)) for kind, each in found.items()}, flush=True
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--misses", action="store_true")
    options.add_argument("--lens", action="store_true")
    chosen = options.parse_args()
    embedder, sets = CachedEmbedder(chosen.cache), yaml.safe_load((DATA / "sure.yaml").read_text())
    rest = [text for text in dict.fromkeys(others()) if len(text) > 8 and not ANSWERS.search(text)]
    if chosen.lens:
        lens(embedder, rest, sets)
        return
    rows: list[dict[str, Any]] = []
    for (language, part), size in product(sets.items(), SIZES):
        texts = filled(part, rest, size)
        asked = [("answered", text, gold) for text, gold in part["answered"] if gold in texts]
        asked += [(kind, text, "") for kind, text in part["unanswered"]]
        with asking(texts, embedder) as searcher:
            for number, (kind, text, gold) in enumerate(asked):
                found = searcher.search(Actor(), SearchRequest(text, limit=LIMIT)).snippets
                half, sure = "ab"[number % 2], [one for one in found if not one.weak]
                right = [place for place, one in enumerate(found) if one.id == gold]
                row = {"size": size, "language": language, "half": half, "kind": kind, "sure": bool(sure)}
                row |= {"first": right[:1] == [0], "found": bool(right), "marked": gold not in {x.id for x in sure}}
                row |= {"best": max((one.relevance or 0 for one in found), default=0.0)}
                rows.append(row)
                if chosen.misses and half == "a" and (bool(sure) if not gold else row["marked"]):
                    print(size, kind, text, [(round(one.relevance or 0, 2), texts[one.id]) for one in found[:2]])
        embedder.save()
    for size in SIZES:
        for half in "ab":
            mine = [row for row in rows if (row["size"], row["half"]) == (size, half)]
            without = [row for row in mine if row["kind"] != "answered"]
            kinds = {kind: [row["sure"] for row in mine if row["kind"] == kind] for kind in ("near", "kind", "far")}
            shares = {kind: f"{100 * np.mean(values):.0f}" for kind, values in kinds.items()}
            told = [row for row in mine if row["kind"] == "answered"]
            figures = {name: f"{100 * np.mean([row[name] for row in told]):.0f}" for name in ("first", "found")}
            unmarked = 100 - 100 * np.mean([row["marked"] for row in told])
            false = 100 * np.mean([row["sure"] for row in without])
            print(size, half, f"unmarked though nothing answers {false:.1f} %")
            print("   ", shares, "answered:", figures, f"unmarked {unmarked:.0f}", len(without), len(told), flush=True)


if __name__ == "__main__":
    main()
