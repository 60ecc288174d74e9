"""What `doctor` can only learn in the process that holds the store: does it read, find, embed, write and erase?

The write-read-forget loop runs twice: through the use cases over a store in memory, and on the real store in a
collection that nothing reads, from which it is erased again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from memory_anchor.base import json_values
from memory_anchor.base.json_values import Record, record, texts
from memory_anchor.domain.errors import BadInput, MemoryAnchorError, StoreDamaged
from memory_anchor.front.doctor_machine import Check, failed, joined_found
from memory_anchor.store.sql_store import SqlStore

if TYPE_CHECKING:
    from memory_anchor.process.wiring import Core


SALVAGE = "memory-anchor doctor --salvage"
SCRATCH = "knowledge"
PAGE = 200
DEEP_STEP_S = 2.0
"""How long one step of `--deep` occupies an engine's thread."""
PURGED_AT_ONCE = 100
"""Ids that one call of `purge` takes."""


def probe(core: Core) -> Iterator[Check]:
    """Yield the checks that only the process with the store can make."""
    yield _tried("store", lambda: _counted(core), SALVAGE)
    yield _tried("memories", lambda: _every_memory(core), SALVAGE)
    yield from _collections(core)
    yield _tried(
        "embedder", lambda: _embeds(core), "memory-anchor config shows embedder.*; kind=none searches by words"
    )
    yield _tried("language model", lambda: _model(core), "memory-anchor config shows llm.*; kind=none goes by rules")
    waiting = core.services.searcher.index.unembedded()
    if waiting:
        yield Check("embedding", "warning", f"{waiting} memories wait for their vectors; words find them until then")
    unseen = json_values.whole(core.stats()["waiting"])
    if unseen:
        yield Check("review", "ok", f"{unseen} memories wait for you, and no search finds them: memory-anchor review")
    yield from joined_found(core)
    yield from _purge_to_repeat(core)
    yield _tried("write, read, forget", lambda: _use_cases(core), "run it again; if it stays, report it")
    yield _tried("store loop", lambda: _store_loop(core), SALVAGE)


def compare_vectors(core: Core, start: Sequence[str | None]) -> Record:
    """Compare some vectors with their texts; return {count, odd: [version ids], left: where to go on or None}."""
    from memory_anchor.admin.checks import compare_vectors
    from memory_anchor.domain.ports import DENSE, DENSE_LOCAL
    from memory_anchor.settings import API_EMBEDDERS

    main = None if core.settings.embedder.kind in API_EMBEDDERS else core.services.embedder
    makers = {name: maker for name, maker in ((DENSE, main), (DENSE_LOCAL, core.services.local)) if maker is not None}
    until = time.monotonic() + DEEP_STEP_S
    return asdict(compare_vectors(core.services.store, makers, start=start, enough=lambda: time.monotonic() > until))


def _tried(name: str, act: Callable[[], str], fix: str) -> Check:
    try:
        return Check(name, "ok", act())
    except MemoryAnchorError as error:
        return failed(name, error, fix)


def _counted(core: Core) -> str:
    store = core.services.store
    counts = ", ".join(f"{name} {many}" for name, many in record(core.stats()["layers"]).items())
    return f"{store.kind}: {counts}; {store.size_bytes() >> 20} MiB on disk"


def _every_memory(core: Core) -> str:
    """Read every version of every collection once. Raises StoreDamaged."""
    from memory_anchor.base.hashing import content_hash
    from memory_anchor.domain.model import COLLECTIONS
    from memory_anchor.domain.where import Where

    store, read = core.services.store, 0
    for name in COLLECTIONS:
        after: str | None = None
        while True:
            try:
                entries, after = store.scan(name, Where(), page=PAGE, after=after)
            except (StoreDamaged, BadInput) as error:
                raise StoreDamaged(f"{name} holds memories that cannot be read; nothing was changed") from error
            changed = sum(e.memory.content_hash not in ("", content_hash(e.memory.content)) for e in entries)
            if changed:
                raise StoreDamaged(f"{name} holds {changed} or more memories whose text is not as it was written")
            read += len(entries)
            if after is None:
                break
    return f"{read} versions read, all intact"


def _collections(core: Core) -> Iterator[Check]:
    """Yield how far the collections are that other Qdrant clients open, where they lie beside the store."""
    store = core.services.store
    if not isinstance(store, SqlStore) or store.beside is None:
        return
    state = store.beside.state()
    if state.behind and (why := state.note or store.index_fault()):
        yield Check("collections", "warning", f"{state.behind} changes behind: {why}; searches do not need them")
    else:
        waiting = f"{state.behind} changes wait for a minute without a write"
        yield Check("collections", "ok", waiting if state.behind else "hold every event and fact")


