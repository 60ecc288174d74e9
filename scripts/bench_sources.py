"""Figures of docs/knowledge.md: a real folder or checkout read, read again, and what was embedded.

    python scripts/bench_sources.py FOLDER [KIND]

KIND is files (default), repo_docs or git_history. Embedding is a stand-in that counts, so that reading is measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.domain.model import Actor, Caller
from memory_anchor.extensions.knowledge.use_cases import knowledge_of, library_of
from memory_anchor.process.app import build_core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.testing import HashEmbedder

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Matrix
    from memory_anchor.process.wiring import Core


class Counting(HashEmbedder):
    """How many texts were embedded."""

    texts = 0

    def documents(self, texts: Sequence[str]) -> Matrix:
        self.texts += len(texts)
        return super().documents(texts)


def main(folder: Path, kind: str) -> None:
    embedder = Counting()
    with tempfile.TemporaryDirectory() as scratch, DirectoryLock.acquire(Path(scratch), role="bench") as lock:
        core = build_core(Settings(), data_dir=Path(scratch), lock=lock, embedder=embedder)
        anchor = core.anchor(Actor(Caller.HUMAN))
        source = knowledge_of(anchor).add(str(folder), kind)
        told = {f"first_{name}": value for name, value in read(core).items()}
        while library_of(core.services).embed(64):
            pass
        told["embedded"] = embedder.texts
        library_of(core.services).sync(source)
        told |= {f"again_{name}": value for name, value in read(core).items()}
        while library_of(core.services).embed(64):
            pass
        told["embedded_again"] = embedder.texts - int(told["embedded"])
        (state,) = knowledge_of(anchor).sources()
        told |= {"documents": state.documents, "passages": state.passages, "left_out": dict(state.counted)}
        told["passages_per_min"] = round(60 * state.passages / max(float(told["first_cpu_s"]), 0.01))
        core.close()
        print(json.dumps({"folder": folder.name, "kind": kind, **told, "skipped": state.skipped[:3]}))


def read(core: Core) -> dict[str, float]:
    began, worked, size = time.perf_counter(), time.process_time(), 0
    while library_of(core.services).step(lambda: False):
        if (progress := library_of(core.services).progress()) is not None:
            size = progress.bytes
    cpu = time.process_time() - worked
    told = {"s": round(time.perf_counter() - began, 2), "cpu_s": round(cpu, 2), "mb": round(size / 1e6, 1)}
    return told | {"mb_per_cpu_s": round(size / 1e6 / max(cpu, 0.01), 2)}


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "files")
