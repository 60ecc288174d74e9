"""Train the models of `recall/unprompted.py`, which memories a prompt needs, and print their scores.

    python scripts/train_moments.py [--cache FOLDER] [--into FILE] [--few N]

Training data: `scripts/data/unasked_train_*.txt` and `prompts_train.yaml` (our own). Whether a prompt needs any memory
is learned first, by cross-validation, so that its output, a feature of the second model, never comes from a model that
saw the prompt. Prints scores of five-fold cross-validation; a memory and its prompts are in the same fold. --few: only
so many memories and prompts of each kind, to see that it runs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from bench_recall import CachedEmbedder, Case, Turn, fill, ids_of, open_store
from evaluation.cases import bundled
from moments_data import Rule, read

from memory_anchor.domain.model import Actor
from memory_anchor.language.terms import is_chinese
from memory_anchor.recall import unprompted as moments
from memory_anchor.recall.centring import script_of
from memory_anchor.recall.unprompted import score_prompt
from memory_anchor.testing import ManualClock, make_searcher

PARTS = 5
DEPTH = 12
"""Memories of a prompt that are learned from, the nearest and those with most words."""
NEEDS_RIDGE, PAIR_RIDGE = 0.7, 2.0
SIZES = (12, 50)
NEEDS = 10
"""The figure that holds the log-odds of needing memory."""
LIMIT = 4
"""Memories that one prompt may bring up."""


@dataclass(frozen=True)
class Said:
    """A prompt. gold: the memory that decides it, "" for none. part: of the five, shared with its memory."""

    text: str
    gold: str
    part: int
    kind: str


@dataclass(frozen=True)
class Seen:
    said: Said
    store: str
    x: np.ndarray
    right: np.ndarray


def material(language: str, few: int | None) -> tuple[list[str], list[Said], list[Rule]]:
    rules, others, tasks = (part[:few] for part in read(language))
    rng = random.Random(3)
    said = []
    for rule in rules:
        part = rng.randrange(PARTS)
        said += [Said(text, rule.text, part, "decided") for text in rule.decides]
        said += [Said(text, "", part, "near miss") for text in rule.resembles]
    said += [Said(text, "", rng.randrange(PARTS), "other") for text in others]
    said += [Said(text, "", rng.randrange(PARTS), "task") for text in tasks]
    extra = [one.text for one in bundled().memories if is_chinese(one.text) == (language == "zh")]
    return extra, said, rules


def logistic(x: np.ndarray, y: np.ndarray, weight: np.ndarray, ridge: np.ndarray, rounds: int = 12) -> np.ndarray:
    found = np.zeros(x.shape[1])
    for _ in range(rounds):
        chance = 1 / (1 + np.exp(-np.clip(x @ found, -30, 30)))
        slope = x.T @ (weight * (chance - y)) + ridge * found
        bend = (x * (weight * chance * (1 - chance))[:, None]).T @ x + np.diag(ridge + 1e-6)
        found -= np.linalg.solve(bend, slope)
    return found


def needs_of(said: Sequence[Said], rows: np.ndarray, scripts: np.ndarray, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Return the prompts' means and the weights of what needs memory, learned from the chosen prompts."""
    means = np.stack([rows[chosen & (scripts == s) & _decided(said)].mean(axis=0) for s in (0, 1)])
    own = rows - means[scripts]
    own /= np.linalg.norm(own, axis=1, keepdims=True)
    x = np.concatenate([own, np.eye(2)[scripts]], axis=1)[chosen]
    y = _decided(said)[chosen].astype(float)
    ridge = np.full(x.shape[1], NEEDS_RIDGE)
    ridge[-2:] = 0.1
    weight = np.where(y > 0, 0.5 / y.mean(), 0.5 / (1 - y.mean()))
    found = logistic(x, y, weight, ridge)
    return {"prompts": means, "needs": found[:-2], "bias": found[-2:]}


def _decided(said: Sequence[Said]) -> np.ndarray:
    return np.array([one.kind in ("decided", "task") for one in said])


def seen_in(name: str, texts: Sequence[str], said: Sequence[Said], embedder: CachedEmbedder) -> list[Seen]:
    """Return the figures of each prompt over a store of these memories."""
    clock, kept = ManualClock(), []
    with tempfile.TemporaryDirectory() as folder:
        store = open_store("dict", folder, embedder)
        searcher = make_searcher(store, embedder, clock, cache_ttl_s=0)
        turns = tuple(Turn(str(number), text, None, "", "") for number, text in enumerate(texts))
        fill(store, searcher, Case(name, turns, ()), now=clock.now(), without="conversation")
        for one in said:
            found = score_prompt(searcher, Actor(), one.text)
            if found is None:
                continue
            scored, needs = found
            x = moments.features(scored.evidence, needs)
            order = np.argsort(-(x[:, 1] + 0.5 * x[:, 4]), kind="stable")[:DEPTH]
            ids = ids_of(turns, scored.mirror.points.texts(scored.rows[order]))
            kept.append(Seen(one, name, x[order], np.array([texts[int(known)] == one.gold for known in ids])))
        store.close()
    return kept


