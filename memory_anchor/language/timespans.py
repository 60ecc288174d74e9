"""Spans of the calendar, and whether time words say when something happened or are part of what is asked for.

A span is half-open, of dates in the caller's zone; what it is (a week, a month, a year) follows from its length, so
that "the end of" and "the Friday of" work on whatever it came from. Weeks start on Monday; seasons are those of the
northern hemisphere, and a winter belongs to the year in which it begins.

A range that filters hides what is outside, so words filter only where they clearly say when. Three rules decide:

- What is quoted, in an identifier (`today.py`) or a name (今日头条) is no time at all.
- "within 30 days" and "on Friday" are as often a rule ("returns within 30 days") as a time: they filter where the query
  says that something happened ("what did we do on Friday") or asks for nothing else.
- "the last 30 days" and "3 days ago" are relative to now: they filter unless the query is about a rule ("keep the last
  7 days of backups", "清理30天前的日志") and does not say that something happened.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache

from memory_anchor.language.safe_regex import bounded, late
from memory_anchor.language.words import either, listed, pattern

Span = tuple[date, date]
"""First moment and the moment after the last: dates, or aware datetimes where hours are meant."""

FIRST_YEAR, LAST_YEAR = 1970, 2100
BEGINNING, END = date(FIRST_YEAR, 1, 1), date(LAST_YEAR + 1, 1, 1)
WEEK_DAYS = 7
MONTH_DAYS = (28, 31)
YEAR_DAYS = (365, 366)
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
"""The month in which each starts."""
AHEAD_DAYS = 1
"""A date is due from the day before on."""
_THIRD_DAYS = 10


def horizon(now: datetime, ahead_days: int = AHEAD_DAYS) -> datetime:
    """Return the end of what is due: an event beyond it is a plan, and heads no list of what happened."""
    return now + timedelta(days=ahead_days + 1)


def recency(happened_at: datetime, now: datetime) -> tuple[bool, float]:
    """Return a key, greatest first: what happened, newest first, then what lies beyond the horizon, soonest first."""
    ahead_s = (happened_at - horizon(now)).total_seconds()
    return ahead_s < 0, ahead_s if ahead_s < 0 else -ahead_s


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
    span = season(today.year, name)
    while span[0] > today or (is_over and span[1] > today):
        span = season(span[0].year - 1, name)
    return span


def in_year(span: Span, number: int) -> Span:
    """Return the span moved by whole years so that it begins in year `number`."""
    moved = number - span[0].year
    return _moved(span[0], moved), _moved(span[1], moved)


def _moved(at: date, years: int) -> date:
    try:
        return at.replace(year=at.year + years)
    except ValueError:  # 29 February
        return at.replace(year=at.year + years, day=28)


_QUOTED = late(pattern("timespans", "quoted"))
_HIDDEN = "ⵣ"
"""Replaces a character that is not read: a letter, so that a quotation still counts as a word."""
_JOINED_AFTER = bounded(pattern("timespans", "joined_after"))
_JOINED_BEFORE = bounded(r"(?<=[A-Za-z0-9_])(?P<sign>[._/\\@=]|-+)\Z|(?<!\S)(?:[@#$]|\.{0,2}[/\\]|--)\Z")

_ADDRESS = bounded(r"\b(?:can|could|would|will|do) you\b", re.IGNORECASE)
_HAPPENED = bounded(either("happened"), re.IGNORECASE)
_RULE = bounded(either("rule"), re.IGNORECASE)
_PRESENT = bounded(either("present"), re.IGNORECASE)
_KEEPS = bounded(either("retention"), re.IGNORECASE)
_OF_SOMETHING = bounded(r"\s+of\b", re.IGNORECASE)
_SUBJECT = bounded(pattern("timespans", "subject"))
_PAST = frozenset(listed("irregular", "past"))
_HAN_PAST = bounded(r"(?<![为除极])了(?![解结])|(?<![通超经不])过(?![去期程滤多时于敏来载渡度])")

_TITLE = bounded(r"(?<=[\w,] )(?:Yesterday|Today|Tonight|Tomorrow)\Z")
_CALLED = bounded(pattern("timespans", "called"), re.IGNORECASE)
_LABEL = bounded(pattern("timespans", "label"), re.IGNORECASE)


def unquoted(text: str) -> str:
    """Return the text with quotations made unreadable, of the same length.

    >>> unquoted('who said "on Friday"').endswith("Friday")
    False
    """
    return _QUOTED.sub(lambda match: _HIDDEN * len(match.group()), text)


def joined_to(text: str, first: int, last: int) -> tuple[int | None, int | None]:
    """Return where the words end and begin that an expression is joined to: `use-today`, `today.py`."""
    before, after = _JOINED_BEFORE.search(text[:first]), _JOINED_AFTER.match(text, last)
    if before and before["sign"]:
        is_number = text[first].isdigit() and text[before.start() - 1].isdigit()  # "3-5月"
        before = None if is_number or (before["sign"][0] == "-" and not text[first].isascii()) else before
    return (before.start() if before else None), (after.end() if after else None)


def is_name(text: str, first: int, last: int) -> bool:
    """Return whether an expression is a name or title: "the song Yesterday", "口号：告别昨天", "today view"."""
    return bool(_TITLE.search(text[:last]) or _CALLED.search(text[:first]) or _LABEL.match(text, last))


@lru_cache(maxsize=8)
def says_it_happened(text: str) -> bool:
    """Return whether the query says that something happened: "what did we do", "who broke it", "改了什么"."""
    plain = _ADDRESS.sub(" ", text)
    if _HAPPENED.search(plain):
        return True
    if _holds_always(plain):
        return False
    return bool(_HAN_PAST.search(plain)) or any(_is_past(match["verb"]) for match in _SUBJECT.finditer(plain))


def asks_of_any_time(text: str) -> bool:
    """Return whether the query asks what is or may be at any time: "what do we do on Friday"."""
    plain = _ADDRESS.sub(" ", text)
    return _holds_always(plain) and not _HAPPENED.search(plain)


def _holds_always(plain: str) -> bool:
    return bool(_RULE.search(plain) or _PRESENT.search(plain))


def _is_past(verb: str) -> bool:
    return verb in _PAST or (len(verb) > 3 and verb.endswith("ed") and not verb.endswith("eed") and verb != "embed")


def states_a_rule(text: str, last: int) -> bool:
    """Return whether a span that ends at `last` belongs to a rule: "keep the last 7 days", "the last 7 days of x"."""
    plain = _ADDRESS.sub(" ", text)
    return bool(_RULE.search(plain) or _KEEPS.search(plain) or _OF_SOMETHING.match(text, last))
