"""Figures of the store: saves, their rate, reads, disk.

    python scripts/bench_store.py [--memories 10000] [--saves 200] [--folder DIR]     prints JSON

The store is used through its port; to compare, run it at two commits in turn. A save is what the core does under the
writers' lock for a version with its vector (384 numbers) and words: look for the request and for the text, write
version and audit record; durable on return. CPU is that of the process, other threads included, so the checkpoints of
the database count. Reads are medians of `REPEATS` calls; the history is of a memory with
`VERSIONS` versions, the statistics are those of `memory-anchor stats`, less what its mirror counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np

from memory_anchor.adapters.system import SystemClock
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import COLLECTIONS, Layer, Memory, MemoryType, Scope, Tag, Visibility
from memory_anchor.domain.ports import DENSE, AuditLog, CollectionSpec, EmbedderIdentity, Entry, MemoryStore
from memory_anchor.domain.where import Between, OneOf, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.layers.records import Records, Request, newest_versions
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import Sqlite, UnitLock
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.upkeep.statistics import statistics as stats

EVENTS = Layer.EVENT_LOG.value
SPEC = CollectionSpec({DENSE: EmbedderIdentity("bench", 384)})
START = datetime(2025, 1, 1, tzinfo=UTC)
WRITERS = 8
PIECE = 160
"""Saves of the eight writers in one round."""
ROUNDS = 7
REPEATS = 15
VERSIONS = 30
CHANGED = "m77"
"""The memory that has them."""
DOCS = Path(__file__).parents[1] / "docs"


def lines() -> list[str]:
    """Return the sentences of our own pages that are long enough to be memories."""
    found = [line.strip() for page in sorted(DOCS.glob("*.md")) for line in page.read_text("utf-8").splitlines()]
    return [line for line in found if len(line) > 60]


def entry(number: int, texts: list[str], rng: random.Random, rows: np.random.Generator) -> Entry:
    at = START + timedelta(minutes=8 * number)
    text = f"{rng.choice(texts)[:220]} ({number}) {rng.choice(texts)[:120]}"
    memory = Memory(
        f"m{number}",
        text,
        Layer.EVENT_LOG,
        MemoryType.EVENT,
        Scope(project=f"p{number % 5}", conversation=f"c{number // 50}"),
        at,
        at,
        when=at,
        visibility=Visibility.PROJECT,
        tags=(Tag(f"t{rng.randrange(200)}"), Tag(f"u{rng.randrange(200)}")),
        who=(f"w{number % 30}",),
        content_hash=content_hash(text),
        author="agent:bench",
        conversation_seq=number % 50,
    )
    row = rows.standard_normal(384).astype(np.float32)
    return Entry(memory, {DENSE: row / np.linalg.norm(row)}, searched_words(memory))


def history(first: Entry) -> list[Entry]:
    """Return the versions of a memory, the first of them given."""
    times = [first.memory.recorded_at + timedelta(hours=hour) for hour in range(VERSIONS)]
    versions = [replace(first.memory, version=number, recorded_at=at) for number, at in enumerate(times, 1)]
    ended = [one.closed(after.recorded_at) for one, after in pairwise(versions)]
    return [Entry(one, first.vectors, first.words) for one in (*ended, versions[-1])]


Stores = dict[str, MemoryStore]
Saves = dict[str, Callable[[Entry], None]]


def saving(store: MemoryStore, audit: AuditLog, lock: AbstractContextManager[bool | None]) -> Callable[[Entry], None]:
    """Return what saves an entry as the core does: by a decision under the lock, with its record."""
    records = Records(
        store,
        SystemClock(),
        audit,
        new_id=str,
        entry_of=lambda memory, **_: Entry(memory),
        on_write=lambda _: None,
        lock=lock,
    )

    def save(one: Entry) -> None:
        with records.lock:
            if records.replayed(Request(one.memory.id, "", False)) is None and not records.same_content(one.memory):
                records.commit([one], kind="event", by="agent:bench")

    return save


def saved(saves: Saves, entries: list[Entry]) -> dict[str, dict[str, float]]:
    """Save the entries one by one, each in both stores in turn; return p50 and CPU of a save in ms."""
    walls: dict[str, list[float]] = {name: [] for name in saves}
    cpus: dict[str, list[float]] = {name: [] for name in saves}
    for one in entries:
        for name, save in saves.items():
            wall, cpu = time.perf_counter(), time.process_time()
            save(one)
            walls[name].append(1e3 * (time.perf_counter() - wall))
            cpus[name].append(1e3 * (time.process_time() - cpu))
    return {
        "save p50 ms": {name: statistics.median(found) for name, found in walls.items()},
        "save CPU ms": {name: statistics.fmean(found) for name, found in cpus.items()},
    }


def rate(save: Callable[[Entry], None], entries: list[Entry]) -> float:
    """Return the saves a second of eight threads."""
    ready = threading.Barrier(WRITERS + 1)

    def write(thread: int) -> None:
        ready.wait()
        for one in entries[thread::WRITERS]:
            save(one)

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(WRITERS)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return len(entries) / (time.perf_counter() - began)


def reads(points: list[str], memories: int) -> dict[str, Callable[[MemoryStore], object]]:
    live = OneOf("state", ("active", "disputed"))
    mine = Where((live, OneOf("audience", ("p|local|p1",))))
    middle = START + timedelta(minutes=8 * memories // 2)
    period = Between("when", middle, middle + timedelta(days=2))
    newest = {"order_by": "when", "descending": True}
    return {
        "list the newest 50": lambda store: store.find(EVENTS, Where((live,)), limit=50, **newest),
        "list the newest 50 of one audience": lambda store: store.find(EVENTS, mine, limit=50, **newest),
        "200 by id": lambda store: store.get(EVENTS, points),
        "by tag": lambda store: store.find(EVENTS, Where((OneOf("tag", ("t7",)),)), limit=100),
        "two days": lambda store: store.find(EVENTS, Where((period,)), limit=400),
        "two days of one audience": lambda store: store.find(EVENTS, mine.and_(period), limit=400),
        "count by audience": lambda store: store.count(EVENTS, mine),
        "facet of types": lambda store: store.facet(EVENTS, "type", Where((live,))),
        "history": lambda store: list(newest_versions(store, EVENTS, OneOf("id", (CHANGED,)))),
        "statistics": lambda store: stats(store, START + timedelta(minutes=8 * memories), unembedded=0),
        "page of 500 with vectors": lambda store: store.scan(EVENTS, Where(), with_vectors=True),
    }


def read(stores: Stores, points: list[str], memories: int) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    for what, call in reads(points, memories).items():
        cpus: dict[str, list[float]] = {name: [] for name in stores}
        for _ in range(REPEATS):
            for name, store in stores.items():
                cpu = time.process_time()
                call(store)
                cpus[name].append(1e3 * (time.process_time() - cpu))
        figures[f"{what}, CPU ms"] = {name: statistics.median(found) for name, found in cpus.items()}
    return figures


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--memories", type=int, default=10_000)
    asked.add_argument("--saves", type=int, default=200)
    asked.add_argument("--folder", type=Path, default=None, help="where the stores lie: a disk, not tmpfs")
    options = asked.parse_args()
    rng, rows, texts = random.Random(1), np.random.default_rng(1), lines()
    more = options.saves + PIECE * ROUNDS
    entries = [entry(number, texts, rng, rows) for number in range(options.memories + more)]
    filled, alone, together = entries[:-more], entries[-more : -PIECE * ROUNDS], entries[-PIECE * ROUNDS :]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        database = Sqlite(Path(folder) / "sql" / "memory.db")
        with closing(SqlStore(database)) as sql:
            stores: Stores = {"database": sql}
            saves = {"database": saving(sql, SqlAudit(database), UnitLock(database))}
            for store in stores.values():
                for name in COLLECTIONS:
                    store.open_collection(name, SPEC)
                for first in range(0, len(filled), 500):
                    store.put(EVENTS, filled[first : first + 500])
                store.put(EVENTS, history(filled[int(CHANGED[1:])]))
            figures = saved(saves, alone)
            rates: dict[str, list[float]] = {name: [] for name in stores}
            for first in range(0, len(together), PIECE):
                for name, save in saves.items():
                    rates[name].append(rate(save, together[first : first + PIECE]))
            figures[f"rate of {WRITERS} writers"] = {name: statistics.median(found) for name, found in rates.items()}
            points = [one.memory.point_id for one in rng.sample(filled, min(200, len(filled)))]
            figures |= read(stores, points, options.memories)
            sql.close()
            size = {name: store.size_bytes() / 2**20 for name, store in stores.items()}
    figures["disk MiB"] = size
    shown = {what: {name: round(value, 3) for name, value in figure.items()} for what, figure in figures.items()}
    machine = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version, "machine": platform.machine()}
    print(json.dumps({**machine, "memories": options.memories, "figures": shown}, indent=1))


if __name__ == "__main__":
    main()
