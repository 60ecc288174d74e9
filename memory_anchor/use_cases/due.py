"""Open tasks and dates: when a memory is due, what is due now, and what of it was shown today.

A memory is due by its own content, not by a type (`language/due_dates`). However many there are, those that may be are
found by a term that indexing gives them (`indexing.DATED`); the newest are read besides, since a day is another one in
another zone. It stops being due when it is said to be done, forgotten or replaced, and, where it was only planned,
`OVER_DAYS` after it. A brief shows each once a day, and nothing that is so long over. The file holds ids and days, no
text; lost, a line is shown once more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from memory_anchor.base.files import write_atomic
from memory_anchor.domain.model import Memory, Status
from memory_anchor.language.due_dates import TODO_TAGS, due_at
from memory_anchor.language.timespans import AHEAD_DAYS, horizon

DUE = "due.json"
"""Name of the file in the data directory."""
OVER_DAYS = 30
"""What passed so long ago is listed no more, but for what had to be done by then; no brief shows it."""
READ = 400
"""The newest facts, and as many events, that are looked through for dates whatever is indexed."""
DATED_MAX = 10_000
"""Facts, and as many events, that are found by `indexing.DATED`."""
KEPT = 2_000
DONE_TAG = "done"
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class DueMemory:
    """at: the end of the day it is due on; None for a task without a date. must: it had to be done by then; what was
    only planned for then has passed."""

    memory: Memory
    at: datetime | None
    must: bool = True


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
        return frozenset(name for name, when in self._read().get("shown", {}).items() if when == day)

    def note(self, ids: Iterable[str], day: str, *, what: str = "shown") -> None:
        """Record that these were shown, or are done. what: "shown" or "done"."""
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
        read = {k: v for k, v in stored.items() if isinstance(v, dict)} if isinstance(stored, dict) else {}
        return {"shown": read.pop("told"), **read} if "told" in read else read  # as 0.1 named it
