"""What a store holds, and how its memories are used.

Statistics come from facets and filtered counts, so they cost the same few calls at a hundred and at a hundred thousand
memories. Strength must be computed memory by memory: it is taken from a sample of the first points in point-id order,
which is random (ids are hashes), and the answer says how many were sampled. Small stores are counted completely.

Uses are counted in the process and written in batches, so that a read writes nothing. A memory that was fetched, cited
or promoted was *used*, and the instant is stored; one that only appeared in a result was *shown*, which counts less.
Both wait in a bounded buffer until the `flush_usage` job (or closing) writes them to the current version, one store
call per batch. A crash loses at most a minute of counts, never a memory. Searches and uses per day go to a small
record, for `stats`, to which every process adds its own.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta

from memory_anchor.base.json_values import Json
from memory_anchor.domain.activation import DEFAULTS, ActivationSettings, strength_of, strength_word
from memory_anchor.domain.errors import retry_on_conflict
from memory_anchor.domain.model import HISTORY, SEARCHABLE_STATES, USAGE_KEPT, Layer, Memory, Scope, Usage, audiences
from memory_anchor.domain.ports import Clock, MemoryStore, SmallRecords
from memory_anchor.domain.versions import expired_by
from memory_anchor.domain.where import Between, Condition, HasVector, OneOf, Where

SAMPLE = 500
PAGE = 500
DAYS = 30
AGES_DAYS = (1, 7, 30, 90, 365)
_LAYERS = ("event_log", "verified_fact")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Statistics:
    """by_age: upper bound in days ("1", "7", ..., "older") -> memories.

    writes, changes, recalls: per day, oldest first; changes are versions after the first.

    by_strength: word -> memories, scaled up from `strength_sampled` memories if that is fewer than there are.

    current: layer -> memories in any state, archived ones too.
    """

    total: int
    by_layer: Mapping[str, int]
    by_type: Mapping[str, int]
    by_status: Mapping[str, int]
    by_strength: Mapping[str, int]
    strength_sampled: int
    by_age: Mapping[str, int]
    writes: tuple[int, ...]
    changes: tuple[int, ...]
    recalls: tuple[int, ...]
    current: Mapping[str, int]
    versions: int
    unembedded: int
    size_bytes: int

    def as_dict(self) -> dict[str, Json]:
        """Return the JSON form, sparklines included."""
        return {
            "total": self.total,
            "by_layer": dict(self.by_layer),
            "by_type": dict(self.by_type),
            "by_status": dict(self.by_status),
            "by_strength": dict(self.by_strength),
            "strength_sampled": self.strength_sampled,
            "by_age": dict(self.by_age),
            "writes_per_day": list(self.writes),
            "writes_sparkline": sparkline(self.writes),
            "changes_per_day": list(self.changes),
            "recalls_per_day": list(self.recalls),
            "recalls_sparkline": sparkline(self.recalls),
            "versions": self.versions,
            "unembedded": self.unembedded,
            "size_bytes": self.size_bytes,
        }


def statistics(
    store: MemoryStore,
    now: datetime,
    *,
    reader: Scope | None = None,
    daily: Mapping[str, Mapping[str, int]] | None = None,
    activation: ActivationSettings = DEFAULTS,
    unembedded: int | None = None,
) -> Statistics:
    """Return the figures of everything `reader` may see; None sees all. daily: date -> {searches}, of the process.

    unembedded: where the caller knows it, for it costs as much as all other counts.
    """
    readable: tuple[Condition, ...] = () if reader is None else (OneOf("audience", tuple(sorted(audiences(reader)))),)
    by_type, by_status, by_age = Counter[str](), Counter[str](), Counter[str]()
    writes, changes = Counter[int](), Counter[int]()
    active = Where((OneOf("state", tuple(sorted(SEARCHABLE_STATES))), *readable), (expired_by(now),))
    types = {name: store.facet(name, "type", active) for name in _LAYERS}
    states = {name: Counter(store.facet(name, "state", Where(readable))) for name in _LAYERS}
    by_layer = {name: sum(counts.values()) for name, counts in types.items()}
    versions = sum(counts.total() for counts in states.values())
    for name in _LAYERS:
        del states[name][HISTORY]
        by_status.update(states[name])
        by_type.update(types[name])
        by_age.update(_ages(store, name, active, now, total=by_layer[name]))
        writes.update(_each_day(store, name, (OneOf("version", (1,)), *readable), now))
        changes.update(_each_day(store, name, (Between("version", at_least=2), *readable), now))
    words, sampled = _strengths(store, active, now, activation, totals=by_layer)
    days = [(now - timedelta(days=back)).date().isoformat() for back in reversed(range(DAYS))]
    return Statistics(
        total=sum(by_layer.values()),
        by_layer=by_layer,
        by_type=dict(by_type),
        by_status=dict(by_status),
        by_strength=words,
        strength_sampled=sampled,
        by_age={name: by_age[name] for name in (*(str(d) for d in AGES_DAYS), "older")},
        writes=tuple(writes[index] for index in range(DAYS)),
        changes=tuple(changes[index] for index in range(DAYS)),
        recalls=tuple(int((daily or {}).get(day, {}).get("searches", 0)) for day in days),
        current={name: counts.total() for name, counts in states.items()},
        versions=versions,
        unembedded=sum(store.count(name, active.but_not(HasVector())) for name in _LAYERS)
        if unembedded is None
        else unembedded,
        size_bytes=store.size_bytes(),
    )


def _ages(store: MemoryStore, name: str, active: Where, now: datetime, *, total: int) -> dict[str, int]:
    ages: dict[str, int] = {}
    below: datetime | None = None
    for days in AGES_DAYS:
        since = now - timedelta(days=days)
        ages[str(days)] = store.count(name, active.and_(Between("recorded_at", at_least=since, below=below)))
        below = since
    return ages | {"older": max(0, total - sum(ages.values()))}


def _each_day(store: MemoryStore, name: str, conditions: Sequence[Condition], now: datetime) -> dict[int, int]:
    """Return day index (0 oldest) -> versions of this kind that were recorded that day, by UTC days."""
    midnight = datetime.combine(now.date(), time.min, tzinfo=now.tzinfo)
    starts = [midnight + timedelta(days=index + 1 - DAYS) for index in range(DAYS + 1)]

    def count(first: int, end: int) -> int:
        return store.count(name, Where((*conditions, Between("recorded_at", starts[first], starts[end]))))

    days: dict[int, int] = {}
    spans = [(0, DAYS, count(0, DAYS))]
    while spans:  # halved: as many questions as days, fewer where many are empty
        first, end, total = spans.pop()
        if end - first == 1:
            days[first] = total
        elif total:
            middle = (first + end) // 2
            earlier = count(first, middle)
            spans += [(first, middle, earlier), (middle, end, total - earlier)]
    return days


def _strengths(
    store: MemoryStore, active: Where, now: datetime, activation: ActivationSettings, *, totals: Mapping[str, int]
) -> tuple[dict[str, int], int]:
    """Return strength word -> memories, and how many were sampled."""
    words = Counter[str]()
    sampled = 0
    for name, total in totals.items():
        sample = Counter[str]()
        after: str | None = None
        while sample.total() < SAMPLE:
            entries, after = store.scan(name, active, page=PAGE, after=after)
            sample.update(strength_word(round(strength_of(e.memory, now, activation))) for e in entries)  # as shown
            if after is None or not entries:
                break
        size = sample.total()
        sampled += size
        for word, count in sample.items():
            words[word] += round(count * total / size) if size < total else count
    return {word: words[word] for word in ("vivid", "fading", "faded")}, sampled


def sparkline(values: Sequence[float]) -> str:
    """Return one block character a value, the greatest highest; a row of the lowest when all are 0.

    >>> sparkline([0, 1, 4, 8])
    '▁▁▄█'
    """
    most = max(values, default=0)
    if most <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / most * (len(_BARS) - 1) + 0.5))] for value in values)


BUFFER_MAX = 10_000
"""Memories waiting at most; beyond it new appearances are dropped, and uses are flushed at once."""
FLUSH_BATCH = 50
"""Counts written under the writers' lock: some 40 ms, so that no write waits longer."""
TALLY, TALLY_DAYS = "usage.json", 400
_COUNTED_LAYERS = frozenset({Layer.EVENT_LOG, Layer.VERIFIED_FACT, Layer.IDENTITY_SCHEMA})


