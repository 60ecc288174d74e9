"""The rules of time expressions that are read on their own: pattern, reader of the match, and level (`timewords`).

Chinese and English are side by side, so that what one language can say is not forgotten in the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from math import ceil, floor

from memory_anchor.json_values import text
from memory_anchor.language import timespans as spans
from memory_anchor.language.bounded import bounded
from memory_anchor.language.timespans import Span
from memory_anchor.language.words import listed, placed, table

RECENT_DAYS = 14
"""What "recently" and "最近" mean without a number; it only ranks."""
WHILE_DAYS = 60
"""What "a while ago" and "前段时间" mean; it only ranks too."""
HARD, DATED, BARE, VAGUE = 3, 2, 1, 0
"""Filters; only ranks; ignored where there is a date; ignored where there is any other time."""
OF_LIMIT = -1
"""Read only where a word next to it makes it a limit: "by May", "before the end of the day"."""
UNLESS_RULE, IF_HAPPENED = 5, 4
"""Hard unless the query states a rule, and hard only if it says that something happened; else BARE (`timespans`)."""
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
Rules = tuple[tuple[re.Pattern[str], Reader, int], ...]

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

_WORDS = "|".join(listed("numbers", "english")[1 : TWELVE + 1])
NUMBER = rf"(?P<n>\d{{1,4}}|a couple of|couple of|an?|{_WORDS})"
_AMOUNT = (
    r"(?P<n>(?<![\d.,])\d{1,4}(?:\.\d{1,2}|\s?(?:-|–|to|or)\s?\d{1,4})?|half an?|(?:a )?couple of|(?:a )?few|several|"
    rf"an?|(?:{_WORDS})(?: (?:or|to) (?:{_WORDS})| and a half)?)"
)
_HAN_N = (
    r"(?P<n>(?<![\d.])\d{1,4}(?:\.\d{1,2}|个[半多]|[多来]|\s*[-~到至]\s*\d{1,4})?|好?几十?|若干|(?<!个)半(?:个多)?|"
    r"[零〇一二两三四五六七八九十百]{1,8}(?:个[半多]|[多来几]|[到至][一二两三四五六七八九十百]{1,8})?)"
)
HAN_NUMBER = r"\d{1,2}|[一二三四五六七八九十]{1,3}"
MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b"
)
WEEKDAY = r"(?P<weekday>monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_WEEKDAY_SHORT = rf"(?:{WEEKDAY}|(?P<short>mon|tues?|wed|thur?s?|fri|sat|sun))\b"
_FOUR = r"(?:19|20)\d\d"
YEAR = rf"(?P<year>{_FOUR})"
_HAN_YEAR = r"(?P<year>\d{4}|[一二][〇零一二三四五六七八九]{3})\s*年"
ORDINAL = r"(?:st|nd|rd|th)"
_UNITS = r"(?P<unit>minutes?|hours?|days?|weeks?|months?|years?)"
_HAN_UNIT = r"(?P<unit>分钟|个?小时|个?钟头|天|日|个?星期|个?礼拜|周|个?月|年)"
HAN_WEEK = r"(?:周|星期|礼拜)"
HOLIDAYS = (
    (r"(?:元旦|\bnew year['’]s day)", (1, 1, 1)),
    (r"(?:劳动节|五一(?!二|八))", (5, 1, 5)),
    (r"(?:国庆(?:节|假期)?)", (10, 1, 7)),
    (r"(?:圣诞节?|(?:\blast )?\bchristmas)", (12, 24, 3)),
)
"""The names of a holiday, and its month, day and number of days."""
SEASON = r"(?P<season>spring|summer|autumn|fall|winter)"
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365, "天": 1, "日": 1, "周": 7, "星期": 7, "礼拜": 7, "月": 30}
YEAR_DAYS = 365
_UNIT_MINUTES = {"minute": 1, "hour": 60, "分": 1, "小时": 60, "钟头": 60}


def number(text: str) -> int | None:
    """Return the number of digits, an English number word or Chinese numerals below 1,000.

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
        return (whole, whole + 1) if (whole := number(lower[:-2])) else None
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


