"""How near a question is in meaning to the few texts that are not in the store: L0 entries and passages of L4.

Their rows are made in the background: a text that is not embedded yet counts as far, so the first question after a file
changed is answered by words, the next one by meaning too. A question that words cannot answer (one in another language)
may have a few embedded while it waits; it says how many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache

from memory_anchor.base.quarantine import Quarantine, text_key
from memory_anchor.errors import Unavailable
from memory_anchor.recall.centring import Centring, script_of

if TYPE_CHECKING:
    from memory_anchor.ports import Embedder, Matrix

TEXTS_KEPT = 2_000
WAITING_MAX = 2_000


class Nearness:
    """Thread-safe. on_waiting: called when texts wait to be embedded. embedder None: everything is far."""

    def __init__(
        self, embedder: Embedder | None, on_waiting: Callable[[], None], quarantine: Quarantine | None = None
    ) -> None:
        self._quarantine = quarantine or Quarantine()
        self._embedder = embedder
        self._on_waiting = on_waiting
        self._centring = Centring(embedder.identity) if embedder else None
        self._lock = threading.Lock()
        self._rows: LRUCache[str, Matrix] = LRUCache(TEXTS_KEPT)
        self._waiting: OrderedDict[str, None] = OrderedDict()

    @property
    def embedder(self) -> str:
        """Return the name of the model that makes the rows, "" without one."""
        return self._embedder.identity.model if self._embedder else ""

    def of(self, question: str, texts: Sequence[str], *, at_once: int = 0) -> list[float]:
        """Return the centred cosine of the question with each text, 0 for those not embedded yet.

        at_once: how many of the texts, the first that have no row, are embedded before this returns (30 ms each).
        """
        if self._embedder is None or self._centring is None:
            return [0.0] * len(texts)
        try:
            known = self._known(texts, at_once)
            if not known:
                return [0.0] * len(texts)
            vector = self._embedder.queries([question])[0]
        except Unavailable:  # they are still found by words
            return [0.0] * len(texts)
        row = self._centring.query(vector, script_of(question))
        return [float(known[text] @ row) if text in known else 0.0 for text in texts]

    def rows(self, texts: Sequence[str]) -> Matrix | None:
        """Return one centred row a text, embedded now; None without an embedder. Raises Unavailable."""
        if self._embedder is None or self._centring is None or not texts:
            return None
        scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
        return self._centring.documents(self._embedder.documents(list(texts)), scripts)

    def embed_waiting(self, limit: int) -> int:
        """Embed up to `limit` texts that wait; return how many were done. Raises Unavailable."""
        with self._lock:
            texts = [self._waiting.popitem(last=False)[0] for _ in range(min(limit, len(self._waiting)))]
        return len(self._embed(texts))

    def _known(self, texts: Sequence[str], at_once: int) -> dict[str, Matrix]:
        """Return the rows there are, after up to `at_once` were made; what has none waits. Raises Unavailable."""
        with self._lock:
            known = {text: self._rows[text] for text in texts if text in self._rows}
            missing = [text for text in dict.fromkeys(texts) if text not in known]
            for text in missing[at_once:]:
                if len(self._waiting) < WAITING_MAX:
                    self._waiting[text] = None
            waits = bool(self._waiting)
        try:
            return known | self._embed(missing[:at_once])
        finally:  # only now: one text is embedded at a time, and those waiting would be first
            if waits:
                self._on_waiting()

    def _embed(self, texts: Sequence[str]) -> dict[str, Matrix]:
        """Return each text's row, made now and kept. Raises Unavailable."""
        made: dict[str, Matrix] = {}
        for group in self._quarantine.safe_groups(texts, str):
            with self._quarantine.reading({f"a passage of {text_key(text)[:8]}": text for text in group}):
                rows = self.rows(group)
            made |= {} if rows is None else dict(zip(group, rows, strict=True))
        with self._lock:
            self._rows.update(made)
            for text in made:
                self._waiting.pop(text, None)
        return made
