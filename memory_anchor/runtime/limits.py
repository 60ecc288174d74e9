"""How many connections a process may hold, and how much it may say about them.

A connection is a file descriptor, and a process that has none left can neither accept nor write; asyncio then logs each
try, thousands a second. So the number is bounded below the descriptors, and the loggers that strangers can make speak
are bounded by the minute.
"""

from __future__ import annotations

import logging
import time

DESCRIPTORS_WANTED = 4096
DESCRIPTORS_RESERVED = 128
"""For the store, logs, sockets that listen and what libraries open."""
DESCRIPTORS_USUAL = 1024
MOST_CONNECTIONS, LEAST_CONNECTIONS = 512, 32
RECORDS_A_MINUTE = 60
MINUTE_S = 60.0
SPEAKS_OF_STRANGERS = ("asyncio", "uvicorn.error", "memory_anchor.front", "memory_anchor.engine", "mcp")


def connections() -> int:
    """Return how many connections one listening socket of this process may hold; the soft limit is raised first.

    Half of what is left of the descriptors: an HTTP server holds the engine's socket beside its own.
    """
    soft = DESCRIPTORS_USUAL
    try:
        import resource
    except ImportError:  # Windows has no such limit worth naming
        return MOST_CONNECTIONS
    try:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        if soft == resource.RLIM_INFINITY:
            soft = DESCRIPTORS_WANTED
    except (OSError, ValueError):
        pass  # a sandbox forbids it: what there is counts
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, (soft - DESCRIPTORS_RESERVED) // 2))


class Throttle(logging.Filter):
    """Lets `RECORDS_A_MINUTE` records through, then says how many were left out."""

    def __init__(self, most: int = RECORDS_A_MINUTE) -> None:
        super().__init__()
        self._most, self._since, self._said, self._left = most, 0.0, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._since >= MINUTE_S:
            left, self._since, self._said, self._left = self._left, now, 0, 0
            if left:
                record.msg, record.args = f"{record.getMessage()} ({left} records before it were left out)", ()
        self._said += 1
        self._left += self._said > self._most
        return self._said <= self._most


def throttle_logs() -> None:
    """Bound what strangers can make this process write; more than once does nothing more."""
    for name in SPEAKS_OF_STRANGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, Throttle) for one in logger.filters):
            logger.addFilter(Throttle())
