"""Train the model of `recall/fixes.py`, which stored fix solves a failed command, and print its scores.

    python scripts/train_failures.py [--cache FOLDER]

Training data: `scripts/data/failures_train.yaml` (our own; none of its tools is in `failures.yaml`, the test). Each
failure is asked over stores of all fixes and of some, alone and among the bundled memories, also without its own fix,
so that nothing solves it. Prints scores of five-fold cross-validation.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from bench_recall import CachedEmbedder
from bench_unasked import save
from evaluation.cases import bundled
from train_moments import logistic

from memory_anchor.domain.model import Actor, Caller, MemoryType, Scope
from memory_anchor.language.terms import terms
from memory_anchor.recall import fixes
from memory_anchor.testing import ephemeral_core

DATA = Path(__file__).resolve().parent / "data" / "failures_train.yaml"
PARTS, ROUNDS = 5, 6
SIZES = (60, 45, 45, 30, 20, 10, 4)
RIDGE = 1.0
LEARNED = (MemoryType.BUGFIX, MemoryType.DISCOVERY, MemoryType.WORKFLOW, MemoryType.INSTRUCTION)
"""Types that the numbers are learned from; bundled memories of these may mend what is asked, and are left out."""
SAID_BY = 3
"""Failures whose output says a word, from which it counts as common."""


@dataclass(frozen=True)
class Seen:
    """One failure over one store. right: which candidate mends it; holds: whether the store has its fix."""

    part: int
    x: np.ndarray
    right: np.ndarray
    holds: bool


def seen_in(pairs: list[tuple[int, list[str]]], asked: list[tuple[int, str, str, str]], embedder: CachedEmbedder, *,
            others: bool) -> list[Seen]:  # fmt: skip
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        core = ephemeral_core(Path(folder), embedder=embedder)
        actor = Actor(Caller.AGENT, Scope(project="p", agent="bench", conversation="first"))
        anchor = core.anchor(actor)
        for one in bundled().memories if others else ():
            if one.type not in LEARNED:
                save(anchor, one.type.value, one.text)
        stored = {save(anchor, "bugfix", text): text for _, (text, _, _) in pairs}
        while core.services.searcher.index.embed_pending(64):
            pass
        for part, fix, command, output in asked:
            failure = fixes.Failure.of(command, f"Exit code 1\n{output}")
            found = fixes.candidates(core.services.searcher, anchor.actor, failure, LEARNED)
            if found:
                right = np.array([stored.get(one.memory.id) == fix for one in found])
                kept.append(Seen(part, fixes.features(found), right, fix in stored.values()))
        core.close()
    return kept


def fitted(seen: list[Seen]) -> np.ndarray:
    x = np.concatenate([one.x for one in seen]).astype(float)
    y = np.concatenate([one.right for one in seen]).astype(float)
    spread = x.std(axis=0)
    spread[spread == 0] = 1
    ridge = np.full(x.shape[1], RIDGE)
    ridge[0] = 0
    return logistic(x / spread, y, np.ones(len(y)), ridge, 25) / spread


def tell(title: str, seen: list[Seen], chances: list[np.ndarray]) -> None:
    right = [
        any(one.right[at] for at in fixes.likely_places(c)) for one, c in zip(seen, chances, strict=True) if one.holds
    ]
    wrong = [len(fixes.likely_places(c)) > 0 for one, c in zip(seen, chances, strict=True) if not one.holds]
    print(f"{title}: right {np.mean(right):.2f} of {len(right)}, in vain {np.mean(wrong):.2f} of {len(wrong)}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    embedder = CachedEmbedder(options.parse_args().cache)
    content, rng = yaml.safe_load(DATA.read_text(encoding="utf-8")), random.Random(7)
    pairs = [(rng.randrange(PARTS), pair) for pair in content["pairs"]]
    asked = [(part, *pair) for part, pair in pairs]
    asked += [(rng.randrange(PARTS), "", *pair) for pair in content["others"]]
    told = Counter(term for _, _, _, output in asked for term in set(terms(output)))
    many = {term: round(float(np.log((len(asked) + 1) / (n + 0.5))), 2) for term, n in told.items() if n >= SAID_BY}
    fixes.common = lambda: many
    seen: list[Seen] = []
    for size in SIZES:
        for others in (True, False):
            seen += seen_in(rng.sample(pairs, size), asked, embedder, others=others)
    embedder.save()
    chances, ordered = list[np.ndarray](), list[Seen]()
    for part in range(PARTS):
        numbers = fitted([one for one in seen if one.part != part])
        mine = [one for one in seen if one.part == part]
        ordered += mine
        chances += [1 / (1 + np.exp(-np.clip(one.x @ numbers, -30, 30))) for one in mine]
    for bar in (0.2, 0.3, 0.4, 0.5):
        fixes.BAR = bar
        tell(f"at {bar}", ordered, chances)
    stored = {"words": fitted(seen).round(4).tolist(), "common": dict(sorted(many.items()))}
    print(stored["words"])
    fixes.NUMBERS.write_text(json.dumps(stored) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
