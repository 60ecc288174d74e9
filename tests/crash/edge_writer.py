"""A child that writes to a store and says on stdout what was acknowledged, until it is killed.

usage: edge_writer.py FOLDER FIRST BATCH. Prints one line a batch, after `put` returned: the batch's number.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from memory_anchor.adapters.edge_store import EdgeStore
from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry, SparseVector
from memory_anchor.runtime.lock import DirectoryLock

FACTS = "verified_fact"
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 8)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FLUSH_EVERY, USE_EVERY = 23, 7


def member(batch: int, number: int) -> Memory:
    text = f"batch {batch} member {number} 记忆 " + "x" * 300
    return Memory(
        f"b{batch}n{number}",
        text,
        Layer.VERIFIED_FACT,
        MemoryType.FACT,
        Scope(),
        NOON,
        NOON,
        author=f"b{batch}",
        content_hash=content_hash(text),
    )


def entry(batch: int, number: int) -> Entry:
    row = np.random.default_rng(batch * 1_000 + number).normal(size=8).astype(np.float32)
    return Entry(member(batch, number), {DENSE: row}, SparseVector((1, 2 + number), (1.0, 0.5)))


def main() -> None:
    folder, batch, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    lock = DirectoryLock.acquire(folder, role="writer")
    store = EdgeStore(folder, lock=lock)
    store.open_collection(FACTS, SPEC)
    while True:
        store.put(FACTS, [entry(batch, number) for number in range(size)])
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()
        if batch % FLUSH_EVERY == 0:
            store.flush()
        if batch % USE_EVERY == 0:
            store.set_usage(FACTS, {member(batch, 0).point_id: Usage(1, 1, NOON, (NOON,))})
        batch += 1


if __name__ == "__main__":
    main()
