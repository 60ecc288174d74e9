"""What people may type for a request's values: a time in words, the beginning of an id.

Commands alone take these. A tool's caller has the full id and a clock; a guess there would hide a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from memory_anchor.base.json_values import Json, records, text
from memory_anchor.domain.errors import BadInput
from memory_anchor.front.cli.link import call, preamble
from memory_anchor.front.cli.output import err, escaped

END_OF_RANGE = frozenset({"until"})
"""Fields for which a day or week means its end."""
LISTED_MAX = 1_000
NAMED_MAX = 5
PREFIX = re.compile(r"[0-9a-z]{1,12}")
PREFIX_CHARS_MIN = 4
"""Of the beginning of an id: with fewer a slip of the hand names another memory."""
ID_FIELDS = ("id", "replaces", "done")
CLOCK = re.compile(
    r"(?:\bat )?\b(?=\d{1,2}(?::\d|\s?[ap]\.?m\b))(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
    r"\s?(?:(?P<half>[ap])\.?m\b\.?)?"
    r"|(?P<part>上午|下午|早上|晚上|傍晚|中午|凌晨|(?<=[昨今明当])晚)?"
    r"(?P<han>[0-9]{1,2}|[零一二两三四五六七八九十]{1,3})点(?P<rest>半|[0-5]?[0-9](?=分))?分?"
    r"|(?:\bat )?\b(?P<name>noon|midnight)\b",
    re.IGNORECASE,
)
"""A time of the day."""
OFFSET = re.compile(
    r"(?P<ahead>in )?(?P<n>\d{1,4})\s?(?P<unit>m|h|d|min(?:ute)?s?|hrs?|hours?|days?|个?小时|分钟|天)"
    r"(?P<tail>\s?ago|前|后)?",
    re.IGNORECASE,
)
"""What is counted from now: "2h", "20 mins ago", "in 3 days", 3天后."""
NOW = frozenset({"now", "现在"})
AFTERNOON = frozenset({"下午", "傍晚", "晚上", "晚"})
NOON = 12

Values = dict[str, Json]


def parse_time(field: str, words: str, *, now: datetime | None = None) -> str:
    """Return a time in words ("yesterday 10:00", "上周") as ISO 8601. Raises BadInput: it is no time."""
    try:
        datetime.fromisoformat(words.strip())
        return words
    except ValueError:
        pass
    from memory_anchor.language.timewords import in_zone

    here = in_zone(now or datetime.now(UTC), preamble().zone or "UTC")
    at = _at(words.strip(), here, is_end=field in END_OF_RANGE)
    if at is None:
        allowed = "a time such as 2026-01-31T09:30:00Z, yesterday 10:00, 上周"
        raise BadInput(f"{field} is {words[:80]!r}; allowed is {allowed}")
    return at.isoformat()


def _at(words: str, now: datetime, *, is_end: bool) -> datetime | None:
    """Return the instant that words name, None: they name none. is_end: of a day or week its end."""
    from memory_anchor.language.timewords import time_range

    if words.lower() in NOW:
        return now
    clock = CLOCK.search(words)
    # 昨晚8点 is 昨天 and 20:00
    date = CLOCK.sub("天" if clock and clock["part"] == "晚" else " ", words).strip(" ,") if clock else words
    zone = str(now.tzinfo)
    days = time_range(date, now=now, zone=zone) or time_range(f"in {date}", now=now, zone=zone)
    if clock is None:
        return (days.end if is_end else days.start) if days is not None else _counted(words, now)
    if days is None and date:
        return None
    after_midnight = _of_day(clock)
    if after_midnight is None:
        return None
    day = days.start.astimezone(now.tzinfo) if days is not None else now
    at = day.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) + after_midnight
    return at - timedelta(days=1) if at > now and not date else at  # the last time that the clock showed it


def _of_day(clock: re.Match[str]) -> timedelta | None:
    """Return the time of the day after midnight, by the clock; None: no clock shows it.

    >>> str(_of_day(CLOCK.search("下午三点半"))), str(_of_day(CLOCK.search("12am"))), _of_day(CLOCK.search("25:00"))
    ('15:30:00', '0:00:00', None)
    """
    if clock["name"]:
        return timedelta(hours=NOON if clock["name"].lower() == "noon" else 0)
    from memory_anchor.language.timerules import number

    hour = number(clock["hour"] or clock["han"])
    minute = 30 if clock["rest"] == "半" else int(clock["minute"] or clock["rest"] or 0)
    second, half = int(clock["second"] or 0), (clock["half"] or "").lower()
    if hour is None or hour > 24 or max(minute, second) > 59 or (half and not 1 <= hour <= NOON):
        return None
    if (half == "a" or clock["part"] == "凌晨") and hour == NOON:
        hour = 0
    elif ((half == "p" or clock["part"] in AFTERNOON) and hour < NOON) or (clock["part"] == "中午" and hour < 3):
        hour += NOON
    elif clock["part"] in ("晚上", "晚") and hour == NOON:
        hour = 24
    return timedelta(hours=hour, minutes=minute, seconds=second)


def _counted(words: str, now: datetime) -> datetime | None:
    """Return the instant that is so many minutes, hours or days before or after now."""
    match = OFFSET.fullmatch(words)
    if match is None or (match["ahead"] and match["tail"]):
        return None
    unit = {"m": "minutes", "h": "hours", "d": "days", "个": "hours", "小": "hours", "分": "minutes", "天": "days"}
    span = timedelta(**{unit[match["unit"][0].lower()]: int(match["n"])})
    return now + span if match["ahead"] or match["tail"] == "后" else now - span


def with_full_ids(values: Values, *, shows: bool) -> Values:
    """Return the arguments of a call with whole ids for abbreviated ones. Raises BadInput: an ambiguous id."""
    return values | {name: full_id(str(values[name]), shows=shows) for name in ID_FIELDS if values.get(name)}


def full_id(prefix: str, *, shows: bool = False) -> str:
    """Return the id of the only memory that begins with `prefix`; a full or unknown id is returned as it is.

    A version may follow: `1m83@2`. shows: what a human will sign, so the whole id is shown. Raises BadInput: several
    memories begin so.
    """
    beginning, at, version = prefix.partition("@")
    if not PREFIX.fullmatch(beginning):
        return prefix
    states = (None, "archived", "superseded")
    answers = (call("list", status=status, limit=LISTED_MAX) for status in states)
    ids = {str(memory["id"]) for answer in answers for memory in records(answer["memories"])}
    return _shown(prefix, only_match(beginning, ids) + at + version, shows=shows)


def full_project_id(prefix: str) -> str:
    """Return the id of the only project that begins with `prefix`, and show it, as `full_id` does."""
    if not PREFIX.fullmatch(prefix):
        return prefix
    ids = (text(project["id"]) for project in records(call("projects_list")["projects"]))
    return _shown(prefix, only_match(prefix, ids), shows=True)


def _shown(prefix: str, whole: str, *, shows: bool) -> str:
    if shows and whole != prefix:
        err.print(f"[dim]{escaped(prefix)} is {escaped(whole)}[/]")
    return whole


def only_match(prefix: str, ids: Iterable[str]) -> str:
    """Return the only id that begins with `prefix`; `prefix` where it is an id or begins none.

    Raises BadInput: it begins several, or is too short to name one.
    """
    matches = sorted({id for id in ids if id.startswith(prefix)})
    if not matches or prefix in matches:
        return prefix
    if len(matches) > 1:
        named = ", ".join(matches[:NAMED_MAX]) + (" and more" if len(matches) > NAMED_MAX else "")
        raise BadInput(f"id {prefix!r} begins {len(matches)} ids: {named}; give more of it")
    if len(prefix) < PREFIX_CHARS_MIN:
        raise BadInput(f"id {prefix!r} is too short; allowed are {PREFIX_CHARS_MIN} characters or more of it")
    return matches[0]
