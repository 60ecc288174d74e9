"""Time words of a query, Chinese and English, as a range."""

from __future__ import annotations
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TimeWords:
    start: datetime
    end: datetime
    text: str
    is_hard: bool
    rest: bool


def time_range(query: str, *, now: datetime, zone: str) -> TimeWords | None:
    return None
