"""The day a memory is due on: by its tags, by when it is planned, by the words of its text.

A day and month without a year are the nearest ones: a plan where they lay ahead, and nothing where the text tells what
was (`deadlines`).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from memory_anchor.domain.model import Memory
from memory_anchor.language.deadlines import deadline, planned
from memory_anchor.language.timespans import BEGINNING, says_it_happened
from memory_anchor.language.timewords import time_range

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