def _back(found: re.Match[str], now: datetime) -> Span | None:
    """Read N units ago: that day, or the week, month or year that far back; for hours, an hour around it."""
    unit, today = found["unit"].lower(), now.date()
    units = _units_of(found)
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


def _units_of(found: re.Match[str]) -> tuple[float, float] | None:
    """Return the least and the most units of a match, None for an implausible number."""
    units = amounts(found["n"] or "1")
    if units is None or units[1] > MAX_BACK:
        return None
    more = found.groupdict().get("half")
    if more == "多":
        return units[0], units[1] + 1
    return (units[0] + HALF, units[1] + HALF) if more else units


def _half_back(unit: str, now: datetime) -> Span | None:
    today = now.date()
    if "年" in unit or "year" in unit:
        return spans.month(today.year, today.month - 6)
    return (now - timedelta(hours=1), now) if any(sign in unit for sign in ("时", "钟", "hour")) else None


def _within(found: re.Match[str], now: datetime) -> Span | None:
    """Read the last N units, today included."""
    unit, today, amount = found["unit"].lower(), now.date(), found["n"] or "1"
    units = _units_of(found)
    if units is None:
        return None
    count = PAST_FEW if _FEW.fullmatch(amount) else units[1]
    if minutes := _of_unit(_UNIT_MINUTES, unit):
        return now - timedelta(minutes=minutes * count), now
    days = int(count * (_of_unit(_UNIT_DAYS, unit) or YEAR_DAYS))
    return today - timedelta(days=days), today + timedelta(days=1)


def _english_span(found: re.Match[str], now: datetime) -> Span:
    offset = _OFFSETS[(found.groupdict().get("which") or "this").lower()]
    return _span_from(now.date(), found["span"].lower(), offset)


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


def _weekday(found: re.Match[str], now: datetime) -> Span:
    """Read "last Friday", "on Friday" or "Friday": the latest one; with "last" never today, with "next" the coming."""
    wanted = WEEKDAYS.index((found["weekday"] or found["short"]).lower()[:3])
    which = (found.groupdict().get("which") or "").lower()
    today = now.date()
    if which in ("next", "coming"):
        return spans.day(today + timedelta(days=(wanted - today.weekday() - 1) % 7 + 1))
    back = (today.weekday() - wanted) % 7
    return spans.day(today - timedelta(days=back or (7 if which == "last" else 0)))


def _han_weekday(found: re.Match[str], now: datetime) -> Span:
    today = now.date()
    return spans.day(today - timedelta(days=(today.weekday() - HAN_WEEKDAYS[found["weekday"]]) % 7))


def _han_span(unit: str) -> Reader:
    """Return the reader of a day, week, month, quarter or year that a prefix such as 上 or 前 counts from now."""

    def read(found: re.Match[str], now: datetime) -> Span:
        which = found["which"]
        offset = _HAN_OFFSETS.get(which, which.count("下") - which.count("上"))
        return _span_from(now.date(), unit, offset)

    return read


def _weekend(_: re.Match[str], now: datetime) -> Span:
    saturday = spans.week(now.date())[0] + timedelta(days=5)
    return spans.day(saturday if saturday <= now.date() else saturday - timedelta(weeks=1), 2)


def _quarter(found: re.Match[str], now: datetime) -> Span | None:
    """Read a quarter without a year: the latest one that has begun."""
    wanted = ORDINALS.get(found["quarter"].lower()) or number(found["quarter"])
    if wanted is None or not 1 <= wanted <= 4:
        return None
    return spans.quarter(now.year - (wanted > _quarter_of(now.date())), wanted)


def _season(found: re.Match[str], now: datetime) -> Span:
    name, which = found["season"].lower(), (found["which"] or "").lower()
    return spans.latest_season(now.date(), name, is_over=which in ("last", "previous", "past"))


def _half(found: re.Match[str], now: datetime) -> Span | None:
    return spans.half_of(spans.year(now.year), "上下".index(found["half"]))


def _han_part(found: re.Match[str], now: datetime) -> Span | None:
    """Read 月初 or 年底 alone: of this month, of this year."""
    whole = spans.month(now.year, now.month) if found["of"] == "月" else spans.year(now.year)
    return spans.part_of(whole, HAN_PARTS[found["part"]])


