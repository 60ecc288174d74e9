"""The clock, random bytes and fresh ids of this machine."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from memory_anchor.domain.ports import Clock

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford base 32, lower case: no i, l, o, u to misread."""
TIME_DIGITS = 9
RANDOM_DIGITS = 4
ID_LENGTH = TIME_DIGITS + RANDOM_DIGITS

_SET_TO: ContextVar[datetime | None] = ContextVar("memory_anchor_clock_set_to", default=None)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SettableClock:
    """Another clock, which checks may set for one call (`clock_set_to`)."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner

    def now(self) -> datetime:
        return _SET_TO.get() or self._inner.now()


@contextmanager
def clock_set_to(at: datetime | None) -> Iterator[None]:
    """Set every clock of this call to `at`; None leaves them alone."""
    token = _SET_TO.set(at)
    try:
        yield
    finally:
        _SET_TO.reset(token)


def new_bytes(count: int) -> bytes:
    """Return random bytes that nobody can guess."""
    return secrets.token_bytes(count)


def new_token() -> str:
    """Return a text of 128 random bits."""
    return secrets.token_hex(16)


def encode_id(number: int) -> str:
    """Return the lowest 65 bits of a number as an id: 13 digits in base 32."""
    return "".join(ALPHABET[number >> (5 * digit) & 31] for digit in reversed(range(ID_LENGTH)))


class Ids:
    """Ids of 13 characters that sort by time: 45 bits of milliseconds, 20 random bits, never twice in one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0

    def new(self) -> str:
        with self._lock:
            number = int(self._clock.now().timestamp() * 1000) << (5 * RANDOM_DIGITS)
            number |= secrets.randbits(5 * RANDOM_DIGITS)
            if number <= self._last:
                number = self._last + 1
            self._last = number
            return encode_id(number)


START = datetime(2025, 12, 15, 12, 0, tzinfo=UTC)
"""The instant of a clock that was never set: 2025-12-15, noon UTC."""


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the instant it was last set to, aware UTC."""
        with self._lock:
            return self._now

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move forward by the sum of these."""
        with self._lock:
            self._now += timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)

    def set(self, at: datetime) -> None:
        """Jump to an aware instant."""
        with self._lock:
            self._now = at.astimezone(UTC)
