"""Pictures of the dashboard: they hold at nothing, at one value and at 100,000, and stay inside their frame."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.extensions.dashboard import pictures

NOW = datetime(2026, 3, 3, 12, tzinfo=UTC)
COUNTS = st.lists(st.tuples(st.just("2026-03-03"), st.tuples(st.integers(0, 200_000), st.integers(0, 9))), max_size=60)


@given(COUNTS)
def test_bars_stand_in_the_frame_and_are_as_high_as_what_they_count(rows: list[tuple[str, tuple[int, int]]]) -> None:
    """Rule: an axis from 0 with round numbers that reaches over the greatest count; equal counts, equal bars."""
    picture = pictures.bars(rows)
    floor = pictures.HEIGHT - pictures.BOTTOM
    assert [bar.value for bar in picture.bars] == [count for _, counts in rows for count in counts]
    assert all(pictures.TOP - 0.2 <= bar.y <= floor and bar.y + bar.height == floor for bar in picture.bars)
    assert all(bar.x >= pictures.LEFT and bar.x + bar.width <= pictures.WIDTH + 0.2 for bar in picture.bars)
    assert len({bar.height for bar in picture.bars if bar.value == 7}) <= 1
    assert 2 <= len(picture.ticks) <= 6 and picture.ticks[0].label == "0"
    assert len(picture.names) <= pictures.DAY_LABELS


def test_an_axis_has_no_broken_numbers() -> None:
    """Rule: an axis from 1,000 on was cut, and one value needs an axis too."""
    assert [tick.label for tick in pictures.bars([("today", (100_000,))]).ticks] == ["0", "50k", "100k"]
    assert [tick.label for tick in pictures.bars([("today", (1,))]).ticks] == ["0", "1"]
    assert [tick.label for tick in pictures.bars([("today", (5_000,))]).ticks] == ["0", "2000", "4000", "6000"]
    assert pictures.bars([]).bars == ()


@pytest.mark.parametrize("days", [0, 1, 400, 20_000])
def test_a_life_runs_from_the_first_version_to_the_strength_to_come(days: int) -> None:
    """Rule: versions and uses stand before today, the forecast behind it, however long ago the memory began."""
    start = NOW - timedelta(days=days)
    versions = [(start, "active", "1"), (start + timedelta(days=days / 2), "disputed", "2")]
    picture = pictures.life(versions, [(NOW, "last use")], [(0, 100), (180, 3)], NOW)
    now = next(mark.x for mark in picture.marks if mark.kind == "now")
    ahead = [float(point.partition(",")[0]) for point in picture.curve.split()]
    assert [status for _, _, status in picture.spans] == ["active", "disputed"]
    assert all(pictures.LEFT <= mark.x <= now for mark in picture.marks)
    assert [ahead[0], ahead[-1]] == [pytest.approx(now, abs=0.2), pictures.WIDTH]


@given(st.integers(0, 40))
def test_linked_memories_stand_apart_inside_the_frame(count: int) -> None:
    """Rule: at most a dozen around the one in the middle, none upon another, the list beside has all."""
    picture = pictures.graph([{"id": str(n), "kind": "cites", "text": "text"} for n in range(count)])
    nodes = picture.nodes
    assert len(nodes) == min(count, pictures.AROUND_MAX)
    assert len({(node.x, node.y) for node in nodes}) == len(nodes)
    assert all(0 < node.x < pictures.GRAPH_WIDTH and 0 < node.y < pictures.GRAPH_HEIGHT for node in nodes)
    assert all(picture.top < node.y < picture.top + picture.height for node in nodes)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40).map(sorted))
def test_no_version_of_a_life_lies_over_another(days: list[int]) -> None:
    """Rule: versions that are too near get one mark with the first and the last of their numbers; none is left out."""
    versions = [(NOW - timedelta(days=400 - day), "active", str(n)) for n, day in enumerate(days, 1)]
    marks = [mark for mark in pictures.life(versions, [], [(0, 100), (180, 3)], NOW).marks if mark.kind == "version"]
    assert all(after.x - one.x >= pictures.MARK_WIDTH for one, after in itertools.pairwise(marks))
    parts = [mark.label.split("–") for mark in marks]
    assert (parts[0][0], parts[-1][-1]) == ("1", str(len(days)))
    assert all(int(after[0]) == int(one[-1]) + 1 for one, after in itertools.pairwise(parts))
