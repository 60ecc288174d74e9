"""What the user last said in each conversation: what a question that follows it leaves out.

Kept in this process's memory alone and never stored: a prompt is the user's, and may say what no memory should.
"""

from __future__ import annotations

import threading
from collections import deque

from cachetools import LRUCache

from memory_anchor.model import Scope

CONVERSATIONS_KEPT = 500
PROMPTS_KEPT = 3
PROMPT_CHARS = 400


class SaidBefore:
    """Thread-safe. A caller without a conversation has said nothing: many may share that name."""

    def __init__(self) -> None:
        self._said: LRUCache[tuple[str, str, str], deque[str]] = LRUCache(CONVERSATIONS_KEPT)
        self._lock = threading.Lock()

    def note(self, scope: Scope, prompt: str) -> None:
        """Remember a prompt of the conversation; its end is forgotten first where it is long."""
        if scope.conversation and prompt.strip():
            with self._lock:
                self._said.setdefault(_key(scope), deque(maxlen=PROMPTS_KEPT)).append(prompt.strip()[:PROMPT_CHARS])

    def before(self, scope: Scope, query: str) -> str:
        """Return the last prompt that is not this very query; "" where there is none."""
        with self._lock:
            said = tuple(self._said.get(_key(scope), ()))
        return next((one for one in reversed(said) if one != query.strip()[:PROMPT_CHARS]), "")


def _key(scope: Scope) -> tuple[str, str, str]:
    return scope.account, scope.project, scope.conversation
