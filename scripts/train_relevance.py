"""Train the models of `recall/relevance.py`, how likely a snippet is right, and print their scores.

    python scripts/train_relevance.py [--reminding FILE_ZH FILE_EN] [--cache FOLDER] [--check] [--into FILE] [--few N]

Training data: `scripts/data/relevance_train.yaml`, `prompts_train.yaml` and the bundled evaluation (all our own), and,
if given, the two files of MADial-Bench (MIT), in which somebody just says something. Each store is used whole, cut to a
few memories, and combined with the others, and is asked its own queries and those of the others, which nothing in it
answers. `relevance_test.yaml` is only scored, first, by a model that saw neither its queries nor its memories.
--check: for each source, train on all others and print the scores on it. --few: only so many memories and queries of
each, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml
from bench_recall import CachedEmbedder, Case, Turn, fill, ids_of, open_store
from bench_relevance import DATA, LEARNED_AT, Asked, bundled, reminding
from evaluation import cases as questions

from memory_anchor.domain.model import Actor
from memory_anchor.language.terms import is_chinese
from memory_anchor.recall import relevance
from memory_anchor.recall.relevance import STRONG
from memory_anchor.recall.search import SearchRequest
from memory_anchor.recall.search_context import period_of
from memory_anchor.testing import ManualClock, make_searcher

PROMPTS = DATA / "prompts_train.yaml"
DEPTH = 12
"""Candidates of a query that are learned from, in the order of the answer."""
FOREIGN = 40
"""Queries of each other source that a store is asked."""
SIZES = (2, 6, 20)
"""Stores cut to so many memories, beside the whole one."""
RIDGE = 3.0
ROUNDS = 30
RIGHT_SHARE = 0.45
"""Of the weight, what lies on queries that something in the store answers."""
CURVE = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.01)


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    turns: tuple[Turn, ...]
    asked: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """One query over one store: its figures in the order of the answer, which candidates are right, and its kind."""

    store: str
    source: str
    kind: str
    chinese: bool
    across: bool
    both: np.ndarray
    words: np.ndarray
    right: np.ndarray

    @property
    def answerable(self) -> bool:
        return bool(self.right.any())


def sources(given: Sequence[Path]) -> list[Source]:
    made = [
        Source(case.name, case.turns, tuple(asked)) for case, asked in map(bundled, sorted(DATA.glob("relevance_*")))
    ]
    own = questions.bundled()
    turns = tuple(Turn(one.name, one.text, one.on, "", "") for one in own.memories)
    known = {turn.id for turn in turns}
    asked = tuple(
        Asked("question", one.text, one.gold & known) for one in own.questions if one.gold & known or not one.gold
    )
    made.append(Source("bundled", turns, asked))
    for language, part in yaml.safe_load(PROMPTS.read_text(encoding="utf-8")).items():
        pairs = list(enumerate(part["decides"]))
        turns = tuple(Turn(f"{language}{n}", text, LEARNED_AT, "", "") for n, (_, text, _) in pairs)
        asked = [Asked("prompt", prompt, frozenset((f"{language}{n}",))) for n, (*_, prompt) in pairs]
        asked += [Asked("prompt", prompt, frozenset()) for prompt in part["others"]]
        made.append(Source(f"prompts {language}", turns, tuple(asked)))
    if given:
        read = {path.stem: reminding(path) for path in given}
        for name, (_, said) in read.items():
            for other, (stored, _) in read.items():
                ids = {turn.id for turn in stored.turns}
                kept = tuple(Asked(one.kind, one.text, one.gold & ids) for one in said if one.gold & ids)
                made.append(Source(f"{name} over {other}", stored.turns, kept))
        made.append(halves(read))
    return made


def halves(read: dict[str, tuple[Case, list[Asked]]]) -> Source:
    """Return a store of which every other memory is in the other language, asked in both: who reads both has such."""
    ids = sorted({turn.id for case, _ in read.values() for turn in case.turns})
    names = sorted(read)
    chosen = {one: names[place % len(names)] for place, one in enumerate(ids)}
    turns = tuple(turn for name in names for turn in read[name][0].turns if chosen[turn.id] == name)
    held = {turn.id for turn in turns}
    asked = tuple(replace(one, gold=one.gold & held) for name in names for one in read[name][1] if one.gold & held)
    return Source("reminding_both", turns, asked)


def judged(
    source: Source, turns: Sequence[Turn], asked: Sequence[tuple[str, Asked]], embedder: CachedEmbedder
) -> Iterator[Judged]:
    """Yield what each query gives over a store of these turns. asked: source name, query."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        store = open_store("dict", folder, embedder)
        searcher = make_searcher(store, embedder, clock, cache_ttl_s=0)
        fill(store, searcher, Case(source.name, tuple(turns), ()), now=clock.now(), without="conversation")
        by_id = {turn.id: turn for turn in turns}
        for name, one in asked:
            request, now = SearchRequest(one.text), clock.now()
            inquiry = searcher.prepare(Actor(), request, now, {}, period_of(Actor(), request, now))
            scored, _ = searcher.scores(inquiry)
            if scored is None:
                continue
            order = np.argsort(-scored.total, kind="stable")[:DEPTH]
            ids = ids_of(turns, scored.mirror.points.texts(scored.rows[order]))
            both, words = relevance.features(scored.evidence)
            gold = one.gold if name == source.name else frozenset()
            chinese = is_chinese(one.text)
            across = any(is_chinese(by_id[found].text) != chinese for found in gold & set(ids))
            right = np.asarray([found in gold for found in ids])
            yield Judged(source.name, name, one.kind, chinese, across, both[order], words[order], right)
        store.close()


