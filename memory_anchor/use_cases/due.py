"""Open tasks and dates: when a memory is due, what is due now, and what of it was shown today.

A memory is due by its own content, not by a type: an event planned for later (`when`), a tag
`due:DATE`, the tag `todo` (due at once), or a date in its words that lay ahead when they were written. It stops being
due when it is said to be done, forgotten or replaced, and, where it was only planned, `OVER_DAYS` after it. A brief
shows each once a day, and nothing that is so long over.

A day and month without a year are the nearest ones: a plan where they lay ahead, and nothing where the text tells what
was (`language/deadlines`). The file holds ids and days, no text; lost, a line is shown once more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

from memory_anchor.base.files import write_atomic
from memory_anchor.domain.model import Memory, Status
from memory_anchor.language.deadlines import deadline, planned
from memory_anchor.language.timespans import AHEAD_DAYS, BEGINNING, horizon, says_it_happened
from memory_anchor.language.timewords import time_range

DUE = "due.json"
"""Name of the file in the data directory."""
OVER_DAYS = 30
"""What passed so long ago is listed no more, but for what had to be done by then; no brief shows it."""
READ = 400
"""The newest facts, and as many events, that are looked through for dates."""
KEPT, READINGS_KEPT = 2_000, 4_096
TODO_TAGS = frozenset({"todo", "task", "待办"})
DUE_TAG = "due:"
DONE_TAG = "done"
YEAR = timedelta(days=365)
LAST_INSTANT = timedelta(seconds=1)
"""Before a day's end: what is due on a day names that day."""
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class DueMemory:
    """at: the end of the day it is due on; None for a task without a date. must: it had to be done by then; what was
    only planned for then has passed."""

    memory: Memory
    at: datetime | None
    must: bool = True


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


def due_of(
    memories: Iterable[Memory], *, now: datetime, zone: str, done: frozenset[str], ahead_days: int = AHEAD_DAYS
) -> list[DueMemory]:
    """Return what is due: what is overdue first, the longest before the others, tasks without a date last."""
    found = []
    for memory in memories:
        names = {tag.name.casefold() for tag in memory.tags}
        if memory.id in done or DONE_TAG in names or memory.status not in (Status.ACTIVE, Status.DISPUTED):
            continue
        at, must = due_at(memory, zone)
        if at is not None:
            if at <= horizon(now, ahead_days) and (must or not is_long_over(at, now)):
                found.append(DueMemory(memory, at, must))
        elif names & TODO_TAGS:
            found.append(DueMemory(memory, None))
    return sorted(found, key=lambda due: (due.at is None, due.at or due.memory.learned_at))


def is_long_over(at: datetime | None, now: datetime) -> bool:
    return at is not None and at < now - timedelta(days=OVER_DAYS)


class DueFile:
    """What was shown on which day, and what is done. A missing or torn file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def done(self) -> frozenset[str]:
        return frozenset(self._read().get("done", {}))

    def shown_on(self, day: str) -> frozenset[str]:
        """Return the ids that were shown on that day already."""
        return frozenset(name for name, when in self._read().get("told", {}).items() if when == day)

    def note(self, ids: Iterable[str], day: str, *, what: str = "told") -> None:
        """Record that these were shown, or are done. what: "told" or "done"."""
        if not (new := dict.fromkeys(ids, day)):
            return
        with _lock:
            stored = self._read()
            days = stored.get(what, {}) | new
            stored = dict(stored) | {what: dict(list(days.items())[-KEPT:])}
            write_atomic(self._path, json.dumps(stored).encode())

    def _read(self) -> Mapping[str, dict[str, str]]:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {k: v for k, v in stored.items() if isinstance(v, dict)} if isinstance(stored, dict) else {}
