"""What people may type for a request's values: a time in words, the beginning of an id.

Commands alone take these. A tool's caller has the full id and a clock; a guess there would hide a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from memory_anchor.base.json_values import Json, Record, records, text
from memory_anchor.errors import BadInput
from memory_anchor.front.cli.link import call, preamble
from memory_anchor.language.timewords import time_range

END_OF_RANGE = frozenset({"until"})
"""Fields for which a day or week means its end."""
LISTED_MAX = 1_000
NAMED_MAX = 5
PREFIX = re.compile(r"[0-9a-z]{4,12}")
ID_FIELDS = ("id", "replaces", "done")
HOURS = "零一二三四五六七八九十"
CHINESE_HOUR = re.compile(
    r"(上午|下午|早上|晚上|傍晚|中午)?([0-9]{1,2}|[一二三四五六七八九十])点(半|[0-5]?[0-9](?=分))?分?"
)
HOUR = re.compile(r"\d:\d|\d\s?[ap]\.?m\b|点", re.IGNORECASE)
"""A time of the day, which a range of days would lose."""

Values = dict[str, Json]


def parse_time(field: str, words: str, *, now: datetime | None = None) -> str:
    """Return a time in words ("yesterday 10:00", "上周") as ISO 8601. Raises BadInput: it is no time."""
    try:
        datetime.fromisoformat(words.strip())
        return words
    except ValueError:
        pass
    now, zone = now or datetime.now(UTC), preamble().zone or "UTC"
    days = time_range(words, now=now, zone=zone)
    if days is not None and not HOUR.search(words):
        return (days.end if field in END_OF_RANGE else days.start).isoformat()
    from dateparser.date import DateDataParser

    settings = {"TIMEZONE": zone, "RETURN_AS_TIMEZONE_AWARE": True, "PREFER_DATES_FROM": "past"}
    settings["RELATIVE_BASE"] = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    date = DateDataParser(languages=["en", "zh"], settings=settings).get_date_data(with_clock_hours(words))
    at: datetime | None = date.date_obj
    if at is None:
        if days is None:
            allowed = "a time such as 2026-01-31T09:30:00Z, yesterday 10:00, 上周"
            raise BadInput(f"{field} is {words[:80]!r}; allowed is {allowed}")
        return days.start.isoformat()
    if date.period in ("month", "year"):  # dateparser keeps today's day in "January"
        at = at.replace(day=1) if date.period == "month" else at.replace(month=1, day=1)
    return at.isoformat()


def with_clock_hours(words: str) -> str:
    """Return the text with Chinese hours as a clock shows them, since dateparser does not know them.

    >>> with_clock_hours("昨天下午三点半"), with_clock_hours("昨天上午10点"), with_clock_hours("yesterday 10:00")
    ('昨天 15:30', '昨天 10:00', 'yesterday 10:00')
    """

    def clock(match: re.Match[str]) -> str:
        part, hour, rest = match.groups()
        number = int(hour) if hour.isdigit() else HOURS.index(hour)
        number += 12 * (part in ("下午", "晚上", "傍晚") and number < 12)
        return f" {number % 24:02d}:{30 if rest == '半' else int(rest or 0):02d}"

    return CHINESE_HOUR.sub(clock, words)


def ask_with_full_ids(ask: Callable[..., Record], values: Values) -> Record:
    """Return the answer to a call whose ids may be abbreviated. Raises BadInput: an ambiguous id."""
    return ask(**values | {name: full_id(str(values[name])) for name in ID_FIELDS if values.get(name)})


def full_id(prefix: str) -> str:
    """Return the id of the only memory that begins with `prefix`; a full or unknown id is returned as it is.

    A version may follow: `1m83@2`. Raises BadInput: several memories begin so.
    """
    beginning, at, version = prefix.partition("@")
    if not PREFIX.fullmatch(beginning):
        return prefix
    states = (None, "archived", "superseded")
    answers = (call("list", status=status, limit=LISTED_MAX) for status in states)
    ids = {str(memory["id"]) for answer in answers for memory in records(answer["memories"])}
    return only_match(beginning, ids) + at + version


def full_project_id(prefix: str) -> str:
    """Return the id of the only project that begins with `prefix`, as `full_id` does."""
    if not PREFIX.fullmatch(prefix):
        return prefix
    return only_match(prefix, (text(project["id"]) for project in records(call("projects_list")["projects"])))


def only_match(prefix: str, ids: Iterable[str]) -> str:
    """Return the only id that begins with `prefix`; `prefix` where it is an id or begins none. Raises BadInput."""
    matches = sorted({id for id in ids if id.startswith(prefix)})
    if not matches or prefix in matches:
        return prefix
    if len(matches) > 1:
        named = ", ".join(matches[:NAMED_MAX]) + (" and more" if len(matches) > NAMED_MAX else "")
        raise BadInput(f"id {prefix!r} begins {len(matches)} ids: {named}; give more of it")
    return matches[0]
