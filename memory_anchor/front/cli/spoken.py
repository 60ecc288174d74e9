"""What people type for what a request asks: a time in words, the beginning of an id.

Only commands take these. A tool's caller has the whole id and a clock; a guess there would hide a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memory_anchor.errors import BadInput
from memory_anchor.front.cli.link import call, preamble
from memory_anchor.json_values import Json, Record, records, text
from memory_anchor.language.timewords import time_range

LATEST = frozenset({"until"})
"""Fields for which a day or week counts to its end."""
LISTED_MAX = 1_000
NAMED_MAX = 5
BEGINNING = re.compile(r"[0-9a-z]{4,12}")
ID_FIELDS = ("id", "replaces", "done")
HOURS = "零一二三四五六七八九十"
CHINESE_HOUR = re.compile(
    r"(上午|下午|早上|晚上|傍晚|中午)?([0-9]{1,2}|[一二三四五六七八九十])点(半|[0-5]?[0-9](?=分))?分?"
)
HOUR = re.compile(r"\d:\d|\d\s?[ap]\.?m\b|点", re.IGNORECASE)
"""What says a time of the day, which a range of days would lose."""

Values = dict[str, Json]


def moment(field: str, said: str, *, now: datetime | None = None) -> str:
    """Return a time said in words ("yesterday 10:00", "上周") as ISO 8601, BadInput where it is none."""
    try:
        datetime.fromisoformat(said.strip())
        return said
    except ValueError:
        pass
    now, zone = now or datetime.now(UTC), preamble().zone or "UTC"
    found = time_range(said, now=now, zone=zone)
    if found is not None and not HOUR.search(said):
        return (found.end if field in LATEST else found.start).isoformat()
    from dateparser.date import DateDataParser

    read = {"TIMEZONE": zone, "RETURN_AS_TIMEZONE_AWARE": True, "PREFER_DATES_FROM": "past"}
    read["RELATIVE_BASE"] = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    told = DateDataParser(languages=["en", "zh"], settings=read).get_date_data(in_digits(said))
    at: datetime | None = told.date_obj
    if at is None:
        if found is None:
            allowed = "a time such as 2026-01-31T09:30:00Z, yesterday 10:00, 上周"
            raise BadInput(f"{field} is {said[:80]!r}; allowed is {allowed}")
        return found.start.isoformat()
    if told.period in ("month", "year"):  # "January" is no day of it
        at = at.replace(day=1) if told.period == "month" else at.replace(month=1, day=1)
    return at.isoformat()


def in_digits(said: str) -> str:
    """Return Chinese hours as a clock shows them, which the reader of dates knows.

    >>> in_digits("昨天下午三点半"), in_digits("昨天上午10点"), in_digits("yesterday 10:00")
    ('昨天 15:30', '昨天 10:00', 'yesterday 10:00')
    """

    def clock(match: re.Match[str]) -> str:
        part, hour, rest = match.groups()
        number = int(hour) if hour.isdigit() else HOURS.index(hour)
        number += 12 * (part in ("下午", "晚上", "傍晚") and number < 12)
        return f" {number % 24:02d}:{30 if rest == '半' else int(rest or 0):02d}"

    return CHINESE_HOUR.sub(clock, said)


def with_whole_id(ask: Callable[..., Record], values: Values) -> Record:
    """Ask, with the ids that beginnings stand for. Raises BadInput: one begins several. What `ask` raises."""
    whole = {name: whole_id(str(values[name])) for name in ID_FIELDS if values.get(name)}
    return ask(**{**values, **whole})


def whole_id(said: str) -> str:
    """Return the id of the one memory that begins so; what is whole, or begins none, stays for its own sentence.

    A version may stand behind it: `1m83@2`. Raises BadInput: it begins several.
    """
    beginning, at, version = said.partition("@")
    if not BEGINNING.fullmatch(beginning):
        return said
    return the_one(beginning, _begun(beginning)) + at + version


def the_one(said: str, found: set[str]) -> str:
    """Return the one that is found; `said` where nothing is, or where it is one of them. Raises BadInput: several."""
    if not found or said in found:
        return said
    if len(found) > 1:
        named = ", ".join(sorted(found)[:NAMED_MAX]) + (" and more" if len(found) > NAMED_MAX else "")
        raise BadInput(f"id {said!r} begins {len(found)} ids: {named}; give more of it")
    return next(iter(found))


def whole_project(said: str) -> str:
    """Return the id of the one project that begins so. Raises BadInput: it begins several."""
    if not BEGINNING.fullmatch(said):
        return said
    return the_one(
        said,
        {text(one["id"]) for one in records(call("projects_list")["projects"]) if text(one["id"]).startswith(said)},
    )


def _begun(prefix: str) -> set[str]:
    """Return the ids that begin so, among the newest thousand of each state."""
    listed: list[Record] = []
    for status in (None, "archived", "superseded"):
        listed += records(call("list", status=status, limit=LISTED_MAX)["memories"])
    return {str(one["id"]) for one in listed if str(one["id"]).startswith(prefix)}
