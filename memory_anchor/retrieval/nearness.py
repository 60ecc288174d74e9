"""How near a question is in meaning to the few texts that are not in the store: L0 entries and passages of L4.

Their rows are made behind, never while somebody waits: a text that is not embedded yet simply counts as far. The first
question after a file changed is therefore answered by words, the next one by meaning too.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache

from memory_anchor.errors import Unavailable
from memory_anchor.retrieval.centring import Centring, script_of

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

TEXTS_KEPT = 2_000
WAITING_MAX = 2_000


class Nearness:
    """Thread-safe. on_waiting: called when texts wait to be embedded. embedder None: everything is far."""

    def __init__(self, embedder: Embedder | None, on_waiting: Callable[[], None]) -> None:
        self._embedder = embedder
        self._on_waiting = on_waiting
        self._centring = Centring(embedder.identity) if embedder else None
        self._lock = threading.Lock()
        self._rows: LRUCache[str, Matrix] = LRUCache(TEXTS_KEPT)
        self._waiting: OrderedDict[str, None] = OrderedDict()

    def of(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the centred cosine of the question with each text, 0 for those not embedded yet."""
        if self._embedder is None or self._centring is None:
            return [0.0] * len(texts)
        with self._lock:
            known = {text: self._rows[text] for text in texts if text in self._rows}
            for text in texts:
                if text not in known and len(self._waiting) < WAITING_MAX:
                    self._waiting[text] = None
            waits = bool(self._waiting)
        if waits:
            self._on_waiting()
        if not known:
            return [0.0] * len(texts)
        try:
            asked = self._embedder.queries([question])[0]
        except Unavailable:  # words still find them
            return [0.0] * len(texts)
        row = self._centring.query(asked, script_of(question))
        return [float(known[text] @ row) if text in known else 0.0 for text in texts]

    def rows(self, texts: Sequence[str]) -> Matrix | None:
        """Return one centred row a text, embedded now; None without an embedder. Raises Unavailable."""
        if self._embedder is None or self._centring is None or not texts:
            return None
        scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
        return self._centring.documents(self._embedder.documents(list(texts)), scripts)

    def embed_waiting(self, limit: int) -> int:
        """Embed up to `limit` texts that wait; return how many were done. Raises Unavailable."""
        if self._embedder is None or self._centring is None:
            return 0
        with self._lock:
            texts = [self._waiting.popitem(last=False)[0] for _ in range(min(limit, len(self._waiting)))]
        if not texts:
            return 0
        rows = self._centring.documents(
            self._embedder.documents(texts), np.array([script_of(text) for text in texts], dtype=np.int8)
        )
        with self._lock:
            self._rows.update(zip(texts, rows, strict=True))
        return len(texts)
