"""Uses of memories, counted in the process and written in batches, so that reading stays reading.

A memory that was fetched, cited or promoted was *used* and keeps the instant; one that merely appeared in a result was
*shown*, which counts less. Both wait in a bounded buffer until the `flush_usage` job (or closing) writes them to the
current version, one store call a batch. What a crash loses is at most a minute of counts, never a memory. Searches and
uses a day go to a small tally file beside the store, for `stats`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from memory_anchor.files import write_whole
from memory_anchor.model import HISTORY, USAGE_KEPT, Layer, Memory, Usage
from memory_anchor.ports import Clock, MemoryStore
from memory_anchor.where import OneOf, Where

BUFFER_MAX = 10_000
"""Memories waiting at most; beyond it new appearances are dropped, while uses make room by being flushed."""
FLUSH_BATCH = 50
"""Counts written while the writers' lock is held: some 40 ms, so that no write waits longer."""
TALLY_DAYS = 400
_COUNTED_LAYERS = frozenset({Layer.EVENT_LOG, Layer.VERIFIED_FACT, Layer.IDENTITY_SCHEMA})


@dataclass(slots=True)
class _Waiting:
    accesses: list[datetime] = field(default_factory=list)
    count: int = 0
    shown: int = 0


class UsageBuffer:
    """Thread-safe. lock: the writers' lock, held while counts are read, added and written back."""

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        lock: AbstractContextManager[bool | None],
        *,
        tally_file: Path | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writers = lock
        self._tally_file = tally_file
        self._mutex = threading.Lock()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._tally: dict[str, dict[str, int]] = {}

    def used(self, *memories: Memory) -> None:
        """Count a use now: the memory was fetched, cited or promoted."""
        now = self._clock.now()
        with self._mutex:
            for memory in memories:
                if memory.layer not in _COUNTED_LAYERS:
                    continue
                waiting = self._waiting.setdefault((memory.layer.value, memory.id), _Waiting())
                waiting.accesses = [*waiting.accesses, now][-USAGE_KEPT:]
                waiting.count += 1
            self._count_day(now, "uses", len(memories))
            full = len(self._waiting) > BUFFER_MAX
        if full:
            self.flush()

    def shown(self, memories: Iterable[tuple[Layer, str]]) -> None:
        """Count one search and the memories (layer, id) that appeared in its answer."""
        with self._mutex:
            self._count_day(self._clock.now(), "searches", 1)
            for layer, memory_id in memories:
                key = (layer.value, memory_id)
                if layer in _COUNTED_LAYERS and (key in self._waiting or len(self._waiting) < BUFFER_MAX):
                    self._waiting.setdefault(key, _Waiting()).shown += 1

    def flush(self, stand_aside: Callable[[], None] = lambda: None) -> int:
        """Write what waits to the current versions; return how many memories were counted.

        stand_aside: asked between batches, see `Upkeep`. Counts of memories that were purged meanwhile are dropped.
        What a failing store did not take waits on.
        """
        with self._mutex:
            taken, self._waiting = self._waiting, {}
            tally, self._tally = self._tally, {}
        done = 0
        try:
            for collection in sorted({name for name, _ in taken}):
                ids = [memory_id for name, memory_id in taken if name == collection]
                for start in range(0, len(ids), FLUSH_BATCH):
                    stand_aside()
                    batch = ids[start : start + FLUSH_BATCH]
                    done += self._write(collection, batch, taken)
                    for memory_id in batch:
                        del taken[collection, memory_id]
        finally:
            self._put_back(taken)
            self._save_tally(tally)
        return done

    @property
    def waiting(self) -> int:
        """How many memories have counts that are not written yet."""
        with self._mutex:
            return len(self._waiting)

    def daily(self) -> dict[str, dict[str, int]]:
        """Return date -> {searches, uses} as far back as it is kept, what waits included."""
        days = _load_tally(self._tally_file)
        with self._mutex:
            return _added(days, self._tally)

    def _write(self, collection: str, ids: Sequence[str], taken: dict[tuple[str, str], _Waiting]) -> int:
        current = Where((OneOf("id", tuple(ids)),), (OneOf("state", (HISTORY,)),))
        with self._writers:
            found = self._store.find(collection, current, limit=2 * len(ids))
            self._store.set_usage(
                collection, {m.point_id: added_usage(m.usage, taken[collection, m.id]) for m in found}
            )
        return len(found)

    def _put_back(self, left: dict[tuple[str, str], _Waiting]) -> None:
        with self._mutex:
            for key, old in left.items():
                new = self._waiting.setdefault(key, _Waiting())
                new.accesses = [*old.accesses, *new.accesses][-USAGE_KEPT:]
                new.count += old.count
                new.shown += old.shown

    def _count_day(self, now: datetime, what: str, many: int) -> None:
        day = self._tally.setdefault(now.date().isoformat(), {})
        day[what] = day.get(what, 0) + many

    def _save_tally(self, tally: dict[str, dict[str, int]]) -> None:
        if self._tally_file is None or not tally:
            return
        days = _added(_load_tally(self._tally_file), tally)
        kept = {day: days[day] for day in sorted(days)[-TALLY_DAYS:]}
        write_whole(self._tally_file, json.dumps(kept).encode())


def added_usage(usage: Usage, waiting: _Waiting) -> Usage:
    """Return usage with the waiting counts added; accesses stay in order, newest last."""
    accesses = tuple(sorted((*usage.accesses, *waiting.accesses)))[-USAGE_KEPT:]
    return replace(
        usage,
        count=usage.count + waiting.count,
        shown=usage.shown + waiting.shown,
        last_at=max((t for t in (usage.last_at, *waiting.accesses) if t is not None), default=None),
        accesses=accesses,
    )


def _added(days: dict[str, dict[str, int]], more: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    total = {day: dict(counts) for day, counts in days.items()}
    for day, counts in more.items():
        into = total.setdefault(day, {})
        for what, many in counts.items():
            into[what] = into.get(what, 0) + many
    return total


def _load_tally(path: Path | None) -> dict[str, dict[str, int]]:
    """Return the tally of the file; a missing or torn one counts as empty, for it is only told."""
    if path is None:
        return {}
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {str(d): {str(w): int(n) for w, n in counts.items()} for d, counts in stored.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