def calendar(found: re.Match[str], now: datetime) -> Span | None:
    """Read a year, month and day as far as they are given; a month without a year is the latest one."""
    parts = found.groupdict()
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


def _years(found: re.Match[str], _: datetime) -> Span | None:
    """Read "2023 to 2024": both years and what lies between."""
    first, last = int(found["since"]), int(found["year"])
    return (spans.year(first)[0], spans.year(last)[1]) if first < last else None


def _year_number(text: str) -> int:
    return int("".join(str(_HAN_DIGITS.get(sign, sign)) for sign in text))


def _month_number(text: str | None) -> int | None:
    if not text:
        return None
    if text[:3].lower() in _MONTH_NAMES:
        return _MONTH_NAMES.index(text[:3].lower()) + 1
    found = number(text)
    return found if found and 1 <= found <= 12 else None


def _holiday(month: int, day: int, days: int) -> Reader:
    def read(found: re.Match[str], now: datetime) -> Span | None:
        first = date(int(found["year"] or now.year), month, day)
        if not spans.FIRST_YEAR <= first.year <= spans.LAST_YEAR:
            return None
        return spans.day(first if found["year"] or first <= now.date() else first.replace(year=now.year - 1), days)

    return read


def _in_days(found: re.Match[str], now: datetime) -> Span | None:
    """Read "within three days" or "in two weeks" forward: the last day that is meant."""
    units = _units_of(found)
    size = _of_unit(_UNIT_DAYS, found["unit"].lower())
    return None if units is None else spans.day(now.date() + timedelta(days=ceil(units[1] * size)))


def _coming_day(found: re.Match[str], now: datetime) -> Span | None:
    """Read "the 15th" or 15号: today or the next one, in a month that has it."""
    wanted = number(found["day"]) or 0
    months = (spans.month(now.year, now.month + ahead) for ahead in range(3))
    days = (spans.day_of(month, wanted) for month in months)
    return next((day for day in days if day and day[0] >= now.date()), None)


def _days_from(offset: int) -> Reader:
    return lambda _, now: spans.day(now.date() + timedelta(days=offset))


def _days_until_now(days: int) -> Reader:
    return lambda _, now: (now.date() - timedelta(days=days), now.date() + timedelta(days=1))


def _last_hour(_: re.Match[str], now: datetime) -> Span:
    return now - timedelta(hours=1), now


