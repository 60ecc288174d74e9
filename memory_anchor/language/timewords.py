"""Time expressions of a query, Chinese and English, as one range of instants.

Our rules first: they cover what people ask a memory ("上周完成了什么", "what did we fix yesterday", "两周前的周三",
"the end of last month", "between March and May") in microseconds and keep the conventions we promise (weeks start on
Monday, days are the caller's). 05/08/2023 and 5.8.2023 are read month first, as dates in English are, and day first
where there is no such month.

A rule reads a base ("last month", "2024年"); the words next to it refine it ("the end of", "夏天"); two of them with
"to" or "到" between are one range; "since", "before" and the like open it to one side. What is relative to now ("last
week") is hard: it filters, unless it may be what is asked for (`timespans`). A calendar date is not: a memory *about*
May 2023 may have been recorded in June, and neither is the future or a bare "Friday", so these only rank. Of several
expressions a hard one goes first, then a date, then a weekday or a duration, then what names no number; of equals the
first. Quoted text is not read. Ranges are half-open.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from memory_anchor.base.json_values import record, text
from memory_anchor.language import timespans as spans
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import terms
from memory_anchor.language.timerules import (
    BARE,
    DATED,
    FRONT,
    HAN_PARTS,
    HAN_WEEKDAYS,
    HARD,
    HOLIDAYS,
    IF_HAPPENED,
    MONTH,
    ORDINALS,
    PARTS,
    RULES,
    VAGUE,
    WEEKDAYS,
    YEAR,
    Rules,
    calendar,
    expression,
    is_vague,
    number,
)
from memory_anchor.language.timespans import (
    Span,
    asks_of_any_time,
    is_name,
    joined_to,
    says_it_happened,
    states_a_rule,
    unquoted,
)
from memory_anchor.language.words import listed, table

UTC_ZONE = ZoneInfo("UTC")
MAX_QUERY_CHARS = 2_000
"""Only the beginning of a query is read for time expressions."""
LED_CHARS = 80
"""Characters before an expression that may lead to it."""
MAX_FOUND = 50
"""The most expressions read of one query."""


@dataclass(frozen=True, slots=True)
class TimeWords:
    """The time in a query. start, end: half-open, aware UTC. text: the words themselves.

    is_hard: nothing outside is meant. rest: the query asks for something besides what happened then. remaining: the
    query without the words that filter or are vague, which no memory has; a calendar date and what may be the topic
    stay in it. Empty when there is nothing else.
    """

    start: datetime
    end: datetime
    text: str
    is_hard: bool
    rest: bool
    remaining: str


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression: where it is in the query, what it means, and whether it names a year."""

    first: int
    last: int
    span: Span
    level: int
    has_year: bool = False
    is_range: bool = False

    @property
    def is_relative(self) -> bool:
        """Return whether it is relative to now."""
        return self.level in (HARD, VAGUE)

    def is_future(self, now: datetime) -> bool:
        return not isinstance(self.span[0], datetime) and self.span[0] > now.date()


def _part_after(span: Span, match: re.Match[str]) -> Span | None:
    part = match["it"] or match["part"] or match["mid"]
    return spans.part_of(span, HAN_PARTS[part])


def _beside(span: Span, match: re.Match[str]) -> Span | None:
    """Read "the week before", "two days after" or "the Sunday before" what `span` is."""
    is_before = match["side"].lower() == "before"
    if match["weekday"]:
        wanted = WEEKDAYS.index(match["weekday"].lower()[:3])
        last, next_ = span[0] - timedelta(days=1), span[1]
        return spans.day(
            last - timedelta(days=(last.weekday() - wanted) % 7)
            if is_before
            else next_ + timedelta(days=(wanted - next_.weekday()) % 7)
        )
    days = (number(match["n"] or "1") or 1) * {"day": 1, "month": 30}.get(match["unit"].lower(), 7)
    return (span[0] - timedelta(days=days), span[0]) if is_before else (span[1], span[1] + timedelta(days=days))


# --- words next to an expression ------------------------------------------------------------------------------------

