"""An embedder that never embeds the same text twice while it remembers it.

A fact is embedded once and then compared with its neighbours by the same row; a client that asks the same question
again pays nothing. Rows are kept per role and text hash, newest last, bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cachetools import LRUCache

from memory_anchor.hashing import stable_hash

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

ROWS_KEPT = 2_048
"""3 MB at 384 dimensions."""


class RememberingEmbedder:
    def __init__(self, inner: Embedder, *, rows_kept: int = ROWS_KEPT) -> None:
        self._inner = inner
        self.identity = inner.identity
        self._lock = threading.Lock()
        self._rows: LRUCache[str, Matrix] = LRUCache(rows_kept)

    def available(self) -> bool:
        return self._inner.available()

    def documents(self, texts: Sequence[str]) -> Matrix:
        return self._remembered("document", texts, self._inner.documents)

    def queries(self, texts: Sequence[str]) -> Matrix:
        return self._remembered("query", texts, self._inner.queries)

    def forget(self, query: str) -> None:
        """Let the row of a query go."""
        with self._lock:
            self._rows.pop(stable_hash("query", query), None)

    def _remembered(self, role: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Matrix]) -> Matrix:
        import numpy as np

        keys = [stable_hash(role, text) for text in texts]
        with self._lock:
            known = {key: self._rows[key] for key in keys if key in self._rows}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            known.update(zip(missing, embed(list(missing.values())), strict=True))
            with self._lock:
                self._rows.update((key, known[key]) for key in missing)
        if not keys:
            return embed([])
        return np.stack([known[key] for key in keys])
