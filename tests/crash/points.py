"""What the writers of crash tests write: batches of versions, told apart by their numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope
from memory_anchor.domain.ports import DENSE, CollectionSpec, EmbedderIdentity, Entry, SparseVector

FACTS = "verified_fact"
SPEC = CollectionSpec({DENSE: EmbedderIdentity("tiny", 8)})
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


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
