"""Numbers of a sentence in a normal form: "2 pm" and "下午两点" are both ('clock', '14:00').

Vectors blur quantities most: 30 and 60 seconds are neighbours to any embedding. `numbers` reads clock times, dates,
weekdays, years, versions and counted things in English and Chinese, each with its unit, so that two statements can be
compared number by number. Chinese numerals count only before a unit (统一 and 一起 have no number).
Invariant: a part of the text is read once, by the most specific reader.
"""

from __future__ import annotations

import re

from memory_anchor.base.json_values import record, text, whole
from memory_anchor.language.safe_regex import bounded
from memory_anchor.language.words import listed, pattern, placed, table

READ_CHARS = 4_000
"""Only so much of a text is read: a statement has its numbers early."""

_WORD_NUMBERS = placed("numbers", "english") | {
    word: whole(value) for word, value in record(table("numbers")["others"]).items()
}
_ORDINALS = placed("numbers", "ordinals", first=1)
_HAN_DIGITS = {digit: value for value, digit in enumerate(text(table("numbers")["chinese"]))} | {"两": 2, "〇": 0}
_HAN_SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10000}
_UNITS = {unit: text(names) for unit, names in table("units").items()}
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_MONTHS_IN = {"month": 1, "year": 12}
_BYTES = {"k": 10, "m": 20, "g": 30, "t": 40}
_UNIT_OF = [(unit, bounded(rf"[\s-]?(?:{'|'.join(names.split())})(?![a-z])")) for unit, names in _UNITS.items()]
_MONTHS = placed("calendar", "months", first=1)
_MONTH_AT = _MONTHS | {name[:3]: month for name, month in _MONTHS.items()}
_MONTH_NAMES = "|".join(sorted(_MONTH_AT, key=len, reverse=True))
_DAYS = tuple(placed("calendar", "weekdays"))
_HAN_NUMBER = "[零〇一二两三四五六七八九十百千万]{1,7}"
_SOME = rf"(?:\d{{1,6}}|{_HAN_NUMBER})"
_PARTS = {
    "some": _SOME,
    "months": _MONTH_NAMES,
    "months_but_may": _MONTH_NAMES.replace("may|", ""),
    "days": "|".join(_DAYS),
    "number_words": "|".join(_WORD_NUMBERS),
    "all_words": "|".join((*_WORD_NUMBERS, *_ORDINALS)),
    "han_digits": _HAN_NUMBER[1:-6],
    "han_number": _HAN_NUMBER,
}
_YEAR = bounded(r"(?<!\d)((?:19|20)\d\d)(?!\d)(?:年)?")
_EVERY_UNIT = {
    name: (unit, int(many))
    for many, unit, names in ((*period.split(), text(names)) for period, names in table("periods").items())
    for name in names.split()
}
_NUMBER = bounded(pattern("quantities", "number", **_PARTS))

_NOT_NAMES = frozenset(listed("left_out", "counted"))

Number = tuple[str, str]
"""(unit, value): ('minute', '12'), ('clock', '14:00'), ('date', '05-03'), ('python', '3.11')."""


def _value(text: str) -> int:
    """Return the value of ASCII digits or of Chinese numerals up to 万."""
    if text.isdigit() and text.isascii():
        return int(text)
    total = section = digit = 0
    for character in text:
        if character in _HAN_DIGITS:
            digit = _HAN_DIGITS[character]
        else:
            scale = _HAN_SCALES[character]
            if scale == 10000:
                total, section, digit = (total + section + digit) * scale, 0, 0
            else:
                section += (digit or 1) * scale
                digit = 0
    return total + section + digit


def _clock(match: re.Match[str]) -> Number | None:
    minute = int(match["m24"] or 0)
    if match["hz"]:
        hour = _value(match["hz"])
        minute = 30 if match["hm"] else _value(match["mz"]) if match["mz"] else 0
        half = "p" if match["part"] in {"下午", "傍晚", "晚上"} else ""
    else:
        hour, half = int(match["h24"] or match["h12"]), (match["half24"] or match["half"] or "")[:1]
    if half == "p" and hour < 12:
        hour += 12
    return ("clock", f"{hour:02d}:{minute:02d}") if hour <= 24 else None


def _date(match: re.Match[str]) -> Number | None:
    name = match["m1"] or match["m2"] or match["m4"]
    month = _MONTH_AT[name] if name else _value(match["m0"] or match["m3"] or match["m5"])
    day = match["d0"] or match["d1"] or match["d2"] or match["d3"]
    if not 1 <= month <= 12:
        return None
    return ("date", f"{month:02d}-{_value(day):02d}") if day else ("in-month", f"{month:02d}")


