"""Amounts of time, and on which side of a time a query looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cases import by_result

from memory_anchor.language.timewords import time_range

NOW = datetime(2025, 12, 17, 15, 30, tzinfo=UTC)
"""A Wednesday."""


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("一个半月前", 37, 53),
        ("两个半月前的决定", 67, 83),
        ("half a month ago", 7, 23),
        ("one and a half months ago", 37, 53),
        ("1.5 weeks ago", 8, 13),
        ("一年半前", 456, 639),
        ("1.5 years ago", 456, 639),
        ("a year and a half ago", 456, 639),
        ("两天半前", 2, 3),
    ],
)
def test_a_fraction_is_meant_to_a_quarter_of_its_unit(query: str, first: int, last: int) -> None:
    """Rule time.fraction: "a year and a half ago" is no single day, and 一个半月 is no 半月."""
    found = time_range(query, now=NOW, zone="UTC")
    today = NOW.replace(hour=0, minute=0)
    assert found is not None
    assert ((today - found.start).days, (today - found.end).days + 1) == (last, first)


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("三四天前", 3, 4),
        ("十几天前", 11, 19),
        ("二十多天前", 20, 29),
        ("10多天前", 10, 19),
        ("十三四天前", 13, 14),
        ("3到5天前", 3, 5),
        ("3-4 days ago", 3, 4),
        ("three or four days ago", 3, 4),
        ("二十一天前", 21, 21),
        ("三天多前", 3, 4),
        ("a day or two ago", 1, 2),
    ],
)
def test_an_amount_between_two_numbers_spans_both(query: str, first: int, last: int) -> None:
    """Rule time.between: 三四天前 is three or four days ago, and filters."""
    found = time_range(query, now=NOW, zone="UTC")
    today = NOW.replace(hour=0, minute=0)
    assert found is not None and found.is_hard
    assert ((today - found.start).days, (today - found.end).days + 1) == (last, first)


@pytest.mark.parametrize(
    "query", ["a few days ago", "several days ago", "几天前", "好几天前", "若干天前", "几天前路由器改了什么"]
)
def test_an_amount_without_a_number_spans_some_days_and_never_filters(query: str) -> None:
    """Rule time.few: "a few days ago" is two to six days ago and only counts."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None and not found.is_hard
    assert found.start.date().isoformat() == "2025-12-11"
    assert found.end.date().isoformat() == "2025-12-16"


@pytest.mark.parametrize(
    ("query", "start"),
    by_result(
        {
            "2024-01-01": "after 2023 | 2023年之后 | 2023年以后",
            "2023-01-01": "since 2023 | 2023年以来",
            "2025-12-17": "after yesterday",
            "2025-12-15": "after last week | from Monday on",
            "2025-12-16": "since yesterday | after yesterday's meeting",
            "2025-12-08": "changes from last week onwards",
        }
    ),
)
def test_after_begins_when_a_time_is_over_and_since_when_it_begins(query: str, start: str) -> None:
    """Rule time.after: "after 2023" is without 2023, "since 2023" with it; both reach to now."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None and found.is_hard
    assert (found.start.date().isoformat(), found.end) == (start, NOW + timedelta(seconds=1))


@pytest.mark.parametrize("query", ["after today", "after this week", "今天之后"])
def test_after_what_is_not_over_is_to_come(query: str) -> None:
    """Rule time.after: what begins later than now never filters."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None and not found.is_hard and found.start > NOW


@pytest.mark.parametrize(
    ("query", "start", "is_hard"),
    [("everything from last week", "2025-12-08", True), ("photos from 2023", "2023-01-01", False)],
)
def test_from_a_time_is_of_that_time(query: str, start: str, is_hard: bool) -> None:
    """Rule time.from: "from last week" alone does not reach to now."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None and found.is_hard is is_hard
    assert found.start.date().isoformat() == start
    assert found.end < NOW - timedelta(days=2)


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("一个多月前", "2025-10-01", "2025-12-01"),
        ("两年多前", "2022-01-01", "2024-01-01"),
        ("半个多月前", "2025-11-09", "2025-12-11"),
    ],
)
def test_an_amount_and_more_spans_up_to_the_next(query: str, start: str, end: str) -> None:
    """Rule time.between: 一个多月前 lies between one month ago and two."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None and found.is_hard
    assert (found.start.date().isoformat(), found.end.date().isoformat()) == (start, end)


def test_hours_may_be_a_fraction() -> None:
    """Rule time.hours: "2.5 hours ago" is an hour around it, and not 5 hours ago."""
    found = time_range("2.5 hours ago", now=NOW, zone="UTC")
    assert found is not None
    assert (found.start, found.end) == (NOW - timedelta(hours=3.5), NOW - timedelta(hours=1.5))