Refiner = Callable[[Span, re.Match[str]], Span | None]


def _holiday_of(days: Sequence[int]) -> Refiner:
    return lambda span, _: spans.days_of(span, *days)


def _refinements(
    group: str, refiners: Mapping[str, Refiner], *, outer: str = "{}", holiday: str
) -> tuple[tuple[re.Pattern[str], Refiner], ...]:
    """Return the expressions of a group of `times.toml` with their refiners, then the holidays.

    outer, holiday: what is around each expression, and around the name of a holiday.
    """
    patterns = record(table("times")[group])
    rows = [(expression(text(patterns[name])), refine) for name, refine in refiners.items()]
    rows += [(holiday.format(name), _holiday_of(days)) for name, days in HOLIDAYS]
    return tuple((bounded(outer.replace("{}", pattern), re.IGNORECASE), refine) for pattern, refine in rows)


_FOLLOWING = _refinements(
    "following",
    {
        "han_weekday": lambda span, match: spans.weekday_of(span, HAN_WEEKDAYS[match["it"]]),
        "han_weekend": lambda span, _: spans.weekend_of(span),
        "han_quarter": lambda span, match: spans.quarter_of(span, number(match["it"] or match["q"]) or 0),
        "han_season": lambda span, match: spans.season_of(span, match["it"]),
        "han_half": lambda span, match: spans.half_of(span, "上下".index(match["it"])),
        "han_month": lambda span, match: spans.month_of(span, number(match["it"]) or 0),
        "han_day": lambda span, match: spans.day_of(span, number(match["it"]) or 0),
        "han_part": _part_after,
    },
    holiday=r"(?:\s*+的)?\s*+{}",
)
_LEADING = _refinements(
    "leading",
    {
        "weekday": lambda span, match: spans.weekday_of(span, WEEKDAYS.index(match["weekday"].lower()[:3])),
        "part": lambda span, match: spans.part_of(span, PARTS[(match["it"] or match["of"]).lower()]),
        "distance": _beside,
        "half": lambda span, match: spans.half_of(span, ORDINALS[match["it"].lower()] - 1),
        "quarter": lambda span, match: spans.quarter_of(
            span, number(match["it"] or "") or ORDINALS[match["word"].lower()]
        ),
        "season": lambda span, match: spans.season_of(span, match["season"].lower()),
        "day": lambda span, match: spans.day_of(span, int(match["it"])),
    },
    outer=r"\b(?:{})\Z",
    holiday="(?:at |on )?{}(?:,| of|,? in)? (?:the )?",
)
_AROUND = record(table("times")["around"])
_REFINED_AT_MOST = 3
"""Refinements of one expression: "the first Friday" of "the end of" "last month" is as deep as people go."""
_TO = bounded(r"\s*(?:起?[到至]|~|—|–|-|\bto\b|\buntil\b|\btill\b|\bthrough\b)\s*(?:the )?\Z", re.IGNORECASE)
_AND = bounded(r"\s*\band (?:the )?\Z|\s*和\Z", re.IGNORECASE)
_BETWEEN = bounded(r"\b(?:between|from) (?:the )?\Z|[从在自]\Z", re.IGNORECASE)
_NEXT_MONTH = bounded(rf"\s*(?:to|and|until|till|through|-|–) {MONTH}(?: {YEAR})?", re.IGNORECASE)
_SINCE = bounded(r"(?:\bsince|\bless than|自从?|从)\s*(?:the )?\Z", re.IGNORECASE)
_ON = bounded(r"\s+on(?:wards?)?\b(?=\s*(?:[?.,!]|\Z))|\s+onwards?\b", re.IGNORECASE)
_AFTER = bounded(r"\bafter\s*(?:the )?\Z", re.IGNORECASE)
_AFTER_TRAILING = bounded(r"\s*(?:之后|以后)")
_OWNS = bounded(r"['’]s\b")
_SINCE_TRAILING = bounded(text(_AROUND["since_trailing"]), re.IGNORECASE)
_UNTIL_START = bounded(r"\bbefore\s*(?:the )?\Z", re.IGNORECASE)
_UNTIL_START_TRAILING = bounded(rf"\s*(?:之前|以前|前(?!{FRONT}))")
_UNTIL_END = bounded(r"(?:\bmore than|\buntil|\btill|\bup to|截至|截止到?)\s*(?:the )?\Z", re.IGNORECASE)
_UNTIL_END_TRAILING = bounded(r"\s*为止")
_OTHER_DATE = bounded(r"(?<![\d.])(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)\d\d)(?![\d.])")
_LEADS = bounded(text(_AROUND["leads"]), re.IGNORECASE)
_TRAILS = bounded(text(_AROUND["trails"]), re.IGNORECASE)
"""What only leads to a time, and what only follows it and starts no other word: 昨天内存, 昨天晚上线, 昨天的士."""
_LOOSE = bounded(r"\s+([?!,.;:？！，。；：])")
_EDGES = " ,;:，、；：。"
_GENERIC = frozenset((*listed("left_out", "asked"), *text(table("left_out")["asked_han"])))
"""Terms that only ask what happened."""
_HAN_GENERIC = bounded(text(_AROUND["han_generic"]))
"""Whole words that do the same."""


