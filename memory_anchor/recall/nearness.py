"""How near a question is in meaning to the few texts that are not in the store: L0 entries and passages of L4.

Their rows are made in the background, from when a project is opened, and kept on disk by the hash of the text: what did
not change is embedded once, whatever process asks. A text without a row counts as far, so a question that comes before
the rows is answered by words at once. Only one about L0 may have a few embedded while it waits; it says how many.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache

from memory_anchor.base.hashing import stable_hash
from memory_anchor.base.quarantine import Quarantine, text_key
from memory_anchor.domain.errors import Unavailable
from memory_anchor.recall.centring import Centring, script_of

if TYPE_CHECKING:
    from memory_anchor.domain.ports import Embedder, Matrix, Snapshot

TEXTS_KEPT = 2_000
WAITING_MAX = 2_000
UNREAD_MAX = 100
"""Projects whose texts were not looked at yet."""
SAVED_EVERY = 64
"""New rows after which the file is written though more wait: as many as a kill may cost, some seconds of embedding."""
KEYS, ROWS, EMBEDDER = "keys", "rows", "embedder"


class Nearness:
    """Thread-safe. on_waiting: called when texts wait to be embedded. embedder None: everything is far.

    kept: where rows are for the next process, by the hash of their text; of another embedder they count as none.
    """

    def __init__(
        self,
        embedder: Embedder | None,
        on_waiting: Callable[[], None],
        quarantine: Quarantine,
        kept: Snapshot | None = None,
    ) -> None:
        self._quarantine = quarantine
        self._embedder = embedder
        self._on_waiting = on_waiting
        self._centring = Centring(embedder.identity) if embedder else None
        self._lock = threading.Lock()
        self._rows: LRUCache[str, Matrix] = LRUCache(TEXTS_KEPT)
        """By the hash of the text."""
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._unread: deque[Callable[[], Sequence[str]]] = deque(maxlen=UNREAD_MAX)
        self._kept, self._is_loaded, self._unsaved = kept, False, 0

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
        finally:  # only now: one text is embedded at a time, and those waiting would be first
            self._wake()
        row = self._centring.query(vector, script_of(question))
        return [float(known[text] @ row) if text in known else 0.0 for text in texts]

    def rows(self, texts: Sequence[str]) -> Matrix | None:
        """Return one centred row a text, embedded now; None without an embedder. Raises Unavailable."""
        if self._embedder is None or self._centring is None or not texts:
            return None
        scripts = np.array([script_of(text) for text in texts], dtype=np.int8)
        return self._centring.documents(self._embedder.documents(list(texts)), scripts)

    def prepare(self, texts: Callable[[], Sequence[str]]) -> None:
        """Have the texts that this returns embedded in the background, where it is called too."""
        if self._embedder is not None:
            self._unread.append(texts)
            self._on_waiting()

    def embed_waiting(self, limit: int) -> int:
        """Embed up to `limit` texts that wait; return how many were done. Raises Unavailable."""
        while self._unread and not self._waiting:
            self._known(self._unread.popleft()(), 0)
        with self._lock:
            texts = [self._waiting.popitem(last=False)[0] for _ in range(min(limit, len(self._waiting)))]
        done = len(self._embed(texts))
        if self._unsaved >= SAVED_EVERY or not self._waiting:
            self.save()
        return done

    def save(self) -> None:
        """Write the rows for the next process, if there are new ones."""
        with self._lock:
            if self._kept is not None and self._unsaved and self._rows:
                keys, made_by = np.array(list(self._rows), np.bytes_), np.frombuffer(self._made_by(), np.uint8)
                self._kept.put({KEYS: keys, ROWS: np.stack(list(self._rows.values())), EMBEDDER: made_by})
            self._unsaved = 0

    def clear(self) -> None:
        """Drop every row, here and on disk; they are made again when they are asked for."""
        with self._lock:
            self._rows.clear()
            self._waiting.clear()
            self._unsaved, self._is_loaded = 0, True
            if self._kept is not None:
                self._kept.drop()

    def _wake(self) -> None:
        if self._waiting:
            self._on_waiting()

    def _made_by(self) -> bytes:
        return repr(self._embedder.identity if self._embedder else None).encode()

    def _load(self) -> None:
        """Read the rows of the process before, once. The lock is held."""
        if self._is_loaded or self._kept is None or self._embedder is None:
            return
        self._is_loaded = True
        arrays = self._kept.read() or {}
        if EMBEDDER in arrays and arrays[EMBEDDER].tobytes() == self._made_by():
            rows = arrays[ROWS].astype(np.float32)
            self._rows.update(zip((key.decode() for key in arrays[KEYS].tolist()), rows, strict=True))

    def _known(self, texts: Sequence[str], at_once: int) -> dict[str, Matrix]:
        """Return the rows there are, after up to `at_once` were made; what has none waits. Raises Unavailable."""
        keys = {text: stable_hash(text) for text in texts}
        with self._lock:
            self._load()
            known = {text: self._rows[key] for text, key in keys.items() if key in self._rows}
            missing = [text for text in keys if text not in known]
            for text in missing[at_once:]:
                if len(self._waiting) < WAITING_MAX:
                    self._waiting[text] = None
        return known | self._embed(missing[:at_once])

    def _embed(self, texts: Sequence[str]) -> dict[str, Matrix]:
        """Return each text's row, made now and kept. Raises Unavailable."""
        made: dict[str, Matrix] = {}
        for group in self._quarantine.safe_groups(texts, str):
            with self._quarantine.reading({f"a passage of {text_key(text)[:8]}": text for text in group}):
                rows = self.rows(group)
            made |= {} if rows is None else dict(zip(group, rows, strict=True))
        with self._lock:
            for text, row in made.items():
                self._rows[stable_hash(text)] = row
                self._waiting.pop(text, None)
            self._unsaved += len(made)
        return made
