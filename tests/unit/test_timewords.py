"""Time words in queries, Chinese and English (strategy 7.1: "今天修复了什么", "上周完成了什么")."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.retrieval.timewords import number, time_range

NOW = datetime(2025, 12, 17, 15, 30, tzinfo=UTC)
"""A Wednesday."""


def days(query: str, zone: str = "UTC") -> tuple[str, str] | None:
    found = time_range(query, now=NOW, zone=zone)
    return (found.start.date().isoformat(), found.end.date().isoformat()) if found else None


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("what did we fix today", "2025-12-17", "2025-12-18"),
        ("今天修复了什么", "2025-12-17", "2025-12-18"),
        ("what broke yesterday?", "2025-12-16", "2025-12-17"),
        ("昨天的会议", "2025-12-16", "2025-12-17"),
        ("前天谁提交的", "2025-12-15", "2025-12-16"),
        ("大前天谁提交的", "2025-12-14", "2025-12-15"),
        ("what is planned this week", "2025-12-15", "2025-12-22"),
        ("本周做了什么", "2025-12-15", "2025-12-22"),
        ("这周做了什么", "2025-12-15", "2025-12-22"),
        ("what did we finish last week", "2025-12-08", "2025-12-15"),
        ("上周完成了什么", "2025-12-08", "2025-12-15"),
        ("上个星期完成了什么", "2025-12-08", "2025-12-15"),
        ("上上周完成了什么", "2025-12-01", "2025-12-08"),
        ("the release last Friday", "2025-12-12", "2025-12-13"),
        ("the meeting last Wednesday", "2025-12-10", "2025-12-11"),
        ("上周五的发布", "2025-12-12", "2025-12-13"),
        ("周一谁值班", "2025-12-15", "2025-12-16"),
        ("this month's bugs", "2025-12-01", "2026-01-01"),
        ("本月的支出", "2025-12-01", "2026-01-01"),
        ("last month", "2025-11-01", "2025-12-01"),
        ("上个月", "2025-11-01", "2025-12-01"),
        ("last year", "2024-01-01", "2025-01-01"),
        ("去年的目标", "2024-01-01", "2025-01-01"),
        ("去年五月去了哪里", "2024-05-01", "2024-06-01"),
        ("what did I note 3 days ago", "2025-12-14", "2025-12-15"),
        ("three days ago", "2025-12-14", "2025-12-15"),
        ("三天前说了什么", "2025-12-14", "2025-12-15"),
        ("两个月前的决定", "2025-10-01", "2025-11-01"),
        ("two weeks ago", "2025-12-01", "2025-12-08"),
        ("errors in the last 3 days", "2025-12-14", "2025-12-18"),
        ("最近三天的错误", "2025-12-14", "2025-12-18"),
        ("What did Caroline do in May 2023?", "2023-05-01", "2023-06-01"),
        ("the talk on 8 May 2023", "2023-05-08", "2023-05-09"),
        ("May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("2025年12月的发布", "2025-12-01", "2026-01-01"),
        ("2025年12月3日的发布", "2025-12-03", "2025-12-04"),
        ("logs of 2025-12-03", "2025-12-03", "2025-12-04"),
        ("in March", "2025-03-01", "2025-04-01"),
        ("十二月的计划", "2025-12-01", "2026-01-01"),
        ("in 2023", "2023-01-01", "2024-01-01"),
        ("met on 05/08/2023", "2023-05-08", "2023-05-09"),
        ("since Monday", None, None),
        ("what have we done since last Monday", "2025-12-15", "2025-12-17"),
    ],
)
def test_time_words_become_half_open_days(query: str, start: str | None, end: str | None) -> None:
    """Rule time.words: weeks start on Monday, days are whole, the range is half-open."""
    assert days(query) == ((start, end) if start else None)


@pytest.mark.parametrize(
    "query",
    [
        "why do we use Qdrant",
        "为什么用 Qdrant",
        "may I edit the constitution",
        "version 1.20.0 of the client",
        "the second of three tests",
        "how long is a week",
        "marching orders",
        "三次审批",
        "上下文预算",
        "ran 2023 tests",
    ],
)
def test_other_words_are_left_alone(query: str) -> None:
    """Rule time.words: no false alarm on words that only look like dates."""
    assert days(query) is None


def test_what_hangs_on_now_filters_and_a_calendar_date_only_counts() -> None:
    """Rule time.hard: "last week" excludes the rest; "in May 2023" may have been told in June."""
    relative = time_range("上周完成了什么", now=NOW, zone="UTC")
    dated = time_range("trips in May 2023", now=NOW, zone="UTC")
    assert relative is not None and relative.is_hard
    assert dated is not None and not dated.is_hard


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("今天修复了什么", False),
        ("what did we do last week", False),
        ("上周的数据库迁移", True),
        ("today's parser bug", True),
    ],
)
def test_a_query_for_anything_in_a_time_is_told_from_one_for_something(query: str, asks: bool) -> None:
    """Rule time.rest: "what happened today" is answered by all of today."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is not None
    assert found.rest is asks


def test_days_begin_in_the_callers_zone() -> None:
    """Rule time.zone: 23:30 in Shanghai is already the next UTC day's memory."""
    late = datetime(2025, 12, 17, 17, 0, tzinfo=UTC)  # 01:00 on the 18th in Shanghai
    found = time_range("今天", now=late, zone="Asia/Shanghai")
    assert found is not None
    assert found.start == datetime(2025, 12, 17, 16, 0, tzinfo=UTC)
    assert time_range("today", now=late, zone="No/Where") is not None


def test_numbers_are_read_in_three_ways() -> None:
    """Rule time.numbers: digits, English words and Chinese numerals."""
    assert [number(text) for text in ("12", "twelve", "十二", "二十", "一百零三", "两", "x")] == [
        12,
        12,
        12,
        20,
        103,
        2,
        None,
    ]


@given(st.text(alphabet="0123456789 天周月年前上个last week ago三十百/-", max_size=40))
def test_any_text_gives_a_range_or_nothing(query: str) -> None:
    """Rule time.total: no text raises, and a range never runs backwards."""
    found = time_range(query, now=NOW, zone="UTC")
    assert found is None or found.start < found.end
