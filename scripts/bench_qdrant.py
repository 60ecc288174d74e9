"""Measure a Qdrant server as the index: filling, searching, memory, disk, recall, with and without quantisation.

.venv/bin/python scripts/bench_qdrant.py --binary QDRANT [--points 1000000] [--tenants 1000] [--queries 200]
    [--quantization none scalar binary] [--threads 2] [--keep DIR [--filled]]

Starts the given binary (it builds none) on loopback and fills it through the index port, as the engine does: texts
from templates, words by our tokeniser, and vectors made of the templates' real rows with seeded noise, as
`scripts/bench` does. Half of the memories are one tenant's, the others are spread over the rest. A search is what one
costs in the index: nearest by meaning and matching by words, filtered by the reader's audience, alone and both together
as an engine asks for a layer; beside it stands the embedding of a question alone. Recall is against an exact scan of
the same questions: the share of its first ten. requests: HTTP requests of one search of both kinds. foreign: hits, all
of which an engine would read, that are not the tenant's.
`--quantization` without a name only fills; `--filled` goes on with the server's folder that a run with `--keep` left.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from memory_anchor.adapters.payload import to_payload
from memory_anchor.adapters.qdrant_index import QdrantIndex
from memory_anchor.adapters.qdrant_layout import Layout
from memory_anchor.adapters.qdrant_link import Access
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, audiences, point_id
from memory_anchor.domain.ports import DENSE, Hit, SparseVector, VectorQuery, WholePoint
from memory_anchor.domain.where import OneOf, Where
from memory_anchor.extensions.evaluation.metrics import percentile
from memory_anchor.language.indexing import searched_words
from memory_anchor.process.app import make_embedder

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from qdrant_nodes import Node  # noqa: E402

KINDS = ("meaning", "words", "both", "exact_scan")
FACTS, BATCH, TOP, SEED = "verified_fact", 500, 10, 7
WORDS_KEPT = 4_000
"""Texts of which the words are counted; the rest takes theirs, since counting them is our time and not the server's."""
GREEN_S = 3_600.0


