"""The day a memory is due on: by its tags, by when it is planned, by the words of its text, Chinese and English.

A day and month without a year are the nearest ones: a plan where they lay ahead, and nothing where the text says what
was.

A date is read as in a question (`timewords`), then turned to the future: a question's "Friday" is the last one, a
task's the next. The words next to it make it a limit (`words.toml`, due), with what may stand between: "by end of day
Friday", "最晚周五", "周日晚上之前". A text about the past, or about every month, sets none, and a duration ("within 30
days") only where the sentence wants something done.

Rejected: `dateparser` on what follows "by": it takes a tenth of a second to load and reads "May", "1.5" and "10" as
dates, and neither "the end of next week" nor 下周三. Invariant: no limit lies before the text was written.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from memory_anchor.base.json_values import text as as_text
from memory_anchor.domain.model import Memory
from memory_anchor.language import timespans as spans
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.terms import terms
from memory_anchor.language.timerules import (
    AHEAD,
    BARE,
    DATED,
    FRONT,
    HAN_NUMBER,
    HARD,
    INSIDE,
    MONTH,
    OF_LIMIT,
    VAGUE,
)
from memory_anchor.language.timespans import BEGINNING, Span, says_it_happened, unquoted
from memory_anchor.language.timewords import (
    LED_CHARS,
    MAX_QUERY_CHARS,
    Expression,
    expressions,
    in_zone,
    instant,
    time_range,
)
from memory_anchor.language.words import listed, table

LEAST_TERMS = 2
"""A clause with so many words says something besides the time."""
NEAREST = timedelta(days=183)
"""Half a year: a day and month without a year name the nearest one."""
_A_DAY = timedelta(days=1)
_SENTENCES = bounded(r"[.!?](?=\s+[^\s\d])|[。！？；;\n]")


def _any_of(*names: str) -> str:
    """Return an expression for one of the phrases of these lists, the longest first; Latin ones are whole words."""
    phrases = [phrase.strip() for name in names for phrase in as_text(table("due")[name]).split("|")]
    blank = r"\s+"
    return "|".join(
        rf"\b{blank.join(phrase.split())}\b" if phrase.isascii() else phrase
        for phrase in sorted(phrases, key=len, reverse=True)
    )


_HOUR = rf"(?:{_any_of('hours')}|\d{{1,2}}(?:[:：]\d\d)?\s?[ap]m\b|\d{{1,2}}[:：]\d\d|(?:{HAN_NUMBER})\s*点半?)"
_LEADING = rf"(?P<between>(?:[\s:：]|{_any_of('leading')}|{_HOUR})*)\Z"
_UNTIL_END = bounded(rf"(?:{_any_of('until_end')}){_LEADING}", re.IGNORECASE)
_UNTIL_START = bounded(rf"(?:{_any_of('until_start')}){_LEADING}", re.IGNORECASE)
_BY = bounded(rf"(?:{_any_of('until_end')})", re.IGNORECASE)
_TRAILING = rf"(?P<hour>(?:\s*(?:at\b|,)?\s*{_HOUR})*)\s*"
_AFTER_END = bounded(rf"{_TRAILING}(?:{_any_of('behind_end')})", re.IGNORECASE)
_AFTER_START = bounded(rf"{_TRAILING}(?:{_any_of('behind_start')})(?<!(?<![之以])前(?={FRONT}))(?!的)", re.IGNORECASE)
_INSIDE = bounded(rf"\s*(?:以内|之内|{INSIDE})")
_HOUR_AFTER = bounded(rf",?\s*(?:at )?{_HOUR}", re.IGNORECASE)
_PART = bounded(r"\b(?:end of|late)\b|底|(?<!周)末|明[早晚晨]", re.IGNORECASE)
"""A part of a month or a year: "before the end of Q2" is until its end, as is "before 明晚"."""
_DURATION = bounded(r"within\b.*|in\b.*|.*[内后]", re.IGNORECASE)
_WAIT = bounded(r"in\b.*|.*后", re.IGNORECASE)
_OF_WEEK = bounded(r"(?:this|on) \w+", re.IGNORECASE)
_OF_MONTH = bounded(rf"(?:the )?\d{{1,2}}[a-z]{{2}}|(?:{HAN_NUMBER})\s*[日号]", re.IGNORECASE)
_DID = bounded(
    rf"\b[a-z]+ (?:[a-z]{{2,}}(?<!e)ed|{'|'.join(listed('irregular', 'past'))}) "
    r"(?:the|an?|it|all|this|that|our|its|them)\b",
    re.IGNORECASE,
)
"""A verb in the past and its object, whoever did it: "the team shipped the fix"."""
_FALLS = bounded(rf"{_any_of('falls')}", re.IGNORECASE)
_DUE_TO = bounded(r"\b[Dd]ue to (?![A-Z])")
_MUST = bounded(rf"{_any_of('must')}", re.IGNORECASE)
_WANTED = bounded(rf"{_any_of('must', 'asked')}", re.IGNORECASE)
_SUPPOSED = bounded(rf"{_any_of('supposed')}", re.IGNORECASE)
_ALWAYS = bounded(
    rf"{_any_of('always')}|\b(?:every|each|per)\s+(?:\w+ )?(?:day|week|month|quarter|year|sprint|weekday|\w+day)\b|"
    rf"\b(?:{'|'.join(listed('calendar', 'weekdays'))})s\b|每(?:一|个)*(?:天|日|周|星期|月|季度|年|次)",
    re.IGNORECASE,
)
_SPEAKS = bounded(
    rf"{_any_of('until_end', 'until_start', 'behind_end', 'behind_start', 'falls', 'must')}|within|内", re.IGNORECASE
)
_MAY_NAME_A_DAY = bounded(
    rf"[月天日号周元]|星期|礼拜|day\b|tomorrow|new year|\b{MONTH}|\d(?:st|nd|rd|th)\b", re.IGNORECASE
)
"""In every sentence that names a day without a year; most have none of it, and reading times is slow."""


def deadline(text: str, *, written: datetime, zone: str) -> datetime | None:
    """Return the first instant after the deadline that a text states, None where it states none.

    written: aware. zone: the caller's IANA zone, in which days end.

    >>> from datetime import UTC
    >>> at = datetime(2026, 3, 11, 10, tzinfo=UTC)  # a Wednesday
    >>> [f"{deadline(said, written=at, zone='UTC'):%d}" for said in ("Hand it in by Friday", "15号前提交")]
    ['14', '15']
    """
    here = in_zone(written, zone)
    sentences = [part for part in _SENTENCES.split(unquoted(text[:MAX_QUERY_CHARS])) if _SPEAKS.search(part)]
    found = [(sentence, time) for sentence in sentences for time in expressions(sentence, here, AHEAD)]
    found.sort(key=lambda pair: pair[1].level == OF_LIMIT)  # "by end of day Friday" is by Friday
    ends = (read(sentence, time, here) for read in (_limit, _falls) for sentence, time in found)
    return next((end for end in ends if end is not None), None)


def planned(text: str, *, written: datetime, zone: str) -> datetime | None:
    """Return the first instant after the first day and month without a year for which a text plans something.

    Such a date is the nearest one, so one within the next half a year is a plan, unless the text reports the past.

    >>> from datetime import UTC
    >>> at = datetime(2026, 3, 11, 10, tzinfo=UTC)
    >>> said = ("Demo for the board on 2 April", "4月2日给董事会演示", "On 2 March the demo failed")
    >>> [str(planned(one, written=at, zone="UTC"))[5:10] for one in said]
    ['04-03', '04-03', '']
    """
    here = in_zone(written, zone)
    for sentence in filter(_MAY_NAME_A_DAY.search, _SENTENCES.split(unquoted(text[:MAX_QUERY_CHARS]))):
        for time in expressions(sentence, here, AHEAD):
            words, is_date = sentence[time.first : time.last], time.level == DATED and not time.has_year
            if not is_date or time.is_range or time.span[1] - time.span[0] != _A_DAY:
                continue
            if _OF_MONTH.fullmatch(words) or _DURATION.fullmatch(words):
                continue
            end = _end(sentence, time, here)
            if end is not None and end <= here + NEAREST and not _is_past(sentence, time):
                return end
    return None


def _limit(sentence: str, time: Expression, here: datetime) -> datetime | None:
    """Return the end of an expression that the words next to it make a limit."""
    before, words = sentence[max(0, time.first - LED_CHARS) : time.first], sentence[time.first : time.last]
    if _DURATION.fullmatch(words) and not _UNTIL_END.search(before):
        is_wanted = _WANTED.search(sentence) and not _SUPPOSED.search(sentence) and not _WAIT.fullmatch(words)
        return _end(sentence, time, here) if is_wanted else None
    if _UNTIL_END.search(before) or _BY.match(words) or _AFTER_END.match(sentence, time.last):
        return _end(sentence, time, here)
    if _INSIDE.match(sentence, time.last):
        return _end(sentence, time, here) if _WANTED.search(sentence) else None
    led, trailed = _UNTIL_START.search(before), _AFTER_START.match(sentence, time.last)
    if not (led or trailed):
        return None
    hour = (led and (led["between"].strip() or _HOUR_AFTER.match(sentence, time.last))) or (trailed and trailed["hour"])
    return _end(sentence, time, here, until_start=not hour and not _PART.search(words))


def _falls(sentence: str, time: Expression, here: datetime) -> datetime | None:
    """Return the end of an expression in a sentence that says anywhere that something ends, or must be on a date."""
    words, clause = sentence[time.first : time.last], _clause(sentence, time)
    if time.level == OF_LIMIT or (_DURATION.fullmatch(words) and not _WAIT.fullmatch(words)):
        return None
    must = time.level in (DATED, HARD) and _MUST.search(clause) and not says_it_happened(clause)
    return _end(sentence, time, here) if must or _FALLS.search(_DUE_TO.sub(" ", sentence)) else None


def _clause(sentence: str, time: Expression) -> str:
    """Return the clause of an expression between commas; the sentence where that says little but a time."""
    first = max(sentence.rfind(comma, 0, time.first) for comma in ",，") + 1
    last = min((at for comma in ",，" if (at := sentence.find(comma, time.last)) >= 0), default=len(sentence))
    rest = f"{sentence[first : time.first]} {sentence[time.last : last]}"
    return sentence[first:last] if len(terms(rest)) >= LEAST_TERMS else sentence


def _end(sentence: str, time: Expression, here: datetime, *, until_start: bool = False) -> datetime | None:
    """Return where the next time of an expression ends or starts; None where it is over, reported or recurring."""
    if isinstance(time.span[0], datetime) or time.level == VAGUE or _ALWAYS.search(sentence):
        return None
    words = sentence[time.first : time.last]
    coming = _coming(words, time, here, 0 if until_start else 1)
    end = instant(coming[0 if until_start else 1], here)
    is_future = coming == time.span and instant(coming[0], here) > here and not _OF_MONTH.fullmatch(words)
    if end <= here or (not is_future and _is_past(sentence, time)):
        return None
    return end


def _is_past(sentence: str, time: Expression) -> bool:
    """Return whether the words around a time report the past and want nothing."""
    clause = _clause(sentence, time)
    return bool(says_it_happened(clause) or _DID.search(clause)) and not _WANTED.search(sentence)


def _coming(words: str, time: Expression, here: datetime, side: int) -> Span:
    """Return the span, moved by weeks or years into the future where its words leave open which one is meant."""
    if time.level == BARE or (_OF_WEEK.fullmatch(words) and time.span[1] - time.span[0] <= timedelta(days=2)):
        weeks = 0
        while instant(time.span[side], here) + timedelta(weeks=weeks) <= here:
            weeks += 1
        return time.span[0] + timedelta(weeks=weeks), time.span[1] + timedelta(weeks=weeks)
    if time.level in (DATED, OF_LIMIT) and not time.has_year and instant(time.span[side], here) <= here:
        return spans.in_year(time.span, time.span[0].year + 1)
    return time.span


READINGS_KEPT = 4_096
TODO_TAGS = frozenset({"todo", "task", "待办"})
DUE_TAG = "due:"
YEAR = timedelta(days=365)
LAST_INSTANT = timedelta(seconds=1)
"""Before a day's end: what is due on a day names that day."""


