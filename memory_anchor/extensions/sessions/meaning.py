"""Passages by meaning: a vector of what was said, of the commands where nothing was, and which are near a question.

Vectors are made in the background, newest first, a few between two looks for a request; what waits for one is a table,
so a killed process goes on. Words alone answer until then: a passage without a vector counts as neither near nor far.
Always by a model on this machine, whatever embeds memories: transcripts are sent nowhere. In memory a row takes a byte
a component. Invariant: a vector is of the text that its passage has (both go in one transaction).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from memory_anchor.base.quarantine import Quarantine
from memory_anchor.domain.errors import Unavailable
from memory_anchor.extensions.sessions.archive import SessionsFile, StoredVector
from memory_anchor.extensions.sessions.passages import spoken
from memory_anchor.recall.centring import SCRIPTS, script_of
from memory_anchor.recall.vector_rows import LEVELS, VectorRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory_anchor.domain.ports import Embedder, Matrix

EMBEDDED_AT_ONCE, PIECE = 32, 4
"""Passages embedded between two writes, and between two looks for a request: some 50 ms."""
NEAR, NEAR_LEAST = 100, 0.2
"""Passages of a language that are looked at for their meaning; how near one without a common word is at least."""


class PassageVectors:
    """Thread-safe. The vectors of one archive, by one embedder."""

    def __init__(self, embedder: Embedder, quarantine: Quarantine) -> None:
        self._embedder, self._quarantine = embedder, quarantine
        self._lock = threading.Lock()
        self._rows = VectorRows(embedder.identity, 0)
        self._places: dict[int, int] = {}
        """Of each stored vector, by its id."""
        self._place_of: dict[int, int] = {}
        """Of each passage."""
        self._passages, self._sessions = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._scripts = np.zeros(0, np.int8)
        self._seen = (0, 0)

    @property
    def model(self) -> str:
        return self._embedder.identity.model

    def embed(self, archive: SessionsFile, wait: Callable[[], None]) -> int:
        """Embed some passages that wait; return how many. wait: lets requests go first. Raises Unavailable."""
        made = dict[int, tuple[str, StoredVector | None]]()
        waiting = [(id, spoken(parts)) for id, parts in archive.waiting(self.model, EMBEDDED_AT_ONCE)]
        for start in range(0, len(waiting), PIECE):
            wait()
            piece = waiting[start : start + PIECE]
            made |= {id: (text, None) for id, text in piece}
            for group in self._quarantine.safe_groups([one for one in piece if one[1]], lambda one: one[1]):
                with self._quarantine.reading({f"passage {id} of a session": text for id, text in group}, step="embed"):
                    rows = self._embedder.documents([text for _, text in group])
                for (id, text), row in zip(group, rows, strict=True):
                    made[id] = text, StoredVector(_steps(row), script_of(text))
        archive.keep_vectors(self.model, made)
        return len(made)

    def near(
        self, archive: SessionsFile, query: str, sessions: Collection[int] | None, also: Collection[int]
    ) -> dict[int, float]:
        """Return passage -> centred cosine with a question, less what texts of its language have on average: of the
        nearest, and of others that have a vector.

        sessions: None for all. Empty while nothing is embedded, or nothing can embed the question.
        """
        with self._lock:
            self._follow(archive)
            if not self._place_of:
                return {}
        try:
            row: Matrix = self._embedder.queries([query])[0]
        except Unavailable:
            return {}
        with self._lock:
            centred = self._rows.centring.query(row, script_of(query))
            live = np.fromiter(self._place_of.values(), np.int64, len(self._place_of))
            if sessions is not None:
                live = live[np.isin(self._sessions[live], np.fromiter(sessions, np.int64, len(sessions)))]
            scripts = range(len(SCRIPTS))
            groups = [live[self._scripts[live] == script] for script in scripts]
            nearest = self._rows.nearest(centred, groups, self._scripts, limit=NEAR)
            others = [self._place_of[id] for id in also if id in self._place_of]
            places = np.unique(np.concatenate([nearest, np.asarray(others, np.int64)]))
            levels = np.asarray([self._rows.centring.level(centred, script) for script in scripts], np.float32)
            own = self._scripts[places]
            cosines = self._rows.cosines(centred, places, own) - levels[own]
            found = zip(self._passages[places].tolist(), cosines.tolist(), strict=True)
            return {id: cosine for id, cosine in found if cosine >= NEAR_LEAST or id in also}

    def _follow(self, archive: SessionsFile) -> None:
        """Take in what was stored since, and drop what is gone. The lock is held."""
        state = archive.vectors_state(self.model)
        if state == self._seen:
            return
        gone = self._places.keys() - archive.vector_ids()
        for id in gone:
            place = self._places.pop(id)
            self._rows.clear(np.asarray([place]), self._scripts[[place]])
            if self._place_of.get(passage := int(self._passages[place])) == place:
                del self._place_of[passage]
        after = self._seen[0]
        while new := archive.vectors_after(after):
            first, count = len(self._passages), len(new)
            after = new[-1].id
            rows = np.stack([np.frombuffer(one.steps, np.int8) for one in new]).astype(np.float32)
            rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1)
            self._passages = np.append(self._passages, [one.passage for one in new])
            self._sessions = np.append(self._sessions, [one.session for one in new])
            self._scripts = np.append(self._scripts, np.asarray([one.script for one in new], np.int8))
            self._rows.grow(first + count)
            places = np.arange(first, first + count)
            self._rows.put(places, rows, self._scripts[first:], counts=np.ones(count, dtype=bool))
            for place, one in zip(places.tolist(), new, strict=True):
                self._places[one.id] = self._place_of[one.passage] = place
        self._seen = state


def _steps(row: Matrix) -> bytes:
    """Return a row as it is stored: a byte a component, its length left out."""
    largest = float(np.abs(row).max(initial=0.0)) or 1.0
    steps: NDArray[np.int8] = np.rint(row * (LEVELS / largest)).astype(np.int8)
    return steps.tobytes()