def _embeds(core: Core) -> str:
    from memory_anchor.domain.ports import HasState

    embedder = core.services.embedder
    if embedder is None:
        return "none: words alone are searched"
    row = embedder.documents(["memory-anchor doctor 记忆"])[0]
    state = embedder.state() if isinstance(embedder, HasState) else ""
    return f"{embedder.identity.model}, {len(row)} dimensions{f', {state}' if state else ''}"


def _model(core: Core) -> str:
    """Return the state of the language model, which is not called, so this costs nothing."""
    from memory_anchor.domain.ports import HasState

    model = core.services.model_named("")
    if model is None:
        return "none: rules and small models do the work"
    return model.state() if isinstance(model, HasState) else model.name


def _use_cases(core: Core) -> str:
    """Save, find, get and forget through every layer, over a store in memory."""
    from memory_anchor.domain.model import Actor, Caller, Scope
    from memory_anchor.process.app import build_core
    from memory_anchor.store.database import IN_MEMORY, Sqlite
    from memory_anchor.store.sql_store import SqlStore

    with tempfile.TemporaryDirectory(prefix="memory-anchor-") as folder:
        store = SqlStore(Sqlite(IN_MEMORY))
        scratch = build_core(
            core.settings, data_dir=Path(folder), store=store, embedder=core.services.embedder, clock=core.clock
        )
        try:
            anchor = scratch.anchor(Actor(Caller.AGENT, Scope(agent="doctor", conversation="doctor")))
            saved = anchor.save_memory("The lighthouse keeper repairs the lamp on Tuesdays")
            answer = anchor.search("when is the lamp of the lighthouse repaired")
            if [snippet.id for snippet in answer.snippets] != [saved.id]:
                raise MemoryAnchorError("what was saved is not found again; please report it")
            anchor.forget(saved.id)
            if anchor.search("when is the lamp of the lighthouse repaired").snippets:
                raise MemoryAnchorError("what was forgotten is still found; please report it")
        finally:
            scratch.close()
    return "saved, found, forgotten"


def _store_loop(core: Core) -> str:
    """Write, read and erase one version on the real store, in a collection that nothing reads."""
    from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Status
    from memory_anchor.domain.where import OneOf, Where

    store, at = core.services.store, core.clock.now()
    own = Scope("doctor", "doctor", "doctor", "doctor", "doctor")
    memory = Memory(
        "doctor", "the doctor was here", Layer.EVENT_LOG, MemoryType.NOTE, own, at, at, author="system:doctor"
    )
    entry = core.services.records.entry(memory, embed=True)
    mine = Where((OneOf("audience", (memory.audience,)), OneOf("state", (Status.ACTIVE.value,))))
    try:
        store.put(SCRATCH, [entry])
        read = store.get(SCRATCH, [memory.point_id], with_vectors=True)
        by_words = store.matching(SCRATCH, entry.words, mine, limit=1) if entry.words else []
        if not read or read[0].memory != memory or not by_words:
            raise StoreDamaged("the store does not give back what was just written; stop the engine, restore a backup")
        store.put(SCRATCH, [replace(entry, memory=replace(memory, status=Status.ARCHIVED))])
        if store.count(SCRATCH, mine):
            raise StoreDamaged("the store still finds what was just archived; run `memory-anchor reindex`")
    finally:
        store.erase(SCRATCH, [memory.point_id])
    return "written, read, archived, erased"


def _purge_to_repeat(core: Core) -> Iterator[Check]:
    """Yield a purge that was cut off before it erased anything, while its memories are still there."""
    from memory_anchor.admin.purge import PURGE_CUT
    from memory_anchor.domain.model import point_id

    cut = core.audit.latest(PURGE_CUT) or {}
    left: dict[str, None] = {}
    for collection, versions in record(cut.get("asked")).items():
        parts = [version.rpartition("@") for version in texts(versions)]
        points = [point_id(name, int(number)) for name, _, number in parts]
        left |= dict.fromkeys(entry.memory.id for entry in core.services.store.get(collection, points))
    if left:
        finding = f"a purge was cut off before it erased anything; {len(left)} memories that it named are still there"
        yield Check("purge", "warning", finding, f"memory-anchor purge {' '.join(list(left)[:PURGED_AT_ONCE])}")
