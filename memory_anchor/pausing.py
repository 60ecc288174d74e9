"""Whether memory is paused, until when, and whether it says nothing either; and whether saving works.

The flag is a file beside the store, so that every process and every later engine sees it. An empty one (as older
versions wrote it) or one that cannot be read pauses writing until somebody ends it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from memory_anchor.errors import BadInput, DiskFull, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.files import write_atomic

FLAG = "paused"
LONGEST = timedelta(days=365)
_LASTS = re.compile(r"\s*(\d{1,5})\s*(m|min|h|d)\s*", re.ASCII)
_UNIT = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Pause:
    """until: None for until somebody ends it. silent: nothing is told unasked either."""

    until: datetime | None = None
    silent: bool = False

    def outlasts(self, other: Pause) -> bool:
        """Return whether this one ends later than the other, or says less."""
        if self.until is None or other.until is None:
            return self.until is None and other.until is not None
        return self.until > other.until


def pause_of(data_dir: Path, now: datetime) -> Pause | None:
    """Return the pause that holds now, None for none."""
    try:
        text = (data_dir / FLAG).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Pause()
    try:
        stored = json.loads(text)
        until = datetime.fromisoformat(stored["until"]) if stored.get("until") else None
        found = Pause(until, bool(stored.get("silent")))
        return found if until is None or now < until else None
    except (ValueError, TypeError, AttributeError, KeyError):
        return Pause()


def save_pause(data_dir: Path, pause: Pause) -> None:
    stored = {"until": pause.until.isoformat() if pause.until else None, "silent": pause.silent}
    write_atomic(data_dir / FLAG, json.dumps(stored).encode())


def parse_duration(text: str) -> timedelta:
    """Return how long `2h`, `30m` or `1d` is. Raises BadInput: nothing of the kind, nothing at all, or over a year.

    >>> lasting("2h")
    datetime.timedelta(seconds=7200)
    """
    found = _LASTS.fullmatch(text)
    span = timedelta(**{_UNIT[found[2]]: int(found[1])}) if found else timedelta()
    if not timedelta() < span <= LONGEST:
        raise BadInput(f"--for {text!r} is no time; allowed are minutes, hours and days up to a year: 30m, 2h, 1d")
    return span


class SaveHealth:
    """Whether what is written arrives: the last failure that was no fault of the request's. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failure = ""

    @property
    def failure(self) -> str:
        """Return why the last write failed, "" when it did not."""
        with self._lock:
            return self._failure

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note whether the block's write fails; what it raises goes on."""
        try:
            yield
        except (Unavailable, DiskFull, StoreBusy, StoreDamaged, OSError) as error:
            with self._lock:
                self._failure = str(error) or type(error).__name__
            raise
        with self._lock:
            self._failure = ""

    @contextmanager
    def tolerating_failure(self) -> Iterator[None]:
        """Note a failed write of the block and go on without it; one that arrives says nothing of the memories'."""
        try:
            yield
        except (Refused, Unavailable, DiskFull, StoreBusy, StoreDamaged, OSError) as error:
            with self._lock:
                self._failure = self._failure or str(error) or type(error).__name__