def every(made: Sequence[Source], embedder: CachedEmbedder) -> list[Judged]:
    rng, kept = random.Random(5), list[Judged]()
    for source in made:
        own = [(source.name, one) for one in source.asked]
        foreign = []
        for other in made:
            if _family(other) != _family(source):
                pool = [(other.name, one) for one in other.asked if one.gold or one.kind == "prompt"]
                foreign += rng.sample(pool, min(FOREIGN, len(pool)))
        kept += judged(source, source.turns, own + foreign, embedder)
        for size in SIZES:
            few = rng.sample(source.turns, min(size, len(source.turns)))
            ids = {turn.id for turn in few}
            cut = [(source.name, Asked(one.kind, one.text, one.gold & ids)) for one in source.asked]
            kept += judged(
                source, few, rng.sample(cut, min(80, len(cut))) + rng.sample(foreign, min(30, len(foreign))), embedder
            )
        embedder.save()
    return kept


def _family(source: Source) -> str:
    return source.name.split("_")[0] if "reminding" in source.name else source.name


def fitted(rows: Sequence[Judged], name: str) -> np.ndarray:
    """Return the weights: a ridge logistic, each query counting once, kinds alike, by Newton's steps."""
    x = np.concatenate([getattr(one, name) for one in rows]).astype(np.float64)
    y = np.concatenate([one.right for one in rows]).astype(np.float64)
    groups: dict[tuple[str, bool], int] = {}
    for one in rows:
        key = (one.kind, one.answerable)
        groups[key] = groups.get(key, 0) + 1
    kinds = {True: sum(found for _, found in groups), False: sum(not found for _, found in groups)}
    share = {True: RIGHT_SHARE, False: 1 - RIGHT_SHARE}
    each = [
        len(rows) * share[one.answerable] / kinds[one.answerable] / groups[one.kind, one.answerable] for one in rows
    ]
    weight = np.concatenate([np.full(len(one.right), value) for one, value in zip(rows, each, strict=True)])
    spread = x.std(axis=0)
    spread[spread == 0] = 1
    x /= spread
    found = np.zeros(x.shape[1])
    penalty = np.full(x.shape[1], RIDGE)
    penalty[0] = 0
    for _ in range(ROUNDS):
        chance = 1 / (1 + np.exp(-x @ found))
        slope = x.T @ (weight * (chance - y)) + penalty * found
        bend = (x * (weight * chance * (1 - chance))[:, None]).T @ x + np.diag(penalty + 1e-6)
        found -= np.linalg.solve(bend, slope)
    return np.asarray(found / spread)


def chances(rows: Sequence[Judged], weights: np.ndarray, name: str) -> list[np.ndarray]:
    return [1 / (1 + np.exp(-(getattr(one, name) @ weights))) for one in rows]


def told(title: str, rows: Sequence[Judged], weights: np.ndarray, name: str = "both") -> None:
    """Print recall with strong ones alone and with three weak ones, false strong answers, and the curve."""
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(rows):
        language = "zh" if one.chinese else "en"
        for key in ("all", one.kind, language, *(["across"] if one.across else [])):
            groups.setdefault(key, []).append(place)
    probable = chances(rows, weights, name)
    for key, places in groups.items():
        hits, first, wrong, counts = [], [], [], []
        for place in places:
            one, chance = rows[place], probable[place]
            strong = chance >= STRONG
            if one.answerable:
                hits.append(one.right[strong].sum() / one.right.sum())
                order = np.argsort(~strong, kind="stable")[: int(strong.sum()) + 3][:5]
                first.append(one.right[order].sum() / one.right.sum())
                counts.append(strong.sum())
            else:
                wrong.append(float(strong.any()))
        print(
            f"  {title:24} {key:10} answerable {len(hits):4}: strong recall {_mean(hits):5.1f}, first five "
            f"{_mean(first):5.1f}, strong ones {_mean(counts) / 100:4.1f}; not {len(wrong):4}: "
            f"with a strong one {_mean(wrong):5.1f}"
        )
    flat, right = np.concatenate(probable), np.concatenate([one.right for one in rows])
    bins = [(low, high, (flat >= low) & (flat < high)) for low, high in pairwise(CURVE)]
    print(
        "  curve",
        [
            (round(float(flat[i].mean()), 2), round(float(right[i].mean()), 2), int(i.sum()))
            for *_, i in bins
            if i.any()
        ],
    )


def _mean(values: Sequence[float]) -> float:
    return 100 * float(np.mean(values)) if values else float("nan")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--reminding", type=Path, nargs="*", default=[])
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--check", action="store_true")
    options.add_argument("--into", type=Path, default=relevance.NUMBERS, help="default: the package's own")
    options.add_argument("--few", type=int)
    chosen = options.parse_args()
    made = [
        replace(one, turns=one.turns[: chosen.few], asked=one.asked[: chosen.few]) for one in sources(chosen.reminding)
    ]
    rows = every(made, CachedEmbedder(chosen.cache))
    learned = [one for one in rows if "relevance_test" not in (one.store, one.source)]
    held = [one for one in rows if one.store == "relevance_test"]
    stored = {}
    for name in ("both", "words"):
        weights = fitted(learned, name)
        stored[name] = [round(float(value), 4) for value in weights]
        print(name, stored[name])
        told("relevance_test", held, weights, name)
    if chosen.check:
        for family in dict.fromkeys(_family(one) for one in made):
            inside = [one for one in rows if one.store.startswith(family)]
            rest = [one for one in rows if not one.store.startswith(family) and not one.source.startswith(family)]
            told(f"without {family}", inside, fitted(rest, "both"))
    figures = {"about": "scripts/train_relevance.py; docs/retrieval.md has what they scored", **stored}
    chosen.into.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