def bench_of_texts() -> Any:
    """Return `scripts/bench`, which has the texts."""
    loader = SourceFileLoader("bench_texts", str(HERE / "bench"))
    spec = spec_from_loader("bench_texts", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


class Bench:
    def __init__(self, options: argparse.Namespace, node: Node) -> None:
        self.options, self.node, self.texts = options, node, bench_of_texts()
        self.embedder = make_embedder("auto")
        assert self.embedder is not None
        self.noise, self.chance = np.random.default_rng(SEED), random.Random(SEED)
        self.bases = self.embedder.documents([self.texts.filled(one, self.chance) for one in self.texts.TEMPLATES])
        self.sent, send = 0, httpx.Client.send

        def counted(client: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
            self.sent += 1
            return send(client, request, **more)

        httpx.Client.send = counted  # type: ignore[method-assign]
        self.store = self._opened("none")
        self.ready = self._words()

    def _opened(self, quantization: str, *, exact: bool = False) -> QdrantIndex:
        access = Access((self.node.url,), timeout_s=120)
        layout = Layout(quantization=quantization, exact=exact)  # type: ignore[arg-type]
        index = QdrantIndex("bench", access, layout, owner="bench")
        index.begin({FACTS: {DENSE: self.embedder.identity}}, anew=False)
        return index

    def _words(self) -> list[Any]:
        now = datetime.now(UTC)
        made = [self._memory(number, now) for number in range(min(WORDS_KEPT, self.options.points))]
        return [searched_words(one) for one in made]

    def _tenant(self, number: int) -> str:
        return "t0" if number % 2 else f"t{1 + (number // 2) % max(1, self.options.tenants - 1)}"

    def _memory(self, number: int, now: datetime) -> Memory:
        text = self.texts.filled(self.texts.TEMPLATES[number % len(self.texts.TEMPLATES)], self.chance)
        scope = Scope(self._tenant(number), "p1", "me", "bench")
        return Memory(
            f"m{number}",
            text,
            Layer.VERIFIED_FACT,
            MemoryType.FACT,
            scope,
            now,
            now,
            content_hash=f"{number:x}",
        )

    def fill(self) -> dict[str, Any]:
        began, now = time.monotonic(), datetime.now(UTC)
        ours, theirs = time.process_time(), self.node.cpu_s()

        def batches() -> Any:
            for start in range(0, self.options.points, BATCH):
                many = min(BATCH, self.options.points - start)
                rows = self.bases[np.arange(start, start + many) % len(self.bases)]
                drawn = self.noise.standard_normal((many, rows.shape[1]), dtype=np.float32)
                rows = rows + self.texts.NOISE * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
                rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
                yield [
                    whole(self._memory(start + at, now), rows[at], self.ready[(start + at) % len(self.ready)])
                    for at in range(many)
                ]

        with ThreadPoolExecutor(self.options.threads) as pool:
            waiting: list[Any] = []
            for batch in batches():
                waiting.append(pool.submit(self.store.apply, FACTS, batch))
                if len(waiting) > 2 * self.options.threads:
                    waiting.pop(0).result()
            for one in waiting:
                one.result()
        took = time.monotonic() - began
        print(f"filled in {took:.0f} s", file=sys.stderr)
        each = 1000 / self.options.points
        return {
            "cpu_ms_a_point": {
                "client": round(each * (time.process_time() - ours), 2),
                "server": round(each * (self.node.cpu_s() - theirs), 2),
            },
            "points": self.options.points,
            "seconds": round(took),
            "points_a_second": round(self.options.points / took),
        }

    def settle(self) -> float:
        """Return after how many seconds the server has nothing left to build."""
        began = time.monotonic()
        green = 0
        while green < 5:
            told = self.node.ask(f"/collections/{FACTS}")
            green = green + 1 if told["status"] == "green" and told["optimizer_status"] == "ok" else 0
            if time.monotonic() - began > GREEN_S:
                raise TimeoutError("the server builds for too long")
            time.sleep(1)
        return round(time.monotonic() - began - 5, 1)

    def searched(self, quantization: str) -> dict[str, Any]:
        exact = self._opened(quantization, exact=True)
        store = self._opened(quantization)  # last: the graph is made for it
        time.sleep(3)
        built = self.settle()
        told: dict[str, Any] = {"built_after_s": built}
        questions = [self._question() for _ in range(self.options.queries)]
        for name, tenant in (("large_tenant", "t0"), ("small_tenant", "t5")):
            scope = Scope(tenant, "p1", "me", "bench")
            where = Where(
                (
                    OneOf("audience", tuple(sorted(audiences(scope)))),
                    OneOf("state", ("active", "disputed")),
                )
            )
            told[name] = {"server_cpu_ms": self._cpu(store, exact, questions, where)}
            own = {point_id(f"m{number}", 1) for number in range(self.options.points) if self._tenant(number) == tenant}
            times: dict[str, list[float]] = {kind: [] for kind in KINDS}
            recall, foreign, sent = [], 0, self.sent
            for number, question in enumerate(questions):
                found = {}
                for kind in KINDS:
                    began = time.perf_counter()
                    found[kind] = asked(kind, store, exact, *question, where)
                    if number >= 5:  # the first ones open connections and read pages
                        times[kind].append(1000 * (time.perf_counter() - began))
                near, meant = ({hit.point_id for hit in found[kind][0]} for kind in ("meaning", "exact_scan"))
                recall.append(len(near & meant) / max(1, len(meant)))
                foreign += sum(hit.point_id not in own for hits in found.values() for one in hits for hit in one)
            told[name] |= {
                "memories": len(own),
                "requests": (self.sent - sent) / len(questions) / len(KINDS),
                "foreign": foreign,
                "recall_at_10": round(sum(recall) / len(recall), 4),
                **{f"{kind}_ms": spread(values) for kind, values in times.items()},
            }
        told |= {"memory_mib": self.node.memory_mib(), "disk_mib": self.node.disk_mib()}
        info = self.node.ask(f"/collections/{FACTS}")
        told |= {
            "segments": info["segments_count"],
            "indexed_vectors": info["indexed_vectors_count"],
        }
        store.close()
        exact.close()
        return told

    def _cpu(self, store: QdrantIndex, exact: QdrantIndex, questions: list[Any], where: Where) -> dict[str, float]:
        """Return what one search of each kind costs the server, without what it does in the background."""
        told = {}
        for kind in KINDS:
            began = self.node.cpu_s()
            for row, words in questions:
                asked(kind, store, exact, row, words, where)
            told[kind] = round(1000 * (self.node.cpu_s() - began) / len(questions), 2)
        return told

    def _question(self) -> tuple[Any, Any]:
        drawn = self.noise.standard_normal(self.bases.shape[1], dtype=np.float32)
        row = self.bases[self.chance.randrange(len(self.bases))] + self.texts.NOISE * drawn / np.linalg.norm(drawn)
        return (row / np.linalg.norm(row)).astype(np.float32), self.chance.choice(self.ready)

    def embedding(self) -> dict[str, float]:
        """Return what the embedding of a question costs by itself."""
        times, cpu = [], time.process_time()
        for number in range(40):
            text = self.texts.filled(self.chance.choice(self.texts.QUESTIONS), self.chance)
            began = time.perf_counter()
            self.embedder.queries([text])
            if number >= 5:
                times.append(1000 * (time.perf_counter() - began))
        return spread(times) | {"cpu": round(1000 * (time.process_time() - cpu) / 40, 1)}


def asked(
    kind: str, store: QdrantIndex, exact: QdrantIndex, row: Any, words: SparseVector, where: Where
) -> list[list[Hit]]:
    """Ask the index once for what a kind of search wants."""
    queries = {"words": [VectorQuery(words, TOP)], "both": [VectorQuery(row, TOP), VectorQuery(words, TOP)]}
    index = exact if kind == "exact_scan" else store
    return index.query_batch(FACTS, queries.get(kind, [VectorQuery(row, TOP)]), where)


def whole(memory: Memory, row: Any, words: SparseVector) -> WholePoint:
    """Return a memory as the database gives it to an index."""
    weights = np.array(list(zip(words.indices, words.values, strict=True)), [("term", "<u4"), ("weight", "<f4")])
    names = json.dumps({DENSE: len(row)})
    payload = json.dumps(to_payload(memory), ensure_ascii=False)
    return WholePoint(0, 0, memory.point_id, payload, names, row.astype("<f4").tobytes(), weights.tobytes())


def spread(values: list[float]) -> dict[str, float]:
    return {
        "p50": round(percentile(values, 0.5), 1),
        "p95": round(percentile(values, 0.95), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--binary", type=Path, required=True)
    for name, default in (
        ("points", 1_000_000),
        ("tenants", 1_000),
        ("queries", 200),
        ("threads", 2),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quantization", nargs="*", default=["none", "scalar", "binary"])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--filled", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the nodes end with us
    with tempfile.TemporaryDirectory(prefix="bench-qdrant-") as made:
        node = Node(options.binary.absolute(), options.keep or Path(made))
        try:
            node.start()
            node.wait()
            bench = Bench(options, node)
            told: dict[str, Any] = {} if options.filled else {"fill": bench.fill() | {"tenants": options.tenants}}
            if options.filled:
                node.wake_optimizer(FACTS)
            told["embedding_alone_ms"] = bench.embedding()
            for quantization in options.quantization:
                told[f"quantization_{quantization}"] = bench.searched(quantization)
                print(
                    json.dumps({quantization: told[f"quantization_{quantization}"]}),
                    file=sys.stderr,
                )
        finally:
            node.end()
    version = subprocess.run([str(options.binary), "--version"], capture_output=True, text=True, check=False).stdout
    told |= {
        "qdrant": version.strip(),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
    }
    told |= {"load": os.getloadavg(), "at": datetime.now(UTC).date().isoformat()}
    print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