def time_range(query: str, *, now: datetime, zone: str) -> TimeWords | None:
    """Return the time in the query as a range, or None.

    now: aware. zone: the caller's IANA zone, in which days begin; an unknown name counts as UTC.
    """
    text, here = unquoted(query[:MAX_QUERY_CHARS]), in_zone(now, zone)
    times = expressions(text, here)
    if any(time.is_future(here) for time in times) and not says_it_happened(text):  # "today and tomorrow": no filter
        times = [replace(time, level=min(time.level, DATED)) for time in times]
    if times:
        chosen = min(times, key=lambda time: (-time.level, time.first))
        others = [time for time in times if time is not chosen]
        return _words(query, _opened(text, chosen, here), others, here)
    if other := _OTHER_DATE.search(text):
        first, second, year = map(int, other.groups())
        for month, day in ((first, second), (second, first)):
            with contextlib.suppress(ValueError):  # no such month or day
                return _words(query, Expression(*other.span(), spans.day(date(year, month, day)), DATED), [], here)
    return None


def in_zone(now: datetime, zone: str) -> datetime:
    """Return an instant in a caller's zone; an unknown name counts as UTC."""
    try:
        return now.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return now.astimezone(UTC_ZONE)


def expressions(text: str, now: datetime, rules: Rules = RULES) -> list[Expression]:
    """Return the expressions of an unquoted text in order, without overlaps. now: in the caller's zone."""
    times = list(_read(text, now, rules))
    return _joined(text, _apart(_outside_names(text, times)), now) if times else []


def _read(text: str, now: datetime, rules: Rules) -> Iterator[Expression]:
    """Yield every expression of the text, refined by the words next to it."""
    yielded = 0
    characters = frozenset(text.casefold())
    for pattern, reader, level, needs in rules:
        if needs and needs.isdisjoint(characters):
            continue
        for match in pattern.finditer(text):
            try:
                span = reader(match, now)
            except (OverflowError, ValueError):  # 31 April, a year before 1
                continue
            if span is None or yielded >= MAX_FOUND:
                continue
            yielded += 1
            groups = match.groupdict()
            first = match.start("at") if groups.get("at") else match.start()
            time = Expression(first, match.end(), span, level, bool(groups.get("year")))
            yield _refined(text, replace(time, level=_level(text, time, groups.get("n"), now)))


def _level(text: str, time: Expression, amount: str | None, now: datetime) -> int:
    """Return the level of an expression in the beginning of a text (`MAX_QUERY_CHARS`)."""
    text = text[:MAX_QUERY_CHARS]
    if is_vague(amount):
        return VAGUE
    if time.level < HARD:
        return time.level
    if time.is_future(now):
        return DATED  # its memory was recorded before
    if is_name(text, time.first, time.last):
        return BARE
    if time.level == HARD or says_it_happened(text):
        return HARD
    asks_more = _asks_more(_without(text, [time]))
    if time.level == IF_HAPPENED:
        return BARE if asks_more or asks_of_any_time(text) else HARD
    return BARE if asks_more and states_a_rule(text, time.last) else HARD


