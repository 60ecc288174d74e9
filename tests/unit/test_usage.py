"""Uses are counted in memory and written in batches to the current version."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from stores import records_in
from threads import at_once
from timekit import a_memory, current, day, put, upkeep

from memory_anchor.domain.errors import Unavailable
from memory_anchor.domain.model import Layer, Status, Usage
from memory_anchor.domain.versions import revise
from memory_anchor.front.calls import run
from memory_anchor.process.wiring import Core
from memory_anchor.runtime.wire import Preamble
from memory_anchor.testing import ManualClock
from memory_anchor.upkeep import statistics as usage_module
from memory_anchor.upkeep.job_kit import Change, write
from memory_anchor.upkeep.statistics import UsageBuffer
from memory_anchor.use_cases.memory import MemoryAnchor


def buffer(up, clock=None, tmp_path=None):
    return UsageBuffer(
        up.store,
        clock or ManualClock(day(1)),
        threading.RLock(),
        records=records_in(tmp_path) if tmp_path else up.records,
    )


def test_reading_writes_nothing_until_the_flush():
    """Rule: reads stay reads."""
    up = upkeep()
    put(up, a_memory("m"))
    uses = buffer(up)

    uses.record_use(current(up)["m"])
    uses.record_shown([(Layer.EVENT_LOG, "m")])

    assert current(up)["m"].usage == Usage()
    assert uses.waiting == 1
    assert uses.flush() == 1
    assert current(up)["m"].usage == Usage(count=1, shown=1, last_at=day(1), accesses=(day(1),))


def test_a_use_counts_with_its_instant_and_an_appearance_only_as_seen():
    """Rule: mere appearance in a result counts less."""
    up, clock = upkeep(), ManualClock(day(1))
    put(up, a_memory("used"), a_memory("seen"))
    uses = buffer(up, clock)
    for _ in range(12):
        uses.record_use(current(up)["used"])
        uses.record_shown([(Layer.EVENT_LOG, "seen")])
        clock.advance(days=1)
    uses.flush()

    used, seen = current(up)["used"].usage, current(up)["seen"].usage
    assert (used.count, len(used.accesses), used.accesses[-1]) == (12, 10, day(12))
    assert (seen.count, seen.shown, seen.last_at) == (0, 12, None)


def test_counts_of_an_older_version_go_to_the_current_one():
    """Rule: use belongs to the memory, not to a version."""
    up = upkeep()
    put(up, a_memory("m"))
    uses = buffer(up)
    uses.record_use(current(up)["m"])
    now = current(up)["m"]
    step = revise(now, replace(now, status=Status.ARCHIVED), at=day(2), author="a", reason="r")
    write(up, [Change(step)], kind="x", by="a", at=day(2))

    uses.flush()

    assert (current(up)["m"].version, current(up)["m"].usage.count) == (2, 1)


def test_what_a_failing_store_did_not_take_waits_on(monkeypatch):
    """Rule: a failed flush loses no counts and counts none twice."""
    up = upkeep()
    put(up, a_memory("m"))
    uses = buffer(up)
    uses.record_use(current(up)["m"])

    def away(collection, usages):
        raise Unavailable("store away")

    with monkeypatch.context() as patch:
        patch.setattr(up.store, "set_usage", away)
        with pytest.raises(Unavailable):
            uses.flush()
    uses.record_use(current(up)["m"])

    uses.flush()

    assert current(up)["m"].usage.count == 2


def test_counts_of_a_purged_memory_are_dropped():
    """Rule: what does not exist is not counted."""
    up = upkeep()
    put(up, a_memory("m"))
    uses = buffer(up)
    uses.record_use(current(up)["m"])
    up.store.erase("event_log", [current(up)["m"].point_id])

    assert uses.flush() == 0
    assert uses.waiting == 0


def test_the_buffer_is_bounded(monkeypatch):
    """Rule: every bound is a name; uses make room by flushing, appearances are dropped."""
    monkeypatch.setattr(usage_module, "BUFFER_MAX", 3)
    up = upkeep()
    put(up, *(a_memory(f"m{i}") for i in range(5)))
    uses = buffer(up)
    uses.record_shown([(Layer.EVENT_LOG, f"m{i}") for i in range(5)])
    assert uses.waiting == 3

    uses.record_use(*current(up).values())

    assert uses.waiting == 0
    assert all(m.usage.count == 1 for m in current(up).values())


def test_recalls_a_day_are_tallied_beside_the_store(tmp_path):
    """Rule: recalls a day for `stats`; they survive the process."""
    up, clock = upkeep(), ManualClock(day(1))
    put(up, a_memory("m"))
    uses = buffer(up, clock, tmp_path)
    uses.record_shown([])
    uses.record_shown([(Layer.EVENT_LOG, "m")])
    uses.flush()
    clock.advance(days=1)
    again = buffer(up, clock, tmp_path)
    again.record_shown([])
    again.record_use(current(up)["m"])

    assert again.daily() == {"2026-01-02": {"searches": 2}, "2026-01-03": {"searches": 1, "uses": 1}}


def test_of_two_processes_that_count_searches_at_once_neither_is_lost(tmp_path, monkeypatch):
    """Rule: recalls a day for `stats`; who counted on an old state reads again and adds to the new one."""
    up, records = upkeep(), records_in(tmp_path)
    one, other = (
        UsageBuffer(up.store, ManualClock(day(1)), threading.RLock(), records=which)
        for which in (records, records_in(tmp_path))
    )
    for uses in (one, other):
        uses.record_shown([])
    read = records.read
    monkeypatch.setattr(records, "read", lambda name: (read(name), other.flush())[0])

    one.flush()

    assert other.daily() == {"2026-01-02": {"searches": 2}}


def test_counting_from_many_threads_loses_nothing():
    """Rule: thread-safe."""
    up = upkeep()
    put(up, a_memory("m"))
    uses, memory = buffer(up), current(up)["m"]

    def work():
        for index in range(50):
            uses.record_use(memory)
            if index % 10 == 0:
                uses.flush()

    at_once(*[work] * 4)
    uses.flush()

    assert current(up)["m"].usage.count == 200


def test_a_look_at_another_time_counts_as_no_use(core: Core, anchor: MemoryAnchor, clock: ManualClock) -> None:
    """Rule usage.at: `show --at` and `search --at` tell what would be; a plain `show` is a use."""
    fact = str(anchor.save_memory("The harbour is nine metres deep").id)
    caller = Preamble(project_dir=anchor.actor.project_dir, cwd=anchor.actor.project_dir)
    later = (clock.now() + timedelta(days=30)).isoformat()
    for name, given in (("show", {"id": fact}), ("search", {"query": "harbour deep"}), ("list", {}), ("stats", {})):
        assert run(core, caller, name, {**given, "at": later})
    core.services.usage.flush()
    usage = core.services.records.read(fact, None).usage
    assert (usage.count, usage.shown, usage.last_at) == (0, 0, None)

    run(core, caller, "show", {"id": fact})

    core.services.usage.flush()
    assert core.services.records.read(fact, None).usage.count == 1
