"""Days by which a text wants something, in both languages, and dates that are none."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory_anchor.language.due_dates import _said, deadline

WRITTEN = datetime(2026, 3, 11, 10, tzinfo=UTC)
"""A Wednesday."""
CASES = Path(__file__).parent.parent / "corpora" / "due.tsv"
PLANS = CASES.with_name("plans.tsv")
READ = {"a": 30, "b": 29}
"""Of the 30 sentences of each half so many are read right (docs/time.md)."""


def due_on(text: str) -> str:
    at, _ = _said(text, WRITTEN, "UTC")
    return f"{at:%Y-%m-%d}" if at else ""


@pytest.mark.parametrize("half", READ)
def test_deadlines_are_read_and_no_other_dates(half: str) -> None:
    """Rule due.limit: what is wanted by a day is due on it; what was, holds always or names no such day is not."""
    lines = [line.split("\t") for line in CASES.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    cases = [(text, days.split() or [""]) for which, days, text in lines if which == half]
    wrong = [(text, due_on(text)) for text, days in cases if due_on(text) not in days]
    assert len(cases) == 30
    assert len(wrong) <= len(cases) - READ[half], wrong


@pytest.mark.parametrize("half", ["a", "b"])
def test_a_day_and_month_without_a_year_are_the_nearest_ones(half: str) -> None:
    """Rule due.planned: a plan where they lay ahead; nothing where they are over or told of."""
    lines = [line.split("\t") for line in PLANS.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    rows = [
        (text, day, _said(text, datetime(2026, 10, 20, 10, tzinfo=UTC), "UTC")[0])
        for which, day, text in lines
        if which == half
    ]
    wrong = [text for text, day, at in rows if (f"{at:%Y-%m-%d}" if at else "") != day]
    assert len(rows) == 16
    assert len(wrong) <= 2, wrong


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("The team shipped the fix by Friday.", ""),
        ("The team needs the fix by Friday.", "2026-03-13"),
        ("Invoices go out by the 5th of every month.", ""),
        ("Invoices go out by the 5th.", "2026-04-05"),
        ("每周五前提交周报。", ""),
        ("周五前提交周报。", "2026-03-12"),
        ("3月前的数据都在冷库。", ""),
        ("4月前把数据移到冷库。", "2026-03-31"),
        ("Tokens expire within 30 days.", ""),
        ("The tokens must be replaced within 30 days.", "2026-04-10"),
        ("The build is slow due to a change that comes on Friday.", ""),
        ("The estimate is due by December 1, it was forgotten last time.", "2026-12-01"),
        # "before Friday" is by Thursday; before an hour of a day, or the end of a time, is that day
        ("Register before tomorrow noon", "2026-03-12"),
        ("Register before tomorrow", "2026-03-11"),
        ("Close it before the end of Q2.", "2026-06-30"),
        ("Close it before Q2.", "2026-03-31"),
        ("周日晚上之前搬完", "2026-03-15"),
        ("周日之前搬完", "2026-03-14"),
        ("月底前搬完", "2026-03-31"),
    ],
)
def test_the_words_around_a_time_make_it_a_limit(text: str, day: str) -> None:
    """Rule due.told: the past, a habit, a condition and what only belongs to a noun set no limit."""
    assert due_on(text) == day


def test_no_limit_lies_before_the_text_that_sets_it() -> None:
    """Rule due.ahead: whatever day a limit names, it is the coming one, in the caller's zone."""
    for text in ("by Wednesday", "by 11 March", "by the 11th", "最晚周三", "3月11日截止", "before March", "最晚11号"):
        end = deadline(text, written=WRITTEN, zone="Asia/Shanghai")
        assert end is not None
        assert end > WRITTEN
        assert (end.hour, end.minute) == (0, 0)
