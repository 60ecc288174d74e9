"""Figures of searching the store: its mirror beside exact search, its start, and what its index costs.

    python scripts/bench_index.py [--memories 10000] [--folder DIR]     prints JSON

dense, words: p50 of 30 searches through the store's port, in ms; kept: share of the nearest 80 that exact search finds
too. Start: a new process opens the store and answers one search by meaning and one by words, after a clean end and a
kill. Freeze: the longest time that another thread does not run while the mirror loads and while the index thread writes
the collections (ms), beside the same thread while nothing happens. Memory: what the process grows by when the mirror
loads.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
from bench_store import EVENTS, SPEC, START, entry, lines

from memory_anchor.adapters.edge_index import EdgeIndex
from memory_anchor.adapters.snapshot_file import SNAPSHOT_FILE, SnapshotFile
from memory_anchor.domain.ports import EmbedderIdentity, MemoryStore, SparseVector
from memory_anchor.domain.where import Between, OneOf, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.terms import query_terms
from memory_anchor.recall.index import Index
from memory_anchor.store.database import Sqlite
from memory_anchor.store.index_follower import FOLLOWED, IndexFollower
from memory_anchor.store.point_source import PointSource
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import ManualClock, make_searcher

QUERIES = 30
NEAREST = 80
TICK_S = 0.002


class Still:
    """An embedder of the benchmark's identity that is never asked."""

    identity = EmbedderIdentity("bench", 384)

    def available(self) -> bool:
        return False

    def documents(self, texts: object) -> np.ndarray:
        raise NotImplementedError

    queries = documents


class Ticker:
    """A thread that wants to run every 2 ms; `worst` is the longest it could not, in ms.

    Counted in CPU of this process: on a busy machine another process may run while a thread holds the interpreter.
    """

    def __init__(self) -> None:
        self.worst, self._stopped = 0.0, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped:
            began, used = time.perf_counter(), time.process_time()
            time.sleep(TICK_S)
            late, used = time.perf_counter() - began - TICK_S, time.process_time() - used
            self.worst = max(self.worst, 1e3 * min(late, used))

    def around(self, work: Callable[[], object]) -> float:
        self.worst = 0.0
        work()
        return self.worst

    def stop(self) -> None:
        self._stopped = True
        self._thread.join()


