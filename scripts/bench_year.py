"""Simulate a year: does forgetting keep the store small without losing what is still needed?

    python scripts/bench_year.py                 # 365 days, with and without forgetting; then one night over 15,000
    python scripts/bench_year.py --days 60       # a quick look

A clock moved by hand, one seed, the embedded engine, no model. Each day 40 memories are written (60 % episodes and
events, 20 % workflow, 10 % preference, 5 % instruction, 5 % other facts) and 60 are recalled. Which ones are needed
again follows the power law of human needs (Anderson & Schooler, 1991): most soon, some after months, and a few hundred
all the time. A recall finds its memory when word search puts it among the first five; then it counts as used. At night
the jobs run. Both arms see the same writes and the same needs, so their recall differs by forgetting alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from memory_anchor.base.hashing import content_hash
from memory_anchor.domain.activation import ActivationSettings, settings_named
from memory_anchor.domain.model import (
    COLLECTIONS,
    LAYER_OF_TYPE,
    SEARCHABLE_STATES,
    Actor,
    Layer,
    Memory,
    MemoryType,
    Origin,
    Scope,
    Status,
    Tag,
)
from memory_anchor.domain.ports import DENSE, CollectionSpec, Entry
from memory_anchor.domain.where import Between, OneOf, Where
from memory_anchor.language.indexing import searched_words
from memory_anchor.language.terms import query_terms
from memory_anchor.process.app import build_core
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.lock import DirectoryLock
from memory_anchor.settings import Settings
from memory_anchor.store.audit_rows import SqlAudit
from memory_anchor.store.database import Sqlite, UnitLock
from memory_anchor.store.record_rows import SqlRecords
from memory_anchor.store.sql_store import SqlStore
from memory_anchor.testing import HashEmbedder, ManualClock
from memory_anchor.upkeep.forgetting import EXPIRE_AUTHOR, FORGET_AUTHOR, expire_events, forget
from memory_anchor.upkeep.job_kit import Upkeep, live
from memory_anchor.upkeep.statistics import UsageBuffer
from memory_anchor.use_cases.memory import MemoryAnchor

START = datetime(2026, 1, 1, 8, tzinfo=UTC)
MIX = (
    (0.30, MemoryType.EVENT),
    (0.30, MemoryType.EPISODE),
    (0.20, MemoryType.WORKFLOW),
    (0.10, MemoryType.PREFERENCE),
    (0.05, MemoryType.INSTRUCTION),
    (0.05, MemoryType.FACT),
)
WRITES, RECALLS = 40, 60
VOCABULARY, WORDS, ASKED = 4_000, 14, 3
"""A memory has 14 words, half of them common; a query has 3 of them and one word that is not its own."""
PINNED_SHARE, HUMAN_SHARE, EXTRACTED_SHARE = 0.01, 0.05, 0.5
LASTING_SHARE = 0.03
"""Of what is written, needed again and again all year."""
LASTING_RECALLS = 0.4
RECENT_DAYS = 7
NIGHT_MEMORIES = 15_000
QUERIES, PAUSE_S, ALONE_S = 400, 0.03, 15.0
"""Distinct searches of the timed night, the pause between two, and how long they are asked without a job."""


@dataclass
class Arm:
    """One run of the year. archived_wrongly: memories that no night may take, by why."""

    name: str
    recalled: int = 0
    found: int = 0
    needed_archived: int = 0
    in_use_recalled: int = 0
    in_use_found: int = 0
    most_active: int = 0
    nights_s: list[float] = field(default_factory=list)
    archived_wrongly: dict[str, int] = field(default_factory=dict)
    archived_by_type: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)


class Year:
    def __init__(self, folder: Path, *, seed: int, forgetting: bool, rules: Settings, by: ActivationSettings):
        self.lock = DirectoryLock.acquire(folder, role="bench")
        self.store = SqlStore(Sqlite(folder / "store" / "memory.db"))
        self.embedder = HashEmbedder()
        for name in COLLECTIONS:
            self.store.open_collection(name, CollectionSpec({DENSE: self.embedder.identity}))
        self.clock = ManualClock(START)
        self.writers = UnitLock(self.store.database)
        self.upkeep = Upkeep(
            self.store,
            SqlAudit(self.store.database),
            self.writers,
            lambda _: None,
            lambda: None,
            settings=rules,
            activation=by,
            records=SqlRecords(self.store.database, self.clock.now),
        )
        self.usage = UsageBuffer(self.store, self.clock, self.writers, records=self.upkeep.records)
        self.forgetting = forgetting
        self.writing, self.needing = random.Random(seed), random.Random(seed + 1)
        self.memories: list[Memory] = []
        self.lasting: list[int] = []
        self.last_needed: dict[int, int] = {}
        self.arm = Arm("forgetting" if forgetting else "no forgetting")

    def write_day(self, many: int = WRITES) -> None:
        now, made = self.clock.now(), []
        for _ in range(many):
            memory = self._memory(len(self.memories), now)
            self.memories.append(memory)
            if self.writing.random() < LASTING_SHARE:
                self.lasting.append(len(self.memories) - 1)
            made.append(memory)
        rows = self.embedder.documents([m.content for m in made])
        for layer in (Layer.EVENT_LOG, Layer.VERIFIED_FACT):
            entries = [
                Entry(m, {DENSE: row}, searched_words(m)) for m, row in zip(made, rows, strict=True) if m.layer is layer
            ]
            self.store.put(layer.value, entries)

    def _memory(self, number: int, now: datetime) -> Memory:
        draw, kind = self.writing.random(), MIX[-1][1]
        for share, one in MIX:
            draw -= share
            if draw < 0:
                kind = one
                break
        words = [f"w{min(int(self.writing.paretovariate(0.9)), VOCABULARY)}" for _ in range(WORDS // 2)]
        words += [f"w{self.writing.randrange(VOCABULARY)}" for _ in range(WORDS - len(words))]
        origin, by = Origin.AGENT, self.writing.random()
        if by < HUMAN_SHARE:
            origin = Origin.HUMAN
        elif LAYER_OF_TYPE[kind] is Layer.VERIFIED_FACT and by < HUMAN_SHARE + EXTRACTED_SHARE:
            origin = Origin.EXTRACTED
        text = " ".join(words)
        return Memory(
            f"m{number}",
            text,
            LAYER_OF_TYPE[kind],
            kind,
            Scope(conversation=f"c{number // 12}"),
            recorded_at=now,
            valid_from=now,
            when=now,
            importance=min(1.0, max(0.0, self.writing.gauss(0.5, 0.15))),
            origin=origin,
            pinned=self.writing.random() < PINNED_SHARE,
            tags=(Tag(f"t{number % 40}"), Tag(f"t{number % 7}")),
            content_hash=content_hash(text),
            author="agent:bench",
        )

    def recall_day(self, day: int) -> None:
        for _ in range(RECALLS):
            wanted = self._needed(day)
            memory = self.memories[wanted]
            asked = " ".join(
                [*self.needing.sample(memory.content.split(), ASKED), f"w{self.needing.randrange(VOCABULARY)}"]
            )
            in_use = day - self.last_needed.get(wanted, -(10**6)) <= 30
            hits = self.found(asked)
            hit = memory.id in hits
            self.arm.recalled += 1
            self.arm.found += hit
            self.arm.in_use_recalled += in_use
            self.arm.in_use_found += hit and in_use
            self.last_needed[wanted] = day
            if hit:
                self.usage.record_use(memory)
            self.usage.record_shown(
                (self.memories[int(h[1:])].layer, h) for h in hits if h.startswith("m") and h != memory.id
            )
        self.usage.flush()

    def _needed(self, day: int) -> int:
        if self.lasting and self.needing.random() < LASTING_RECALLS:
            return self.needing.choice(self.lasting)
        age = min(day, int(self.needing.paretovariate(0.7)) - 1)
        first = (day - age) * WRITES
        return self.needing.randrange(first, first + WRITES)

    def found(self, asked: str) -> list[str]:
        """Return the ids of the five best by words among live memories of both layers."""
        words = query_terms(asked)
        alive = Where((OneOf("state", tuple(SEARCHABLE_STATES)),))
        hits = []
        for name in ("event_log", "verified_fact"):
            own = self.store.matching(name, words, alive, limit=5)
            by_point = {e.memory.point_id: e.memory.id for e in self.store.get(name, [h.point_id for h in own])}
            hits += [(h.score, by_point[h.point_id]) for h in own]
        return [memory_id for _, memory_id in sorted(hits, reverse=True)[:5]]

    def night(self) -> None:
        at = self.clock.now()
        if self.forgetting:
            began = time.perf_counter()
            expire_events(self.upkeep, at)
            forget(self.upkeep, at)
            self.arm.nights_s.append(time.perf_counter() - began)
            self._check(at)
        active = sum(self.store.count(name, live()) for name in ("event_log", "verified_fact"))
        self.arm.most_active = max(self.arm.most_active, active)
        self.arm.figures["active"] = active

    def _check(self, at: datetime) -> None:
        tonight = live(
            OneOf("author", (FORGET_AUTHOR, EXPIRE_AUTHOR)),
            Between("recorded_at", at_least=at),
            states=(Status.ARCHIVED,),
        )
        for name in ("event_log", "verified_fact"):
            for memory in self.store.find(name, tonight, limit=10_000):
                self.arm.archived_by_type[memory.type] = self.arm.archived_by_type.get(memory.type, 0) + 1
                used = memory.usage.last_at
                for why, wrong in (
                    ("pinned", memory.pinned),
                    ("instruction", memory.type is MemoryType.INSTRUCTION),
                    ("human", memory.origin is Origin.HUMAN),
                    ("recently used", used is not None and at - used < timedelta(days=RECENT_DAYS)),
                ):
                    if wrong:
                        self.arm.archived_wrongly[why] = self.arm.archived_wrongly.get(why, 0) + 1

    def close(self) -> None:
        self.store.close()
        self.lock.release()


def run_year(*, days: int, seed: int, forgetting: bool, rules: Settings, by: ActivationSettings) -> Arm:
    with tempfile.TemporaryDirectory(prefix="year-") as folder:
        year = Year(Path(folder), seed=seed, forgetting=forgetting, rules=rules, by=by)
        for day in range(days):
            year.write_day()
            year.clock.advance(hours=10)
            year.recall_day(day)
            year.clock.advance(hours=9)
            year.night()
            year.clock.advance(hours=5)
        arm = year.arm
        archived = sum(arm.archived_by_type.values())
        arm.figures |= {
            "written": len(year.memories),
            "archived": archived,
            "archived_share": round(archived / len(year.memories), 4),
            "recall@5": round(arm.found / arm.recalled, 4),
            "recall@5_in_use": round(arm.in_use_found / max(1, arm.in_use_recalled), 4),
            "size_mb": round(year.store.size_bytes() / 1e6, 1),
            "slowest_night_s": round(max(arm.nights_s, default=0.0), 2),
        }
        year.close()
    return arm


def one_night(*, memories: int, seed: int, rules: Settings) -> dict[str, Any]:
    """Return how long one night over this many active memories takes, and what searches meanwhile wait for it.

    Every job of an engine runs, as an engine runs it; the searches are whole ones, through the door that agents use,
    with nothing answered from a cache. The same searches before it, in the same process and as long, are what they
    are compared with: what a busy machine does to both is not the night's doing.
    """
    with tempfile.TemporaryDirectory(prefix="night-") as name:
        folder = Path(name)
        asked, clock = filled(folder, memories=memories, seed=seed)
        with DirectoryLock.acquire(folder, role="bench") as lock:
            core = build_core(rules, data_dir=folder, lock=lock, clock=clock, embedder=HashEmbedder())
            core.services.searcher.index.embed_pending(1)
            gc.freeze()  # as an engine does when it has settled
            anchor = core.anchor(Actor(scope=Scope(project="default")))
            asking = Asking(core, anchor, asked)
            told = asking.during(lambda: time.sleep(ALONE_S), "alone")
            took: dict[str, float] = {}

            def night() -> None:
                for job in core.scheduler.jobs:
                    began = time.perf_counter()
                    core.scheduler.run(job, core.clock.now())
                    took[job] = round(time.perf_counter() - began, 2)

            began = time.perf_counter()
            told |= asking.during(night, "beside")
            total = time.perf_counter() - began
            core.close()
    return {
        "memories": memories,
        "night_s": round(total, 2),
        "jobs_s": {job: s for job, s in took.items() if s >= 0.1},
        **told,
        "caused_ms": {at: round(told["beside_ms"][at] - told["alone_ms"][at], 1) for at in told["alone_ms"]},
    }


def filled(folder: Path, *, memories: int, seed: int) -> tuple[list[str], ManualClock]:
    """Fill a store with this many memories, 500 a day, the last 40 days ago; return queries and the clock."""
    year = Year(folder, seed=seed, forgetting=True, rules=Settings(), by=settings_named("act_r"))
    for _ in range(memories // 500):
        year.write_day(500)
        year.clock.advance(days=1)
    year.clock.advance(days=40)
    ask = random.Random(seed)
    asked = [" ".join(ask.sample(ask.choice(year.memories).content.split(), ASKED)) for _ in range(QUERIES)]
    year.close()
    return asked, year.clock


@dataclass
class Asking:
    """Asks one search after the other, a pause between, as long as something lasts."""

    core: Core
    anchor: MemoryAnchor
    asked: Sequence[str]
    number: int = 0

    def during(self, work: Callable[[], None], name: str) -> dict[str, Any]:
        """Return how long searches took while `work` went on, in milliseconds."""
        worker = threading.Thread(target=work)
        worker.start()
        took: list[float] = []
        while worker.is_alive():
            self.number += 1
            began = time.perf_counter()
            with self.core.foreground:
                # The limit makes it another question than last time: no answer is kept for it.
                self.anchor.search(self.asked[self.number % QUERIES], limit=5 + self.number // QUERIES % 45)
            took.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
        took.sort()
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}
        return {
            f"{name}_searches": len(took),
            f"{name}_ms": {
                at: round(took[min(len(took) - 1, int(len(took) * s))] * 1e3, 1) for at, s in shares.items()
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--max-entries", type=int, default=9_000)
    parser.add_argument("--policy", default="hybrid")
    parser.add_argument("--activation", default="act_r", choices=["act_r", "seed", "linear"])
    parser.add_argument("--night", type=int, default=NIGHT_MEMORIES, help="memories of the timed night, 0: none")
    given = parser.parse_args()
    rules = Settings.model_validate({"lifecycle": {"max_entries": given.max_entries, "policy": given.policy}})
    by = settings_named(given.activation)
    told: dict[str, Any] = {
        "days": given.days,
        "seed": given.seed,
        "policy": given.policy,
        "activation": given.activation,
    }
    for forgetting in (True, False) if given.days else ():
        arm = run_year(days=given.days, seed=given.seed, forgetting=forgetting, rules=rules, by=by)
        told[arm.name] = {
            **arm.figures,
            "most_active": arm.most_active,
            "archived_by_type": dict(sorted(arm.archived_by_type.items())),
            "archived_wrongly": arm.archived_wrongly,
        }
        print(json.dumps({arm.name: told[arm.name]}, ensure_ascii=False), flush=True)
    if given.night:
        settings = Settings(lifecycle={"max_entries": given.max_entries, "policy": given.policy})
        told["one night"] = one_night(memories=given.night, seed=given.seed, rules=settings)
    print(json.dumps(told, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
