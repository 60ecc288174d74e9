"""Spans of the calendar: a day, a week, a month, a quarter, a season, a year, and parts of one.

Plain arithmetic on dates in the caller's zone; a span is half-open. What a span is (a week, a month, a year) is told
from its length, so that "the end of" and "the Friday of" work on whatever it came from. Weeks start on Monday; seasons
are those of the northern hemisphere, and a winter belongs to the year in which it begins.
"""

from __future__ import annotations

from datetime import date, timedelta

Span = tuple[date, date]
"""First moment and the moment after the last: dates, or aware datetimes where hours are meant."""

FIRST_YEAR, LAST_YEAR = 1970, 2100
BEGINNING, END = date(FIRST_YEAR, 1, 1), date(LAST_YEAR + 1, 1, 1)
WEEK_DAYS = 7
MONTH_DAYS = (28, 31)
YEAR_DAYS = (365, 366)
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
"""The month in which each begins."""
_THIRD_DAYS = 10


def day(at: date, days: int = 1) -> Span:
    return at, at + timedelta(days=days)


def week(at: date) -> Span:
    return day(at - timedelta(days=at.weekday()), WEEK_DAYS)


def month(year: int, number: int, months: int = 1) -> Span:
    """Return `months` months from month `number` on, which may lie outside 1 to 12."""
    return _first_of(year, number), _first_of(year, number + months)


def _first_of(year: int, number: int) -> date:
    return date(year + (number - 1) // 12, (number - 1) % 12 + 1, 1)


def year(number: int) -> Span:
    return month(number, 1, 12)


def quarter(year_: int, number: int) -> Span:
    """Return quarter `number`, which may lie outside 1 to 4."""
    return month(year_, 3 * (number - 1) + 1, 3)


def season(year_: int, name: str) -> Span:
    return month(year_, SEASONS[name], 3)


def is_week(span: Span) -> bool:
    return _length(span) == WEEK_DAYS


def is_month(span: Span) -> bool:
    return MONTH_DAYS[0] <= _length(span) <= MONTH_DAYS[1] and span[0].day == 1


def is_year(span: Span) -> bool:
    return _length(span) in YEAR_DAYS and (span[0].month, span[0].day) == (1, 1)


def _length(span: Span) -> int:
    return (span[1] - span[0]).days


def weekday_of(span: Span, number: int) -> Span | None:
    """Return one day of a week, Monday 0; None when the span is no week."""
    return day(span[0] + timedelta(days=number)) if is_week(span) else None


def weekend_of(span: Span) -> Span | None:
    return day(span[0] + timedelta(days=5), 2) if is_week(span) else None


def day_of(span: Span, number: int) -> Span | None:
    """Return one day of a month; None when the span is no month or the month has no such day."""
    at = span[0] + timedelta(days=number - 1)
    return day(at) if is_month(span) and number >= 1 and at < span[1] else None


def month_of(span: Span, number: int) -> Span | None:
    return month(span[0].year, number) if is_year(span) and 1 <= number <= 12 else None


def days_of(span: Span, number: int, first: int, days: int) -> Span | None:
    """Return `days` days of a year from day `first` of month `number` on; None when the span is no year."""
    return day(date(span[0].year, number, first), days) if is_year(span) else None


def quarter_of(span: Span, number: int) -> Span | None:
    return quarter(span[0].year, number) if is_year(span) else None


def season_of(span: Span, name: str) -> Span | None:
    return season(span[0].year, name) if is_year(span) else None


def half_of(span: Span, number: int) -> Span | None:
    """Return the first (0) or second (1) half of a year or a month."""
    if is_year(span):
        return month(span[0].year, 1 + 6 * number, 6)
    if is_month(span):
        middle = span[0] + timedelta(days=15)
        return (middle, span[1]) if number else (span[0], middle)
    return None


def part_of(span: Span, number: int) -> Span | None:
    """Return the beginning (0), middle (1) or end (2): ten days of a month, a quarter of a year's ends, thirds else."""
    start, end = span
    if is_year(span):
        return (quarter(start.year, 1), month(start.year, 5, 4), quarter(start.year, 4))[number]
    third = timedelta(days=_THIRD_DAYS) if is_month(span) else max((end - start) // 3, timedelta(days=1))
    if number == 2:
        return start + 2 * third, end
    return (start + number * third, start + (number + 1) * third) if start + 2 * third < end else None


def latest_season(today: date, name: str, *, is_over: bool) -> Span:
    """Return the latest season of that name that has begun; with `is_over` the latest that has ended."""
    found = season(today.year, name)
    while found[0] > today or (is_over and found[1] > today):
        found = season(found[0].year - 1, name)
    return found


def in_year(span: Span, number: int) -> Span:
    """Return the span moved by whole years so that it begins in year `number`."""
    moved = number - span[0].year
    return _moved(span[0], moved), _moved(span[1], moved)


def _moved(at: date, years: int) -> date:
    try:
        return at.replace(year=at.year + years)
    except ValueError:  # 29 February
        return at.replace(year=at.year + years, day=28)