def wheres(memories: int) -> dict[str, Where]:
    live = OneOf("state", ("active", "disputed"))
    last_tenth = Between("when", at_least=START + timedelta(minutes=8 * memories * 9 // 10))
    return {
        "open": Where((live,)),
        "audience": Where((live, OneOf("audience", ("p|local|p1",)))),
        "type": Where((live, OneOf("type", ("event",)))),
        "tag": Where((live, OneOf("tag", ("t7",)))),
        "person": Where((live, OneOf("who", ("w3",)))),
        "time": Where((live, last_tenth)),
    }


def opened(folder: Path) -> tuple[MemoryStore, Index]:
    """Open a store as a process does, with its mirror."""
    store = SqlStore(Sqlite(folder / "sql" / "memory.db"))
    for name in FOLLOWED:
        store.open_collection(name, SPEC)
    index = make_searcher(store, Still(), ManualClock(), snapshot=SnapshotFile(folder / SNAPSHOT_FILE)).index
    index.follow()
    return store, index


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def begun(folder: Path) -> None:
    """What the child does: open, search once, say what it took, then wait to be ended."""
    wall, cpu = time.perf_counter(), time.process_time()
    store, index = opened(folder)
    row = np.random.default_rng(2).standard_normal(384).astype(np.float32)
    store.nearest(EVENTS, row, wheres(10)["open"], limit=NEAREST)
    store.matching(EVENTS, query_terms("which port does the store use"), wheres(10)["open"], limit=NEAREST)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
    index.warm()
    if sys.stdin.readline():
        store.close()


def starts(folder: Path) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    for what in ("first", "closed", "killed"):
        command = [sys.executable, __file__, "--begin", "--folder", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None and child.stdin is not None
            figures[what] = [round(value, 3) for value in json.loads(child.stdout.readline())]
            if what == "closed":
                os.kill(child.pid, signal.SIGKILL)
            else:
                child.stdin.write("end\n")
                child.stdin.flush()
            child.wait()
    return {"after a clean end, wall and CPU s": figures["closed"], "after a kill, wall and CPU s": figures["killed"]}


def searches(
    stores: dict[str, MemoryStore], exact: MemoryStore, memories: int, rng: random.Random
) -> dict[str, object]:
    rows = np.random.default_rng(5).standard_normal((QUERIES, 384)).astype(np.float32)
    texts = lines()
    asked = [
        searched_words(entry(number, texts, rng, np.random.default_rng(number)).memory) for number in range(QUERIES)
    ]
    words = [SparseVector(each.indices[:5], each.values[:5]) for each in asked]
    figures: dict[str, object] = {}
    for what, where in wheres(memories).items():
        found: dict[str, dict[str, float]] = {"dense": {}, "words": {}}
        for name, store in stores.items():
            times: dict[str, list[float]] = {"dense": [], "words": []}
            for row, terms in zip(rows, words, strict=True):
                began = time.perf_counter()
                store.nearest(EVENTS, row, where, limit=NEAREST)
                middle = time.perf_counter()
                store.matching(EVENTS, terms, where, limit=NEAREST)
                times["dense"].append(1e3 * (middle - began))
                times["words"].append(1e3 * (time.perf_counter() - middle))
            for channel, values in times.items():
                found[channel][name] = round(statistics.median(values), 2)
        near, true = (
            {hit.point_id for hit in store.nearest(EVENTS, rows[0], where, limit=NEAREST)}
            for store in (stores["database"], exact)
        )
        figures[what] = {**found, "kept": round(len(near & true) / max(len(true), 1), 3)}
    return figures


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--memories", type=int, default=10_000)
    asked.add_argument("--folder", type=Path, default=None, help="where the stores lie: a disk, not tmpfs")
    asked.add_argument("--begin", action="store_true", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.begin:
        begun(options.folder)
        return
    rng, texts, count = random.Random(1), lines(), options.memories
    vectors = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        base = Path(folder)
        exact = SqlStore(database := Sqlite(base / "sql" / "memory.db"))
        for name in FOLLOWED:
            exact.open_collection(name, SPEC)
        for first in range(0, count, 500):
            piece = [entry(number, texts, rng, vectors) for number in range(first, min(first + 500, count))]
            exact.put(EVENTS, piece)
        gc.collect()
        gc.freeze()  # as an engine does once it has started
        ticker, before = Ticker(), resident()
        sql = SqlStore(database)
        for name in FOLLOWED:
            sql.open_collection(name, SPEC)
        index = make_searcher(sql, Still(), ManualClock()).index
        freeze = {"load": ticker.around(index.follow)}
        memory = (resident() - before) / count / 1e3
        figures = searches({"database": sql}, exact, count, rng)
        follower = IndexFollower(PointSource(database), EdgeIndex(base / "index"), sql.embedders)
        wall, cpu = time.perf_counter(), time.process_time()
        freeze["index, all of it"] = ticker.around(follower.catch_up)
        filled = {"wall s": time.perf_counter() - wall, "CPU of the engine s": time.process_time() - cpu}
        sql.put(EVENTS, [entry(count, texts, rng, vectors)])
        freeze["index, one change"] = ticker.around(follower.catch_up)
        freeze["nothing"] = ticker.around(lambda: time.sleep(2))
        ticker.stop()
        sql.close()
        begin = starts(base)
    shown = {
        "memories": count,
        "search": figures,
        "start": begin,
        "freeze ms": {what: round(value, 1) for what, value in freeze.items()},
        "memory kB a memory": round(memory, 2),
        "index filled": {what: round(value, 2) for what, value in filled.items()},
    }
    print(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