def _outside_names(text: str, times: list[Expression]) -> list[Expression]:
    """Return those that are no part of an identifier; "Monday-Wednesday" is none, but two expressions."""

    def is_joined(time: Expression, at: int | None) -> bool:
        """Return whether it is joined to a word there that is no time itself."""
        return at is not None and not any(other.first <= at <= other.last for other in times if other is not time)

    return [time for time in times if not any(is_joined(time, at) for at in joined_to(text, time.first, time.last))]


def _refined(text: str, time: Expression) -> Expression:
    for _ in range(_REFINED_AT_MOST):
        refined = _refined_once(text, time)
        if refined is None:
            break
        time = refined
    return time


def _refined_once(text: str, time: Expression) -> Expression | None:
    """Return the expression with the nearest refinement included, None when there is no more."""
    if isinstance(time.span[0], datetime) or time.level in (BARE, VAGUE):  # hours
        return None
    for pattern, refine in _FOLLOWING:
        match = pattern.match(text, time.last)
        if match and (span := _safely(refine, time.span, match)):
            return replace(time, last=match.end(), span=span, level=max(time.level, DATED))
    for pattern, refine in _LEADING:
        match = pattern.search(text, max(0, time.first - LED_CHARS), time.first)
        if match and (span := _safely(refine, time.span, match)):
            return replace(time, first=match.start(), span=span, level=max(time.level, DATED))
    return None


def _safely(refine: Refiner, span: Span, match: re.Match[str]) -> Span | None:
    try:
        return refine(span, match)
    except (OverflowError, ValueError):
        return None


def _apart(times: list[Expression]) -> list[Expression]:
    """Return the longest of those that overlap, in the order of the text; of equally long ones the first rule's."""
    kept: list[Expression] = []
    for time in sorted(times, key=lambda time: time.first - time.last):
        if all(time.last <= other.first or time.first >= other.last for other in kept):
            kept.append(time)
    return sorted(kept, key=lambda time: time.first)


def _joined(text: str, times: list[Expression], now: datetime) -> list[Expression]:
    """Return the expressions with every "A to B" made one."""
    joined: list[Expression] = []
    for time in times:
        if joined and _is_range(text, joined[-1], time) and (both := _range(joined[-1], time)):
            joined[-1] = both
        else:
            joined.append(time)
    return [time if time.is_range else _with_month(text, time, now) for time in joined]


def _is_range(text: str, start: Expression, end: Expression) -> bool:
    between = text[: end.first][start.last :]
    return bool(_TO.fullmatch(between) or (_AND.fullmatch(between) and _BETWEEN.search(text[: start.first])))


def _with_month(text: str, start: Expression, now: datetime) -> Expression:
    """Return "between March" with its "and May": only there a bare name is a month."""
    match = _NEXT_MONTH.match(text, start.last)
    if match is None or not _BETWEEN.search(text[: start.first]) or isinstance(start.span[0], datetime):
        return start
    span = calendar(match, now)
    end = Expression(match.start(), match.end(), span, DATED, has_year=bool(match["year"])) if span else None
    return (_range(start, end) or start) if end else start


def _range(start: Expression, end: Expression) -> Expression | None:
    """Return both as one; a year that only one of them names is the other's as well. None when it runs backwards."""
    first, last = start.span, end.span
    if isinstance(first[0], datetime) or isinstance(last[0], datetime):
        return None
    if start.has_year and not end.has_year:
        last = spans.in_year(last, first[0].year)
        last = last if last[0] >= first[0] else spans.in_year(last, first[0].year + 1)
    elif end.has_year and not start.has_year:
        first = spans.in_year(first, last[0].year)
    if first[0] > last[0]:
        first = spans.in_year(first, last[0].year - 1)
    if first[0] >= last[1]:
        return None
    level = min(max(start.level, DATED), max(end.level, DATED))
    return Expression(start.first, end.last, (first[0], last[1]), level, has_year=True, is_range=True)


