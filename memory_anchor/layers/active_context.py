"""L1 `active_context`: a conversation's working values; never written to the store.

One cachetools TTLCache per conversation keeps the session's limit; a deadline inside each entry keeps `ttl_s`. Bounded
in conversations, keys and bytes. When a conversation ends, whatever is still alive is handed over once, to become one
L2 event (strategy 3.1); where that cannot be written it stays here. A crash forgets it, which the strategy calls
expected behaviour.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from cachetools import LRUCache, TTLCache

from memory_anchor.base.json_values import Json, parsed
from memory_anchor.domain.errors import BadInput
from memory_anchor.domain.model import Scope
from memory_anchor.domain.ports import Clock
from memory_anchor.domain.requests.requests import L1_TTL_S_MAX

SESSION_TTL_S = L1_TTL_S_MAX
"""A conversation's values live at most this long, whatever their own `ttl_s` says."""
KEYS_MAX = 64
CONVERSATION_BYTES_MAX = 256 * 1024
CONVERSATIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class _Value:
    encoded: str
    expires_at: datetime

    def decoded(self) -> Json:
        """Return the value, or its text where that is no readable JSON: one bad value must not cost the others."""
        try:
            return parsed(self.encoded)
        except (ValueError, RecursionError):
            return self.encoded


class ActiveContext:
    def __init__(self, clock: Clock, on_evict: Callable[[Scope, dict[str, Json]], None]) -> None:
        """on_evict: takes the values of the oldest conversation when there are too many (never under the lock)."""
        self._clock = clock
        self._on_evict = on_evict
        self._lock = threading.Lock()
        self._caches: dict[tuple[str, str, str, str], tuple[Scope, TTLCache[str, _Value]]] = {}
        self._ended: LRUCache[tuple[str, str, str, str], datetime] = LRUCache(CONVERSATIONS_MAX)

    def expiry_of(self, ttl_s: int) -> datetime:
        """Return when a value expires that is set now."""
        return self._clock.now() + timedelta(seconds=min(ttl_s, SESSION_TTL_S))

    def set(self, scope: Scope, key: str, encoded: str, *, expires_at: datetime) -> None:
        """Store one JSON text until then. Raises BadInput: too many keys or bytes."""
        self._evict_oldest(scope)
        now = self._clock.now()
        with self._lock:
            values = self._cache_of(scope)
            _drop_expired(values, now)
            size = sum(len(value.encoded.encode()) for name, value in values.items() if name != key)
            if key not in values and len(values) >= KEYS_MAX:
                raise BadInput(f"active context holds {len(values)} keys; allowed are {KEYS_MAX}: reuse or end one")
            if size + len(encoded.encode()) > CONVERSATION_BYTES_MAX:
                raise BadInput(f"active context would hold over {CONVERSATION_BYTES_MAX} bytes; shorten a value")
            values[key] = _Value(encoded, expires_at)

    def values(self, scope: Scope) -> dict[str, tuple[Json, datetime]]:
        """Return key -> (value, expires_at) of everything alive in this conversation."""
        with self._lock:
            _, values = self._caches.get(_key(scope), (scope, {}))
            _drop_expired(values, self._clock.now())
            return {key: (value.decoded(), value.expires_at) for key, value in values.items()}

    @contextmanager
    def take(self, scope: Scope) -> Iterator[dict[str, Json]]:
        """Yield and remove everything alive in this conversation; put it back if the body fails.

        What was set meanwhile wins over what is put back.
        """
        with self._lock:
            _, taken = self._caches.pop(_key(scope), (scope, {}))
            _drop_expired(taken, self._clock.now())
        try:
            yield {key: value.decoded() for key, value in taken.items()}
        except BaseException:
            if taken:
                with self._lock:
                    values = self._cache_of(scope)
                    values.update({key: value for key, value in taken.items() if key not in values})
            raise
        with self._lock:
            self._ended[_key(scope)] = self._clock.now()

    def ended_at(self, scope: Scope) -> datetime | None:
        """Return when this conversation was last ended in this process, whether it had values or not."""
        with self._lock:
            return self._ended.get(_key(scope))

    def drop(self, matches: Callable[[str, str], bool]) -> int:
        """Remove every value whose key and JSON text match, in all conversations; return how many there were."""
        with self._lock:
            held = [(values, key, value) for _, values in self._caches.values() for key, value in values.items()]
            matching = [(values, key) for values, key, value in held if matches(key, value.encoded)]
            for values, key in matching:
                values.pop(key, None)
            return len(matching)

    def scopes(self) -> list[Scope]:
        """Return the conversations that have anything alive."""
        now = self._clock.now()
        with self._lock:
            for _, values in self._caches.values():
                _drop_expired(values, now)
            self._caches = {key: entry for key, entry in self._caches.items() if entry[1]}
            return [scope for scope, _ in self._caches.values()]

    def _cache_of(self, scope: Scope) -> TTLCache[str, _Value]:
        """Return the conversation's values, an empty cache for a new one; the caller holds the lock."""
        cache: TTLCache[str, _Value] = TTLCache(KEYS_MAX, SESSION_TTL_S, timer=lambda: self._clock.now().timestamp())
        return self._caches.setdefault(_key(scope), (scope, cache))[1]

    def _evict_oldest(self, scope: Scope) -> None:
        """End the oldest conversation when this one would be one too many."""
        with self._lock:
            if _key(scope) in self._caches or len(self._caches) < CONVERSATIONS_MAX:
                return
            oldest = next(iter(self._caches.values()))[0]
        with self.take(oldest) as values:
            self._on_evict(oldest, values)


def _drop_expired(values: MutableMapping[str, _Value], now: datetime) -> None:
    for key in [key for key, value in values.items() if value.expires_at <= now]:
        values.pop(key, None)


def _key(scope: Scope) -> tuple[str, str, str, str]:
    return (scope.account, scope.project, scope.user, scope.conversation)