def fitted(seen: Sequence[Seen]) -> np.ndarray:
    x = np.concatenate([one.x for one in seen]).astype(float)
    y = np.concatenate([one.right for one in seen]).astype(float)
    weight = np.concatenate([np.full(len(one.right), 1.0 if one.right.any() else 0.6) for one in seen])
    spread = x.std(axis=0)
    spread[spread == 0] = 1
    ridge = np.full(x.shape[1], PAIR_RIDGE)
    ridge[0] = 0
    return logistic(x / spread, y, weight, ridge, 25) / spread


def tell(title: str, seen: Sequence[Seen], chances: Sequence[np.ndarray]) -> None:
    """Print how many deciding memories are told and how many lines other prompts get."""
    told: dict[str, list[float]] = {}
    for one, chance in zip(seen, chances, strict=True):
        bar = moments.bar_of(chance, float(one.x[0, NEEDS]))
        shown = [place for place in np.argsort(-chance, kind="stable")[:LIMIT] if chance[place] >= bar]
        if one.said.gold:
            told.setdefault("decided", []).append(float(any(one.right[place] for place in shown)))
        told.setdefault(f"lines {one.said.kind}", []).append(len(shown))
    line = "  ".join(f"{key} {np.mean(values):.2f} ({len(values)})" for key, values in sorted(told.items()))
    print(f"{title:12} {line}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "memory-anchor-rows")
    options.add_argument("--into", type=Path, default=moments.NUMBERS, help="default: the package's own")
    options.add_argument("--few", type=int)
    given = options.parse_args()
    embedder = CachedEmbedder(given.cache)
    every = {language: material(language, given.few) for language in ("en", "zh")}
    said = [one for _, own, _ in every.values() for one in own]
    rows = embedder.queries([one.text for one in said])
    scripts = np.array([script_of(one.text) for one in said])
    parts = np.array([one.part for one in said])
    model = np.array([moments._mark(embedder.identity)], dtype=np.uint32).view(np.float32)
    by_part = [needs_of(said, rows, scripts, parts != part) for part in range(PARTS)]
    whole = needs_of(said, rows, scripts, np.ones(len(said), dtype=bool))
    rng = random.Random(5)
    seen: list[Seen] = []
    for part, numbers in enumerate(by_part):
        # The figures of a part's prompts come from numbers that never saw them.
        moments._numbers = lambda numbers=numbers: {
            "model": model,
            **{k: v.astype("f4") for k, v in numbers.items()},
        }
        for language, (extra, own, rules) in every.items():
            asked = [one for one in own if one.part == part]
            memories = [*(rule.text for rule in rules), *extra]
            seen += seen_in(f"{language} whole", memories, asked, embedder)
            for size in SIZES:
                few = rng.sample(memories, size)
                here = set(few)
                cut = [
                    one if one.gold in here else replace(one, gold="", kind="elsewhere" if one.gold else one.kind)
                    for one in asked
                ]
                few_right = [one for one in cut if one.gold]
                rest = [one for one in cut if not one.gold]
                picked = [*few_right, *rng.sample(rest, min(len(rest), 30))]
                seen += seen_in(f"{language} {size}", few, picked, embedder)
    embedder.save()
    learned = [one for one in seen if one.said.kind != "task"]  # nobody said whether any memory decides these
    chances: list[np.ndarray] = []
    for part in range(PARTS):
        pair = fitted([one for one in learned if one.said.part != part])
        mine = [one for one in seen if one.said.part == part]
        chances += [1 / (1 + np.exp(-np.clip(one.x @ pair, -30, 30))) for one in mine]
    ordered = [one for part in range(PARTS) for one in seen if one.said.part == part]
    for language in every:
        chosen = [n for n, one in enumerate(ordered) if one.store == f"{language} whole"]
        tell(f"{language} whole", [ordered[n] for n in chosen], [chances[n] for n in chosen])
    chosen = [n for n, one in enumerate(ordered) if not one.store.endswith("whole")]
    tell("small stores", [ordered[n] for n in chosen], [chances[n] for n in chosen])
    pair = fitted(learned)
    print("pair", np.round(pair, 3))
    np.savez(
        given.into,
        model=model,
        prompts=whole["prompts"].astype(np.float16),
        needs=whole["needs"].astype(np.float16),
        bias=whole["bias"].astype(np.float32),
        pair=pair.astype(np.float32),
    )


if __name__ == "__main__":
    main()