def _opened(text: str, time: Expression, now: datetime) -> Expression:
    """Return the expression open to one side where the text says since, after, before or until."""
    before, (start, end) = text[: time.first], time.span
    if time.is_range:
        return time
    if word := _SINCE.search(before):
        return replace(time, first=word.start(), span=_until_now(start, now), level=HARD)
    if word := _SINCE_TRAILING.match(text, time.last) or _ON.match(text, time.last):
        return replace(time, last=word.end(), span=_until_now(start, now), level=HARD)
    if word := _AFTER.search(before):
        return _later(text, replace(time, first=word.start()), now)
    if word := _AFTER_TRAILING.match(text, time.last):
        return _later(text, replace(time, last=word.end()), now)
    for pattern, bound in ((_UNTIL_START, start), (_UNTIL_END, end)):
        if word := pattern.search(before):
            return replace(time, first=word.start(), span=(spans.BEGINNING, bound))
    for pattern, bound in ((_UNTIL_START_TRAILING, start), (_UNTIL_END_TRAILING, end)):
        if word := pattern.match(text, time.last):
            return replace(time, last=word.end(), span=(spans.BEGINNING, bound))
    return time


def _later(text: str, time: Expression, now: datetime) -> Expression:
    """Return the range that begins when the expression ends; "after yesterday's meeting" begins with that day.

    The future never filters, and a date or weekday only where the query says that something happened.
    """
    start, end = time.span
    begin = start if isinstance(start, datetime) or _OWNS.match(text, time.last) else end
    if instant(begin, now) > now:
        return replace(time, span=(begin, spans.END), level=min(time.level, DATED))
    is_hard = time.level == HARD or not _asks_more(_without(text, [time])) or says_it_happened(text)
    return replace(time, span=_until_now(begin, now), level=HARD if is_hard else time.level)


def _until_now(start: date, now: datetime) -> Span:
    begin = instant(start, now)
    return begin, max(now, begin) + timedelta(seconds=1)


def instant(at: date, now: datetime) -> datetime:
    """Return the first instant of a day in the zone of `now`; an instant is returned as it is."""
    return at if isinstance(at, datetime) else datetime(at.year, at.month, at.day, tzinfo=now.tzinfo)


def _words(query: str, time: Expression, others: list[Expression], now: datetime) -> TimeWords | None:
    start, end = (instant(at, now).astimezone(UTC) for at in time.span)
    if start >= end:
        return None
    relative = [time for time in (time, *others) if time.is_relative]
    text = query[time.first : time.last].strip()
    asks_more = _asks_more(_without(query, list({time, *relative})))
    is_habit = time.level == BARE and asks_of_any_time(query)
    return TimeWords(start, end, text, time.level == HARD, asks_more or is_habit, _without(query, relative))


def _asks_more(text: str) -> bool:
    return not all(_is_generic(term) for word in _HAN_GENERIC.sub(" ", text).split() for term in terms(word))


def _is_generic(term: str) -> bool:
    return term in _GENERIC or (len(term) == 2 and not term.isascii() and all(sign in _GENERIC for sign in term))


def _without(query: str, cut: list[Expression]) -> str:
    """Return the query without these expressions and the words that only lead to them, white space tidied."""
    for time in sorted(cut, key=lambda time: -time.first):
        first, last = time.first, time.last
        if led := _LEADS.search(query, max(0, first - LED_CHARS), first):
            first = led.start()
        if tail := _TRAILS.match(query, last):
            last = tail.end()
        gap = " " if query[:first][-1:].isascii() or query[last:][:1].isascii() else ""
        query = query[:first] + gap + query[last:]
    tidy = _LOOSE.sub(r"\1", " ".join(query.split())).strip(_EDGES) if cut else query.strip()
    return tidy if any(sign.isalnum() for sign in tidy) else ""