_LED = (
    r"(?:in|during|since|last|between|from|until|till|before|after|by|through|around|of|back in|early|late|early in|"
    r"late in|mid)[ -](?:the )?"
)
_NOT_OF_DATE = (
    rf"(?! of (?:the (?:week|month|quarter|year)|last|this|(?:the )?{MONTH.replace('?P<month>', '?:')}|\d{{4}}))"
)
_HOLIDAY_YEAR = rf"(?:\b|(?=[之以]?[前后]|期间))(?:,? (?:of |in )?{YEAR}\b(?![-/.]\d))?"
# Chinese has no spaces: a character that begins or ends a time word may belong to the next word.
INSIDE = (
    r"内(?!存(?![入款])|部(?!署)|容(?!器)|网(?!络)|核(?![对实验销查])|建(?![立成设议好])|测(?![试算评])|联(?![系络合])|"
    r"购(?![买入置])|审(?![核批查计理])|控(?!制)|[置嵌外层涵幕蒙陆])"
)
"""内 that ends an amount, and begins no 内存 or 内网; 3天内部署 is within three days."""
_WITHIN = rf"(?:以内|之内|{INSIDE}|里面(?![试板积包条料向部具])|里(?![程约面]))"
_NOT_FRONT = r"(?!端(?![口点午]|到端)|台(?![风账湾式机])|[缀沿]|往(?!来)|后(?:对比|比较|差|变化|的))"
"""Makes 前 after an amount the beginning of 前端 or 前缀; 3天前后端 and 3天前端口 are three days ago."""
FRONT = r"(?:端|[台后缀面沿往景期言排几半\d一二三四五六七八九十百]|置(?!顶)|任(?!务))"
"""The same after 最近7天, which is no time ago, and after a day: 最近7天前十名, 最近7天前端口, 周五前台没人."""
_OWN = (
    r"(?<!(?<![完达形生变组改换写当])成)(?<!(?<![这那怎同])样)(?<!(?<!发)版)(?<!(?<![作今昨假节])日)"
    r"(?<!(?<![论推公])文)(?<!(?<!视)剧)(?<![脚基原副])(?<!笔记)本"
)
"""本 that ends no 成本, 样本, 版本 or 日本; 完成本周任务 and 发版本周 are of this week."""
_UPPER = r"(?<!马)(?<!(?<!最)[早晚])(?<!(?<![所可])以)(?!(?<=[线网])上[周月][会边年活报度均])上"
"""上 that ends no 晚上, 马上, 以上 or 线上; 所以上周 and 最晚上周 are of last week."""
_FORMER = r"(?<!(?<![项题栏曲节科])目)(?<!(?<![所可])以)(?<![提之当大])前"
"""前 that ends no 目前, 以前, 提前, 之前 or 当前; 项目前天 and 所以前天 are of a day."""
_NOT_WEEKLY = r"(?!期(?![间末])|报(?!错(?!误)|[销警名修告])|边(?![界缘])|刊(?![登发])|年庆|转(?:率|天数))"
NOT_WEEKDAY = (
    r"(?!(?<=日)(?:志(?!愿)|程(?!序)|常(?![规见用])|报(?![名错销警告价修])|本(?![来地人机想该应周月])|活(?!动)|期(?![末中间])|"
    r"元(?![旦宵])|[均历语])|(?<=天)[气猫津]|(?<=一)(?:[致键]|系列|切(?![换到流回分割])))"
)
"""Makes 日, 天 and 一 after 周 no day of the week: 上周日志, 本周天气, 上周一致性."""
RULES: Rules = tuple(
    (bounded(pattern, re.IGNORECASE), reader, level)
    for pattern, reader, level in (
        # days and hours
        (rf"(?P<which>大前|{_FORMER})天(?!线)", _han_span("day"), HARD),
        (r"(?P<which>[昨今])(?:天|日(?!头条|说法|关注|资本|看点|热榜|重现)|晚|夜|早|晨)", _han_span("day"), HARD),
        (r"(?P<which>(?<!光)明|(?<!以|之|然|最|前)后)天", _han_span("day"), DATED),
        (r"\bday before yesterday\b", _days_from(-2), HARD),
        (r"\byesterday\b|\blast night\b", _days_from(-1), HARD),
        (r"\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b", _days_from(0), HARD),
        (r"\btomorrow\b", _days_from(1), DATED),
        (r"刚才|刚刚|\bjust now\b|\ba moment ago\b", _last_hour, HARD),
        (
            rf"(?:最近|过去|(?<![附靠])近|这)\s*的?\s*{_HAN_N}\s*{_HAN_UNIT}(?P<half>半|多)?(?!月|前(?!{FRONT}))"
            rf"(?:\s*{_WITHIN})?",
            _within,
            UNLESS_RULE,
        ),  # before the next: of 这两天 and 两天前, equally long in 这两天前后端, the first rule's is kept
        (rf"{_HAN_N}\s*{_HAN_UNIT}(?P<half>半|多)?\s*(?:以前|之前|前{_NOT_FRONT})", _back, UNLESS_RULE),
        (rf"\b{_AMOUNT} {_UNITS}(?P<half> and a half)? ago\b", _back, UNLESS_RULE),
        (rf"\ban? {_UNITS} (?P<n>or two|or so) ago\b", _back, UNLESS_RULE),
        (rf"{_HAN_N}\s*{_HAN_UNIT}(?P<half>半|多)?\s*(?:以内|之内|{INSIDE})", _within, IF_HAPPENED),
        (rf"\bwithin (?:the )?{_AMOUNT} {_UNITS}\b", _within, IF_HAPPENED),
        (rf"\b(?:last|past|previous) {_AMOUNT} {_UNITS}\b{_NOT_OF_DATE}", _within, UNLESS_RULE),
        (r"\b(?:in|over|during|within) the (?:past|last) (?P<n>)(?P<unit>hour|day)\b(?! of)", _within, UNLESS_RULE),
        (r"\b(?:in|over|during|within) the past (?P<n>)(?P<unit>week|month|year)\b", _within, UNLESS_RULE),
        # weeks
        (
            rf"(?P<which>{_UPPER}上?个?|下下个?|下个?|{_OWN}|这个?|这一)\s*{HAN_WEEK}{_NOT_WEEKLY}",
            _han_span("week"),
            HARD,
        ),
        (r"\bweek before last\b", lambda _, now: spans.week(now.date() - timedelta(weeks=2)), HARD),
        (rf"(?<![每各]){HAN_WEEK}(?P<weekday>[一二三四五六日天])(?![个次]){NOT_WEEKDAY}", _han_weekday, BARE),
        (rf"\b(?P<which>last|this|next|coming|past) {_WEEKDAY_SHORT}(?!s\b| of\b)", _weekday, HARD),
        (rf"\b(?P<which>on) {_WEEKDAY_SHORT}(?!s\b)", _weekday, IF_HAPPENED),
        (rf"(?<!every )(?<!each )(?<!black )(?<!good )\b{WEEKDAY}(?P<short>)\b(?!s\b)", _weekday, BARE),
        (r"(?<![下这每个])周末(?!模式)|\b(?:over|on|at|during) the weekend\b", _weekend, BARE),
        # months, quarters, seasons, years
        (
            rf"(?P<which>{_UPPER}上?个?|下下个?|下个?|{_OWN}|这个?)月(?![球亮光饼]|经(?![费营济理手过办]))",
            _han_span("month"),
            HARD,
        ),
        (rf"(?P<which>{_UPPER}上?个?|下个?|{_OWN}|这个?)季度", _han_span("quarter"), HARD),
        (r"\bQ(?P<quarter>[1-4])(?![a-z\d_\-]|\.\w)", _quarter, DATED),
        (r"第?(?P<quarter>[一二三四1-4])季度", _quarter, DATED),
        (r"\b(?P<quarter>first|second|third|fourth) quarter\b", _quarter, DATED),
        (rf"\b(?P<which>last|this|past|previous) {SEASON}\b", _season, HARD),
        (rf"\b(?:in|during) (?:the )?(?P<which>){SEASON}\b", _season, BARE),
        (r"(?<![以之])(?P<half>[上下])半年", _half, DATED),
        (r"(?<![\d一二三四五六七八九十个上下本这岁])(?P<of>[年月])(?P<part>[初底末])(?!级)", _han_part, HARD),
        (rf"(?P<which>大前|[今去明]|(?<!从){_FORMER})年(?![级轮轻龄])", _han_span("year"), HARD),
        (
            r"\b(?P<which>this|last|past|previous|current|next) (?P<span>weekend|week|month|quarter|year)\b",
            _english_span,
            HARD,
        ),
        (
            r"\b(?:beginning|start|middle|end) of (?:the )?(?P<at>(?P<span>week|month|quarter|year))\b",
            _english_span,
            HARD,
        ),
        # the calendar
        (rf"{_HAN_YEAR}(?:\s*(?P<month>{HAN_NUMBER})\s*月(?:份)?)?", calendar, DATED),
        (r"(?<!个)(?P<month>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])\s*月份?(?!\d|球|亮|兔)", calendar, DATED),
        (
            rf"(?:{_HAN_YEAR})?\s*(?P<month>{HAN_NUMBER})\s*月\s*(?P<day>{HAN_NUMBER})\s*[日号]?\s*(?:到|至|-|~|—)\s*"
            rf"(?P<last_day>{HAN_NUMBER})\s*[日号]",
            calendar,
            DATED,
        ),
        (rf"(?:{_HAN_YEAR})?\s*(?P<month>{HAN_NUMBER})\s*月\s*(?P<day>{HAN_NUMBER})\s*[日号]", calendar, DATED),
        (rf"(?<![\d.]){YEAR}(?P<sep>[-/.])(?P<month>\d{{1,2}})(?P=sep)(?P<day>\d{{1,2}})(?!\.?\d)", calendar, DATED),
        (rf"(?<![\d.]){YEAR}-(?P<month>\d{{1,2}})(?!-|\.?\d)", calendar, DATED),
        (
            rf"\b(?P<day>\d{{1,2}}){ORDINAL}?(?:\s*(?:-|–|to|and|until)\s*(?P<last_day>\d{{1,2}}){ORDINAL}?)?"
            rf"(?: of)? {MONTH}\.?,?(?: {YEAR})?",
            calendar,
            DATED,
        ),
        (
            rf"\b{MONTH}\.? (?P<day>\d{{1,2}}){ORDINAL}?\b(?!\d)(?:\s*(?:-|–)\s*(?P<last_day>\d{{1,2}}){ORDINAL}?\b)?"
            rf"(?:,? {YEAR})?",
            calendar,
            DATED,
        ),
        (rf"\b{MONTH}\.?,? (?:of )?{YEAR}\b", calendar, DATED),
        (rf"\b{_LED}(?P<at>{MONTH})(?! be\b)", calendar, DATED),
        (
            rf"\b(?:{_LED}|Q[1-4] |{SEASON} )(?P<at>{YEAR})\b(?![-/.]\d)",
            calendar,
            DATED,
        ),
        (
            rf"(?<![\d./-])(?P<since>{_FOUR})\s?(?:to|until|till|through|-|–)\s?{YEAR}(?![\d./-]|\s?年)",
            _years,
            DATED,
        ),
        *((rf"{name}(?:{_HOLIDAY_YEAR})", _holiday(*days), DATED) for name, days in HOLIDAYS),
        # without a number
        (
            r"前几[天日]|前些(?:天|日子)|(?:(?<![\u4e00-\u9fff])|(?<=[我们]))前两天|\bthe other day\b",
            _days_until_now(RECENT_DAYS),
            VAGUE,
        ),
        (r"前(?:段|一段|阵|一阵)(?:时间|子)?|\b(?:a|some) (?:while|time) ago\b", _days_until_now(WHILE_DAYS), VAGUE),
        (
            r"最近(?![邻点距公匹]|使用)|近期|近来|(?<!least )(?<!most )\brecent(?:ly)?\b(?! (?:used|opened|viewed)\b)|"
            r"\blately\b",
            _days_until_now(RECENT_DAYS),
            VAGUE,
        ),
    )
)
_FUNCTION_WORDS = "|".join(word for word in listed("left_out", "search") if len(word) > 1)
_AHEAD_UNIT, _HAN_AHEAD_UNIT = r"(?P<unit>days?|weeks?|months?)", r"(?P<unit>天|日|个?星期|个?礼拜|周|个?月)"
AHEAD: Rules = tuple(
    (bounded(pattern, re.IGNORECASE), reader, level)
    for pattern, reader, level in (
        (rf"\b(?P<how>within) (?:the (?:next|coming) )?{_AMOUNT} {_AHEAD_UNIT}\b", _in_days, DATED),
        (rf"\b(?P<how>in) {_AMOUNT} {_AHEAD_UNIT}\b(?! of\b|['’-])", _in_days, DATED),
        (rf"{_HAN_N}\s*{_HAN_AHEAD_UNIT}(?P<half>半|多)?\s*(?:(?P<how>以内|之内|{INSIDE})|[之以]?后)", _in_days, DATED),
        (
            rf"\b(?:the )?(?P<day>\d{{1,2}}){ORDINAL}\b(?=\s*(?:[.,;:!?)—–-]|\Z|(?:{_FUNCTION_WORDS}|latest|noon)\b))",
            _coming_day,
            DATED,
        ),
        (rf"(?<![\d.第月])(?<!月 )(?P<day>{HAN_NUMBER})\s*[日号](?![线楼机])", _coming_day, DATED),
        (rf"\b{MONTH}", calendar, OF_LIMIT),
        (r"\b(?:the )?weekend\b", _weekend, BARE),
        (r"明[早晚晨]", _days_from(1), OF_LIMIT),
        (r"\b(?:end of (?:the )?day|close of business|eod|cob)\b", _days_from(0), OF_LIMIT),
    )
) + tuple(rule for rule in RULES if rule[1] is not _back)
"""The rules for the future (`deadlines`): those of their own, then all of the others that do not look back."""