def _past(match: re.Match[str]) -> Number | None:
    """Return half past nine as 09:30, and quarters likewise."""
    hour = _count(match["hour"])
    minutes = hour * 60 + (30 if match["what"] == "half" else 15) * (1 if match["side"] == "past" else -1)
    return ("clock", f"{minutes // 60:02d}:{minutes % 60:02d}") if 1 <= hour <= 24 else None


def _part(match: re.Match[str]) -> Number:
    """Return half an hour and a quarter of an hour as the minutes they are."""
    if match["quarter"]:
        return _measured("minute", str(15 * _value(match["quarter"])))
    unit, many = _EVERY_UNIT.get(match["zunit"] or match["unit"], (match["unit"], 1))
    return _measured(unit, str(many * (0.25 if match["part"] == "quarter" else 0.5)))


def _every(match: re.Match[str]) -> Number:
    name = match["word"] or match["unit"] or match["zunit"]
    unit, many = _EVERY_UNIT.get(name, (name, 1))
    count = match["en"] or match["zh"]
    many *= 2 if match["other"] else _count(count) if count else 1
    unit, value = _measured(unit, str(many))
    return (f"every-{unit}", value)


def _share(match: re.Match[str]) -> Number:
    return ("percent", str(_value(match["share"]) if match["share"] else _value(match["tenths"]) * 10))


def _count(text: str) -> int:
    return _WORD_NUMBERS[text] if text in _WORD_NUMBERS else _value(text)


def _measured(unit: str, value: str, written: str = "") -> Number:
    """Return a duration in seconds or months and a size in bytes, so that 90 minutes and 2 hours can be compared.

    written: the unit as in the text.
    """
    if unit in _SECONDS or unit in _MONTHS_IN:
        kind, factor = ("duration", _SECONDS[unit]) if unit in _SECONDS else ("months", _MONTHS_IN[unit])
    elif unit == "byte":
        kind, factor = "byte", 1 << _BYTES.get(written.strip(" -")[:1], 0)
    else:
        return (unit, value)
    try:
        return (kind, f"{float(value) * factor:g}")
    except ValueError:  # 1.2.3
        return (unit, value)


def _weekday(match: re.Match[str]) -> Number:
    if match["en"]:
        return ("weekday", str(_DAYS.index(match["en"]) + 1))
    return ("weekday", str("一二三四五六日天".index(match["zh"]) % 7 + 1 if match["zh"] != "天" else 7))


def _plain(match: re.Match[str], text: str) -> Number | None:
    """Return a number that is no time or date, with the unit after it or the name before it."""
    rest = text[match.end() : match.end() + 12]
    unit, written = next(((unit, m.group()) for unit, names in _UNIT_OF if (m := names.match(rest))), ("", ""))
    if match["han"]:
        if not unit or (unit == "item" and match["han"] == "一"):
            return None  # 一起, 统一, 万一: no number unless something is counted
        return _measured(unit, str(_value(match["han"])), written)
    if match["word"]:
        word = match["word"]
        if word in {"second", "first", "one"} and unit == "":
            return None
        value = str(_ORDINALS[word] if word in _ORDINALS else _WORD_NUMBERS[word])
        if not unit and text[: match.start()].rstrip().endswith("floor"):
            unit = "floor"  # floor three is the third floor
        return _measured("time" if word in {"once", "twice"} else unit or "count", value, written)
    digits = match["digits"].replace(",", "").lstrip("0") or "0"
    if not unit and match["before"] and match["before"] not in _NOT_NAMES:
        unit = match["before"]
    return _measured(unit or ("version" if digits.count(".") else "count"), digits, written)


_READERS = tuple(
    (bounded(pattern("quantities", name, **_PARTS)), reader)
    for name, reader in (
        ("past", _past),
        ("part", _part),
        ("clock", _clock),
        ("date", _date),
        ("weekday", _weekday),
        ("share", _share),
        ("every", _every),
    )
)
"""The most specific first: each takes its part of the text."""


def numbers(text: str) -> frozenset[Number]:
    """Return every number of a folded, lower-cased text; each part is read once.

    >>> sorted(numbers("fridays at 2 pm, 12 minutes")) == sorted(numbers("周五14:00，十二分钟"))
    True
    """
    result: set[Number] = set()
    text = text[:READ_CHARS]
    for expression, reader in _READERS:
        for match in expression.finditer(text):
            number = reader(match)
            if number is not None:
                result.add(number)
                text = text[: match.start()] + "，" * (match.end() - match.start()) + text[match.end() :]
    result.update(("year", year) for year in _YEAR.findall(text))
    text = _YEAR.sub("，", text)
    result.update(filter(None, (_plain(match, text) for match in _NUMBER.finditer(text))))
    return frozenset(result)
