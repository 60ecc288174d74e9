"""Which way of recall a conversation goes by: the first that it asked for, to its end. In memory, bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict

TALKS_KEPT = 20_000


class StickyVariants:
    """Thread-safe; the conversation that was quiet longest is forgotten first."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, talk: tuple[str, ...], asked: str) -> str:
        """Return the variant of a conversation: what it went by before, else what is asked for now."""
        with self._lock:
            name = self._held.setdefault(talk, asked)
            self._held.move_to_end(talk)
            while len(self._held) > TALKS_KEPT:
                self._held.popitem(last=False)
            return name
