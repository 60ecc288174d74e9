"""`memory-anchor reindex` from the outside: through the engine that serves, or over a store opened as it is.

A store of another embedder cannot be opened in the ordinary way, and leaving that state is what this is for: without an
engine the collections are opened under whatever identity they have, and the lock is held to the end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from memory_anchor.errors import StoreBusy, Unavailable
from memory_anchor.json_values import Record, whole
from memory_anchor.runtime import engine
from memory_anchor.runtime.lock import DirectoryLock

Tick = Callable[[int, int | None, str], None]


def reindexed(data_dir: Path, *, vectors: bool, kind: str | None, model: str | None, tick: Tick) -> Record:
    """Do the whole work, telling how far it is; return {embedder, set}. set: what the settings must say now.

    Raises StoreBusy: an engine serves and another embedder was asked for. Unavailable: the embedder cannot run.
    """
    if engine.status(data_dir) is not None:
        if kind is not None or model is not None:
            raise StoreBusy(
                "an engine serves with the embedder of its settings; run `memory-anchor engine stop`, then this again"
            )
        return _in_the_engine(vectors, tick)
    os.umask(0o077)
    asked = {name: value for name, value in (("kind", kind), ("model", model)) if value is not None}
    with DirectoryLock.acquire(data_dir, role="reindex") as lock:
        return _here(data_dir, lock, vectors, asked, tick)


def _in_the_engine(vectors: bool, tick: Tick) -> Record:
    from memory_anchor.front.cli.link import call

    told = call("reindex", vectors=vectors)
    while not told["finished"]:
        tick(whole(told["done"]), whole(told["total"]), f"{told['collection']}: {told['stage']}")
        told = call("reindex", vectors=vectors)
    return {"embedder": told["embedder"], "set": ""}


def _here(data_dir: Path, lock: DirectoryLock, vectors: bool, asked: dict[str, str], tick: Tick) -> Record:
    from memory_anchor.app import embedder_of, local_of, open_store, settings_of
    from memory_anchor.care.reindex import Reindex
    from memory_anchor.model import COLLECTIONS
    from memory_anchor.ports import CollectionSpec

    settings = settings_of(os.environ, {"embedder": asked} if asked else None)
    embedder, local = embedder_of(settings, data_dir), local_of(settings, data_dir)
    if embedder is not None and not embedder.available():
        raise Unavailable(
            f"embedder {embedder.identity.model} cannot run here without a download; run `memory-anchor doctor "
            "--fetch-model`, set embedder.model_path, or choose another with --embedder"
        )
    store = open_store(settings, data_dir, lock)
    try:
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({}))
        run = Reindex(
            store,
            embedder,
            lock=threading.RLock(),
            state_dir=data_dir / "jobs",
            vectors=vectors,
            local=local,
        )
        for progress in run.steps():
            tick(progress.done, progress.total, f"{progress.collection}: {progress.stage}")
    finally:
        store.close()
    return {
        "embedder": embedder.identity.model if embedder is not None else "",
        "set": ", ".join(f"embedder.{name}={value}" for name, value in asked.items()),
    }
