"""The rules of time expressions that need no context: pattern, reader of the match, and level (`timewords`).

The patterns are rows of `times.toml`, Chinese and English side by side, so that what one language can say is not
forgotten in the other; the readers are here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from math import ceil, floor

from memory_anchor.base.json_values import Record, items, record, records, text, whole
from memory_anchor.language import timespans as spans
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.timespans import Span
from memory_anchor.language.words import filled, listed, placed, table

HARD, DATED, BARE, VAGUE = 3, 2, 1, 0
"""Filters; only ranks; ignored where there is a date; ignored where there is any other time."""
OF_LIMIT = -1
"""Read only where a word next to it makes it a limit: "by May", "before the end of the day"."""
UNLESS_RULE, IF_HAPPENED = 5, 4
"""Hard unless the query states a rule, and hard only if it says that something happened; else BARE (`timespans`)."""
LEVELS = {
    **{"hard": HARD, "dated": DATED, "bare": BARE, "vague": VAGUE},
    **{"of_limit": OF_LIMIT, "unless_rule": UNLESS_RULE, "if_happened": IF_HAPPENED},
}
FEW = (2, 6)
"""What "a few days ago" and "几天前" span; it only ranks as well."""
PAST_FEW = 3
"""How far back "the past few days" reaches."""
HALF, QUARTER_UNIT = 0.5, 0.25
"""The tolerance of a fraction to both sides: "a year and a half ago" is 15 to 21 months."""
MAX_BACK = 1_000
"""The largest number of units that "N units ago" may name."""

TWELVE = 12
"""The greatest number of a time as an English word."""

Reader = Callable[[re.Match[str], datetime], Span | None]
"""Reads a match, given now in the caller's zone."""
Rules = tuple[tuple[re.Pattern[str], Reader, int, frozenset[str]], ...]
"""Pattern, reader, level, and characters in lower case of which every match has one or more (none: it is not known)."""

_NUMBERS = {
    **{word: n for word, n in placed("numbers", "english").items() if n <= TWELVE},
    "a": 1,
    "an": 1,
    "couple of": 2,
    "a couple of": 2,
    "半": 1,
    "两": 2,
}
_HAN_DIGITS = {digit: value for value, digit in enumerate(text(table("numbers")["chinese"]))} | {"两": 2, "〇": 0}
_MONTH_NAMES = [name[:3] for name in placed("calendar", "months")]
WEEKDAYS = [name[:3] for name in placed("calendar", "weekdays")]
HAN_WEEKDAYS = {day: number for number, day in enumerate("一二三四五六")} | {"日": 6, "天": 6}
ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": 4}
PARTS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
HAN_PARTS = {"初": 0, "上": 0, "中": 1, "下": 2, "底": 2, "末": 2}
_OFFSETS = {"last": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
_HAN_OFFSETS = {"大前": -3, "前": -2, "昨": -1, "去": -1, "今": 0, "本": 0, "这": 0, "明": 1, "后": 2}

_PARTS = {
    **{name: text(part) for name, part in record(table("times")["parts"]).items()},
    "number_words": "|".join(listed("numbers", "english")[1 : TWELVE + 1]),
    "function_words": "|".join(word for word in listed("left_out", "search") if len(word) > 1),
}


def expression(source: str) -> str:
    """Return the source of an expression with the parts of `times.toml` in place of their names."""
    return filled(source, _PARTS)


FRONT, HAN_NUMBER, INSIDE, MONTH, YEAR = map(expression, ("{front}", "{han_number}", "{inside}", "{month}", "{year}"))
HOLIDAYS = tuple(
    (text(row["name"]), [whole(number) for number in items(row["days"])]) for row in records(table("times")["holidays"])
)
"""The names of a holiday, and its month, day and number of days."""
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365, "天": 1, "日": 1, "周": 7, "星期": 7, "礼拜": 7, "月": 30}
YEAR_DAYS = 365
_UNIT_MINUTES = {"minute": 1, "hour": 60, "分": 1, "小时": 60, "钟头": 60}


