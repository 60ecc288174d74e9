"""Statistics: counts that add up, and a fixed number of store calls however large the store is."""

from __future__ import annotations

from timekit import a_memory, day, put, upkeep, used_at

from memory_anchor.domain.activation import ActivationSettings
from memory_anchor.domain.model import MemoryType, Scope, Status, Visibility
from memory_anchor.upkeep import statistics as stats_module
from memory_anchor.upkeep.statistics import sparkline, statistics


def a_store():
    up = upkeep()
    put(
        up,
        a_memory("fresh", recorded_at=day(59.9)),
        a_memory("old"),
        a_memory("used", usage=used_at(59)),
        a_memory("rule", kind=MemoryType.INSTRUCTION, recorded_at=day(55)),
        a_memory("gone", status=Status.ARCHIVED),
        a_memory("waits", kind=MemoryType.FACT, status=Status.PENDING),
    )
    put(up, a_memory("later", recorded_at=day(58)), embed=False)
    return up


def test_counts_by_layer_type_status_strength_and_age_add_up():
    """Rule: counts by layer, type, strength, age; archived memories are counted by status only."""
    told = statistics(a_store().store, day(60), activation=ActivationSettings(noise=0))

    assert (told.total, told.by_layer) == (5, {"event_log": 4, "verified_fact": 1})
    assert told.by_type == {"event": 4, "instruction": 1}
    assert told.by_status == {"active": 5, "archived": 1, "pending": 1}
    assert told.by_strength == {"vivid": 4, "fading": 0, "faded": 1}
    assert told.by_age == {"1": 1, "7": 2, "30": 0, "90": 2, "365": 0, "older": 0}
    assert (told.unembedded, told.strength_sampled) == (1, 5)


def test_writes_and_recalls_are_told_by_day_oldest_first():
    """Rule: writes and recalls a day, with a sparkline."""
    told = statistics(a_store().store, day(60), daily={"2026-03-01": {"searches": 7}, "2026-03-02": {"uses": 3}})

    assert len(told.writes) == len(told.recalls) == 30
    assert told.writes[-6:] == (1, 0, 0, 1, 1, 0)
    assert told.recalls[-3:] == (0, 7, 0)
    assert len(told.as_dict()["writes_sparkline"]) == 30


def test_only_what_the_reader_may_see_is_counted():
    """Rule: scope never leaks, not even as a count."""
    up = a_store()
    put(up, a_memory("theirs", scope=Scope(user="you"), visibility=Visibility.USER))

    assert statistics(up.store, day(60), reader=Scope()).total == 5
    assert statistics(up.store, day(60)).total == 6


def test_a_large_store_is_sampled_for_strength_and_said_so(monkeypatch):
    """Rule: cheap at any size: strength is scaled up from a sample."""
    monkeypatch.setattr(stats_module, "SAMPLE", 50)
    monkeypatch.setattr(stats_module, "PAGE", 25)
    up = upkeep()
    put(up, *(a_memory(f"m{i}", recorded_at=day(60 if i % 2 else 0)) for i in range(400)), embed=False)

    told = statistics(up.store, day(60))

    assert told.strength_sampled == 50
    assert 120 <= told.by_strength["vivid"] <= 280
    assert sum(told.by_strength.values()) == 400


def test_an_empty_store_has_figures_too():
    """Rule: nothing is an answer."""
    told = statistics(upkeep().store, day(0)).as_dict()

    assert (told["total"], told["writes_sparkline"]) == (0, "▁" * 30)


def test_a_sparkline_puts_the_greatest_highest():
    """Rule: one character a value, no value out of range."""
    assert sparkline([]) == ""
    assert sparkline([1, 2, 100]) == "▁▁█"
    assert sparkline([5, 5]) == "██"
