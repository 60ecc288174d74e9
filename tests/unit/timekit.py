"""A store, an audit and memories for tests of what time does to memories."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.model import COLLECTIONS, LAYER_OF_TYPE, Memory, MemoryType, Origin, Scope, Status, Usage
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry
from memory_anchor.domain.versions import revise
from memory_anchor.language.indexing import embedded_text, searched_words
from memory_anchor.settings import AgentLifecycle, AgentSettings, LifecycleSettings, Settings
from memory_anchor.store.database import IN_MEMORY, Sqlite
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.testing import HashEmbedder, memory_store
from memory_anchor.upkeep.history import apply, plan_last
from memory_anchor.upkeep.job_kit import Change, Upkeep, current_where, write

T0 = datetime(2026, 1, 1, tzinfo=UTC)
EMBEDDER = HashEmbedder()


def day(days: float) -> datetime:
    return T0 + timedelta(days=days)


@dataclass
class ListAudit:
    records: list[dict[str, Any]] = field(default_factory=list)

    def append(self, kind: str, what: Mapping[str, Any], *, by: str, at: datetime) -> str:
        self.records.append({"kind": kind, "by": by, "at": at, **what})
        return str(len(self.records))

    @contextlib.contextmanager
    def recording(self, kind: str, whats: Sequence[Mapping[str, Any]], *, by: str, at: datetime) -> Iterator[None]:
        yield
        for what in whats:
            self.append(kind, what, by=by, at=at)


def lifecycle(
    *, agents: Mapping[str, AgentLifecycle] | None = None, merge_threshold: float | None = None, **chosen: Any
) -> Settings:
    """Return settings with these of `lifecycle`, also below their bounds. merge_threshold: of memories of no agent."""
    rules = {Scope().agent: AgentLifecycle(merge_threshold=merge_threshold), **(agents or {})}
    own = {name: AgentSettings(lifecycle=one) for name, one in rules.items()}
    return Settings(lifecycle=LifecycleSettings().model_copy(update=chosen), agents=own)


def upkeep(store: Any = None, **rules: Any) -> Upkeep:
    if store is None:
        store = memory_store()
        for name in COLLECTIONS:
            store.open_collection(name, CollectionSpec({DENSE: EMBEDDER.identity}))
    records = SqlRecords(getattr(store, "database", None) or Sqlite(IN_MEMORY), lambda: T0)
    rest = (lambda _: None, lambda: None, records)
    return Upkeep(store, ListAudit(), threading.RLock(), *rest, settings=lifecycle(**rules))


def a_memory(memory_id: str, content: str = "", kind: MemoryType = MemoryType.EVENT, **changes: Any) -> Memory:
    text = content or f"text of {memory_id}"
    at = changes.pop("recorded_at", T0)
    memory = Memory(
        memory_id,
        text,
        LAYER_OF_TYPE[kind],
        kind,
        Scope(),
        recorded_at=at,
        valid_from=at,
        when=at,
        content_hash=content_hash(text),
        author="agent:tester",
    )
    return replace(memory, **changes)


def put(up: Upkeep, *memories: Memory, embed: bool = True) -> None:
    for memory in memories:
        vectors = {DENSE: EMBEDDER.documents([embedded_text(memory)])[0]} if embed else {}
        up.store.put(memory.layer.value, [Entry(memory, vectors, searched_words(memory))])


def current(up: Upkeep) -> dict[str, Memory]:
    found: dict[str, Memory] = {}
    for name in ("event_log", "verified_fact"):
        entries, _ = up.store.scan(name, current_where(), page=100_000)
        found |= {entry.memory.id: entry.memory for entry in entries}
    return found


def change(
    up: Upkeep,
    memory_id: str,
    at: datetime,
    author: str = "agent:a",
    conversation: str = "",
    reason: str = "edit",
    *,
    of: Memory | None = None,
    **changes: Any,
) -> list[Memory]:
    """Write a revision of a memory as any writer would. of: the version that the writer read, the current one."""
    read = of or current(up)[memory_id]
    revision = revise(read, replace(read, **changes), at=at, author=author, reason=reason, written_in=conversation)
    return write(up, [Change(revision)], kind="edit", by=author, at=at)


def undo_last(up: Upkeep, at: datetime) -> list[Memory]:
    return apply(up, plan_last(up, Scope(), human=True), at=at, author="human:me")


def statuses(up: Upkeep) -> dict[str, Status]:
    return {memory_id: memory.status for memory_id, memory in current(up).items()}


def archived(up: Upkeep) -> set[str]:
    return {memory_id for memory_id, status in statuses(up).items() if status is Status.ARCHIVED}


def used_at(*days: float) -> Usage:
    times: Sequence[datetime] = [day(d) for d in days]
    return Usage(count=len(times), last_at=max(times, default=None), accesses=tuple(times))


__all__ = [
    "EMBEDDER",
    "T0",
    "ListAudit",
    "Origin",
    "a_memory",
    "archived",
    "change",
    "current",
    "day",
    "put",
    "statuses",
    "undo_last",
    "upkeep",
    "used_at",
]
