"""What a store holds and how it lives, cheap enough to show at any time.

Counts come from facets and filtered counts, so they cost the same few calls at a hundred and at a hundred thousand
memories. Strength must be computed memory by memory: it is taken from a sample of the first points in point-id order,
which is random (ids are hashes), and the answer says how many were looked at. Small stores are counted whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from memory_anchor.activation import DEFAULTS, ActivationSettings, strength_of, strength_word
from memory_anchor.json_values import Json
from memory_anchor.model import FOUND_STATES, Scope, audiences
from memory_anchor.ports import MemoryStore
from memory_anchor.upkeep.upkeep import every_current
from memory_anchor.versions import expired_by
from memory_anchor.where import Between, Condition, HasVector, OneOf, Where

SAMPLE = 1_000
PAGE = 500
DAYS = 30
AGES_DAYS = (1, 7, 30, 90, 365)
_LAYERS = ("event_log", "verified_fact")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Statistics:
    """by_age: upper bound in days ("1", "7", ..., "older") -> memories. writes, recalls: a day, oldest first.

    by_strength: words -> memories, scaled up from `strength_sampled` memories where that is fewer than there are.
    """

    total: int
    by_layer: Mapping[str, int]
    by_type: Mapping[str, int]
    by_status: Mapping[str, int]
    by_strength: Mapping[str, int]
    strength_sampled: int
    by_age: Mapping[str, int]
    writes: tuple[int, ...]
    recalls: tuple[int, ...]
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
) -> Statistics:
    """Return the figures of everything `reader` may see; None sees all. daily: date -> {searches}, of the process."""
    seen: tuple[Condition, ...] = () if reader is None else (OneOf("audience", tuple(sorted(audiences(reader)))),)
    by_layer: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    by_status: Counter[str] = Counter()
    by_age: Counter[str] = Counter()
    writes: Counter[int] = Counter()
    versions = unembedded = 0
    found = Where((OneOf("state", tuple(sorted(FOUND_STATES))), *seen), (expired_by(now),))
    for name in _LAYERS:
        by_status.update(store.facet(name, "state", every_current().and_(*seen)))
        by_type.update(store.facet(name, "type", found))
        by_layer[name] = store.count(name, found)
        versions += store.count(name, Where(seen))
        unembedded += store.count(name, found.but_not(HasVector()))
        by_age.update(_ages(store, name, found, now))
        writes.update(_writes(store, name, seen, now))
    words, sampled = _strengths(store, found, now, activation)
    days = [(now - timedelta(days=back)).date().isoformat() for back in reversed(range(DAYS))]
    return Statistics(
        total=sum(by_layer.values()),
        by_layer=dict(by_layer),
        by_type=dict(by_type),
        by_status=dict(by_status),
        by_strength=words,
        strength_sampled=sampled,
        by_age={name: by_age[name] for name in (*(str(d) for d in AGES_DAYS), "older")},
        writes=tuple(writes[index] for index in range(DAYS)),
        recalls=tuple(int((daily or {}).get(day, {}).get("searches", 0)) for day in days),
        versions=versions,
        unembedded=unembedded,
        size_bytes=store.size_bytes(),
    )


def _ages(store: MemoryStore, name: str, found: Where, now: datetime) -> dict[str, int]:
    ages: dict[str, int] = {}
    below: datetime | None = None
    for days in AGES_DAYS:
        since = now - timedelta(days=days)
        ages[str(days)] = store.count(name, found.and_(Between("recorded_at", at_least=since, below=below)))
        below = since
    ages["older"] = store.count(name, found.and_(Between("recorded_at", below=below)))
    return ages


def _writes(store: MemoryStore, name: str, seen: Sequence[Condition], now: datetime) -> dict[int, int]:
    """Return day index (0 oldest) -> memories first written that day, by UTC days."""
    midnight = datetime.combine(now.date(), time.min, tzinfo=now.tzinfo)
    writes: dict[int, int] = {}
    for index in range(DAYS):
        start = midnight - timedelta(days=DAYS - 1 - index)
        first = Where((OneOf("version", (1,)), Between("recorded_at", start, start + timedelta(days=1)), *seen))
        writes[index] = store.count(name, first)
    return writes


def _strengths(
    store: MemoryStore, found: Where, now: datetime, activation: ActivationSettings
) -> tuple[dict[str, int], int]:
    words: Counter[str] = Counter()
    sampled = 0
    for name in _LAYERS:
        total, own = store.count(name, found), Counter[str]()
        after: str | None = None
        while sum(own.values()) < SAMPLE:
            entries, after = store.scan(name, found, page=PAGE, after=after)
            own.update(strength_word(round(strength_of(one.memory, now, activation))) for one in entries)  # as shown
            if after is None or not entries:
                break
        looked = sum(own.values())
        sampled += looked
        for word, many in own.items():
            words[word] += round(many * total / looked) if looked < total else many
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
