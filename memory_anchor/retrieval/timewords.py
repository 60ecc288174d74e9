"""Time words of a query, Chinese and English, as one range of instants.

Own rules first: they cover what people ask a memory ("上周完成了什么", "what did we fix yesterday", "三天前", "in May
2023") in microseconds and know the rules we promise (weeks start on Monday, days are the caller's). Only a date they do
not read, such as 05/08/2023, is given to dateparser, which takes a tenth of a second to load.

An expression that hangs on now ("last week") is hard: it filters. A calendar date is not: a memory *about* May 2023 may
have been told in June, so it only counts in favour. Ranges are half-open; the first expression that fits is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memory_anchor.text.terms import terms

RECENT_DAYS = 14
"""What "recently" and "最近" mean when no number is said; it only counts in favour."""
MAX_QUERY_CHARS = 2_000
"""Time words are looked for in the beginning of a query only."""
MAX_BACK = 1_000
"""The largest number of units that "N units ago" may name."""
_FIRST_YEAR, _LAST_YEAR = 1970, 2100


@dataclass(frozen=True, slots=True)
class TimeWords:
    """What a query says about time. start, end: half-open, aware UTC. text: the words themselves.

    is_hard: nothing outside is meant. rest: the query asks for something besides the time and that it happened.
    """

    start: datetime
    end: datetime
    text: str
    is_hard: bool
    rest: bool


Days = tuple[date, date]
"""First day and the day after the last."""
Reader = Callable[[re.Match[str], date], Days | None]

_NUMBERS = {
    **{word: n for n, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())},  # noqa: SIM905
    "a": 1,
    "an": 1,
    "couple of": 2,
    "a couple of": 2,
    "few": 3,
    "a few": 3,
    "several": 3,
    "半": 1,
    "几": 3,
    "两": 2,
}
_HAN_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_MONTH_NAMES = "january february march april may june july august september october november december".split()  # noqa: SIM905
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_HAN_WEEKDAYS = {day: number for number, day in enumerate("一二三四五六")} | {"日": 6, "天": 6}

_N = (
    r"(?P<n>\d{1,4}|a couple of|a few|couple of|few|several|an?|one|two|three|four|five|six|seven|eight|nine|ten|"
    r"eleven|twelve)"
)
_HAN_N = r"(?P<n>\d{1,4}|[零〇一二两三四五六七八九十百]+|几)"
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_HAN_WEEK = r"(?:周|星期|礼拜)"
_HAN_UNIT = r"(?P<unit>天|日|个?星期|个?礼拜|周|个?月|年)"


def number(text: str) -> int | None:
    """Return the number that digits, an English number word or Chinese numerals below 1,000 say.

    >>> number("三"), number("二十一"), number("a couple of"), number("x")
    (3, 21, 2, None)
    """
    lower = text.lower()
    if lower.isascii() and lower.isdigit():
        return int(lower)
    if lower in _NUMBERS:
        return _NUMBERS[lower]
    total, current = 0, 0
    for sign in lower:
        if sign in _HAN_DIGITS:
            current = _HAN_DIGITS[sign]
        elif sign in "十百":
            total += (current or 1) * (10 if sign == "十" else 100)
            current = 0
        else:
            return None
    return total + current if lower else None


def _day(at: date, days: int = 1) -> Days:
    return at, at + timedelta(days=days)


def _week(at: date) -> Days:
    return _day(at - timedelta(days=at.weekday()), 7)


def _month(year: int, month: int) -> Days:
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    return date(year, month, 1), date(year + month // 12, month % 12 + 1, 1)


def _year(year: int) -> Days:
    return date(year, 1, 1), date(year + 1, 1, 1)


def _back(found: re.Match[str], today: date) -> Days | None:
    """Read N units ago: that day, or the week, month or year that far back."""
    count, unit = number(found["n"]), found["unit"].lower()
    if count is None or count > MAX_BACK:
        return None
    if "week" in unit or any(word in unit for word in ("周", "星期", "礼拜")):
        return _week(today - timedelta(weeks=count))
    if "month" in unit or "月" in unit:
        return _month(today.year, today.month - count)
    if "year" in unit or "年" in unit:
        return _year(today.year - count)
    return _day(today - timedelta(days=count))


def _within(found: re.Match[str], today: date) -> Days | None:
    """Read the last N units, today included."""
    count = number(found["n"] or "1")
    unit = found["unit"].lower()
    if count is None or count > MAX_BACK:
        return None
    days = 1
    for sign, length in (
        ("week", 7),
        ("month", 30),
        ("year", 365),
        ("周", 7),
        ("星期", 7),
        ("礼拜", 7),
        ("月", 30),
        ("年", 365),
    ):
        if sign in unit:
            days = length
    return today - timedelta(days=count * days), today + timedelta(days=1)


def _english_span(found: re.Match[str], today: date) -> Days:
    back = 0 if found["which"].lower() in ("this", "current") else 1
    match found["span"].lower():
        case "week":
            return _week(today - timedelta(weeks=back))
        case "weekend":
            monday = _week(today - timedelta(weeks=back))[0]
            return _day(monday + timedelta(days=5), 2)
        case "month":
            return _month(today.year, today.month - back)
        case "quarter":
            first = 3 * ((today.month - 1) // 3) + 1 - 3 * back
            return _month(today.year, first)[0], _month(today.year, first + 2)[1]
        case _:
            return _year(today.year - back)


def _weekday(found: re.Match[str], today: date) -> Days:
    """Read "last Friday" or "on Friday": the latest one; with "last" never today."""
    back = (today.weekday() - _WEEKDAYS.index(found["weekday"].lower())) % 7
    if not back and found["which"].lower() == "last":
        back = 7
    return _day(today - timedelta(days=back))


def _han_weekday(found: re.Match[str], today: date) -> Days:
    wanted = _HAN_WEEKDAYS[found["weekday"]]
    which = found["which"] or ""
    if not which:
        return _day(today - timedelta(days=(today.weekday() - wanted) % 7))
    weeks = which.count("上")
    return _day(_week(today - timedelta(weeks=weeks))[0] + timedelta(days=wanted))


def _han_week(found: re.Match[str], today: date) -> Days:
    return _week(today - timedelta(weeks=found["which"].count("上")))


def _han_year(found: re.Match[str], today: date) -> Days | None:
    year = today.year - {"今": 0, "去": 1, "前": 2}[found["year"]]
    month = number(found["month"]) if found["month"] else None
    if month is not None:
        return _month(year, month) if 1 <= month <= 12 else None
    return _year(year)


def _calendar(found: re.Match[str], today: date) -> Days | None:
    """Read a year, month and day as far as they are said; a month without a year is the latest one."""
    parts = found.groupdict()
    month = _month_number(parts.get("month"))
    day = number(parts["day"]) if parts.get("day") else None
    year = int(parts["year"]) if parts.get("year") else None
    if year is None:
        if month is None:
            return None
        year = today.year - (1 if (month, day or 1) > (today.month, today.day) else 0)
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        return None
    try:
        if month is None:
            return _year(year)
        return _month(year, month) if day is None else _day(date(year, month, day))
    except ValueError:  # 31 April
        return None


def _month_number(text: str | None) -> int | None:
    if not text:
        return None
    for position, name in enumerate(_MONTH_NAMES, start=1):
        if name.startswith(text.lower()[:3]) and not text[0].isdigit():
            return position
    found = number(text)
    return found if found and 1 <= found <= 12 else None


def _fixed(read: Callable[[date], Days]) -> Reader:
    return lambda _, today: read(today)


def _ago(days: int) -> Reader:
    return _fixed(lambda today: _day(today - timedelta(days=days)))


_RULES: tuple[tuple[re.Pattern[str], Reader, bool], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reader, is_hard)
    for pattern, reader, is_hard in (
        (r"大前天", _ago(3), True),
        (r"前天|\bday before yesterday\b", _ago(2), True),
        (r"昨天|昨日|昨晚|昨夜|\byesterday\b|\blast night\b", _ago(1), True),
        (r"今天|今日|今早|今晚|\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b", _ago(0), True),
        (rf"{_HAN_N}\s*{_HAN_UNIT}\s*(?:以?前|之前)", _back, True),
        (rf"\b{_N} (?P<unit>days?|weeks?|months?|years?) ago\b", _back, True),
        (rf"(?:最近|过去|近)\s*的?\s*{_HAN_N}\s*{_HAN_UNIT}", _within, True),
        (
            rf"\b(?:in|over|during|within)?\s*the (?:last|past) {_N} (?P<unit>days?|weeks?|months?|years?)\b",
            _within,
            True,
        ),
        (r"\b(?:in|over|during) the past (?P<n>)(?P<unit>week|month|year)\b", _within, True),
        (rf"(?P<which>上上个?|上个?|本|这个?|这一)?\s*{_HAN_WEEK}(?P<weekday>[一二三四五六日天])", _han_weekday, True),
        (r"(?P<which>上上个?|上个?|本|这个?|这一)\s*(?:周|星期|礼拜)", _han_week, True),
        (r"上个?月", _fixed(lambda today: _month(today.year, today.month - 1)), True),
        (r"本月|这个?月", _fixed(lambda today: _month(today.year, today.month)), True),
        (r"(?P<year>今|去|前)年\s*(?:(?P<month>\d{1,2}|[一二三四五六七八九十]+)\s*月)?", _han_year, True),
        (
            r"\b(?P<which>this|last|past|previous|current) (?P<span>weekend|week|month|quarter|year)\b",
            _english_span,
            True,
        ),
        (rf"\b(?P<which>last|this|on) {_WEEKDAY}\b", _weekday, True),
        (
            r"(?P<year>\d{4})\s*年(?:\s*(?P<month>\d{1,2}|[一二三四五六七八九十]+)\s*月(?:\s*(?P<day>\d{1,2})\s*[日号])?)?",
            _calendar,
            False,
        ),
        (r"(?<![\d.])(?P<year>(?:19|20)\d\d)-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?(?![\d.])", _calendar, False),
        (
            rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}\b\.?,?(?: (?P<year>(?:19|20)\d\d))?",
            _calendar,
            False,
        ),
        (rf"\b{_MONTH}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d)(?:,? (?P<year>(?:19|20)\d\d))?", _calendar, False),
        (rf"\b{_MONTH}\.?,? (?:of )?(?P<year>(?:19|20)\d\d)\b", _calendar, False),
        (rf"\b(?:in|during|since|last) {_MONTH}\b", _calendar, False),
        (r"(?P<month>\d{1,2}|[一二三四五六七八九十]+)\s*月\s*(?P<day>\d{1,2})\s*[日号]", _calendar, False),
        (r"(?<!个)(?P<month>1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])\s*月份?(?!\d)", _calendar, False),
        (r"\b(?:in|during) (?P<year>(?:19|20)\d\d)\b", _calendar, False),
        (
            r"最近|近期|\brecent(?:ly)?\b|\blately\b",
            _fixed(lambda today: (today - timedelta(days=RECENT_DAYS), today + timedelta(days=1))),
            False,
        ),
    )
)
_SINCE = re.compile(r"(?:\bsince|\bfrom|自从?|从)\s*\Z", re.IGNORECASE)
_SINCE_AFTER = re.compile(r"\s*(?:以来|之后|以后|起)")
_OTHER_DATE = re.compile(r"(?<![\d.])\d{1,2}[/.]\d{1,2}[/.](?:19|20)\d\d(?![\d.])")
_GENERIC = frozenset(
    (  # noqa: SIM905 - a word list reads better as prose
        "fix done do did happen finish complet work made make chang log record event thing recent much anyth someth "
        "everyth new updat progress activ"
    ).split()
) | frozenset("么什了的做过些哪我们有发生完成都事情干吗修复改更新记录进展项目")
"""Terms that ask what happened, and for nothing in particular."""


def time_range(query: str, *, now: datetime, zone: str) -> TimeWords | None:
    """Return the first time expression of the query as a range, or None.

    now: aware. zone: the caller's IANA zone, in which days begin; an unknown name counts as UTC.
    """
    text = query[:MAX_QUERY_CHARS]
    here = _zone(zone)
    today = now.astimezone(here).date()
    for pattern, reader, is_hard in _RULES:
        for found in pattern.finditer(text):
            try:
                days = reader(found, today)
            except (OverflowError, ValueError):  # a year before 1
                continue
            if days is not None:
                return _words(text, found.span(), days, now=now, here=here, is_hard=is_hard)
    if other := _OTHER_DATE.search(text):
        import dateparser

        if parsed := dateparser.parse(other.group(), languages=["en"]):
            return _words(text, other.span(), _day(parsed.date()), now=now, here=here, is_hard=False)
    return None


def _words(text: str, span: tuple[int, int], days: Days, *, now: datetime, here: ZoneInfo, is_hard: bool) -> TimeWords:
    first, last = span
    start, end = (datetime.combine(day, time.min, tzinfo=here).astimezone(UTC) for day in days)
    before = _SINCE.search(text[:first])
    if before or _SINCE_AFTER.match(text, last):
        end, is_hard = max(now.astimezone(UTC), start) + timedelta(seconds=1), True
        first = before.start() if before else first
    left = set(terms(text[:first] + " " + text[last:])) - _GENERIC
    asks_more = any(not _is_generic(term) for term in left)
    return TimeWords(start, end, text[first:last].strip(), is_hard, asks_more)


def _is_generic(term: str) -> bool:
    return term in _GENERIC or (len(term) == 2 and not term.isascii() and all(sign in _GENERIC for sign in term))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
