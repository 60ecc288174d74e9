"""Whether memory is paused, until when, and whether recall is off too; and whether saving works.

The flag is a file in the data folder, so that every process and every later engine sees it. An empty one (as older
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

from memory_anchor.base.files import write_atomic
from memory_anchor.domain.errors import BadInput, DiskFull, Refused, StoreBusy, StoreDamaged, Unavailable
from memory_anchor.domain.model import Caller
from memory_anchor.domain.rights import Action, refusal

FLAG = "paused"
LONGEST = timedelta(days=365)
_DURATION = re.compile(r"\s*(\d{1,5})\s*(m|min|h|d)\s*", re.ASCII)
_UNIT = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Pause:
    """until: None for until somebody ends it. silent: nothing is recalled unprompted either."""

    until: datetime | None = None
    silent: bool = False

    def outlasts(self, other: Pause) -> bool:
        """Return whether this one ends later than the other."""
        if self.until is None or other.until is None:
            return self.until is None and other.until is not None
        return self.until > other.until


def pause_of(data_dir: Path, now: datetime) -> Pause | None:
    """Return the pause in force now, None for none."""
    try:
        text = (data_dir / FLAG).read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return Pause()
    try:
        stored = json.loads(text)
        until = datetime.fromisoformat(stored["until"]) if stored.get("until") else None
        pause = Pause(until, bool(stored.get("silent")))
        return pause if until is None or now < until else None
    except (ValueError, TypeError, AttributeError, KeyError):
        return Pause()


def check_may_write(*, read_only: bool, paused: bool, pause: Pause | None = None) -> None:
    """Raise Refused where nothing may be written now. pause: names when it ends, where it does by itself."""
    if read_only:
        raise Refused("this connection is read-only; nothing was written")
    if paused:
        ends = f"; it ends at {pause.until:%Y-%m-%d %H:%M} UTC" if pause is not None and pause.until else ""
        raise Refused(refusal(Action.WRITE_PAUSED, Caller.AGENT) + ends)


def save_pause(data_dir: Path, pause: Pause) -> None:
    stored = {"until": pause.until.isoformat() if pause.until else None, "silent": pause.silent}
    write_atomic(data_dir / FLAG, json.dumps(stored).encode())


def parse_duration(text: str) -> timedelta:
    """Return how long `2h`, `30m` or `1d` is. Raises BadInput: another text, zero, or over a year.

    >>> parse_duration("2h")
    datetime.timedelta(seconds=7200)
    """
    match = _DURATION.fullmatch(text)
    span = timedelta(**{_UNIT[match[2]]: int(match[1])}) if match else timedelta()
    if not timedelta() < span <= LONGEST:
        raise BadInput(f"--for {text!r} is no time; allowed are minutes, hours and days up to a year: 30m, 2h, 1d")
    return span


class SaveHealth:
    """Whether saving works: the last failure that the request did not cause. Thread-safe."""

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
        """Record whether the block's write fails, and raise its error again."""
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
        """Record a failed write of the block and suppress it; a success does not clear a failure to save memories."""
        try:
            yield
        except (Refused, Unavailable, DiskFull, StoreBusy, StoreDamaged, OSError) as error:
            with self._lock:
                self._failure = self._failure or str(error) or type(error).__name__