@dataclass(slots=True)
class _Waiting:
    accesses: list[datetime] = field(default_factory=list)
    count: int = 0
    shown: int = 0


_COUNTS: ContextVar[bool] = ContextVar("memory_anchor_counts_use", default=True)


@contextmanager
def counting(counts: bool) -> Iterator[None]:
    """Let what this block reads count as used, or not: a look at another time is none."""
    token = _COUNTS.set(counts)
    try:
        yield
    finally:
        _COUNTS.reset(token)


class UsageBuffer:
    """Thread-safe. lock: the writers' lock, held while counts are read, added and written back."""

    def __init__(
        self,
        store: MemoryStore,
        clock: Clock,
        lock: AbstractContextManager[bool | None],
        *,
        records: SmallRecords,
    ) -> None:
        self._store = store
        self._clock = clock
        self._writers = lock
        self._records = records
        self._mutex = threading.Lock()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._tally = Counter[tuple[str, str]]()
        """(day, what) -> how many: what was not written yet."""

    def record_use(self, *memories: Memory) -> None:
        """Count a use now: the memory was fetched, cited or promoted."""
        if not _COUNTS.get():
            return
        now = self._clock.now()
        with self._mutex:
            for memory in memories:
                if memory.layer not in _COUNTED_LAYERS:
                    continue
                waiting = self._waiting.setdefault((memory.layer.value, memory.id), _Waiting())
                waiting.accesses = [*waiting.accesses, now][-USAGE_KEPT:]
                waiting.count += 1
            self._tally[now.date().isoformat(), "uses"] += len(memories)
            full = len(self._waiting) > BUFFER_MAX
        if full:
            self.flush()

    def record_shown(self, memories: Iterable[tuple[Layer, str]]) -> None:
        """Count one search and the memories (layer, id) that appeared in its answer."""
        if not _COUNTS.get():
            return
        with self._mutex:
            self._tally[self._clock.now().date().isoformat(), "searches"] += 1
            for layer, memory_id in memories:
                key = (layer.value, memory_id)
                if layer in _COUNTED_LAYERS and (key in self._waiting or len(self._waiting) < BUFFER_MAX):
                    self._waiting.setdefault(key, _Waiting()).shown += 1

    def flush(self, yield_to_requests: Callable[[], None] = lambda: None) -> int:
        """Write what waits to the current versions; return how many memories were counted.

        yield_to_requests: called between batches, see `Upkeep`. Counts of purged memories are dropped. What a failing
        store did not take waits for the next flush.
        """
        with self._mutex:
            waiting, self._waiting = self._waiting, {}
            tally, self._tally = self._tally, Counter[tuple[str, str]]()
        done = 0
        try:
            for collection in sorted({name for name, _ in waiting}):
                ids = [memory_id for name, memory_id in waiting if name == collection]
                for start in range(0, len(ids), FLUSH_BATCH):
                    yield_to_requests()
                    batch = ids[start : start + FLUSH_BATCH]
                    done += self._write(collection, batch, waiting)
                    for memory_id in batch:
                        del waiting[collection, memory_id]
        finally:
            self._put_back(waiting)
            self._save_tally(tally)
        return done

    @property
    def waiting(self) -> int:
        """How many memories have counts that are not written yet."""
        with self._mutex:
            return len(self._waiting)

    def daily(self) -> dict[str, dict[str, int]]:
        """Return date -> {searches, uses} as far back as stored, with what waits."""
        days, _ = self._load_tally()
        with self._mutex:
            return _added(days, self._tally)

    def _write(self, collection: str, ids: Sequence[str], waiting: dict[tuple[str, str], _Waiting]) -> int:
        current = Where((OneOf("id", tuple(ids)),), (OneOf("state", (HISTORY,)),))
        with self._writers:
            memories = self._store.find(collection, current, limit=2 * len(ids))
            usages = {m.point_id: added_usage(m.usage, waiting[collection, m.id]) for m in memories}
            self._store.set_usage(collection, usages)
        return len(memories)

    def _put_back(self, unwritten: dict[tuple[str, str], _Waiting]) -> None:
        with self._mutex:
            for key, old in unwritten.items():
                new = self._waiting.setdefault(key, _Waiting())
                new.accesses = [*old.accesses, *new.accesses][-USAGE_KEPT:]
                new.count += old.count
                new.shown += old.shown

    def _save_tally(self, tally: Counter[tuple[str, str]]) -> None:
        if not tally:
            return

        def add() -> None:
            stored, revision = self._load_tally()
            days = _added(stored, tally)
            recent = {day: days[day] for day in sorted(days)[-TALLY_DAYS:]}
            self._records.write(TALLY, json.dumps(recent).encode(), before=revision)

        retry_on_conflict(add)

    def _load_tally(self) -> tuple[dict[str, dict[str, int]], str]:
        """Return the stored tally and its revision; a missing or damaged one is empty, since it is only for display."""
        stored = self._records.read(TALLY)
        if stored is None:
            return {}, ""
        try:
            days = json.loads(stored.content)
            tally = {str(d): {str(w): int(n) for w, n in counts.items()} for d, counts in days.items()}
        except (ValueError, AttributeError, TypeError):
            tally = {}
        return tally, stored.revision


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


def _added(days: dict[str, dict[str, int]], more: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    total = {day: dict(counts) for day, counts in days.items()}
    for (day, what), count in more.items():
        counts = total.setdefault(day, {})
        counts[what] = counts.get(what, 0) + count
    return total