def may_be_due(memory: Memory) -> bool:
    """Return whether a memory names a day that lay ahead when it was written, or an open task."""
    return due_at(memory, "UTC")[0] is not None or any(tag.name.casefold() in TODO_TAGS for tag in memory.tags)


def due_at(memory: Memory, zone: str) -> tuple[datetime | None, bool]:
    """Return the end of the day a memory is due on, and whether it must be done by then.

    None where it names none that lay ahead when it was written.
    """
    written = memory.learned_at
    for tag in memory.tags:
        if tag.name.startswith(DUE_TAG):
            return _day_end(tag.name.removeprefix(DUE_TAG), zone), True
    if memory.when is not None and memory.when > written + timedelta(hours=1):
        return memory.when, False
    return _said(memory.content, written, zone)


@lru_cache(READINGS_KEPT)
def _said(text: str, written: datetime, zone: str) -> tuple[datetime | None, bool]:
    """Return the end of the period that lay ahead when this was written, and whether that is a limit. Cached: a start
    reads hundreds."""
    limit = deadline(text, written=written, zone=zone)
    if end := limit or planned(text, written=written, zone=zone):
        return (end - LAST_INSTANT if end < written + 3 * YEAR else None), limit is not None
    period = time_range(text, now=written, zone=zone)
    if period is None or period.start.year == BEGINNING.year:
        return None, False
    if says_it_happened(text) and period.start <= written:
        return None, False  # "on Monday it failed", written on that Monday
    is_back_to = period.start < written < period.end <= written + timedelta(days=1)  # "within 30 days" ends today
    lies_ahead = written + timedelta(hours=12) < period.end < written + 3 * YEAR
    return (period.end - LAST_INSTANT if lies_ahead and not is_back_to else None), False


def _day_end(day: str, zone: str) -> datetime | None:
    try:
        return datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) + timedelta(days=1) - LAST_INSTANT
    except ValueError:
        return None
