"""L1 `active_context`: what a conversation has in mind right now; never written to the store.

One cachetools TTLCache per conversation keeps the session's limit; a deadline inside each entry keeps `ttl_s`. Bounded
in conversations, keys and bytes. When a conversation ends, whatever is still alive is handed over once, to become one
L2 event (strategy 3.1); where that cannot be written it stays in mind. A crash forgets it, which the strategy calls
expected behaviour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from cachetools import TTLCache

from memory_anchor.errors import BadInput
from memory_anchor.json_values import Json, parsed
from memory_anchor.model import Scope
from memory_anchor.ports import Clock
from memory_anchor.requests import L1_TTL_S_MAX

SESSION_TTL_S = L1_TTL_S_MAX
"""A conversation's values live at most this long, whatever their own `ttl_s` says."""
KEYS_MAX = 64
CONVERSATION_BYTES_MAX = 256 * 1024
CONVERSATIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class _Value:
    encoded: str
    expires_at: datetime


class ActiveContext:
    def __init__(self, clock: Clock, on_evict: Callable[[Scope, dict[str, Json]], None]) -> None:
        """on_evict: takes the values of a conversation that had to make room (never called under the lock)."""
        self._clock = clock
        self._on_evict = on_evict
        self._lock = threading.Lock()
        self._of: dict[tuple[str, str, str, str], tuple[Scope, TTLCache[str, _Value]]] = {}

    def expiry_of(self, ttl_s: int) -> datetime:
        """Return when a value expires that is set now."""
        return self._clock.now() + timedelta(seconds=min(ttl_s, SESSION_TTL_S))

    def set(self, scope: Scope, key: str, encoded: str, *, expires_at: datetime) -> None:
        """Store one JSON text until then. Raises BadInput: too many keys or bytes."""
        self._make_room(scope)
        now = self._clock.now()
        with self._lock:
            values = self._of.setdefault(_name(scope), (scope, self._new_cache()))[1]
            self._drop_expired(values, now)
            size = sum(len(v.encoded.encode()) for name, v in values.items() if name != key)
            if key not in values and len(values) >= KEYS_MAX:
                raise BadInput(f"active context holds {len(values)} keys; allowed are {KEYS_MAX}: reuse or end one")
            if size + len(encoded.encode()) > CONVERSATION_BYTES_MAX:
                raise BadInput(f"active context would hold over {CONVERSATION_BYTES_MAX} bytes; shorten a value")
            values[key] = _Value(encoded, expires_at)

    def values(self, scope: Scope) -> dict[str, tuple[Json, datetime]]:
        """Return key -> (value, expires_at) of everything alive in this conversation."""
        with self._lock:
            held = self._of.get(_name(scope))
            if held is None:
                return {}
            self._drop_expired(held[1], self._clock.now())
            return {key: (_decoded(v.encoded), v.expires_at) for key, v in held[1].items()}

    @contextmanager
    def take(self, scope: Scope) -> Iterator[dict[str, Json]]:
        """Yield and forget everything alive in this conversation: whoever takes it owns it.

        Where the body fails, what was taken is in mind again, but for what was set meanwhile.
        """
        with self._lock:
            held = self._of.pop(_name(scope), None)
            if held is not None:
                self._drop_expired(held[1], self._clock.now())
        try:
            yield {key: _decoded(v.encoded) for key, v in held[1].items()} if held is not None else {}
        except BaseException:
            if held is not None:
                with self._lock:
                    now = self._of.setdefault(_name(scope), (scope, self._new_cache()))[1]
                    now.update({key: value for key, value in held[1].items() if key not in now})
            raise

    def drop(self, matches: Callable[[str, str], bool]) -> int:
        """Forget every value whose key and JSON text match, in all conversations; return how many there were."""
        with self._lock:
            held = [
                (values, key)
                for _, values in self._of.values()
                for key, one in values.items()
                if matches(key, one.encoded)
            ]
            for values, key in held:
                values.pop(key, None)
            return len(held)

    def scopes(self) -> list[Scope]:
        """Return the conversations that hold anything alive."""
        now = self._clock.now()
        with self._lock:
            for _, values in self._of.values():
                self._drop_expired(values, now)
            self._of = {name: held for name, held in self._of.items() if held[1]}
            return [scope for scope, _ in self._of.values()]

    def _new_cache(self) -> TTLCache[str, _Value]:
        return TTLCache(maxsize=KEYS_MAX, ttl=SESSION_TTL_S, timer=lambda: self._clock.now().timestamp())

    def _make_room(self, scope: Scope) -> None:
        """End the oldest conversation when this one would be one too many."""
        with self._lock:
            if _name(scope) in self._of or len(self._of) < CONVERSATIONS_MAX:
                return
            oldest = next(iter(self._of.values()))[0]
        with self.take(oldest) as values:
            self._on_evict(oldest, values)

    @staticmethod
    def _drop_expired(values: TTLCache[str, _Value], now: datetime) -> None:
        for key in [key for key, value in values.items() if value.expires_at <= now]:
            values.pop(key, None)


def _name(scope: Scope) -> tuple[str, str, str, str]:
    return (scope.account, scope.project, scope.user, scope.conversation)


def _decoded(encoded: str) -> Json:
    """Return the value; one that cannot be read is given as its text, so that it costs no other value."""
    try:
        return parsed(encoded)
    except (ValueError, RecursionError):
        return encoded