def number(text: str) -> int | None:
    """Return the value of digits, an English number word or Chinese numerals below 1,000.

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


_FEW = bounded(r"(?:a )?few|several|好?几|若干", re.IGNORECASE)
_TO = bounded(r"\s*(?:-|–|~|\bto\b|\bor\b|到|至)\s*")
_TWO_DIGITS = bounded(r"(?P<tens>.*十)?(?P<a>[一二两三四五六七八])(?P<b>[二三四五六七八九])")


def is_vague(amount: str | None) -> bool:
    """Return whether an amount names no number: "a few", "几", "几十"."""
    return amount is not None and _FEW.match(amount) is not None


def amounts(text: str) -> tuple[float, float] | None:
    """Return the least and the most units of an amount.

    >>> amounts("3"), amounts("三四"), amounts("十几"), amounts("一个半"), amounts("一个多"), amounts("a few")
    ((3, 3), (3, 4), (11, 19), (1.5, 1.5), (1, 2), (2, 6))
    """
    lower = text.lower()
    if is_vague(lower):
        return (20, 90) if lower.endswith("几十") else FEW
    if lower.startswith("or "):
        return 1, 2
    if lower.startswith(("半", "half")):
        return HALF, 1 if lower.endswith("多") else HALF
    if lower.endswith("个多"):
        return (count, count + 1) if (count := number(lower[:-2])) else None
    if lower[-1:] in "几多来" and (tens := number(lower[:-1])):
        return tens + (lower[-1] == "几"), tens + 9
    if two := _TWO_DIGITS.fullmatch(lower):
        tens, first, last = (number(two[name] or "零") or 0 for name in ("tens", "a", "b"))
        return (tens + first, tens + last) if first < last else None
    parts = [_amount(part) for part in _TO.split(lower)]
    least, most = parts[0], parts[min(1, len(parts) - 1)]
    return None if least is None or most is None or least > most else (least, most)


def _amount(text: str) -> float | None:
    """Return one amount, which may be a fraction: "2.5", "one and a half", "一个半"."""
    if "." in text:
        return float(text)
    whole = number(re.sub(r"个半$| and a half$", "", text))
    return whole if whole is None or text[-1:] not in ("半", "f") or text == "半" else whole + HALF


# --- readers -------------------------------------------------------------------------------------------------------


def _of_unit(table: dict[str, int], unit: str) -> int:
    return next((size for sign, size in table.items() if sign in unit), 0)


def _back(match: re.Match[str], now: datetime) -> Span | None:
    """Read N units ago: that day, or the week, month or year that far back; for hours, an hour around it."""
    unit, today = match["unit"].lower(), now.date()
    units = _units_of(match)
    if units is None:
        return None
    least, most = units
    if most == HALF and (span := _half_back(unit, now)):
        return span
    if minutes := _of_unit(_UNIT_MINUTES, unit):
        return now - timedelta(minutes=minutes * (most + 1)), now - timedelta(minutes=minutes * max(0, least - 1))
    size = _of_unit(_UNIT_DAYS, unit) or YEAR_DAYS
    if least % 1 or most % 1:
        far, near = ceil((most + QUARTER_UNIT) * size), floor((least - QUARTER_UNIT) * size)
        return today - timedelta(days=far), today - timedelta(days=near - 1)
    name = {1: "day", 7: "week", 30: "month"}.get(size, "year")
    return _span_from(today, name, -int(most))[0], _span_from(today, name, -int(least))[1]


def _units_of(match: re.Match[str]) -> tuple[float, float] | None:
    """Return the least and the most units of a match, None for an implausible number."""
    units = amounts(match["n"] or "1")
    if units is None or units[1] > MAX_BACK:
        return None
    more = match.groupdict().get("half")
    if more == "多":
        return units[0], units[1] + 1
    return (units[0] + HALF, units[1] + HALF) if more else units


def _half_back(unit: str, now: datetime) -> Span | None:
    today = now.date()
    if "年" in unit or "year" in unit:
        return spans.month(today.year, today.month - 6)
    return (now - timedelta(hours=1), now) if any(sign in unit for sign in ("时", "钟", "hour")) else None


def _within(match: re.Match[str], now: datetime) -> Span | None:
    """Read the last N units, today included."""
    unit, today, amount = match["unit"].lower(), now.date(), match["n"] or "1"
    units = _units_of(match)
    if units is None:
        return None
    count = PAST_FEW if _FEW.fullmatch(amount) else units[1]
    if minutes := _of_unit(_UNIT_MINUTES, unit):
        return now - timedelta(minutes=minutes * count), now
    days = int(count * (_of_unit(_UNIT_DAYS, unit) or YEAR_DAYS))
    return today - timedelta(days=days), today + timedelta(days=1)


def _english_span(match: re.Match[str], now: datetime) -> Span:
    offset = _OFFSETS[(match.groupdict().get("which") or "this").lower()]
    return _span_from(now.date(), match["span"].lower(), offset)


def _span_from(today: date, unit: str, offset: int) -> Span:
    """Return the day, week and so on that is `offset` units from the one of today."""
    match unit:
        case "day":
            return spans.day(today + timedelta(days=offset))
        case "week":
            return spans.week(today + timedelta(weeks=offset))
        case "weekend":
            return spans.day(spans.week(today + timedelta(weeks=offset))[0] + timedelta(days=5), 2)
        case "month":
            return spans.month(today.year, today.month + offset)
        case "quarter":
            return spans.quarter(today.year, _quarter_of(today) + offset)
        case _:
            return spans.year(today.year + offset)


def _quarter_of(today: date) -> int:
    return (today.month - 1) // 3 + 1


def _weekday(match: re.Match[str], now: datetime) -> Span:
    """Read "last Friday", "on Friday" or "Friday": the latest one; with "last" never today, with "next" the coming."""
    wanted = WEEKDAYS.index((match["weekday"] or match["short"]).lower()[:3])
    which = (match.groupdict().get("which") or "").lower()
    today = now.date()
    if which in ("next", "coming"):
        return spans.day(today + timedelta(days=(wanted - today.weekday() - 1) % 7 + 1))
    back = (today.weekday() - wanted) % 7
    return spans.day(today - timedelta(days=back or (7 if which == "last" else 0)))


def _han_weekday(match: re.Match[str], now: datetime) -> Span:
    today = now.date()
    return spans.day(today - timedelta(days=(today.weekday() - HAN_WEEKDAYS[match["weekday"]]) % 7))


def _han_span(unit: str) -> Reader:
    """Return the reader of a day, week, month, quarter or year that a prefix such as 上 or 前 counts from now."""

    def read(match: re.Match[str], now: datetime) -> Span:
        which = match["which"]
        offset = _HAN_OFFSETS.get(which, which.count("下") - which.count("上"))
        return _span_from(now.date(), unit, offset)

    return read


def _weekend(_: re.Match[str], now: datetime) -> Span:
    saturday = spans.week(now.date())[0] + timedelta(days=5)
    return spans.day(saturday if saturday <= now.date() else saturday - timedelta(weeks=1), 2)


def _quarter(match: re.Match[str], now: datetime) -> Span | None:
    """Read a quarter without a year: the latest one that has begun."""
    wanted = ORDINALS.get(match["quarter"].lower()) or number(match["quarter"])
    if wanted is None or not 1 <= wanted <= 4:
        return None
    return spans.quarter(now.year - (wanted > _quarter_of(now.date())), wanted)


def _season(match: re.Match[str], now: datetime) -> Span:
    name, which = match["season"].lower(), (match["which"] or "").lower()
    return spans.latest_season(now.date(), name, is_over=which in ("last", "previous", "past"))


def _han_part(match: re.Match[str], now: datetime) -> Span | None:
    """Read 月初 or 年底 alone: of this month, of this year."""
    whole = spans.month(now.year, now.month) if match["of"] == "月" else spans.year(now.year)
    return spans.part_of(whole, HAN_PARTS[match["part"]])


def calendar(match: re.Match[str], now: datetime) -> Span | None:
    """Read a year, month and day as far as they are given; a month without a year is the latest one."""
    parts = match.groupdict()
    month = _month_number(parts.get("month"))
    day = number(parts["day"]) if parts.get("day") else None
    last = number(parts["last_day"]) if parts.get("last_day") else day
    year = _year_number(parts["year"]) if parts.get("year") else None
    if year is None:
        if month is None:
            return None
        year = now.year - (1 if (month, day or 1) > (now.month, now.day) else 0)
    if not spans.FIRST_YEAR <= year <= spans.LAST_YEAR:
        return None
    if month is None:
        return spans.year(year)
    if day is None or last is None:
        return spans.month(year, month)
    return date(year, month, day), date(year, month, last) + timedelta(days=1)


def _years(match: re.Match[str], _: datetime) -> Span | None:
    """Read "2023 to 2024": from the first to the last day."""
    first, last = int(match["since"]), int(match["year"])
    return (spans.year(first)[0], spans.year(last)[1]) if first < last else None


def _year_number(text: str) -> int:
    return int("".join(str(_HAN_DIGITS.get(sign, sign)) for sign in text))


def _month_number(text: str | None) -> int | None:
    if not text:
        return None
    if text[:3].lower() in _MONTH_NAMES:
        return _MONTH_NAMES.index(text[:3].lower()) + 1
    month = number(text)
    return month if month and 1 <= month <= 12 else None


def _holiday(month: int, day: int, days: int) -> Reader:
    def read(match: re.Match[str], now: datetime) -> Span | None:
        first = date(int(match["year"] or now.year), month, day)
        if not spans.FIRST_YEAR <= first.year <= spans.LAST_YEAR:
            return None
        return spans.day(first if match["year"] or first <= now.date() else first.replace(year=now.year - 1), days)

    return read


def _in_days(match: re.Match[str], now: datetime) -> Span | None:
    """Read "within three days" or "in two weeks" forward: the last day that is meant."""
    units = _units_of(match)
    size = _of_unit(_UNIT_DAYS, match["unit"].lower())
    return None if units is None else spans.day(now.date() + timedelta(days=ceil(units[1] * size)))


def _coming_day(match: re.Match[str], now: datetime) -> Span | None:
    """Read "the 15th" or 15号: today or the next one, in a month that has it."""
    wanted = number(match["day"]) or 0
    months = (spans.month(now.year, now.month + ahead) for ahead in range(3))
    days = (spans.day_of(month, wanted) for month in months)
    return next((day for day in days if day and day[0] >= now.date()), None)


_READERS: dict[str, Reader] = {
    "back": _back,
    "within": _within,
    "english_span": _english_span,
    "weekday": _weekday,
    "han_weekday": _han_weekday,
    "weekend": _weekend,
    "quarter": _quarter,
    "season": _season,
    "half": lambda match, now: spans.half_of(spans.year(now.year), "上下".index(match["half"])),
    "han_part": _han_part,
    "calendar": calendar,
    "years": _years,
    "last_hour": lambda _, now: (now - timedelta(hours=1), now),
    "in_days": _in_days,
    "coming_day": _coming_day,
}


def _reader(row: Record) -> Reader:
    """Return the reader that a rule of `times.toml` names."""
    match text(row["read"]), items(row.get("args")):
        case "han_span", (str(unit),):
            return _han_span(unit)
        case "span_from", (str(unit), int(offset)):
            return lambda _, now: _span_from(now.date(), unit, offset)
        case "last_days", (int(days),):
            return lambda _, now: (now.date() - timedelta(days=days), now.date() + timedelta(days=1))
        case name, _:
            return _READERS[name]


def _rules(name: str) -> Iterator[tuple[re.Pattern[str], Reader, int, frozenset[str]]]:
    """Yield the rules of a list of `times.toml`, in its order."""
    for row in records(table("times")[name]):
        level, needs = LEVELS[text(row["level"])], frozenset(text(row.get("needs", "")))
        if row["read"] == "holidays":
            for holiday, days in HOLIDAYS:
                pattern = f"{holiday}(?:{expression('{holiday_year}')})"
                yield bounded(pattern, re.IGNORECASE), _holiday(*days), level, needs
        else:
            yield bounded(expression(text(row["pattern"])), re.IGNORECASE), _reader(row), level, needs


RULES: Rules = tuple(_rules("rules"))
AHEAD: Rules = (*_rules("ahead"), *(rule for rule in RULES if rule[1] is not _back))
"""The rules for the future (`deadlines`): those of their own, then all of the others that do not look back."""
